"""Draws the terminal tasks and writes artifacts/, tasks/ and evals/. No dependencies.

python build.py             # write the files
python build.py --check     # only compare: does drawing them again give the files here?
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))

from families import FAMILIES, Drawn  # noqa: E402

EACH = {"train": 10, "eval": 5}
"""Tasks of each family."""

SYSTEM_PROMPT = """\
You work in a shell, with the tool bash; each call is a new one that starts in /app. The files of your task are in \
/app/job, and all paths in it are meant from there. bash, the usual commands and python3 are there; there is no \
network. Do what is asked, check it, and then call end_turn."""


def draw(split: str, family: str, index: int) -> Drawn:
    """A pure function of its arguments."""
    number = index if split == "train" else EACH["train"] + index
    return FAMILIES[family](random.Random(f"terminal-v1 {split} {family} {index}"), number)


def task(name: str, family: str, drawn: Drawn) -> dict[str, Any]:
    """One line of tasks/*.jsonl."""
    steps: list[dict[str, Any]] = [
        {"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_type": "local"},
        {
            "id": "files",
            "type": "load_artifact",
            "sandbox_name": "box",
            "artifact_id": name,
            "destination_path": "/app/job",
        },
        {"id": "agent", "type": "deploy_agent", "sandbox_name": "box"},
        {"id": "ask", "type": "prompt_agent", "system_prompt": SYSTEM_PROMPT, "prompt": drawn.prompt},
        {
            "id": "score",
            "type": "verify_sandbox",
            "sandbox_name": "box",
            "base_dir": "/app/job",
            "shell_timeout_seconds": 20,
            "score_aggregator": "weighted_average",
            "criteria": drawn.criteria,
        },
    ]
    return {"name": name, "tags": {"family": family}, "steps": steps}


def files() -> Iterator[tuple[str, str]]:
    """(path in the bundle, text) of everything that is drawn."""
    for split, count in EACH.items():
        tasks = []
        for family in FAMILIES:
            for index in range(count):
                name = f"{split}-{family}-{index:02d}"
                drawn = draw(split, family, index)
                tasks.append(task(name, family, drawn))
                for path, text in drawn.files.items():
                    yield f"artifacts/{name}/{path}", text
        yield f"tasks/{split}.jsonl", "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in tasks)
        names = "".join(f'    "{one["name"]}",\n' for one in tasks)
        yield f"evals/{split}.toml", f"tasks = [\n{names}]\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file differs")
    check, differs, count = parser.parse_args().check, [], 0
    for name, text in files():
        path, count = FOLDER / name, count + 1
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        differs.append(name)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    print(f"{count} files, {len(differs)} {'differ' if check else 'written'}")
    print("\n".join(differs[:20]))
    sys.exit(1 if check and differs else 0)


if __name__ == "__main__":
    main()
