"""The kinds of tasks: each draws files, a prompt, and what must hold in the end.

A criterion with a negative weight takes away for what was right before and isn't any more, so that a task that nobody
touches is worth 0. No criterion is ever shown to the agent.
"""

from __future__ import annotations

import contextlib
import io
import random
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from programs import PROGRAMS

PEOPLE = ("Ada", "Ben", "Carla", "Dario", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Kira", "Leo", "Mila")


@dataclass
class Drawn:
    prompt: str
    files: dict[str, str] = field(default_factory=dict)
    """Path in /app/job -> content."""
    criteria: list[dict[str, Any]] = field(default_factory=list)

    def command(self, what: str, command: str, weight: float = 1.0) -> None:
        """It must succeed, in /app/job."""
        self.criteria.append({"type": "bash_cmd_succeeds", "criterion": what, "bash_cmd": command, "weight": weight})

    def python(self, what: str, condition: str, *, given: str, weight: float = 1.0) -> None:
        """The condition must hold after the statements."""
        code = f"{given}\nraise SystemExit(not ({condition}))"
        self.command(what, f"python3 -I -c {shlex.quote(code)}", weight)

    def whole_file(self, path: str, text: str, weight: float) -> None:
        self.command(f"{path} is exactly right", f"printf %s {shlex.quote(text)} | cmp -s - {path}", weight)


def totals(draw: random.Random, index: int) -> Drawn:
    regions = draw.sample(("north", "south", "east", "west", "centre"), 4)
    rows, sums = ["order,region,status,units,cents"], dict.fromkeys(regions, 0)
    for order in range(1, 61):
        region, status = draw.choice(regions), draw.choice(("paid", "paid", "open", "cancelled"))
        units, cents = draw.randint(1, 9), draw.randint(100, 9900)
        rows.append(f"{order},{region},{status},{units},{cents}")
        sums[region] += units * cents if status == "paid" else 0
    lines = [f"{region} {total}" for region, total in sorted(sums.items(), key=lambda item: -item[1])]
    drawn = Drawn(
        "orders.csv holds orders: a header, then order, region, status, units and the price of a unit in cents. Write "
        "totals.txt with a line for each region, as `REGION TOTAL`: the total is the sum of units x price, in cents, "
        "over the region's orders with the status paid. The highest total comes first.",
        {"orders.csv": "\n".join(rows) + "\n"},
    )
    for line in lines:
        drawn.command(f"has {line.partition(' ')[0]}'s total", f"grep -qx {shlex.quote(line)} totals.txt")
    drawn.whole_file("totals.txt", "\n".join(lines) + "\n", 2.0)
    return drawn


def log(draw: random.Random, index: int) -> Drawn:
    clients = [f"10.0.{draw.randint(0, 9)}.{number}" for number in draw.sample(range(2, 250), 6)]
    paths = draw.sample(("/", "/login", "/cart", "/search", "/api/items", "/api/users", "/help"), 5)
    busy, slow = draw.choice(clients), draw.choice(paths)
    lines, errors, size = [], 0, 0
    for second in range(120):
        client = busy if draw.random() < 0.3 else draw.choice(clients)
        path, status = draw.choice(paths), draw.choice((200, 200, 200, 304, 404, 500, 503))
        length, millis = draw.randint(200, 9000), draw.randint(5, 90) + (120 if path == slow else 0)
        moment = f"2025-03-{1 + index:02d}T10:{second // 60:02d}:{second % 60:02d}"
        lines.append(f'{client} [{moment}] "GET {path}" {status} {length} {millis}ms')
        errors += status >= 500
        size += length if status == 200 else 0
    counts = {client: sum(line.startswith(f"{client} ") for line in lines) for client in clients}
    busy = max(counts, key=lambda client: counts[client])
    assert sorted(counts.values())[-1] > sorted(counts.values())[-2]
    drawn = Drawn(
        "access.log holds a request a line: client, time, method and path, status, bytes sent, duration. Write "
        "report.json, an object with four keys: `errors`, the number of requests with a status of 500 or more; "
        "`busiest`, the client with the most requests; `slowest`, the path with the highest mean duration; `bytes`, "
        "the sum of the bytes sent with status 200.",
        {"access.log": "\n".join(lines) + "\n"},
    )
    for key, value in {"errors": errors, "busiest": busy, "slowest": slow, "bytes": size}.items():
        given = 'import json\nfound = json.load(open("report.json"))'
        drawn.python(f"`{key}` is right", f"found[{key!r}] == {value!r}", given=given)
    return drawn


def fix(draw: random.Random, index: int) -> Drawn:
    program = PROGRAMS[index % len(PROGRAMS)]
    right, wrong = program.bugs[index // len(PROGRAMS) % len(program.bugs)]
    assert program.source.count(right) == 1, (program.name, right)
    broken = program.source.replace(right, wrong)
    failing, working = [], []
    for given in dict.fromkeys(program.inputs(draw)):
        wanted = _run(program.source, given)
        (working if _run(broken, given) == wanted else failing).append((given, wanted))
    assert failing, (program.name, wrong)
    drawn = Drawn(
        f"The Python program `{program.name}` has a bug. {program.description} Find the bug and mend it in place.",
        {program.name: broken},
    )
    for sign, cases in ((1.0, failing[:4]), (-1.0, working[:3])):
        for number, (given, wanted) in enumerate(cases, start=1):
            what = f"{'mended' if sign > 0 else 'still right'} {number}"
            command = f"printf %s {shlex.quote(given)} | timeout 10 python3 -I {program.name} | cmp -s - "
            drawn.command(what, f"{command}<(printf %s {shlex.quote(wanted)})", sign)
    return drawn


def tidy(draw: random.Random, index: int) -> Drawn:
    files, moved = {}, {}
    kinds = ("report", "minutes", "offer", "photo list", "letter", "plan", "recipe", "to do")
    for number, kind in enumerate(kinds, start=1):
        year, month, day = draw.randint(2021, 2024), draw.randint(1, 12), draw.randint(1, 28)
        name = f"{kind} {number}{draw.choice(('.txt', '.md'))}"
        text = f"Date: {year}-{month:02d}-{day:02d}\n{kind}, {draw.randrange(10**6):06d}\n"
        files[f"inbox/{name}"], moved[f"{year}/{month:02d}/{name}"] = text, text
    drawn = Drawn(
        "The files in inbox/ each begin with a line `Date: YYYY-MM-DD`. Move each into YYYY/MM/ of its date, beside "
        "inbox/, under its own name and unchanged; some names have spaces. Leave nothing in inbox/ and no other file.",
        files,
    )
    for path, text in moved.items():
        content = f"printf %s {shlex.quote(text)} | cmp -s - {shlex.quote(path)}"
        drawn.command(f"{path} is in place", f"{content} && [ ! -e {shlex.quote('inbox/' + path[8:])} ]")
    listing = "".join(f"./{path}\n" for path in sorted(moved))
    wanted = f"printf %s {shlex.quote(listing)}"
    drawn.command("nothing else is there", f"cmp -s <(find . -type f | LC_ALL=C sort) <({wanted})", 2.0)
    return drawn


def config(draw: random.Random, index: int) -> Drawn:
    port, wanted_port = draw.sample(range(8000, 9000), 2)
    size, level = draw.choice((64, 128, 256)), draw.choice(("debug", "warning", "error"))
    hosts = ", ".join(f"db{draw.randint(1, 9)}.example" for _ in range(2))
    text = (
        f"# Edited by hand: keep the comments.\n[server]\nport = {port}\nhost = 0.0.0.0\n\n"
        f"[database]\n# primary first\nhosts = {hosts}\nuser = app\n\n"
        f"[legacy]\nport = {port}\nenabled = no\n\n[logging]\nlevel = info\n"
    )
    drawn = Drawn(
        f"app.ini configures a service. Change it so: the port in [server] is {wanted_port}; the level in [logging] is "
        f"{level}; the section [legacy] is gone; a new section [cache] has size = {size}. All else stays as it is, "
        "comments too.",
        {"app.ini": text},
    )
    given = 'from configparser import ConfigParser\nfound = ConfigParser()\nfound.read_string(open("app.ini").read())'
    drawn.python("the port is changed", f"found['server']['port'] == '{wanted_port}'", given=given)
    drawn.python("the level is changed", f"found['logging']['level'] == {level!r}", given=given)
    drawn.python("[legacy] is gone", "'legacy' not in found and 'server' in found", given=given)
    drawn.python("[cache] is there", f"found['cache']['size'] == '{size}'", given=given)
    drawn.python("the host is kept", "found['server']['host'] == '0.0.0.0'", given=given, weight=-1.0)
    kept = f"dict(found['database']) == {{'hosts': {hosts!r}, 'user': 'app'}}"
    drawn.python("[database] is kept", kept, given=given, weight=-1.0)
    comments = "grep -qx '# Edited by hand: keep the comments.' app.ini && grep -qx '# primary first' app.ini"
    drawn.command("comments are kept", comments, -1.0)
    return drawn


def merge(draw: random.Random, index: int) -> Drawn:
    names = draw.sample(PEOPLE, 10)
    newest: dict[str, tuple[str, str, str]] = {}
    lists: dict[str, list[str]] = {"a.csv": [], "b.csv": []}
    for place, name in enumerate(names):
        days = draw.sample(range(1, 29), 2)
        for file, day, there in (("a.csv", days[0], place < 7), ("b.csv", days[1], place >= 3)):
            if there:
                email = f"{name.lower()}@post.example"
                phone, date = f"555-{draw.randrange(10000):04d}", f"2025-0{draw.randint(1, 9)}-{day:02d}"
                shown = email.upper() if draw.random() < 0.4 else email
                lists[file].append(f"{shown},{name},{phone},{date}")
                if email not in newest or date > newest[email][2]:
                    newest[email] = (name, phone, date)
    for lines in lists.values():
        draw.shuffle(lines)
    lines = [f"{email},{name},{phone}" for email, (name, phone, _) in sorted(newest.items())]
    drawn = Drawn(
        "a.csv and b.csv are lists of people: email,name,phone,updated. The same person may be in both, and the case "
        "of letters in an email means nothing. Write merged.csv with email,name,phone of each person once: the email "
        "in lower case, the phone from the entry that was updated last, sorted by email. The first line is the header "
        "email,name,phone.",
        {name: "email,name,phone,updated\n" + "\n".join(lines) + "\n" for name, lines in lists.items()},
    )
    for line in lines:
        drawn.command(f"{line.partition('@')[0]} is right", f"grep -qx {shlex.quote(line)} merged.csv")
    drawn.whole_file("merged.csv", "email,name,phone\n" + "\n".join(lines) + "\n", 3.0)
    return drawn


FAMILIES: dict[str, Callable[[random.Random, int], Drawn]] = {
    "totals": totals,
    "log": log,
    "fix": fix,
    "tidy": tidy,
    "config": config,
    "merge": merge,
}


def _run(source: str, given: str) -> str:
    """What a program prints for an input, up to where it fails."""
    output, stdin = io.StringIO(), sys.stdin
    sys.stdin = io.StringIO(given)
    try:
        with contextlib.redirect_stdout(output):
            exec(compile(source, "program", "exec"), {"__name__": "__main__"})
    except Exception:
        pass  # a bug
    finally:
        sys.stdin = stdin
    return output.getvalue()
