"""Which splits a Miles run evaluates on, told from its arguments: `abort` must not cancel an eval's rollouts."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["eval_splits"]


def eval_splits(args: Any) -> frozenset[str]:
    """The splits of the rows in Miles' eval files.

    A split that is trained on as well counts only when evals have engines of their own (--eval-num-gpus): else no eval
    runs while training rollouts do. Without any eval file in `args`, a split named `eval` is one.
    """
    files = list(_eval_files(args))
    if not files:
        return frozenset({"eval"}) - _splits(_as_list(getattr(args, "prompt_data", None)))
    splits = _splits(files)
    if not getattr(args, "eval_num_gpus", None):
        splits -= _splits(_as_list(getattr(args, "prompt_data", None)))
    return splits


def _eval_files(args: Any) -> Iterable[str]:
    """--eval-prompt-data is NAME PATH pairs; --eval-config gives data sets that have a `path`."""
    listed = _as_list(getattr(args, "eval_prompt_data", None))
    yield from listed[1::2] if len(listed) > 1 else listed
    for dataset in getattr(args, "eval_datasets", None) or ():
        if isinstance(path := getattr(dataset, "path", None), str):
            yield path


def _splits(paths: Iterable[str]) -> frozenset[str]:
    return frozenset(_split_of(re.sub(r"@\[[^\]]*\]$", "", path)) for path in paths)


@functools.lru_cache(maxsize=64)
def _split_of(path: str) -> str:
    """The split that a file's first row names, else what the file is called."""
    try:
        with open(path, encoding="utf-8") as file:
            split = json.loads(next(line for line in file if line.strip()))["metadata"]["split"]
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        split = None
    return split if isinstance(split, str) else Path(path).stem


def _as_list(value: Any) -> list[str]:
    listed = [value] if isinstance(value, str) else list(value or ())
    return [item for item in listed if isinstance(item, str)]
