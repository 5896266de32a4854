"""What a server is told to serve, resolved to loaded bundles and splits."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from agent_env.bundle.installed import find_installed, installed_names
from agent_env.bundle.load import load_bundle
from agent_env.bundle.model import Bundle, BundleError, BundleNotFound, LeftOut, Problem, Split
from agent_env.bundle.problems import closest

__all__ = ["Address", "Reward", "Served", "Source", "check_reward", "resolve_bundle", "resolve_bundles"]

Address: TypeAlias = str | Path | Bundle
"""A bundle: its folder, an installed bundle's name, `hf://ORG/DATASET/PATH[@REVISION]`, or one that is loaded."""
Source: TypeAlias = Address | Mapping[str, Address]
"""One bundle with all its splits; or the name of each split -> the bundle whose every task is in it."""
Reward: TypeAlias = str | Callable[[Mapping[str, float]], float]
"""The step whose score is the reward, or what makes one number of {step id: score}."""

_HUB = "hf://"


@dataclass(frozen=True, slots=True)
class Served:
    """What a server serves: at least one task."""

    name: str
    """The bundle's; for several, theirs joined with `+`."""
    description: str
    fingerprint: str
    """The bundle's; for a mapping, sha256 (hex) over split names and their bundles' fingerprints."""
    splits: Mapping[str, Split]
    """By name, in order; `all` first for a single bundle. None is empty."""
    bundle_of: Mapping[str, Bundle]
    """The bundle that each split's tasks, envs and artifacts come from, by split name."""

    @property
    def bundles(self) -> tuple[Bundle, ...]:
        """Each bundle once."""
        return tuple({id(bundle): bundle for bundle in self.bundle_of.values()}.values())

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        return tuple(task for bundle in self.bundles for task in bundle.left_out)


def resolve_bundles(source: Source) -> Served:
    """Load what `source` names. Raises BundleError for what isn't there, can't be loaded, or has no playable task."""
    if not isinstance(source, Mapping):
        bundle = resolve_bundle(source)
        _check_tasks(bundle)
        bundle_of = MappingProxyType(dict.fromkeys(bundle.splits, bundle))
        return Served(bundle.name, bundle.description, bundle.fingerprint, bundle.splits, bundle_of)
    bundle_of = MappingProxyType(_each_split(source))
    bundles = tuple({bundle.name: bundle for bundle in bundle_of.values()}.values())
    total = hashlib.sha256()
    for split in sorted(bundle_of):
        total.update(f"{split}\n{bundle_of[split].fingerprint}\n".encode())
    return Served(
        name="+".join(bundle.name for bundle in bundles),
        description=" ".join(bundle.description for bundle in bundles if bundle.description),
        fingerprint=total.hexdigest(),
        splits=MappingProxyType({name: Split(name, each.splits["all"].tasks) for name, each in bundle_of.items()}),
        bundle_of=bundle_of,
    )


def _each_split(source: Mapping[str, Address]) -> dict[str, Bundle]:
    """The bundle of each split, each loaded once. Their names differ, since their tasks' ids begin with them."""
    if not source:
        raise _error("bundles", "the mapping names no split", "map at least one split's name to a bundle")
    bundle_of: dict[str, Bundle] = {}
    loaded: dict[str, Bundle] = {}
    for split, address in source.items():
        if not isinstance(split, str) or not split or "/" in split or split.startswith("."):
            raise _error("bundles", f"{split!r} can't name a split", "use a plain name, as 'train'")
        key = str(address.folder if isinstance(address, Bundle) else address)
        bundle = loaded[key] = loaded.get(key) or resolve_bundle(address)
        _check_tasks(bundle)
        same = next((other for other in bundle_of.values() if other.name == bundle.name), bundle)
        if same.folder != bundle.folder:
            what = f"two bundles are named {bundle.name!r}, so their tasks' ids would be the same"
            raise _error("bundles", what, "rename one of the folders")
        bundle_of[split] = same
    return bundle_of


def resolve_bundle(address: Address) -> Bundle:
    """Load one bundle. A folder of that path is taken before an installed bundle of that name. Raises BundleError."""
    if isinstance(address, Bundle):
        return address
    if isinstance(address, str) and address.startswith(_HUB):
        from agent_env.bundle.hub import fetch  # huggingface_hub is an extra's, and slow to load

        folder, revision = fetch(address)
        bundle = load_bundle(folder)
        pinned = hashlib.sha256(f"{revision}\n{bundle.fingerprint}".encode()).hexdigest()
        return dataclasses.replace(bundle, fingerprint=pinned)
    if address and os.path.isdir(os.path.expanduser(address)):
        return load_bundle(address)
    if isinstance(address, os.PathLike):
        raise BundleNotFound(str(address), [Problem("", "", "there is no such folder", "check the path")])
    if (installed := find_installed(address)) is not None:
        return load_bundle(installed)
    what = "there is no such folder, and no installed bundle of that name"
    fix = closest(address, installed_names(), "installed bundles")
    raise BundleNotFound(address, [Problem("", "", what, fix)])


def check_reward(served: Served, reward: Reward | None) -> None:
    """Check that every task has the reward: the step `reward` names; or, if it is None, a `reward_step` of its own. A
    callable takes any scores. Raises BundleError, naming tasks and the scores that they give."""
    problems = []
    for bundle in served.bundles:
        for scoring in bundle.scorings:
            given = ", ".join(map(repr, scoring.scores))
            tasks = (
                f"task {scoring.example!r}" if scoring.tasks == 1 else f"{scoring.tasks} tasks, as {scoring.example!r},"
            )
            verb = "gives" if scoring.tasks == 1 else "give"
            if isinstance(reward, str) and reward not in scoring.scores:
                what = f"{tasks} {verb} no score {reward!r}"
                problems.append(Problem("tasks", "", what, f"{'it' if scoring.tasks == 1 else 'they'} {verb} {given}"))
            elif reward is None and scoring.reward_step is None:
                what = f"{tasks} {verb} several scores ({given}), and nothing says which is the reward"
                fix = "pass reward=, a step id or a function of {step id: score}"
                problems.append(Problem("tasks", "", what, fix))
    if problems:
        raise BundleError(served.name, problems)


def _check_tasks(bundle: Bundle) -> None:
    if len(bundle.splits["all"].tasks) == 0:
        problems = [
            Problem("tasks", task.name, f"the task can't be played: {task.why}", "`agent-env check` lists what can")
            for task in bundle.left_out
        ]
        nothing = Problem("tasks", "", "the bundle has no task that can be played", "add one")
        raise BundleError(bundle.name, problems or [nothing])


def _error(source: str, what: str, fix: str) -> BundleError:
    return BundleError(source, [Problem("", "", what, fix)])
