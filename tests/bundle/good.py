"""A small bundle in which every feature of the reader occurs, to load and to break; and steps to put in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["BOX", "REPLY", "change", "env_verifier", "make", "play", "steps", "total"]

DOCKERFILE = """\
FROM python:3.11-slim
WORKDIR /app
COPY requirements.txt .
RUN pip install --no-cache-dir -r requirements.txt
COPY . .
USER nobody
ENV GREETING="hello there" MODE=fast
EXPOSE 18765
CMD ["python", "server.py"]
"""

VERIFY = """\
async def verify(mcp_url):
    return [{"result": True, "score": 1.0}]
"""

BOX: list[dict[str, Any]] = [
    {"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm", "sandbox_type": "local"},
    {
        "id": "load",
        "type": "load_artifact",
        "sandbox_name": "box",
        "artifact_id": "check",
        "destination_path": "/app/x",
    },
    {"id": "agent", "type": "deploy_agent", "sandbox_name": "box"},
    {"id": "ask", "type": "prompt_agent", "prompt": "Write a file."},
    {
        "id": "files",
        "type": "verify_sandbox",
        "sandbox_name": "box",
        "criteria": [
            {"type": "probe_file_exists", "paths": ["x"]},
            {"type": "probe_dir_exists", "paths": ["/app"]},
            {"type": "probe_file_contains", "paths": ["x"], "value": "a+"},
            {"type": "bash_cmd_succeeds", "bash_cmd": "true", "criterion": "works"},
        ],
    },
]
"""The steps of a task whose agent works in a sandbox, without an env."""

REPLY: dict[str, Any] = {
    "id": "said",
    "type": "agent_prompt_response_verifier",
    "prompt_id": "p",
    "verifier_id": "v-said",
    "criteria": [
        {"type": "response_contains", "needles": ["sold"], "weight": 2},
        {"type": "response_regex_present", "pattern": "^s", "flags": ["IGNORECASE"], "criterion": "starts with s"},
    ],
}
"""A step that judges what the agent said to the prompt `p`."""


def steps(**prompt: Any) -> list[dict[str, Any]]:
    """One playable task's steps: seed, configure, one turn, one score."""
    return [
        {"id": "env", "type": "deploy_env", "env_id": "shop"},
        {"id": "seed", "type": "load_artifact", "env_id": "shop", "artifact_id": "stock"},
        {
            "id": "day",
            "type": "apply_server_config",
            "env_id": "shop",
            "directives": [{"service": "shop", "uri": "urn:shop:day/v1", "args": {"day": 3}}],
        },
        {"id": "agent", "type": "deploy_agent", "env_ids": ["shop"]},
        {"id": "ask", "type": "prompt_agent", "prompt": "Sell it.", "system_prompt": "You sell.", **prompt},
        {
            "id": "sold",
            "type": "env_outcome_verifier",
            "env_id": "shop",
            "file_artifact_id": "check",
            "verifier_id": "sold",
            "score_aggregator": "weighted_average",
        },
    ]


def change(index: int, **fields: Any) -> list[dict[str, Any]]:
    """The good steps with fields of one set; a field set to `...` is removed."""
    changed = steps()
    for name, value in fields.items():
        if value is ...:
            del changed[index][name]
        else:
            changed[index][name] = value
    return changed


def env_verifier(name: str) -> dict[str, Any]:
    """A step that judges the env at the end, with the verifier id `v-NAME`."""
    return {
        "id": name,
        "type": "env_outcome_verifier",
        "env_id": "shop",
        "file_artifact_id": "check",
        "verifier_id": f"v-{name}",
    }


def total(name: str, *verifiers: str) -> dict[str, Any]:
    """A step that makes one score of these verifiers'."""
    ids = [f"v-{verifier}" for verifier in verifiers]
    return {"id": name, "type": "aggregate_verifiers", "verifier_ids": ids}


def make(root: Path, name: str = "shop-v1") -> Path:
    """Write the bundle into `root` and return its folder."""
    folder = root / name
    files = {
        "README.md": "# Shop\n\nSells things.\n",
        "aliases.toml": '[envs]\nshop = ["store"]\n',
        "envs/shop/Dockerfile": DOCKERFILE,
        "envs/shop/requirements.txt": "httpx>=0.27\n",
        "envs/shop/server.py": '@environment_card(name="shop")\nclass Shop: ...\n',
        "artifacts/check/verify.py": VERIFY,
        "artifacts/stock/artifact.toml": 'type = "environment"\nenvironment_name = "shop"\nfile = "stock.json"\n',
        "artifacts/stock/stock.json": '{"apples": 3}',
        "tasks/first.json": json.dumps(steps()),
        "tasks/more.jsonl": "".join(
            json.dumps({"name": f"more-{n}", "steps": steps(prompt=f"Sell {n}.")}) + "\n" for n in range(3)
        ),
        "evals/some.toml": 'tasks = ["more-2", "first"]\n',
        "evals/train.toml": 'tasks = ["more"]\n',
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def play(root: Path, task: list[dict[str, Any]]) -> Path:
    """The bundle with one task in place of its own."""
    folder = make(root)
    for path in (folder / "tasks").iterdir():
        path.unlink()
    for path in (folder / "evals").iterdir():
        path.unlink()
    (folder / "tasks" / "only.json").write_text(json.dumps(task), encoding="utf-8")
    return folder
