"""The serving examples build the app that the documentation shows."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_serve_makes_an_app() -> None:
    assert load("serve").app.title == "agent_env: gridsim-v1"


def test_serve_with_token_takes_the_token_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTENV_TOKEN", "s3cret-token-for-tests")
    assert load("serve_with_token").app.title == "agent_env: gridsim-v1"
    monkeypatch.delenv("AGENTENV_TOKEN")
    with pytest.raises(KeyError, match="AGENTENV_TOKEN"):
        load("serve_with_token")
