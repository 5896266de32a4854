"""Draws GridSim's days and writes tasks/ and evals/. Needs numpy, which nothing else here does.

    python build.py                  # write the files
    python build.py --check          # only compare: does drawing them again give the files here?
    python build.py --prices FILE    # with prices of your own; in a copy of this folder, under another name

The prices are synthetic, drawn for each day from a small model of a power market with much wind and sun; no market data
is in here. Other versions of numpy or libm may round a price differently by a cent, so the files are committed, and
SHA256 says what they are.

FILE is a CSV with a day a row: month (1 to 12), hub, and 24 prices in $ per MWh; lines that begin with # are left out.
Or it is a workbook (.xlsx, which needs openpyxl) as ERCOT publishes it for a year, "Historical DAM Load Zone and Hub
Prices": its four hubs are taken, and dates of 23 or 25 hours are skipped. Every 11th date is for eval, the others are
for train; days are drawn again and again with other batteries.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER / "envs" / "gridsim"))

from baselines import greedy  # noqa: E402
from gridsim import HOURS, Day, optimum, profit  # noqa: E402
from prices import Group, PriceDay, read_prices  # noqa: E402

SHA256 = {
    "tasks/train.jsonl": "4e35bf493f630b8a2b10c8fe0e7c32564c841d512b5f4d8c8b656b8a88d06a71",
    "tasks/eval.jsonl": "d26c89950f954b5116d2e5ec6d70d28dc223fb0177697dc91889e8d4f1a38b76",
    "evals/train.toml": "dd0b7af8ee793afef41a83ffff6454128c0cc072188bfc9188f64010b79126ae",
    "evals/eval.toml": "2bdea73e430e68499f5d09ad503536af70dd2e7a50f8062315430202d74051d5",
}

SEED = {"train": 11, "eval": 31}
DAYS = {"train": 2000, "eval": 200}
DURATIONS = (1, 2, 4)  # hours
DURATION_MIX = {"train": (0.40, 0.35, 0.25), "eval": (0.34, 0.33, 0.33)}
POWERS, EFFICIENCIES, WEARS = (5, 10, 20, 50, 100), (80, 85, 90), (500, 1000, 1500)
LEAST_PER_MW = 2 * 100 * 100  # $2 per MW: a day whose optimum is less is drawn again

SYSTEM_PROMPT = """\
You run a grid battery for one day. You buy electricity in cheap hours and sell it in dear hours, to make as much \
profit as you can.

A schedule is a list of exactly 24 whole numbers, the first for hour 0, the last for hour 23:
+n buys n MWh and stores them, -n takes n MWh out of the battery and sells them, 0 does nothing.

Rules:
1. The battery starts empty. You can only sell what you bought in earlier hours.
2. No number is above the power or below minus the power.
3. The sum of the numbers up to any hour is what is stored. It is never below 0 and never above power x duration.
4. What is left after hour 23 is worth nothing.

Money: buying n MWh costs n x price. Taking n MWh out earns n x (price x efficiency - wear).
Score: 0 if you break a rule, lose money or submit nothing; 0.2 for zero profit; 1.0 for the highest profit possible.

Call submit_schedule once; only one schedule counts. For a battery with power 120 MW and duration 2 h, on a day that \
is cheapest in hours 9 and 10 and dearest in hours 12 and 14, a good answer is
submit_schedule(schedule=[0,0,0,0,0,0,0,0,0,120,120,0,-120,0,-120,0,0,0,0,0,0,0,0,0])
Your battery and your prices are others, so your numbers are too."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A day and where it comes from."""

    name: str
    month: int
    hub: str
    day: Day


# ---- prices ----------------------------------------------------------------------------------------------------------

PRICE_CAP, PRICE_FLOOR = 5000.0, -250.0  # $/MWh: ERCOT's system-wide offer cap since 2022, and its offer floor
SEASON = (0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 0)  # by month: winter, spring, summer, autumn
DEMAND_MEAN = (49.0, 47.0, 62.0, 49.0)  # GW, by season, as is all that follows
DEMAND_SPREAD = (4.5, 2.5, 4.0, 2.5)  # the weather's effect on the whole day
EVENING = (6.0, 6.5, 12.5, 7.0)
MORNING = (6.0, 3.0, 0.5, 3.0)
SOLAR_PEAK = (9.0, 13.0, 15.0, 11.0)
DAYLIGHT = (10.4, 12.8, 13.8, 11.4)  # hours
WIND_MEAN = (13.0, 14.0, 10.0, 12.0)
THERMAL = (67.0, 61.0, 74.0, 63.5)  # what can run; spring and autumn lose some to maintenance
GAS_MEDIAN, GAS_SPREAD = 4.0, 0.35  # $/MMBtu, lognormal
HUBS = ("HOUSTON", "NORTH", "SOUTH", "WEST")


