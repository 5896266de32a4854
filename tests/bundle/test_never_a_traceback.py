"""Whatever stands in a bundle's files, reading it ends in data or in a BundleError, never in another error."""

from __future__ import annotations

import contextlib
import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agent_env.bundle import BundleError, load_bundle
from agent_env.bundle.dockerfile import read_dockerfile
from agent_env.bundle.model import LeftOut, Task
from agent_env.bundle.problems import Problems
from agent_env.bundle.reader import TaskReader
from agent_env.bundle.references import Scope
from agent_env.bundle.steps import STEP_TYPES
from agent_env.bundle.validation import Place
from tests.bundle import good

STEPS = [
    *good.steps(prompt_id="p"),
    good.REPLY,
    good.env_verifier("a"),
    good.total("sum", "said"),
    *(
        {**step, "id": f"box-{index}", "agent_name": "default-agent"}
        for index, step in enumerate([*good.BOX[:2], good.BOX[4]])
    ),
    {"id": "hide", "type": "modify_env_tool_access", "env_id": "shop", "action": "enable", "role": "r", "tools": "*"},
    {"id": "reset", "type": "reset_env", "env_id": "shop"},
]
FIELDS = sorted({field for model in STEP_TYPES.values() for field in model.model_fields} | {"artifact_id"})
WORDS = st.sampled_from(["shop", "check", "stock", "ask", "p", "v-said", "box", "@x", "*", "", " ", *STEP_TYPES])
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=3),
    max_leaves=5,
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in items for found in paths(item, (*path, key)))]


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    *above, last = path
    for part in above:
        value = value[part]
    value[last] = new
    return None


@pytest.fixture(scope="module")
def scope(tmp_path_factory: pytest.TempPathFactory) -> Scope:
    bundle = load_bundle(good.make(tmp_path_factory.mktemp("bundle")))
    return Scope(bundle.name, bundle.envs, {}, bundle.artifacts)


@given(
    st.lists(st.tuples(st.sampled_from(paths(STEPS)[1:]), ODD), max_size=4),
    st.lists(st.tuples(st.integers(0, len(STEPS) - 1), st.sampled_from(FIELDS), ODD), max_size=3),
)
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_steps_are_a_task_or_left_out_or_have_problems(
    scope: Scope, replaced: list[tuple[tuple[Any, ...], Any]], added: list[tuple[int, str, Any]]
) -> None:
    steps = copy.deepcopy(STEPS)
    for path, value in replaced:
        with contextlib.suppress(LookupError, TypeError):  # an earlier replacement took the place away
            put(steps, path, value)
    for index, field, value in added:
        if isinstance(steps[index], dict):
            steps[index][field] = value
    problems = Problems()
    read = TaskReader(scope).read("any", steps, Place("tasks/any.json"), problems)
    if read is None:
        assert problems.found
    else:
        assert isinstance(read, Task | LeftOut)
        assert not problems.found
    if isinstance(read, Task):
        assert read.turns
        assert read.scores


def test_the_steps_that_are_mutated_are_a_task(scope: Scope) -> None:
    assert isinstance(TaskReader(scope).read("any", STEPS, Place(""), Problems()), Task)


LINES = st.sampled_from(good.DOCKERFILE.splitlines()) | st.text(max_size=20)
PARTS = r"""FROM python RUN COPY ADD CMD ENV ARG WORKDIR ENTRYPOINT <<EOF EOF . .. / pip install -r uv -m && | \ ' " [ ]
requirements.txt $A ${A:-b} A=1 --from=x * ** **a [a mkdir"""
WORD = st.sampled_from([*PARTS.split(), "", "\0"])


@given(st.lists(LINES | st.lists(WORD, max_size=6).map(" ".join), max_size=8).map("\n".join))
@example("FROM python\nCOPY [a .")
@example("FROM python\nCOPY **a .")
@example("FROM python\nCOPY a\0 .")
@example('FROM python\nCMD ["python", "\\u0000.py"]')
@example("FROM python\nRUN pip install -r \0")
@example("FROM python\nRUN uv")
@example("FROM python\nCOPY ** /app/")
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_text_is_a_dockerfile_or_has_problems(scope: Scope, text: str) -> None:
    problems = Problems()
    result = read_dockerfile(text, scope.envs["shop"].folder, "Dockerfile", problems)
    assert result.command or result.needs_docker or problems.found


FILES = [
    "aliases.toml",
    "README.md",
    "envs/shop/Dockerfile",
    "envs/shop/env.toml",
    "envs/shop/requirements.txt",
    "envs/shop/server.py",
    "artifacts/check/verify.py",
    "artifacts/stock/artifact.toml",
    "tasks/first.json",
    "tasks/more.jsonl",
    "evals/some.toml",
]
KEYS = st.sampled_from(["tasks", "type", "id", "image", "environment_name", "file", "envs", "agents", "shop", "name"])


@given(st.sampled_from(FILES), st.binary(max_size=30) | st.dictionaries(KEYS, ODD, max_size=3))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_file_is_read_or_has_problems(tmp_path: Path, path: str, content: bytes | dict[str, Any]) -> None:
    folder = tmp_path / "shop-v1"
    if not folder.exists():
        good.make(tmp_path)
    before = (folder / path).read_bytes() if (folder / path).exists() else None
    if isinstance(content, dict):  # JSON's arrays, texts and numbers are TOML's too
        lines = [f"{key} = {json.dumps(value)}".replace(": ", " = ") for key, value in content.items()]
        content = "\n".join(lines).encode("utf-8", "replace")
    (folder / path).write_bytes(content)
    try:
        with contextlib.suppress(BundleError):
            load_bundle(folder)
    finally:
        if before is None:
            (folder / path).unlink()
        else:
            (folder / path).write_bytes(before)
