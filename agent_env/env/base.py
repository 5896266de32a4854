"""What an author writes: a class whose methods are an env's tools, extensions and data plane."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, overload

__all__ = ["Env", "ExtensionMark", "ToolError", "ToolMark", "extension", "marks", "tool"]

Method = TypeVar("Method", bound=Callable[..., Any])
_MARK = "_agent_env_mark"


class ToolError(Exception):
    """Raise it in a tool: the model gets the message as the call's error, and may try again.

    In an extension it refuses the arguments, so raise it before anything is changed.
    """


class Env:
    """Base of every env. One instance in one process serves one episode, so plain attributes hold its state.

    The class's docstring describes the env on its card. Tools run one at a time. A sync tool runs on the event loop:
    nothing else is served meanwhile, so a tool that waits for long is better written `async`.
    """

    name: ClassVar[str] = ""
    """The card's name; "" stands for the class's, in lower case. ENVIRONMENT_NAME in the environment overrides it."""
    version: ClassVar[str] = "1"

    def reset_data(self) -> Awaitable[None] | None:
        """Data plane: back to the state before anything happened. Served only if a subclass defines it."""
        raise NotImplementedError

    def add_data(self, parts: list[dict[str, Any]]) -> Awaitable[None] | None:
        """Data plane: take in seed data. Served only if a subclass defines it.

        A part is {"kind": "data", "data": {...}}, {"kind": "text", "text": ...} or
        {"kind": "file", "file": {"uri" or "bytes" (base64), "mimeType", "name"}}, each with optional "metadata".
        """
        raise NotImplementedError

    def get_data(self) -> dict[str, Any] | list[dict[str, Any]] | Awaitable[dict[str, Any] | list[dict[str, Any]]]:
        """Data plane: what a verifier needs to know; the model never sees it. Served only if a subclass defines it.

        A list of parts, or a dict, which is sent as one data part.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ToolMark:
    """What `@tool` leaves on a method."""

    name: str
    hidden: bool


@dataclass(frozen=True, slots=True)
class ExtensionMark:
    """What `@extension` leaves on a method."""

    uri: str
    name: str


@overload
def tool(method: Method, /) -> Method: ...
@overload
def tool(*, name: str = "", hidden: bool = False) -> Callable[[Method], Method]: ...
def tool(method: Method | None = None, /, *, name: str = "", hidden: bool = False) -> Any:
    """Make a method a tool. Its docstring is the description that the model reads, its annotations are the schema.

    It returns text, None, or what JSON can hold (a dict is also sent as structured content). Any exception becomes the
    call's error: the model reads its message, the log gets the traceback.

    name: what the model calls it; the method's name if empty.
    hidden: no model sees it until a task's step says so.
    """

    def mark(method: Method) -> Method:
        setattr(method, _MARK, ToolMark(name or method.__name__, hidden))
        return method

    return mark if method is None else mark(method)


def extension(uri: str, *, name: str = "") -> Callable[[Method], Method]:
    """Make a method an operation that a task's `apply_server_config` step can call by `uri`; no model sees it.

    Arguments are checked as a tool's are. It returns what JSON can hold. Of several methods with one uri, a step calls
    the first. name: the operation's name, the method's if empty.
    """

    def mark(method: Method) -> Method:
        setattr(method, _MARK, ExtensionMark(uri, name or method.__name__))
        return method

    return mark


def marks(cls: type[Env]) -> dict[str, ToolMark | ExtensionMark]:
    """Attribute name -> mark, in the order of definition, base classes first; an override keeps its base's place, and
    takes its base's tool away if it isn't marked itself."""
    found: dict[str, ToolMark | ExtensionMark] = {}
    for base in reversed(cls.__mro__):
        for attribute, value in vars(base).items():
            mark = getattr(value, _MARK, None)
            if mark is not None:
                found[attribute] = mark
            else:
                found.pop(attribute, None)
    return found