def synthetic(rng: Any) -> PriceDay:
    """A day from a `numpy.random.Generator`.

    Net load, which is demand less sun and wind, climbs a convex stack of gas plants. Peakers and scarcity set the price
    near its top, curtailed wind and sun at its bottom, and the West hub sells into congestion.
    """
    import numpy as np

    def bump(centre: float, width: float) -> Any:
        return np.exp(-0.5 * ((hours - centre) / width) ** 2)

    month = int(rng.integers(0, 12))
    season = SEASON[month]
    summer = season == 2
    hub = HUBS[int(rng.choice(4, p=(0.3, 0.3, 0.2, 0.2)))]
    hours = np.arange(HOURS) + 0.5
    weekend = rng.random() < 2 / 7
    heat = rng.normal()
    demand = DEMAND_MEAN[season] + DEMAND_SPREAD[season] * heat - (2.5 if weekend else 0.0)
    demand = demand - 5.0 * bump(3.5, 2.6)
    evening = bump(17.6 if summer else 19.2, 3.2 if summer else 2.4)
    demand = demand + (EVENING[season] * (1 + 0.15 * heat) * evening)
    demand = demand + MORNING[season] * (1 + 0.35 * max(heat, -1.0)) * bump(7.4, 1.5) * (0.5 if weekend else 1.0)
    clear = float(np.clip(rng.beta(5.0, 1.6), 0.15, 1.0))
    daylight = DAYLIGHT[season]
    sun = np.clip(np.cos(np.pi * (hours - 13.3) / daylight), 0.0, None) * (np.abs(hours - 13.3) < daylight / 2)
    solar = SOLAR_PEAK[season] * clear * sun**0.8
    level = WIND_MEAN[season] * math.exp(rng.normal(-0.08, 0.40))
    drift, state = np.empty(HOURS), rng.normal()
    for hour in range(HOURS):
        state = 0.86 * state + math.sqrt(1 - 0.86**2) * rng.normal()
        drift[hour] = state
    wind = np.clip(level * (1 + 0.22 * np.cos(2 * np.pi * (hours - 1.0) / 24)) * np.exp(0.18 * drift), 0.3, 28.0)
    net = demand - solar - wind
    thermal = THERMAL[season] - abs(rng.normal(0, 2.2))
    load = net / thermal
    gas = float(np.clip(GAS_MEDIAN * math.exp(rng.normal(0, GAS_SPREAD)), 1.5, 11.0))
    price = gas * (6.0 + 10.5 * np.clip(load - 0.35, 0, None) ** 1.3) + 1.5
    price = price + 55.0 * np.clip(load - 0.70, 0, None) / 0.1
    reserve = np.clip(thermal - net, 0, None)
    price = price + 4200.0 * np.exp(-reserve / 1.15) + 240.0 * np.exp(-reserve / 3.2)
    low = np.clip(0.42 - load, 0, None)
    price = price - gas * 34.0 * low - 60.0 * low**2
    if hub == "WEST":
        price = price - 9.0 * np.clip(wind / WIND_MEAN[season] - 0.9, 0, 2.0) * (1 + 0.5 * sun)
    price = price * (1 + 0.03 * rng.normal(0, 1, HOURS)) + 0.6 * rng.normal(0, 1, HOURS) + rng.normal(0, 1.5)
    price = np.where(price < -6.0, -6.0 + 0.35 * (price + 6.0), price)  # few sellers pay much to stay on
    return month + 1, hub, [int(cents) for cents in np.rint(np.clip(price, PRICE_FLOOR, PRICE_CAP) * 100)]


def recorded(groups: list[Group], split: str) -> Callable[[Any], PriceDay]:
    """Draws from days of a file, the splits kept apart."""
    mine = [day for number, group in enumerate(groups) for day in group if (number % 11 == 0) == (split == "eval")]
    return lambda rng: mine[int(rng.integers(0, len(mine)))]


# ---- days ------------------------------------------------------------------------------------------------------------


