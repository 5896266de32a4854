"""A corpus of broken bundles, each made from the good one: every problem is found, with its file and place."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agent_env.bundle import BundleError, load_bundle
from agent_env.bundle.strict import MAX_FILE_BYTES
from tests.bundle import good


class Found(NamedTuple):
    """A problem that is expected: `what` is a part of its text."""

    file: str
    place: str
    what: str


Break = Callable[[Path], Any]


def write(path: str, text: str | bytes) -> Break:
    def breaks(folder: Path) -> None:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(text if isinstance(text, bytes) else text.encode())

    return breaks


def rename(old: str, new: str) -> Break:
    return lambda folder: (folder / old).rename(folder / new)


def copy(old: str, new: str) -> Break:
    def breaks(folder: Path) -> None:
        (shutil.copytree if (folder / old).is_dir() else shutil.copy)(folder / old, folder / new)

    return breaks


def remove(path: str) -> Break:
    return lambda folder: (folder / path).unlink()


def task(index: int, **fields: Any) -> Break:
    """Break one step of tasks/first.json."""
    return write("tasks/first.json", json.dumps(good.change(index, **fields)))


def steps(change: Callable[[list[dict[str, Any]]], Any]) -> Break:
    def breaks(folder: Path) -> None:
        changed = good.steps()
        change(changed)
        (folder / "tasks" / "first.json").write_text(json.dumps(changed))

    return breaks


def lines(*values: Any) -> Break:
    """Replace tasks/more.jsonl; a text is a line as it is."""
    texts = [value if isinstance(value, str) else json.dumps(value) for value in values]

    def breaks(folder: Path) -> None:
        (folder / "tasks" / "more.jsonl").write_text("".join(f"{text}\n" for text in texts))
        (folder / "evals" / "some.toml").unlink()

    return breaks


def line(**fields: Any) -> dict[str, Any]:
    return {"name": "one", "steps": good.steps(), **fields}


def dockerfile(old: str, new: str) -> Break:
    return write("envs/shop/Dockerfile", good.DOCKERFILE.replace(old, new))


FIRST = "tasks/first.json"
MORE = "tasks/more.jsonl"
SHOP = "envs/shop/Dockerfile"

CORPUS: dict[str, tuple[Break, list[Found]]] = {
    # The folder
    "manifest": (write("bundle.toml", ""), [Found("bundle.toml", "", "no manifest")]),
    "manifest in capitals": (write("BUNDLE.toml", ""), [Found("BUNDLE.toml", "", "no manifest")]),
    "kind in capitals": (rename("skills", "Skills"), [Found("Skills", "", "spelled 'skills'")]),
    "aliases in capitals": (rename("aliases.toml", "Aliases.toml"), [Found("Aliases.toml", "", "spelled")]),
    "kind is a file": (write("agents", ""), [Found("agents", "", "it is a file")]),
    "aliases is a folder": (
        lambda folder: [remove("aliases.toml")(folder), (folder / "aliases.toml").mkdir()],
        [Found("aliases.toml", "", "not a file")],
    ),
    "task ending in capitals": (copy(FIRST, "tasks/x.JSON"), [Found("tasks/x.JSON", "", "spelled '.json'")]),
    "task is a folder": (write("tasks/x/steps.json", "[]"), [Found("tasks/x", "", "it is a folder")]),
    "eval ending in capitals": (copy("evals/some.toml", "evals/x.Toml"), [Found("evals/x.Toml", "", "'.toml'")]),
    "eval is a folder": (write("evals/x/y.toml", ""), [Found("evals/x", "", "it is a folder")]),
    "names that differ by case": (
        copy("envs/shop", "envs/Shop"),
        [Found("envs/shop", "", "differ only by case")],
    ),
    "names that differ by Unicode form": (
        lambda folder: [
            write(f"tasks/{name}.json", json.dumps(good.steps()))(folder) for name in ("d\u00eda", "di\u0301a")
        ],
        [Found("tasks/d\u00eda.json", "", "are the same")],
    ),
    "a json and a jsonl file of one name": (
        copy(FIRST, "tasks/more.json"),
        [Found("tasks/more.jsonl", "", "are the same")],
    ),
    "unprintable name": (write("tasks/a\nb.json", "[]"), [Found(r"tasks/a\nb.json", "", "can't be shown")]),
    "artifact and skill of one name": (
        write("skills/check/SKILL.md", ""),
        [Found("skills/check", "", "are the same")],
    ),
    "reserved artifact name": (
        copy("artifacts/stock", "artifacts/old__stock"),
        [Found("artifacts/old__stock", "", "reserved")],
    ),
    "dangling link among envs": (
        lambda folder: (folder / "envs" / "gone").symlink_to("nowhere"),
        [Found("envs/gone", "", "link to nothing")],
    ),
    # aliases.toml
    "aliases is no TOML": (write("aliases.toml", "[envs\n"), [Found("aliases.toml", "line 1 column 6", "TOML")]),
    "alias of no env": (write("aliases.toml", "[envs]\nmall = ['x']"), [Found("aliases.toml", "envs.mall", "no env")]),
    "alias is no list": (write("aliases.toml", "[envs]\nshop = 'x'"), [Found("aliases.toml", "envs.shop", "no list")]),
    "unknown alias table": (write("aliases.toml", "[tasks]\n"), [Found("aliases.toml", "tasks", "no table of")]),
    "alias table is a text": (write("aliases.toml", "envs = 'x'\n"), [Found("aliases.toml", "envs", "is no table")]),
    # envs
    "env without anything": (remove(SHOP), [Found("envs/shop", "", "neither Dockerfile nor env.toml")]),
    "dockerfile in lower case": (
        rename(SHOP, "envs/shop/dockerfile"),
        [Found("envs/shop/dockerfile", "", "spelled 'Dockerfile'")],
    ),
    "env.toml in capitals": (write("envs/shop/Env.toml", ""), [Found("envs/shop/Env.toml", "", "'env.toml'")]),
    "env.toml is no TOML": (
        write("envs/shop/env.toml", "type = \n"),
        [Found("envs/shop/env.toml", "line 1 column 8", "not valid TOML")],
    ),
    "env.toml repeats a key": (
        write("envs/shop/env.toml", "type = 'mcp_server'\ntype = 'mcp_server'\n"),
        [Found("envs/shop/env.toml", "line 2 column 20", "overwrite")],
    ),
    "env.toml with an unknown key": (
        write("envs/shop/env.toml", "enviroment_name = 'shop'\n"),
        [Found("envs/shop/env.toml", "enviroment_name", "no key")],
    ),
    "environment_name is a number": (
        write("envs/shop/env.toml", "environment_name = 3\n"),
        [Found("envs/shop/env.toml", "environment_name", "not a text")],
    ),
    "env with a store's id": (
        write("envs/shop/env.toml", "id = '@public/shop'\n"),
        [Found("envs/shop/env.toml", "id", "no id")],
    ),
    "image of no artifact": (
        write("envs/shop/env.toml", "image = 'chek'\n"),
        [Found("envs/shop/env.toml", "image", "no docker_image artifact")],
    ),
    "image without ref": (
        write("envs/shop/env.toml", "image = { name = 'x' }\n"),
        [Found("envs/shop/env.toml", "image", "names no image")],
    ),
    "env that doesn't start": (
        lambda folder: [
            (folder / SHOP).rename(folder / "envs/shop/env.toml"),
            (folder / "envs/shop/env.toml").write_text(""),
            (folder / "envs/shop/server.py").unlink(),
        ],
        [Found("envs/shop", "", "doesn't say how the server starts")],
    ),
    # Dockerfiles
    "no FROM": (dockerfile("FROM", "#"), [Found(SHOP, "line 2", "doesn't begin with FROM")]),
    "empty Dockerfile": (write(SHOP, ""), [Found(SHOP, "line 1", "doesn't begin with FROM")]),
    "FROM nothing": (dockerfile(" python:3.11-slim", ""), [Found(SHOP, "line 1", "names no image")]),
    "no such instruction": (dockerfile("EXPOSE", "EXPOES"), [Found(SHOP, "line 8", "EXPOES")]),
    "no command": (dockerfile("CMD", "# CMD"), [Found(SHOP, "line 8", "doesn't say how")]),
    "command in single quotes": (dockerfile('"server.py"', "'server.py'"), [Found(SHOP, "line 9", "no JSON array")]),
    "command of a missing file": (dockerfile("server.py", "main.py"), [Found(SHOP, "line 9", "starts main.py")]),
    "copy of a missing file": (dockerfile("COPY requirements.txt", "COPY reqs.txt"), [Found(SHOP, "line 3", "reqs")]),
    "copy of nothing": (dockerfile("COPY . .", "COPY ."), [Found(SHOP, "line 5", "a source and a destination")]),
    "copy from above": (dockerfile("COPY . .", "COPY ../x ."), [Found(SHOP, "line 5", "no such file")]),
    "environment without =": (dockerfile("MODE=fast", "MODE"), [Found(SHOP, "line 7", "'MODE' is no NAME=value")]),
    "quote left open": (dockerfile('there"', "there"), [Found(SHOP, "line 7", "quotes")]),
    "Dockerfile in Latin-1": (write(SHOP, "# \xe9\n".encode("latin-1")), [Found(SHOP, "line 1", "not UTF-8")]),
    # artifacts
    "artifact without files": (
        lambda folder: (folder / "artifacts" / "none").mkdir(),
        [Found("artifacts/none", "", "no file")],
    ),
    "artifact.toml in capitals": (
        rename("artifacts/stock/artifact.toml", "artifacts/stock/Artifact.toml"),
        [Found("artifacts/stock/Artifact.toml", "", "spelled 'artifact.toml'")],
    ),
    "artifact.toml is no TOML": (
        write("artifacts/stock/artifact.toml", "type"),
        [Found("artifacts/stock/artifact.toml", "the end", "not valid TOML")],
    ),
    "artifact with an unknown key": (
        write("artifacts/check/artifact.toml", "typ = 'file'"),
        [Found("artifacts/check/artifact.toml", "typ", "no key")],
    ),
    "skill among artifacts": (
        write("artifacts/read/SKILL.md", ""),
        [Found("artifacts/read", "", "looks like a skill")],
    ),
    "file artifact of two files": (
        lambda folder: [
            write("artifacts/check/artifact.toml", "type = 'file'")(folder),
            write("artifacts/check/more.py", "")(folder),
        ],
        [Found("artifacts/check/artifact.toml", "type", "here are 2")],
    ),
    "seed of no env": (
        write("artifacts/stock/artifact.toml", "type = 'environment'"),
        [Found("artifacts/stock/artifact.toml", "environment_name", "missing")],
    ),
    "seed from a missing file": (
        write("artifacts/stock/artifact.toml", "type = 'environment'\nenvironment_name = 'shop'\nfile = 'stok.json'"),
        [Found("artifacts/stock/artifact.toml", "file", "no file 'stok.json'")],
    ),
    "verifier of two files": (
        write("artifacts/check/other.py", ""),
        [
            Found(FIRST, "[5].file_artifact_id", "no verifier"),
            *(Found(MORE, f"line {n}: steps[5].file_artifact_id", "no verifier") for n in (1, 2, 3)),
        ],
    ),
    "alias that is another env": (
        lambda folder: [
            copy("envs/shop", "envs/mall")(folder),
            write("aliases.toml", "[envs]\nshop = ['mall', 'store', 'shop']\nmall = ['store']")(folder),
        ],
        [Found("aliases.toml", "envs.mall", "'store' names"), Found("aliases.toml", "envs.shop", "'mall' names")],
    ),
    "artifact with a loop of links": (
        lambda folder: (folder / "artifacts/check/again").symlink_to("."),
        [Found("artifacts/check/again", "", "link to a folder around it")],
    ),
    "artifact with a FIFO": (
        lambda folder: os.mkfifo(folder / "artifacts/check/pipe"),
        [Found("artifacts/check/pipe", "", "neither a file nor a folder")],
    ),
    "verifier with a syntax error": (
        write("artifacts/check/verify.py", "async def verify(mcp_url)\n"),
        [Found("artifacts/check/verify.py", "line 1", "not valid Python")],
    ),
    "verifier that is too large": (
        write("artifacts/check/verify.py", b"#" * (MAX_FILE_BYTES + 1)),
        [Found("artifacts/check/verify.py", "", "larger than 8 MiB")],
    ),
    "required field is null": (task(5, env_id=None), [Found(FIRST, "[5].env_id", "missing")]),
    "verifier without verify": (
        write("artifacts/check/verify.py", "def check(): ...\n"),
        [Found("artifacts/check/verify.py", "", "defines no verify")],
    ),
    "verifier that isn't one": (
        task(5, file_artifact_id="stock"),
        [Found(FIRST, "[5].file_artifact_id", "no verifier")],
    ),
    "seed that is a file": (task(1, artifact_id="check"), [Found(FIRST, "[1].artifacts[0].id", "of type file")]),
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
    "task that nests too deep": (write(FIRST, "[" * 5000), [Found(FIRST, "", "nested more than")]),
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
    # Evals
    "eval named all": (rename("evals/some.toml", "evals/all.toml"), [Found("evals/all.toml", "", "named 'all'")]),
    "eval named ALL": (copy("evals/some.toml", "evals/ALL.toml"), [Found("evals/ALL.toml", "", "named 'all'")]),
    "eval is no TOML": (
        write("evals/some.toml", "tasks = [,]"),
        [Found("evals/some.toml", "line 1 column 10", "TOML")],
    ),
    "eval without tasks": (write("evals/some.toml", ""), [Found("evals/some.toml", "tasks", "no list")]),
    "eval of no tasks": (write("evals/some.toml", "tasks = []"), [Found("evals/some.toml", "tasks", "no list")]),
    "eval of unknown tasks": (
        write("evals/some.toml", "tasks = ['frist', 'first', 3]"),
        [Found("evals/some.toml", "tasks[0]", "no task 'frist'"), Found("evals/some.toml", "tasks[2]", "no task 3")],
    ),
    "eval with an unknown key": (
        write("evals/some.toml", "tasks = ['first']\nsplit = 'x'"),
        [Found("evals/some.toml", "split", "no key of an eval")],
    ),
    "eval with a type that is a number": (
        write("evals/some.toml", "tasks = ['first']\ntype = 1"),
        [Found("evals/some.toml", "type", "not a text")],
    ),
}


@pytest.mark.parametrize("name", CORPUS)
def test_every_problem_is_found_with_its_file_and_place(name: str, tmp_path: Path) -> None:
    folder = good.make(tmp_path)
    (folder / "skills").mkdir()
    breaks, expected = CORPUS[name]
    breaks(folder)
    with pytest.raises(BundleError) as raised:
        load_bundle(folder)
    found = raised.value.problems
    assert [(problem.file, problem.place) for problem in found] == sorted((e.file, e.place) for e in expected)
    for problem in found:
        parts = [e.what for e in expected if (e.file, e.place) == (problem.file, problem.place)]
        assert any(part in problem.what for part in parts), problem
        assert problem.fix
        assert str(problem) in str(raised.value)


def test_problems_of_all_files_are_told_together(tmp_path: Path) -> None:
    folder = good.make(tmp_path)
    (folder / "skills").mkdir()
    names = ["unknown env", "line whose replayable is a text", "env.toml with an unknown key", "alias is no list"]
    for name in names:
        CORPUS[name][0](folder)
    with pytest.raises(BundleError) as raised:
        load_bundle(folder)
    places = {(problem.file, problem.place) for problem in raised.value.problems}
    expected = {(e.file, e.place) for name in names for e in CORPUS[name][1]}
    assert expected <= places
    assert str(raised.value).startswith(f"{folder}: {len(raised.value.problems)} problems\n")


def test_a_broken_env_is_not_told_again_by_each_task_that_names_it(tmp_path: Path) -> None:
    folder = good.make(tmp_path)
    write("envs/shop/env.toml", "typo = 1")(folder)
    with pytest.raises(BundleError) as raised:
        load_bundle(folder)
    assert len(raised.value.problems) == 1


@pytest.mark.parametrize(
    "path", ["", "envs", "envs/shop", "artifacts/check", "tasks", "tasks/first.json", "aliases.toml"]
)
def test_what_cannot_be_read_is_told(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As another user's files; the tests' own user may be root, who reads everything."""
    folder = good.make(tmp_path)
    real = {name: getattr(os, name) for name in ("listdir", "scandir", "open")}

    def denied(name: str) -> Callable[..., Any]:
        def call(target: Any, *arguments: Any) -> Any:
            if Path(target) == folder / path:
                raise PermissionError(13, "Permission denied", str(target))
            return real[name](target, *arguments)

        return call

    for name in real:
        monkeypatch.setattr(os, name, denied(name))
    with pytest.raises(BundleError) as raised:
        load_bundle(folder)
    assert (path, "it can't be read (Permission denied)") in {(p.file, p.what) for p in raised.value.problems}


@pytest.mark.parametrize(("make", "what"), [(lambda path: None, "no folder"), (lambda path: path.touch(), "a file")])
def test_what_is_no_folder_is_no_bundle(tmp_path: Path, make: Callable[[Path], None], what: str) -> None:
    make(tmp_path / "x")
    with pytest.raises(BundleError, match=what):
        load_bundle(tmp_path / "x")


def test_a_folder_without_any_kind_is_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    with pytest.raises(BundleError, match="no bundle; it needs at least one of envs/, agents/"):
        load_bundle(tmp_path)
