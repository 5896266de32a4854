"""Bundles: a folder of tasks and the envs that they run in, read into validated, frozen data. Runs nothing."""

from agent_env.bundle.load import load_bundle
from agent_env.bundle.model import (
    Artifact,
    Bundle,
    BundleError,
    BundleNotFound,
    EnvSpec,
    LeftOut,
    Problem,
    Scoring,
    Split,
    Task,
    TaskList,
    Turn,
)
from agent_env.bundle.resolve import Served, check_reward, resolve_bundles

__all__ = [
    "Artifact",
    "Bundle",
    "BundleError",
    "BundleNotFound",
    "EnvSpec",
    "LeftOut",
    "Problem",
    "Scoring",
    "Served",
    "Split",
    "Task",
    "TaskList",
    "Turn",
    "check_reward",
    "load_bundle",
    "resolve_bundles",
]