def draw(split: str, index: int, prices_from: Callable[[Any], PriceDay] = synthetic) -> Drawn:
    """A pure function of its arguments.

    A day that pays too little, or that the greedy rule already solves, is drawn again, so that every day leaves
    something to learn; the battery's size is drawn first, so that the mix of durations is the one asked for.
    """
    import numpy as np

    first = np.random.default_rng([SEED[split], index])
    power, duration = int(first.choice(POWERS)), int(first.choice(DURATIONS, p=DURATION_MIX[split]))
    for attempt in range(1000):
        rng = np.random.default_rng([SEED[split], index, 1 + attempt])
        month, hub, prices = prices_from(rng)
        efficiency, wear = int(rng.choice(EFFICIENCIES)), int(rng.choice(WEARS))
        day = Day(power=power, duration=duration, efficiency=efficiency, wear=wear, prices=prices)
        best, _ = optimum(day)
        if best >= LEAST_PER_MW * power and profit(day, greedy(day)) < best:
            return Drawn(f"{split}-{index:04d}", month, hub, day)
    raise RuntimeError(f"{split} {index}: no day pays")


# ---- files -----------------------------------------------------------------------------------------------------------


def prompt(day: Day) -> str:
    power, duration = day["power"], day["duration"]
    prices = "\n".join(f"{hour}: {cents / 100:.2f}" for hour, cents in enumerate(day["prices"]))
    return f"""\
Battery:
power: {power} MW (each number is from -{power} to {power})
duration: {duration} h (at most {power * duration} MWh are stored)
efficiency: {day["efficiency"]}%
wear: ${day["wear"] / 100:.2f} per MWh taken out

Price in $ per MWh, by hour:
{prices}

Submit the schedule that makes the most profit."""


def task(drawn: Drawn) -> dict[str, Any]:
    """One line of tasks/*.jsonl."""
    day = {"service": "gridsim", "uri": "urn:gridsim:load-day/v1", "args": {"day": drawn.day}}
    steps: list[dict[str, Any]] = [
        {"id": "env", "type": "deploy_env", "env_id": "gridsim"},
        {"id": "day", "type": "apply_server_config", "env_id": "gridsim", "directives": [day]},
        {"id": "agent", "type": "deploy_agent", "env_ids": ["gridsim"]},
        {"id": "plan", "type": "prompt_agent", "system_prompt": SYSTEM_PROMPT, "prompt": prompt(drawn.day)},
        {
            "id": "score",
            "type": "env_outcome_verifier",
            "env_id": "gridsim",
            "file_artifact_id": "check_schedule",
            "score_aggregator": "weighted_average",
        },
    ]
    tags = {"duration": f"{drawn.day['duration']}h", "month": str(drawn.month), "hub": drawn.hub}
    return {"name": drawn.name, "tags": tags, "steps": steps}


def files(groups: list[Group] | None) -> Iterator[tuple[str, bytes]]:
    """(path in the bundle, content) of everything that is drawn; from these days if there are any."""
    for split, count in DAYS.items():
        prices_from = recorded(groups, split) if groups else synthetic
        tasks = [task(draw(split, index, prices_from)) for index in range(count)]
        lines = [json.dumps(one, separators=(",", ":")) + "\n" for one in tasks]
        yield f"tasks/{split}.jsonl", "".join(lines).encode()
        names = "".join(f'    "{one["name"]}",\n' for one in tasks)
        yield f"evals/{split}.toml", f"tasks = [\n{names}]\n".encode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file differs")
    parser.add_argument(
        "--prices", metavar="FILE", type=Path, help="a CSV, or ERCOT's workbook, of days instead of synthetic ones"
    )
    args = parser.parse_args()
    check, differs = args.check, False
    try:
        prices = read_prices(args.prices) if args.prices else None
    except (OSError, ValueError) as error:
        parser.error(str(error))
    if prices is not None:
        count = sum(map(len, prices.groups))
        print(f"{count} days on {len(prices.groups)} dates; {prices.skipped} dates skipped that don't have 24 hours")
    for name, content in files(prices.groups if prices else None):
        path = FOLDER / name
        same = path.is_file() and path.read_bytes() == content
        differs |= not same
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        state = "same" if same else "differs" if check else "written"
        print(f"{hashlib.sha256(content).hexdigest()}  {name}  {len(content)} bytes, {state}")
    sys.exit(1 if check and differs else 0)


if __name__ == "__main__":
    main()
