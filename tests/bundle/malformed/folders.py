"""Bundles whose folders, aliases, envs, Dockerfiles, artifacts or evals are broken."""

from __future__ import annotations

import json
import os

from agent_env.bundle.strict import MAX_FILE_BYTES
from tests.bundle import good
from tests.bundle.malformed.breaks import (
    FIRST,
    MORE,
    SHOP,
    Break,
    Found,
    copy,
    dockerfile,
    remove,
    rename,
    task,
    write,
)

FOLDERS: dict[str, tuple[Break, list[Found]]] = {
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
    "verifier without verify": (
        write("artifacts/check/verify.py", "def check(): ...\n"),
        [Found("artifacts/check/verify.py", "", "defines no verify")],
    ),
    "verifier that isn't one": (
        task(5, file_artifact_id="stock"),
        [Found(FIRST, "[5].file_artifact_id", "no verifier")],
    ),
    "seed that is a file": (task(1, artifact_id="check"), [Found(FIRST, "[1].artifacts[0].id", "of type file")]),
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
