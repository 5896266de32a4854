"""The OpenEnv protocol: `build_app` serves a bundle; `client` and `protocol` are what a trainer's side needs of it.

`build_app` loads on first use, so that importing the client pulls in no server package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_env.openenv.app import build_app

__all__ = ["build_app"]


def __getattr__(name: str) -> Any:
    if name != "build_app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from agent_env.openenv.app import build_app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in {"fastapi", "uvicorn", "starlette", "h11", "prometheus_client"}:
            raise ModuleNotFoundError(
                f"serving a bundle needs the package {error.name!r}: pip install 'agent-env[openenv]'", name=error.name
            ) from None
        raise
    return build_app
