"""GridSim's rules: one battery, one day of hourly prices, one schedule. Pure functions on exact integers.

Energy is in MWh, prices are in cents per MWh, and money is in hundredths of a cent, so that a per cent of it is whole.
"""

from typing import Annotated, TypedDict

from agent_env.env import Field

HOURS = 24


class Day(TypedDict):
    """What an episode is about."""

    power: Annotated[int, Field("MWh that can be bought or taken out in an hour", minimum=1)]
    duration: Annotated[int, Field("hours at full power until the battery is full", minimum=1)]
    efficiency: Annotated[int, Field("per cent of each MWh taken out that is sold", minimum=1, maximum=100)]
    wear: Annotated[int, Field("cents that each MWh taken out costs", minimum=0)]
    prices: Annotated[list[int], Field("cents per MWh, by hour", min_length=HOURS, max_length=HOURS)]


class RuleBroken(Exception):
    """A schedule does what the battery can't; str() says in which hour, and what."""


def buy_cost(day: Day, hour: int) -> int:
    """What one MWh bought costs."""
    return day["prices"][hour] * 100


def sell_income(day: Day, hour: int) -> int:
    """What one MWh taken out brings, wear paid; less than 0 if its sale doesn't pay."""
    return day["prices"][hour] * day["efficiency"] - day["wear"] * 100


def profit(day: Day, schedule: list[int]) -> int:
    """The money that 24 integers make: +n buys n MWh, -n takes n MWh out, 0 idles. Raises RuleBroken.

    The battery starts empty, and what is left in it at the end is worth nothing.
    """
    power, capacity = day["power"], day["power"] * day["duration"]
    stored = made = 0
    for hour, move in enumerate(schedule):
        if abs(move) > power:
            raise RuleBroken(f"hour {hour} moves more than {power} MWh")
        if stored + move < 0:
            raise RuleBroken(f"hour {hour} takes out {-move} MWh, but only {stored} MWh are stored")
        if stored + move > capacity:
            raise RuleBroken(f"hour {hour} stores {stored + move} MWh, but only {capacity} MWh fit")
        stored += move
        made -= move * (buy_cost(day, hour) if move > 0 else sell_income(day, hour))
    return made


def optimum(day: Day) -> tuple[int, list[int]]:
    """The most that any schedule makes, and one that does.

    Backwards over (hour, MWh stored). The rules are an integer network flow whose bounds are all multiples of `power`,
    so some best schedule only idles or moves at full power, and one state for each multiple is enough.
    """
    power, levels = day["power"], range(day["duration"] + 1)
    worth = [0] * len(levels)  # what can still be made from each level of charge
    choices = []
    for hour in reversed(range(HOURS)):
        cost, income = power * buy_cost(day, hour), power * sell_income(day, hour)
        best = []
        for level in levels:
            options = [(worth[level], 0)]
            if level + 1 in levels:
                options.append((worth[level + 1] - cost, 1))
            if level > 0:
                options.append((worth[level - 1] + income, -1))
            best.append(max(options, key=lambda option: option[0]))
        worth = [made for made, _ in best]
        choices.append([move for _, move in best])
    level, schedule = 0, []
    for choice in reversed(choices):
        schedule.append(choice[level] * power)
        level += choice[level]
    return worth[0], schedule
