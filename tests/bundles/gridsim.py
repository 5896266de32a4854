"""The GridSim bundle's own modules, loaded from its folder as its scripts and servers load them."""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

BUNDLE = Path(__file__).parents[2] / "bundles" / "gridsim-v1"
ENV = BUNDLE / "envs" / "gridsim"


def load(name: str, path: Path) -> ModuleType:
    """The file as a module of that name; what lies beside the env's server.py can be imported meanwhile."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    kept, writes = list(sys.path), sys.dont_write_bytecode
    sys.path.insert(0, str(ENV))
    sys.dont_write_bytecode = True  # the bundle's folder stays as it is
    try:
        sys.modules[name] = module
        spec.loader.exec_module(module)
    finally:
        sys.path[:], sys.dont_write_bytecode = kept, writes
    return module


rules = load("gridsim", ENV / "gridsim.py")
GridSim = load("gridsim_server", ENV / "server.py").GridSim
baselines = load("baselines", BUNDLE / "baselines.py")
prices = load("prices", BUNDLE / "prices.py")
build = load("gridsim_build", BUNDLE / "build.py")
VERIFY: dict[str, Any] = runpy.run_path(str(BUNDLE / "artifacts" / "check_schedule" / "verify.py"))
