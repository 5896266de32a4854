"""Writes a bundle's rows: lists the splits and tasks of a server, plays one task of each toolset to list its tools, and
writes one JSONL file a split. The files appear whole and together, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fcntl
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from agent_env.openenv.client import OpenEnvError, Session
from agent_env.openenv.protocol import END_TURN
from agent_env.openenv.task_client import TaskApi
from agent_env.training.types import ServerSettings

__all__ = ["Progress", "RowsError", "row_text", "write_rows"]

Progress = Callable[[str], None]
"""Is told in a few words what is being done, often."""


class RowsError(Exception):
    """The rows can't be written; str() is one line that says what to mend. No file was changed."""


async def write_rows(
    settings: ServerSettings,
    out: Path,
    *,
    token: str | None = None,
    timeout: float = 300.0,
    progress: Progress = lambda text: None,
) -> list[str]:
    """Write the rows of the server (or equal servers) that `settings` names into the folder `out`, and return the names
    of the files, sorted.

    `timeout`: seconds for each request, and for listing one toolset's tools, its deploy included. Raises RowsError.
    """
    try:
        async with contextlib.AsyncExitStack() as stack:
            apis = [
                await stack.enter_async_context(TaskApi(url, token=token, timeout=timeout)) for url in settings.urls
            ]
            source = await _Source.find(apis, settings, token, timeout, progress)
            with _Folder(out) as folder:
                folder.check_foreign([f"{split}.jsonl" for split in source.counts])
                for split in source.counts:
                    with folder.file(f"{split}.jsonl") as file:
                        async for row in source.rows(split):
                            file.write(row)
                return folder.publish()
    except OpenEnvError as error:
        raise RowsError(str(error)) from error
    except OSError as error:
        raise RowsError(f"cannot write to {out}: {error.strerror or error}") from error


def row_text(descriptor: Mapping[str, Any], split: str, index: int, tools: str, server: Mapping[str, Any]) -> str:
    """One row as its line: ASCII, so that no character in it ends a line for any reader. Raises RowsError for a task
    whose prompts are no text."""
    messages = []
    for role, key in (("system", "system_prompt"), ("user", "prompt")):
        text = descriptor.get(key)
        if not isinstance(text, str | None) or (key == "prompt" and text is None):
            kind = "missing" if text is None else f"of type {type(text).__name__}, not text"
            raise RowsError(f"task {index} of {split}, {descriptor.get('id')!r:.120}: its {key} is {kind}")
        if text or role == "user":
            messages.append({"role": role, "content": text})
    metadata = {
        "split": split,
        "index": index,
        "task_id": str(descriptor.get("id", "")),
        "tools": tools,
        "server": server,
    }
    return json.dumps({"messages": messages, "metadata": metadata}) + "\n"


