"""What a bundle holds, as data. Made by `agent_env.bundle.load_bundle`, never changed afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agent_env.bundle.steps import Step

__all__ = [
    "Artifact",
    "Bundle",
    "BundleError",
    "BundleNotFound",
    "EnvSpec",
    "LeftOut",
    "Problem",
    "Scoring",
    "Split",
    "Task",
    "TaskList",
    "Turn",
]


@dataclass(frozen=True, order=True, slots=True)
class Problem:
    """One thing wrong with a bundle, told so that its author can mend it without reading our code."""

    file: str
    """Path inside the bundle, with `/`; "" for the bundle itself."""
    place: str
    """Where in the file: a line (`line 3`), a key (`[2].env_id`), or "" for the whole file."""
    what: str
    """What is wrong, naming what was found."""
    fix: str
    """What would be right."""

    def __str__(self) -> str:
        where = ": ".join(part for part in (self.file, self.place) if part)
        return f"{where}: {self.what}; {self.fix}" if where else f"{self.what}; {self.fix}"


class BundleError(ValueError):
    """A bundle can't be loaded. `problems` holds every problem found, sorted; str() is one line a problem."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        self.source = source
        self.problems = tuple(sorted(problems))
        head = f"{source}: {len(self.problems)} problem{'s' if len(self.problems) != 1 else ''}"
        super().__init__("\n".join([head, *(f"  {problem}" for problem in self.problems)]))


class BundleNotFound(BundleError):
    """There is no bundle at an address, or it can't be reached."""


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """One env of a bundle: an MCP server's folder, and how its Dockerfile says it is started."""

    name: str
    """The folder's name: what a step's `env_id` says."""
    folder: Path
    """Absolute, symlinks resolved."""
    digest: str
    """sha256 (hex) of the folder's files: names, executable bits, contents."""
    environment_name: str | None = None
    """The card's name, if env.toml says it; else the server's own card does at run time."""
    command: tuple[str, ...] = ("python", "server.py")
    """The Dockerfile's exec-form ENTRYPOINT + CMD. A leading `python` means the env's own interpreter."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """The Dockerfile's ENV."""
    workdir: str = "/app"
    """The Dockerfile's WORKDIR: where `folder` appears to the server in a container."""
    python: str | None = None
    """The Python version that the Dockerfile's base image names, as `3.12`."""
    requirements: Path | None = None
    """The requirements file that the Dockerfile installs, else requirements.txt; None if it lists nothing."""
    dockerfile: Path | None = None
    image: str | None = None
    """An image by reference, from env.toml; then there is nothing to build."""
    writable: tuple[str, ...] = ()
    """Folders that the server makes and writes beside /tmp, absolute. The process sandbox links them into its private
    /tmp, where it has namespaces; in a container they are what the image made of them."""
    needs_docker: str | None = None
    """Why only Docker can run it (`Dockerfile line 3: RUN apt-get install ...`); None: the process sandbox can."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A folder under artifacts/: a verifier's file, seed data for an env, files for a sandbox."""

    name: str
    type: str
    """`file`, `file_artifact_universe`, `environment` or `docker_image`."""
    folder: Path
    files: tuple[Path, ...]
    """Absolute paths, sorted; artifact.toml is not among them."""
    environment_name: str | None = None
    """type `environment`: the env whose data plane it seeds."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One prompt of a task, in play order."""

    step_id: str
    prompt_id: str | None
    prompt: str
    system_prompt: str | None
    """The system prompt in force: the step's own, or the last one before it."""
    env_ids: tuple[str, ...]
    """The envs whose tools the agent has in this turn."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task that can be played as an episode. Steps are in play order: a stable topological order of the file's."""

    id: str
    """`@local/<bundle>/<name>`: unique over what a server serves."""
    name: str
    steps: tuple[Step, ...]
    turns: tuple[Turn, ...]
    agent_name: str
    env_ids: tuple[str, ...]
    """Every env that the task deploys, in order."""
    scores: tuple[str, ...]
    """The ids of the steps that give a score, in play order; at least one."""
    reward_step: str | None = None
    """The one of `scores` that is the reward when the server sets none: the only one, or the only one that no
    `aggregate_verifiers` step takes in. None: there are several, so the server must say."""
    sandboxes: tuple[str, ...] = ()
    """The sandboxes that `deploy_sandbox` steps start, by name, in order."""
    agent_sandbox: str | None = None
    """The sandbox in which the agent has its `bash` tool: one of `sandboxes`; or one of its own, which is named as the
    agent is and started with it; None: it has none. A step without `sandbox_name` means this one."""
    replayable: bool = True
    """False: a lost env is never recovered by playing the same calls again."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """What the author groups tasks by, as {"duration": "4h"}: for reports, never seen by a model."""
    toolset: str = ""
    """Equal for tasks that offer equal tools (same agent envs and tool-access steps): one deploy lists them all."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A task that can't be played, and why: logged once at load, listed by `agent-env check`."""

    name: str
    step_id: str
    step_type: str
    why: str


class TaskList(Protocol):
    """Tasks by position, parsed when asked for: a bundle of 20,000 tasks keeps their text, not their objects."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Task: ...
    def __iter__(self) -> Iterator[Task]: ...


@dataclass(frozen=True, slots=True)
class Split:
    """A named, ordered list of tasks: `all`, or one eval's."""

    name: str
    tasks: TaskList


@dataclass(frozen=True, slots=True)
class Scoring:
    """Tasks of a bundle that give the same scores, so that a reward can be checked against all without reading them."""

    scores: tuple[str, ...]
    reward_step: str | None
    tasks: int
    """How many tasks there are."""
    example: str
    """The first one's name."""


@dataclass(frozen=True, slots=True)
class Bundle:
    name: str
    folder: Path
    description: str
    fingerprint: str
    """sha256 (hex) over the bundle's files; for hf:// addresses the revision is part of it. Rows carry it."""
    envs: Mapping[str, EnvSpec]
    """By folder name and by alias."""
    artifacts: Mapping[str, Artifact]
    splits: Mapping[str, Split]
    """`all` first, then one per eval, in name order."""
    left_out: tuple[LeftOut, ...] = ()
    scorings: tuple[Scoring, ...] = ()
    """Every combination of scores that a task of `all` gives."""
