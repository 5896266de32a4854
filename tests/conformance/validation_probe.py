"""Runs the official validators of openenv 0.10.0 on a server: `validation_probe.py URL`. Prints a JSON object of
check -> "" or what it found, from `openenv validate --url` (level one) and the runtime graders (level two).
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

from openenv.cli._validation import validate_running_environment
from openenv.validation.graders.runtime.basic import (
    ObservationSchemaGrader,
    RewardWellFormedGrader,
    StateContractGrader,
)
from openenv.validation.runtime.collector import collect_runtime_evidence
from openenv.validation.runtime.contracts import RuntimePlan, RuntimeReset


def main() -> None:
    url, calls = sys.argv[1], json.loads(sys.argv[2])
    found = {}
    report = validate_running_environment(url, 30.0)
    for criterion in report["criteria"]:
        found[criterion["id"]] = "" if criterion["passed"] else json.dumps(criterion)
    plan = RuntimePlan(
        plan_schema_version="1",
        reset=RuntimeReset(episode_id="validated", seed=3, options={}),
        actions=[{"type": "list_tools"}, *calls],
    )
    evidence = collect_runtime_evidence(url, plan, episode_timeout_s=60)
    found["collected"] = evidence.failure_reason or ""
    subject = SimpleNamespace(
        runtime_evidence=evidence, manifest=SimpleNamespace(reward=SimpleNamespace(range=(0.0, 1.0)))
    )
    for grader in (ObservationSchemaGrader(), StateContractGrader(), RewardWellFormedGrader()):
        result = grader.run(subject)
        found[grader.check_id] = (
            "" if result.status.value == "pass" else "; ".join(result.evidence) or result.status.value
        )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