class _Source:
    """What a server's rows are made of."""

    def __init__(
        self,
        api: TaskApi,
        environment: str,
        counts: dict[str, int],
        settings: ServerSettings,
        token: str | None,
        timeout: float,
        progress: Progress,
    ) -> None:
        self.counts = counts
        """The number of tasks by split."""
        self._api = api
        self._environment = environment
        self._settings = settings
        self._token = token
        self._timeout = timeout
        self._progress = progress
        self._tools: dict[str, str] = {}
        self._server: dict[str, Any] = {}
        self._done = 0

    @classmethod
    async def find(
        cls, apis: list[TaskApi], settings: ServerSettings, token: str | None, timeout: float, progress: Progress
    ) -> _Source:
        """Ask every server what it has; all must have the same. Raises RowsError, OpenEnvError."""
        found: list[tuple[str, dict[str, int]]] = []
        for api, url in zip(apis, settings.urls, strict=True):
            progress(f"listing the splits of {url}")
            names = await api.environments()
            if len(names) != 1:
                raise RowsError(f"{url} serves {', '.join(names) or 'nothing'}: rows are written from one environment")
            counts = {split: await api.num_tasks(names[0], split) for split in await api.splits(names[0])}
            for split in counts:
                if not split or split.startswith(".") or not split.isprintable() or set("/\\") & set(split):
                    raise RowsError(f"{url}: the split {split!r} can't be a file's name")
            found.append((names[0], {split: count for split, count in counts.items() if count}))
            if found[-1] != found[0]:
                raise RowsError(f"{url} serves other tasks than {settings.urls[0]}: name equal servers only")
        if not found[0][1]:
            raise RowsError(f"{settings.urls[0]} serves no tasks")
        return cls(apis[0], *found[0], settings, token, timeout, progress)

    async def rows(self, split: str) -> AsyncIterator[str]:
        index = 0
        async for descriptor in self._api.tasks(self._environment, split):
            toolset = descriptor.get("toolset", descriptor.get("agent"))
            tools = await self._tools_of(f"{toolset}", split, index)
            yield row_text(descriptor, split, index, tools, self._server)
            index, self._done = index + 1, self._done + 1
            if index % 500 == 0:
                self._progress(f"{self._done} of {sum(self.counts.values())} rows")

    async def _tools_of(self, toolset: str, split: str, index: int) -> str:
        """The tools of a toolset as JSON text, listed by playing the given task, once."""
        if toolset not in self._tools:
            self._progress(f"listing the tools of task {index} of {split}")
            try:
                async with asyncio.timeout(self._timeout):
                    tools, bundle = await self._list_tools(split, index)
            except TimeoutError:
                message = f"task {index} of {split} didn't list its tools within --timeout, {self._timeout:g} s"
                raise RowsError(f"{message}: is the server full, or its deploy slow?") from None
            self._tools[toolset] = json.dumps(tools)
            server = _server(self._settings, bundle)
            if self._server not in ({}, server):
                raise RowsError("the server's bundle changed while its rows were written: run this again")
            self._server = server
        return self._tools[toolset]

    async def _list_tools(self, split: str, index: int) -> tuple[list[dict[str, Any]], str]:
        """The OpenAI tools of every turn of a task, in order of appearance, and the bundle's fingerprint."""
        url, limit = self._settings.urls[0], self._timeout
        session = await Session.open(url, timeout=limit, wait=limit, call_timeout=limit, token=self._token)
        try:
            opened = await session.reset(timeout=limit, split=split, index=index)
            if opened.done:
                raise RowsError(f"task {index} of {split} didn't start: {opened.metadata.get('error') or 'no reason'}")
            tools: dict[str, dict[str, Any]] = {}
            turns = opened.metadata.get("turns", 1)
            for turn in range(turns if isinstance(turns, int) else 1):
                if turn:
                    ended = await session.call(END_TURN, {"response": ""}, timeout=limit)
                    if ended.done:
                        break
                for tool in await session.list_tools(timeout=limit):
                    tools.setdefault(str(tool.get("name")), _openai_tool(tool))
        finally:
            await session.close()
        bundle = opened.metadata.get("bundle")
        return list(tools.values()), bundle if isinstance(bundle, str) else ""


def _openai_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    name, description = tool.get("name"), tool.get("description", "")
    schema = tool.get("input_schema", tool.get("inputSchema"))
    if not isinstance(name, str) or not name or not isinstance(description, str) or not isinstance(schema, Mapping):
        raise RowsError(f"the server lists a tool without a name, description or input_schema: {tool!r:.200}")
    return {"type": "function", "function": {"name": name, "description": description, "parameters": dict(schema)}}


def _server(settings: ServerSettings, bundle: str) -> dict[str, Any]:
    """A row's metadata.server: every key, always, of scalars and one list of texts, since some readers make columns of
    them."""
    values = dataclasses.asdict(settings) | {"bundle": bundle}
    urls = list(values.pop("urls"))
    return {"url": urls[0], "urls": urls if len(urls) > 1 else [], **values}


class _Folder:
    """The folder that the files go to. Until `publish`, they are hidden files beside their places."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._names: list[str] = []
        self._made = False
        self._lock = -1

    def __enter__(self) -> _Folder:
        self._made = not self.path.exists()
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise RowsError(f"another command is writing rows to {self.path}") from None
        return self

    def __exit__(self, *exc_info: object) -> None:
        for name in self._names:
            self._hidden(name).unlink(missing_ok=True)
        os.close(self._lock)
        if self._made:
            with contextlib.suppress(OSError):  # holds the rows
                self.path.rmdir()

    @contextlib.contextmanager
    def file(self, name: str) -> Iterator[IO[str]]:
        """A file to write; on disk when the block ends."""
        self._names.append(name)
        with open(self._hidden(name), "w", encoding="ascii", newline="\n") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())

    def publish(self) -> list[str]:
        """Put every file in its place."""
        for name in self._names:
            os.replace(self._hidden(name), self.path / name)
        os.fsync(self._lock)
        return sorted(self._names)

    def check_foreign(self, ours: list[str]) -> None:
        """Raises RowsError if the folder holds files that aren't `ours`: older rows of other splits, others' data."""
        foreign = sorted(item.name for item in self.path.iterdir() if not item.name.startswith("."))
        if foreign := [name for name in foreign if name not in ours or not (self.path / name).is_file()]:
            named = ", ".join(foreign[:3]) + (", ..." if len(foreign) > 3 else "")
            raise RowsError(f"{self.path} holds files that aren't these rows ({named}): name an empty or new folder")

    def _hidden(self, name: str) -> Path:
        return self.path / f".{name}.tmp"
