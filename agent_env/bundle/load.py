"""Load a bundle: a folder on disk becomes validated, frozen data, or one error with everything that is wrong."""

from __future__ import annotations

import hashlib
import logging
import os
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from agent_env.bundle.artifacts import read_artifacts
from agent_env.bundle.configs import read_config
from agent_env.bundle.envs import read_envs
from agent_env.bundle.files import Unreadable, digest, fold, read_small
from agent_env.bundle.layout import ALIASES, KINDS, Entry, Layout, read_layout
from agent_env.bundle.model import Bundle, BundleError, LeftOut, Split
from agent_env.bundle.problems import Problems, closest
from agent_env.bundle.reader import TaskReader
from agent_env.bundle.references import Scope
from agent_env.bundle.stored import StoredTasks
from agent_env.bundle.tasks import TaskFiles, read_task_files

__all__ = ["load_bundle"]

log = logging.getLogger("agent_env.bundle")

_EVAL_KEYS = ("tasks", "type", "id")
_MOST_LOGGED = 20
"""Left-out tasks that get a log line each; the rest is a count."""


def load_bundle(folder: Path | str) -> Bundle:
    """Read the bundle in a folder. Runs nothing of it, and reads every task once.

    Tasks that are well formed but can't be played are in `left_out`, and logged. Raises BundleError with every problem.
    """
    root = Path(os.path.realpath(os.path.expanduser(folder)))
    problems = Problems()
    layout = read_layout(root, problems)
    if layout is None:
        raise BundleError(str(folder), problems.found)
    artifacts = read_artifacts(layout.entries["artifacts"], problems)
    envs = read_envs(layout.entries["envs"], artifacts, problems)
    aliases = _aliases(layout, problems)
    name = unicodedata.normalize("NFC", root.name)
    known_envs = {**aliases, **envs.ids}
    scope = Scope(
        bundle=name,
        envs={**envs.specs, **{other: envs.specs[own] for other, own in known_envs.items() if own in envs.specs}},
        unplayable_envs={
            **envs.unplayable,
            **{other: envs.unplayable[own] for other, own in known_envs.items() if own in envs.unplayable},
        },
        artifacts={**artifacts.found, **{other: artifacts.found[own] for other, own in artifacts.ids.items()}},
    )
    reader = TaskReader(scope)
    tasks = read_task_files(layout.entries["tasks"], reader, problems)
    evals = _evals(layout.entries["evals"], tasks, problems)
    fingerprint = _fingerprint(root, layout, problems)
    if problems.found:
        raise BundleError(str(folder), problems.found)
    left_out = tuple(tasks.left_out.values())
    _log_left_out(name, left_out)
    return Bundle(
        name=name,
        folder=root,
        description=layout.description,
        fingerprint=fingerprint,
        envs=MappingProxyType({**envs.specs, **{alias: envs.specs[own] for alias, own in aliases.items()}}),
        artifacts=MappingProxyType({name: each for name, each in artifacts.found.items() if each is not None}),
        splits=_splits(name, tasks, evals, reader),
        left_out=left_out,
        scorings=tuple(tasks.scorings.values()),
    )


def _aliases(layout: Layout, problems: Problems) -> dict[str, str]:
    """Alias of an env -> its folder's name, from aliases.toml."""
    if layout.aliases is None:
        return {}
    tables = read_config(layout.aliases, ALIASES, problems) or {}
    found: dict[str, str] = {}
    for table, names in tables.items():
        if table not in ("envs", "agents"):
            problems.add(ALIASES, table, f"{table!r} is no table of this file", "write [envs] or [agents]")
            continue
        if not isinstance(names, dict):
            problems.add(ALIASES, table, "it is no table", f"write [{table}]")
            continue
        own = {entry.name for entry in layout.entries[table]}
        for name, aliases in names.items():
            place = f"{table}.{name}"
            if name not in own:
                problems.add(ALIASES, place, f"the bundle has no {table[:-1]} {name!r}", closest(name, own, table))
            elif not isinstance(aliases, list) or not all(isinstance(alias, str) and alias for alias in aliases):
                problems.add(ALIASES, place, "it is no list of texts", f'write {name} = ["alias"]')
            elif table == "envs":
                for alias in aliases:
                    if (alias in own and alias != name) or found.get(alias, name) != name:
                        problems.add(ALIASES, place, f"{alias!r} names another env too", "choose another alias")
                    found[alias] = name
    return {alias: name for alias, name in found.items() if alias != name}


