"""Scripted policies: what stands in for a model when there is none.

A policy is a pure function of the chat: `(messages, tools, request) -> Reply`. It keeps no state, so one may play any
number of sessions at once. `load_policy` takes a name of `POLICIES` or `module:attribute` for one of your own.

The GridSim policies read the battery and the prices in the prompt's text, as a model would, and share no code with the
bundle's env: that they score what they should is a check on the env, its prompt and everything in between.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "POLICIES",
    "Call",
    "Day",
    "Policy",
    "Refusal",
    "Reply",
    "end_turn",
    "greedy",
    "gridsim_policy",
    "idle",
    "load_policy",
    "optimum",
    "read_day",
]

HOURS = 24


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call, as a tool-call parser hands it over."""

    name: str
    arguments: str
    """JSON text. SGLang's parsers let any JSON value through, not only objects."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One assistant turn."""

    content: str = ""
    calls: tuple[Call, ...] = ()
    finish_reason: str | None = None
    """`stop`, `tool_calls`, `length` or `abort`; None: `tool_calls` if there are calls, else `stop`."""
    reasoning_content: str | None = None


class Refusal(Exception):
    """Raised by a policy that wants its turn to fail as an inference engine's would."""

    def __init__(self, status: int, body: Any) -> None:
        """`status`: the HTTP status, 400-599. `body`: JSON, sent as it is."""
        self.status = status
        self.body = body
        super().__init__(f"HTTP {status}: {body}")


Policy = Callable[[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]], Mapping[str, Any]], Reply]
"""(messages, tools, the whole request) -> the assistant's turn. May raise Refusal."""


def load_policy(name: str) -> Policy:
    """The policy of that name, or the one at `module:attribute`. Raises ValueError, saying what there is."""
    if name in POLICIES:
        return POLICIES[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ValueError(f"no policy {name!r}; there are {', '.join(POLICIES)}, or name yours as module:attribute")
    try:
        policy = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"policy {name!r}: {error}") from error
    if not callable(policy):
        raise ValueError(f"policy {name!r} is {type(policy).__name__}, not a callable")
    loaded: Policy = policy
    return loaded


# ------------------------------------------------------------------------------------------------ GridSim


@dataclass(frozen=True, slots=True)
class Day:
    """A GridSim day, as its prompt tells it. Money in cents."""

    power: int
    """MW: the most that is bought or sold in an hour."""
    duration: int
    """Hours at full power: the battery holds power * duration MWh."""
    efficiency: int
    """Per cent of each MWh taken out that is sold."""
    wear: int
    """Cents per MWh taken out."""
    prices: tuple[int, ...]
    """24, in cents per MWh."""

    def buy(self, hour: int) -> int:
        """What one MWh costs, in hundredths of a cent, so that a per cent of it is a whole number."""
        return self.prices[hour] * 100

    def sell(self, hour: int) -> int:
        """What one MWh taken out brings, in hundredths of a cent."""
        return self.prices[hour] * self.efficiency - self.wear * 100


Plan = Callable[[Day], list[int]]
"""Day -> 24 integers: MWh bought (+) or taken out and sold (-) in each hour."""


def idle(day: Day) -> list[int]:
    """Nothing all day."""
    return [0] * HOURS


def greedy(day: Day) -> list[int]:
    """Buy in the `duration` cheapest hours, then sell in the dearest ones after them; idle if that doesn't pay.

    Of equal hours the earlier one.
    """
    buys = sorted(range(HOURS), key=lambda hour: (day.prices[hour], hour))[: day.duration]
    later = range(max(buys) + 1, HOURS)
    sells = sorted(later, key=lambda hour: (-day.prices[hour], hour))[: day.duration]
    if sum(map(day.sell, sells)) <= sum(map(day.buy, buys)):
        return idle(day)
    plan = idle(day)
    for hour in buys:
        plan[hour] = day.power
    for hour in sells:
        plan[hour] = -day.power
    return plan


def optimum(day: Day) -> list[int]:
    """The most profitable schedule: backwards over (hour, hours' worth of power stored).

    Only full power and idling need to be tried: the rules are an integer flow whose bounds are all multiples of the
    power, so some optimum lies on those multiples.
    """
    levels = range(day.duration + 1)
    value = [0] * len(levels)
    moves: list[list[int]] = []
    for hour in reversed(range(HOURS)):
        best = []
        for level in levels:
            choices = [(value[level], 0)]
            if level < day.duration:
                choices.append((value[level + 1] - day.buy(hour), 1))
            if level > 0:
                choices.append((value[level - 1] + day.sell(hour), -1))
            best.append(max(choices, key=lambda choice: choice[0]))
        value = [money for money, _ in best]
        moves.append([move for _, move in best])
    plan, level = [], 0
    for choice in reversed(moves):
        plan.append(choice[level] * day.power)
        level += choice[level]
    return plan


def read_day(prompt: str) -> Day:
    """The day that a GridSim prompt describes. Raises ValueError, naming what it didn't find."""

    def number(what: str, pattern: str) -> int:
        found = re.search(rf"^{what}: {pattern}", prompt, re.MULTILINE)
        if found is None:
            raise ValueError(f"not a GridSim prompt: it has no line `{what}: ...`")
        return int(found[1].replace(".", ""))

    prices = re.findall(r"^(\d+): (-?\d+\.\d\d)$", prompt, re.MULTILINE)
    if [int(hour) for hour, _ in prices] != list(range(HOURS)):
        raise ValueError(f"not a GridSim prompt: it has prices of {len(prices)} hours, not of {HOURS}")
    return Day(
        power=number("power", r"(\d+) MW"),
        duration=number("duration", r"(\d+) h"),
        efficiency=number("efficiency", r"(\d+)%"),
        wear=number("wear", r"\$(\d+\.\d\d) per MWh"),
        prices=tuple(int(price.replace(".", "")) for _, price in prices),
    )


MALFORMED = ("[0, 0, 0]", '"five"', "12", '{"schedule": "all day"}')
"""Arguments as an untrained model makes them: JSON, but no object; then an object that the tool's schema refuses."""


def gridsim_policy(plan: Plan, *, first: Sequence[str] = ()) -> Policy:
    """Submits the plan for the day in the prompt, and then ends the turn.

    `first`: argument texts to call the tool with before that, one a turn.
    """

    def policy(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], request: Mapping[str, Any]) -> Reply:
        turn = sum(message.get("role") == "assistant" for message in messages)
        if turn < len(first):
            return Reply(calls=(Call("submit_schedule", first[turn]),))
        if turn == len(first):
            prompt = next(message["content"] for message in messages if message["role"] == "user")
            return Reply(calls=(Call("submit_schedule", json.dumps({"schedule": plan(read_day(prompt))})),))
        return end_turn(messages, tools, request)

    return policy


def end_turn(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], request: Mapping[str, Any]) -> Reply:
    """Ends every turn at once."""
    return Reply(calls=(Call("end_turn", json.dumps({"response": "Done."})),))


POLICIES: dict[str, Policy] = {
    "idle": gridsim_policy(idle),
    "greedy": gridsim_policy(greedy),
    "optimum": gridsim_policy(optimum),
    "malformed": gridsim_policy(greedy, first=MALFORMED),
    "end-turn": end_turn,
}
"""By name. All but `end-turn` play GridSim; `malformed` is `greedy` after four calls that can't be run."""
