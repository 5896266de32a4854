"""A light client of the Task API: which tasks a server has, over HTTP."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

from agent_env.openenv.client import ProtocolError, Unreachable, http_url, innermost, refusal, tls_context

__all__ = ["TaskApi"]


class TaskApi:
    """The Task API of one server over HTTP. Use as an async context manager.

    Raises Unreachable, Unauthorized or ProtocolError; each request has `timeout` seconds.
    """

    def __init__(self, url: str, *, token: str | None = None, timeout: float = 60.0) -> None:
        import httpx

        self._url = http_url(url)
        self._timeout = timeout
        self._client = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {token}"} if token else None,
            timeout=None,
            trust_env=False,
            verify=tls_context() if self._url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        )

    async def __aenter__(self) -> TaskApi:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._client.aclose()

    async def status(self) -> Any:
        """What GET /status says, as JSON: how full the server is. Episodes are left out where the server can do so."""
        return await self._request("GET", "/status?episodes=false")

    async def environments(self) -> list[str]:
        """The names of what is served; usually one."""
        names = await self._request("GET", "/list_environments")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ProtocolError(f"{self._url}/list_environments answered no list of names")
        return names

    async def splits(self, environment: str) -> list[str]:
        """The names of the splits, in the server's order."""
        splits = await self._request("GET", f"/{quote(environment, safe='')}/splits")
        names = [split.get("name") if isinstance(split, dict) else split for split in splits or ()]
        if not isinstance(splits, list) or not all(isinstance(name, str) for name in names):
            raise ProtocolError(f"{self._url}: the splits of {environment} are no list of names")
        return [str(name) for name in names]

    async def num_tasks(self, environment: str, split: str) -> int:
        reply = await self._request("POST", f"/{quote(environment, safe='')}/num_tasks", {"split": split})
        count = reply.get("num_tasks") if isinstance(reply, dict) else None
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise ProtocolError(f"{self._url}: the number of tasks in {split} is {count!r}")
        return count

    async def tasks(self, environment: str, split: str, *, page: int = 500) -> AsyncIterator[dict[str, Any]]:
        """Every task's descriptor, in order, fetched `page` at a time."""
        count = await self.num_tasks(environment, split)
        for start in range(0, count, page):
            stop = min(start + page, count)
            body = {"split": split, "start": start, "stop": stop}
            reply = await self._request("POST", f"/{quote(environment, safe='')}/task_range", body)
            tasks = reply.get("tasks") if isinstance(reply, dict) else None
            if not isinstance(tasks, list) or len(tasks) != stop - start:
                raise ProtocolError(f"{self._url}: tasks {start} to {stop} of {split} weren't all listed")
            for task in tasks:
                if not isinstance(task, dict):
                    raise ProtocolError(f"{self._url}: a task of {split} is not an object but {task!r:.80}")
                yield task

    async def _request(self, method: str, path: str, body: Any = None) -> Any:
        import httpx

        url = self._url + path
        try:
            async with asyncio.timeout(self._timeout):
                reply = await self._client.request(method, url, json=body)
        except TimeoutError as error:
            raise Unreachable(f"{url} didn't answer within {self._timeout:.0f} s") from error
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise ProtocolError(f"{url} is not an address: {error}") from error
        except httpx.HTTPError as error:
            raise Unreachable(f"cannot reach {self._url}: {innermost(error)}") from error
        if reply.status_code != 200:
            raise refusal(url, reply.status_code, reply.headers.get("Location"))
        try:
            return reply.json()
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"{url} answered no JSON: is an OpenEnv server there?") from error
