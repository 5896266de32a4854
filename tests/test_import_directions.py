"""The packages import one way only, and each side loads no more than it needs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import agent_env

ROOT = Path(agent_env.__file__).parent

# Package -> the packages of ours it may import. What isn't listed (cli.py, quickstart.py) ties the others together.
MAY_IMPORT = {
    "env": set(),
    "bundle": set(),
    "sandbox": {"bundle", "env"},
    "episode": {"bundle", "sandbox", "env"},
    "monitor": {"bundle", "episode"},
    "openenv": {"bundle", "sandbox", "episode", "monitor", "openenv"},
    "training": {"openenv"},
}
# Of openenv, only what CLIENT_MODULES names.
CLIENT_MODULES = {"agent_env.openenv.client", "agent_env.openenv.protocol", "agent_env.openenv.task_client"}
SERVER_PACKAGES = {"fastapi", "starlette", "uvicorn", "docker", "h11", "huggingface_hub", "prometheus_client", "rich"}


def imports_of(path: Path) -> set[str]:
    """Every module that a file names in an import statement, wherever it stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # Relative ones only where a folder also runs as a package of its own (the fork server's).
            base = list(path.relative_to(ROOT.parent).parent.parts) if node.level else []
            assert node.level < 2, f"{path}: imports from above"
            module = ".".join([*base, *((node.module,) if node.module else ())])
            found.add(module)
            found.update(f"{module}.{alias.name}" for alias in node.names)
    return found


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_point_one_way(package: str) -> None:
    allowed = MAY_IMPORT[package] | {package}
    for path in (ROOT / package).rglob("*.py"):
        for module in imports_of(path):
            parts = module.split(".")
            if parts[0] == "agent_env" and len(parts) > 1 and (ROOT / parts[1]).is_dir():
                assert parts[1] in allowed, f"{path.relative_to(ROOT)} imports {module}"


def test_training_uses_only_the_client_side_of_openenv() -> None:
    for path in (ROOT / "training").rglob("*.py"):
        for module in imports_of(path):
            if module.startswith("agent_env.openenv."):
                assert any(module == name or module.startswith(f"{name}.") for name in CLIENT_MODULES), (
                    f"{path.relative_to(ROOT)} imports {module}"
                )


def test_env_needs_the_standard_library_only() -> None:
    for path in (ROOT / "env").rglob("*.py"):
        for module in imports_of(path):
            top = module.partition(".")[0]
            assert top == "agent_env" or top in sys.stdlib_module_names, f"{path.relative_to(ROOT)} imports {module}"


def test_nothing_imports_miles() -> None:
    for path in ROOT.rglob("*.py"):
        assert not any(module.partition(".")[0] == "miles" for module in imports_of(path)), path


@pytest.mark.parametrize("module", ["agent_env.training.miles.agent", "agent_env.openenv.client"])
def test_the_trainer_side_loads_no_server_package(module: str) -> None:
    code = f"import sys, {module}; print(' '.join(name for name in sys.modules if '.' not in name))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(done.stdout.split())
    assert not loaded & (SERVER_PACKAGES | {"torch", "miles", "datasets", "openai", "mcp"})
