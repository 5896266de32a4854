"""For verifiers: read what an env knows, over its data plane. Blocking, standard library only.

from agent_env.env.client import data

async def verify(mcp_url):
    found = data(mcp_url)
    return [{"result": found["count"] == 3, "score": found["count"] / 3}]
"""

from __future__ import annotations

import http.client
from typing import Any
from urllib.parse import urlsplit

from agent_env.env import jsontext

__all__ = ["DataError", "data", "get_data"]


class DataError(Exception):
    """The env couldn't be asked, refused, or answered something else. In a verifier: let it through, and the episode
    is unscored rather than 0."""


def get_data(mcp_url: str, timeout: float = 30.0) -> list[dict[str, Any]]:
    """The parts that the env's `data/get` returns. Raises DataError.

    mcp_url: the env's MCP address, as a verifier gets it (`http://HOST:PORT/mcp`); the data plane is beside it.
    timeout: seconds for each wait on the network.
    """
    address = urlsplit(mcp_url)
    path = address.path.rpartition("/")[0] + "/agentenv"
    body = jsontext.dumps({"jsonrpc": "2.0", "id": 1, "method": "data/get", "params": {}})
    connection = http.client.HTTPConnection(address.hostname or "", address.port or 80, timeout=timeout)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = jsontext.loads(connection.getresponse().read())
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise DataError(f"{mcp_url}: data/get: {error or type(error).__name__}") from error
    finally:
        connection.close()
    result = answer.get("result") if isinstance(answer, dict) else None
    parts = result.get("parts") if isinstance(result, dict) else None
    if not isinstance(parts, list):
        raise DataError(f"{mcp_url}: data/get: {str(answer)[:300]}")
    return parts


def data(mcp_url: str, timeout: float = 30.0) -> dict[str, Any]:
    """What `get_data` of an env that returns a dict returned: its first data part. Raises DataError if it has none."""
    for part in get_data(mcp_url, timeout):
        if isinstance(part, dict) and part.get("kind") == "data" and isinstance(part.get("data"), dict):
            return dict(part["data"])
    raise DataError(f"{mcp_url}: data/get: no data part")