def _evals(entries: Sequence[Entry], tasks: TaskFiles, problems: Problems) -> dict[str, list[str]]:
    """Each eval's task names, in its own order. An entry that names a `.jsonl` file means all of its tasks."""
    evals: dict[str, list[str]] = {}
    known = {*tasks.stored, *tasks.left_out, *tasks.malformed, *tasks.lists}
    for entry in entries:
        config = read_config(entry.path, entry.file, problems)
        if config is None:
            continue
        if fold(entry.name) == "all":
            problems.add(entry.file, "", "an eval can't be named 'all': that split has every task", "rename the file")
        for key, value in config.items():
            if key not in _EVAL_KEYS:
                problems.add(entry.file, key, f"{key!r} is no key of an eval", closest(key, _EVAL_KEYS, "keys"))
            elif key != "tasks" and not (isinstance(value, str) and value):
                problems.add(entry.file, key, f"{value!r} is not a text", f'write {key} = "..."')
        names = config.get("tasks")
        if not isinstance(names, list) or not names:
            problems.add(entry.file, "tasks", "it is no list of task names", 'write tasks = ["NAME", ...]')
            continue
        evals[entry.name] = []
        for index, name in enumerate(names):
            if not isinstance(name, str) or name not in known:
                fix = closest(str(name), known, "tasks")
                problems.add(entry.file, f"tasks[{index}]", f"the bundle has no task {name!r}", fix)
            elif name in tasks:
                evals[entry.name].append(name)
            else:
                evals[entry.name].extend(tasks.lists[name])
    return evals


def _fingerprint(root: Path, layout: Layout, problems: Problems) -> str:
    """sha256 (hex) over all that the bundle is read from; documentation isn't."""
    total = hashlib.sha256()
    try:
        for kind in KINDS:
            if layout.entries[kind]:
                total.update(f"{kind} {digest(root / kind)}\n".encode())
        if layout.aliases is not None:
            total.update(hashlib.sha256(read_small(layout.aliases)).digest())
    except Unreadable as error:
        problems.add(error.path.relative_to(root).as_posix(), "", str(error), error.fix)
    return total.hexdigest()


def _splits(name: str, tasks: TaskFiles, evals: Mapping[str, Sequence[str]], reader: TaskReader) -> Mapping[str, Split]:
    splits = {"all": Split("all", StoredTasks(tuple(tasks.stored.values()), reader))}
    for split in sorted(evals):
        names = evals[split]
        playable = [tasks.stored[task] for task in names if task in tasks.stored]
        if len(playable) < len(names):
            dropped = len(names) - len(playable)
            log.warning("bundle %s: split %s goes without its %d left-out tasks", name, split, dropped)
        if playable:
            splits[split] = Split(split, StoredTasks(playable, reader))
        else:
            log.warning("bundle %s: split %s is not served: none of its tasks can be played", name, split)
    return MappingProxyType(splits)


def _log_left_out(name: str, left_out: Sequence[LeftOut]) -> None:
    for task in left_out[:_MOST_LOGGED]:
        step = f" (step {task.step_id!r}, {task.step_type})" if task.step_type else ""
        log.warning("bundle %s: task %r is left out: %s%s", name, task.name, task.why, step)
    more = len(left_out) - _MOST_LOGGED
    if more > 0:
        log.warning("bundle %s: %d more tasks are left out; `agent-env check` lists them", name, more)
