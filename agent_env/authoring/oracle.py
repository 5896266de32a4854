"""A bundle's `oracle.py`: the author's own policies for it, and the scores that they should reach.

The file is no part of the public format, and readers of bundles ignore it. It defines

    POLICIES = {"oracle": policy, ...}     # name -> a policy, as agent_env.training.policies has them
    SCORES = {"oracle": 1.0, "no-op": 0}   # optional: name -> mean reward, also of `no-op` and `random`
    SPLIT = "eval"                         # optional: whose tasks SCORES is about; without it, all
    REWARD = "mean"                        # optional: a step id, or `mean` of all scores, where there are several

It is run where `agent-env probe` runs, in no sandbox.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from agent_env.training.policies import Policy

__all__ = ["FILE", "Oracle", "OracleError", "load_oracle"]

FILE = "oracle.py"


class OracleError(Exception):
    """A bundle's oracle.py can't be used; str() is one line that says why."""


@dataclass(frozen=True, slots=True)
class Oracle:
    """What an oracle.py defines. Without one, nothing."""

    policies: Mapping[str, Policy] = field(default_factory=lambda: MappingProxyType({}))
    scores: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """The mean reward that each should reach on `split`."""
    split: str = "all"
    reward: str | None = None
    """What is the reward, where the command doesn't say: a step id, or `mean`."""

    @property
    def best(self) -> str | None:
        """The policy that solves the tasks: the one named `oracle`, or the first; None if there is none."""
        return "oracle" if "oracle" in self.policies else next(iter(self.policies), None)


def load_oracle(folder: Path) -> Oracle:
    """Run the bundle's oracle.py, if there is one. It may import the modules beside it. Raises OracleError."""
    path = folder / FILE
    if not path.is_file():
        return Oracle()
    before, path_before, wrote = set(sys.modules), list(sys.path), sys.dont_write_bytecode
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True  # the bundle's folder stays as it is
    try:
        spec = importlib.util.spec_from_file_location(f"oracle of {folder.name}", path)
        if spec is None or spec.loader is None:
            raise OracleError(f"{path}: it is no Python file")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except Exception as error:  # the author's code
        raise OracleError(f"{path}: {type(error).__name__}: {error}") from error
    finally:
        sys.path[:], sys.dont_write_bytecode = path_before, wrote
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", None) or "").startswith(f"{folder}/"):
                del sys.modules[name]  # another bundle may have modules of the same names
    policies, scores = getattr(module, "POLICIES", None), getattr(module, "SCORES", {})
    if not isinstance(policies, Mapping) or not all(isinstance(k, str) and callable(p) for k, p in policies.items()):
        raise OracleError(f"{path}: it must define POLICIES, a dict of name -> policy")
    if not isinstance(scores, Mapping) or not all(isinstance(score, int | float) for score in scores.values()):
        raise OracleError(f"{path}: SCORES must be a dict of policy name -> mean reward")
    return Oracle(
        policies=MappingProxyType(dict(policies)),
        scores=MappingProxyType({name: float(score) for name, score in scores.items()}),
        split=str(getattr(module, "SPLIT", "all")),
        reward=getattr(module, "REWARD", None),
    )
