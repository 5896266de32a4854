"""Bundles whose task files are broken: as JSON, in a step, in what the steps refer to, in a line."""

from __future__ import annotations

import os

from agent_env.bundle.strict import MAX_FILE_BYTES
from tests.bundle import good
from tests.bundle.malformed.breaks import (
    FIRST,
    MORE,
    Break,
    Found,
    line,
    lines,
    steps,
    task,
    write,
)

TASKS: dict[str, tuple[Break, list[Found]]] = {
    # JSON
    "task is no JSON": (write(FIRST, "[{,}]"), [Found(FIRST, "line 1 column 3", "not valid JSON")]),
    "task is empty": (write(FIRST, ""), [Found(FIRST, "line 1 column 1", "not valid JSON")]),
    "task with a repeated key": (
        write(FIRST, '[{"id": "a", "id": "b", "type": "reset_env"}]'),
        [Found(FIRST, "[0].id", "more than once")],
    ),
    "task with NaN and an infinity": (
        write(FIRST, '[{"id": "a", "type": "x", "n": NaN, "m": [1e999]}]'),
        [Found(FIRST, "[0].n", "NaN"), Found(FIRST, "[0].m[0]", "1e999")],
    ),
    "task that nests too deep": (write(FIRST, "[" * 100_000), [Found(FIRST, "", "nested more than")]),
    "task with half a surrogate": (write(FIRST, r'[{"id": "\ud800", "type": "x"}]'), [Found(FIRST, "[0].id", "half")]),
    "task in Latin-1": (write(FIRST, b'[\n"\xe9"]'), [Found(FIRST, "line 2", "0xe9 is not UTF-8")]),
    "task with a byte order mark": (write(FIRST, b"\xef\xbb\xbf[]"), [Found(FIRST, "line 1", "byte order mark")]),
    "task with a huge integer": (write(FIRST, "[" + "9" * 5000 + "]"), [Found(FIRST, "", "4300 digits")]),
    "task that is too large": (write(FIRST, b" " * (MAX_FILE_BYTES + 1)), [Found(FIRST, "", "larger than 8 MiB")]),
    "task is a FIFO": (
        lambda folder: os.mkfifo(folder / "tasks" / "pipe.json"),
        [Found("tasks/pipe.json", "", "neither a file nor a folder")],
    ),
    # Steps
    "task is an object": (write(FIRST, "{}"), [Found(FIRST, "", "the steps are an object")]),
    "task without steps": (write(FIRST, "[]"), [Found(FIRST, "", "no steps")]),
    "step is a text": (write(FIRST, '["x"]'), [Found(FIRST, "[0]", "the step is 'x'")]),
    "step without id and type": (
        write(FIRST, "[{}]"),
        [Found(FIRST, "[0].id", "missing"), Found(FIRST, "[0].type", "missing")],
    ),
    "id is a number": (task(0, id=7), [Found(FIRST, "[0].id", "it is 7")]),
    "type is null": (task(0, type=None), [Found(FIRST, "[0].type", "it is null")]),
    "two steps of one id": (task(1, id="env"), [Found(FIRST, "[1].id", "taken by an earlier step")]),
    "field is missing": (task(0, env_id=...), [Found(FIRST, "[0].env_id", "missing")]),
    "required field is null": (task(5, env_id=None), [Found(FIRST, "[5].env_id", "missing")]),
    "field is of another type": (task(3, env_ids="shop"), [Found(FIRST, "[3].env_ids", "it is 'shop'")]),
    "number as a text": (task(2, timeout_seconds="30"), [Found(FIRST, "[2].timeout_seconds", "it is '30'")]),
    "negative time": (task(2, timeout_seconds=-1), [Found(FIRST, "[2].timeout_seconds", "-1")]),
    "no directives": (task(2, directives=[]), [Found(FIRST, "[2].directives", "empty")]),
    "directive without uri": (
        task(2, directives=[{"service": "shop"}]),
        [Found(FIRST, "[2].directives[0].uri", "missing")],
    ),
    "two faults in one step": (
        task(4, prompt=3, prompt_id=[]),
        [Found(FIRST, "[4].prompt", "it is 3"), Found(FIRST, "[4].prompt_id", "an array")],
    ),
    "prompt and parts": (task(4, parts=[]), [Found(FIRST, "[4]", "either prompt or parts")]),
    "no prompt": (task(4, prompt=...), [Found(FIRST, "[4]", "either prompt or parts")]),
    "unknown aggregator": (task(5, score_aggregator="mean"), [Found(FIRST, "[5].score_aggregator", "'mean'")]),
    "loads nothing": (task(1, artifact_id=...), [Found(FIRST, "[1]", "loads nothing")]),
    "loads nowhere": (task(1, env_id=...), [Found(FIRST, "[1]", "loads nowhere")]),
    "loads one artifact twice": (task(1, artifacts=[{"id": "stock"}]), [Found(FIRST, "[1]", "both artifact_id")]),
    # References and order
    "unknown env": (
        task(0, env_id="shpo"),
        [Found(FIRST, "[0].env_id", "no env 'shpo'")],
    ),
    "unknown env of the agent": (task(3, env_ids=["shop", "mall"]), [Found(FIRST, "[3].env_ids[1]", "no env 'mall'")]),
    "unknown artifact": (
        task(5, file_artifact_id="chek"),
        [Found(FIRST, "[5].file_artifact_id", "no artifact 'chek'")],
    ),
    "env that isn't deployed": (
        steps(lambda s: s.pop(0)),
        [
            Found(FIRST, "[0].env_id", "not deployed before"),
            Found(FIRST, "[1].env_id", "not deployed before"),
            Found(FIRST, "[2].env_ids[0]", "not deployed before"),
            Found(FIRST, "[4].env_id", "not deployed before"),
        ],
    ),
    "env that is deployed twice": (
        steps(lambda s: s.insert(1, {**s[0], "id": "again"})),
        [Found(FIRST, "[1].env_id", "deployed already")],
    ),
    "prompt before its agent": (
        steps(lambda s: s.insert(0, s.pop(4))),
        [Found(FIRST, "[0].agent_name", "not deployed before")],
    ),
    "depends on an unknown step": (task(3, depends_on=["evn"]), [Found(FIRST, "[3].depends_on[0]", "no step 'evn'")]),
    "depends on itself": (task(3, depends_on=["agent"]), [Found(FIRST, "[3].depends_on", "wait for each other")]),
    "steps that wait for each other": (
        steps(lambda s: (s[0].update(depends_on=["day"]), s[2].update(depends_on=["env"]))),
        [Found(FIRST, "[0].depends_on", "'env' and 'seed' and 'day'")],
    ),
    "depends_on is a text": (task(3, depends_on="env"), [Found(FIRST, "[3].depends_on", "it is 'env'")]),
    "unknown prompt": (task(5, prompt_id="ask"), [Found(FIRST, "[5].prompt_id", "no prompt before")]),
    "two prompts of one id": (
        steps(lambda s: (s[4].update(prompt_id="p"), s.insert(5, {**s[4], "id": "again"}))),
        [Found(FIRST, "[5].prompt_id", "taken by an earlier prompt")],
    ),
    "two verifiers of one id": (
        steps(lambda s: s.append({**s[5], "id": "again"})),
        [Found(FIRST, "[6].verifier_id", "taken by an earlier step")],
    ),
    "aggregate of an unknown verifier": (
        steps(lambda s: s.append({"id": "sum", "type": "aggregate_verifiers", "verifier_ids": ["sold", "kept"]})),
        [Found(FIRST, "[6].verifier_ids[1]", "'kept'")],
    ),
    "aggregate of nothing": (
        steps(lambda s: s.append({"id": "sum", "type": "aggregate_verifiers", "verifier_ids": []})),
        [Found(FIRST, "[6].verifier_ids", "empty")],
    ),
    "aggregate of an aggregate": (
        steps(
            lambda s: s.extend(
                {"id": f"sum{n}", "type": "aggregate_verifiers", "verifier_id": f"v{n}", "verifier_ids": [before]}
                for n, before in enumerate(["sold", "v0"])
            )
        ),
        [Found(FIRST, "[7].verifier_ids[0]", "an aggregate")],
    ),
    "reply criterion of an unknown type": (
        steps(
            lambda s: s.append(
                {"id": "r", "type": "agent_prompt_response_verifier", "prompt_id": "p", "criteria": [{"type": "nice"}]}
            )
        ),
        [Found(FIRST, "[6].criteria[0]", "'nice' is no type of criterion")],
    ),
    "criterion that is no regular expression": (
        steps(
            lambda s: s.append(
                {
                    "id": "r",
                    "type": "agent_prompt_response_verifier",
                    "prompt_id": "p",
                    "criteria": [{"type": "response_regex_present", "pattern": "(", "flags": ["LOUD"]}],
                }
            )
        ),
        [
            Found(FIRST, "[6].criteria[0].pattern", "no regular expression"),
            Found(FIRST, "[6].criteria[0].flags", "'LOUD'"),
        ],
    ),
    "sandbox that isn't deployed": (
        steps(
            lambda s: s.append(
                {
                    "id": "v",
                    "type": "verify_sandbox",
                    "sandbox_name": "box",
                    "criteria": [{"type": "bash_cmd_succeeds", "bash_cmd": "true"}],
                }
            )
        ),
        [Found(FIRST, "[6].sandbox_name", "not deployed before")],
    ),
    # Lines
    "line is no JSON": (lines("{", line()), [Found(MORE, "line 1: column 2", "not valid JSON")]),
    "line in the middle is no JSON": (lines(line(), "nope"), [Found(MORE, "line 2: column 1", "not valid JSON")]),
    "line is an array": (lines([]), [Found(MORE, "line 1", "no object")]),
    "line without a name": (lines({"steps": good.steps()}), [Found(MORE, "line 1: name", "no name")]),
    "line without steps": (lines({"name": "one"}), [Found(MORE, "line 1: steps", "missing")]),
    "line with an unknown key": (lines(line(stepz=[])), [Found(MORE, "line 1: stepz", "no key")]),
    "line whose replayable is a text": (lines(line(replayable="no")), [Found(MORE, "line 1: replayable", "neither")]),
    "line whose tags are a list": (lines(line(tags=["x"])), [Found(MORE, "line 1: tags", "no object of texts")]),
    "line with a repeated key": (
        lines('{"name": "one", "steps": [{"id": "a", "id": "a"}]}'),
        [Found(MORE, "line 1: steps[0].id", "more than once")],
    ),
    "two lines of one name": (lines(line(), line()), [Found(MORE, "line 2: name", "taken by an earlier task")]),
    "line with a task file's name": (lines(line(name="first")), [Found(MORE, "line 1: name", "taken")]),
    "line with a broken step": (
        lines(line(name="fine"), line(steps=good.change(0, env_id=3))),
        [Found(MORE, "line 2: steps[0].env_id", "it is 3")],
    ),
    "no lines": (lines(), [Found(MORE, "", "the file is empty")]),
    "line that is too long": (lines(line(), " " * (MAX_FILE_BYTES + 1)), [Found(MORE, "line 2", "longer than 8 MiB")]),
}
