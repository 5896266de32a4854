"""A method's parameters as JSON Schema, and the arguments of a call checked against it."""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import MISSING, dataclass
from inspect import CO_VARARGS, CO_VARKEYWORDS, unwrap
from typing import Any

from agent_env.env import jsontext
from agent_env.env.schema import Invalid, Type, object_schema, show, type_of

__all__ = ["Arguments", "arguments_of"]

MAX_PROBLEMS = 5  # told of one call


@dataclass(frozen=True, slots=True)
class Arguments:
    """A method's parameters."""

    schema: dict[str, Any]
    types: dict[str, Type]
    required: frozenset[str]

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The keyword arguments for the method. Raises Invalid with the problems found, one a clause."""
        problems = []
        bound = {}
        for name in arguments:
            if name not in self.types:
                taken = ", ".join(self.types) or "none"
                problems.append(f"unknown argument {show(name)} (arguments: {taken})")
        for name, kind in self.types.items():
            if name in arguments:
                try:
                    bound[name] = kind.check(arguments[name], name)
                except Invalid as problem:
                    problems.append(f"argument {problem}")
            elif name in self.required:
                problems.append(f"missing argument {name}: expected {kind.expected}")
        if problems:
            more = [f"and {len(problems) - MAX_PROBLEMS} more"] if len(problems) > MAX_PROBLEMS else []
            raise Invalid("", "; ".join([*problems[:MAX_PROBLEMS], *more]))
        return bound


def arguments_of(function: Callable[..., Any]) -> Arguments:
    """Compile a method's parameters, `self` left aside.

    Raises TypeError for a parameter that can't be described in JSON: one without annotation, of a type that isn't in
    the table of `agent_env.env.schema`, positional-only, `*args` or `**kwargs`.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    found, required, properties = {}, [], {}
    for name, default in _parameters(unwrap(function)):
        where = f"{function.__qualname__}: parameter {name}"
        if name not in hints:
            raise TypeError(f"{where} needs a type annotation")
        try:
            found[name] = type_of(hints[name])
        except TypeError as error:
            raise TypeError(f"{where}: {error}") from None
        properties[name] = dict(found[name].schema)
        if default is MISSING:
            required.append(name)
        elif _is_json(default):
            properties[name]["default"] = default
    return Arguments(object_schema(properties, required), found, frozenset(required))


def _parameters(function: Any) -> list[tuple[str, Any]]:
    """(name, default or MISSING) of each parameter but the first. Raises TypeError if one can't be given by name.

    By hand, since inspect.signature, run anew in every forked env, would write to 0.25 MiB of pages shared until then.
    """
    code = function.__code__
    taken = code.co_argcount + code.co_kwonlyargcount
    positional, variable = code.co_varnames[: code.co_argcount], code.co_varnames[taken:]
    variadic = [bool(code.co_flags & CO_VARARGS), bool(code.co_flags & CO_VARKEYWORDS)].count(True)
    for name in (*positional[1 : code.co_posonlyargcount], *variable[:variadic]):
        raise TypeError(f"{function.__qualname__}: parameter {name} can't be given by name")
    defaults = function.__defaults__ or ()
    given = {**dict(zip(positional[::-1], defaults[::-1], strict=False)), **(function.__kwdefaults__ or {})}
    return [(name, given.get(name, MISSING)) for name in code.co_varnames[1:taken]]


def _is_json(value: Any) -> bool:
    try:
        jsontext.dumps(value)
    except (TypeError, ValueError):
        return False
    return True
