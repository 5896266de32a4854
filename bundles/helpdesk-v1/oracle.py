"""For `agent-env probe`: policies that see what a model sees.

- oracle: reads everything, looks everybody up, and keeps the rules.
- hasty: routes by the subject alone, all of it with normal priority, guesses an answer, and makes every change that is
  asked for.
"""

import json
import re
from typing import Any

from texts import MANY, REQUESTS, TROUBLES

from agent_env.authoring.script import Moves, answer, call, scripted

STEPS_UP = ("low", "normal", "high", "urgent")
PLAN_STEP = {"gold": 2, "silver": 1, "bronze": 0}
PATTERNS = [
    re.compile(
        re.escape(text)
        .replace(r"\{", "{")
        .replace(r"\}", "}")
        .format(field=r"(?P<field>\w+)", name="(?P<name>.+)", value=r"(?P<value>[\w-]+)")
    )
    for text in REQUESTS.values()
]


def oracle(prompt: str) -> Moves:
    tickets = json.loads((yield call("list_tickets")))
    addresses = [ticket["sender"].partition("<")[2].rstrip(">") for ticket in tickets]
    found = yield [call("find_people", query=address) for address in addresses]
    people = {person["email"]: person for text in found for person in json.loads(text)}
    names = sorted({person["company"] for person in people.values()})
    companies = dict(
        zip(names, map(json.loads, (yield [call("get_company", name=name) for name in names])), strict=True)
    )
    plans = {email: companies[person["company"]]["plan"] for email, person in people.items()}
    routes = []
    for ticket, address in zip(tickets, addresses, strict=True):
        several = any(sentence in ticket["body"] for sentence in MANY)
        step = PLAN_STEP[plans[address]] + several if address in plans else 0
        routes.append(call("route_ticket", ticket_id=ticket["id"], team=_team(ticket["body"]), priority=STEPS_UP[step]))
    yield routes
    question = yield answer("Routed.")
    asked = re.search(r"T-\d+", question)
    if asked is None:
        said = str(sum(plans.get(address) == "gold" for address in addresses))
    else:
        sender = people[next(a for t, a in zip(tickets, addresses, strict=True) if t["id"] == asked[0])]
        is_manager = "email address" in question
        said = sender["manager"] if is_manager else companies[sender["company"]]["account_manager"]
    yield answer(said)
    for ticket, address in zip(tickets, addresses, strict=True):
        wanted = _wanted(ticket["body"])
        if wanted is None or address not in people:
            continue
        person = people[address]
        if "name" in wanted:
            person = json.loads((yield call("find_people", query=wanted["name"])))[0]
        if address in (person["email"], person["manager"]):
            yield call("update_person", email=person["email"], field=wanted["field"], value=wanted["value"])
    yield answer("Changed.")


def hasty(prompt: str) -> Moves:
    tickets = json.loads((yield call("list_tickets")))
    yield [
        call("route_ticket", ticket_id=ticket["id"], team=_team_by_subject(ticket["subject"]), priority="normal")
        for ticket in tickets
    ]
    yield answer("Routed.")
    yield answer("2")
    for ticket in tickets:
        if (wanted := _wanted(ticket["body"])) is not None:
            name = wanted.get("name") or ticket["sender"].partition(" <")[0]
            person = json.loads((yield call("find_people", query=name)))[0]
            yield call("update_person", email=person["email"], field=wanted["field"], value=wanted["value"])
    yield answer("Changed.")


def _team(body: str) -> str:
    for team, troubles in TROUBLES.items():
        if any(body.startswith(sentence) for _, sentence in troubles):
            return team
    return "records"


def _team_by_subject(subject: str) -> str:
    for word, team in (("nvoice", "billing"), ("rice", "billing"), ("ogin", "access"), ("etwork", "network")):
        if word in subject:
            return team
    return "hardware" if subject in {"Screen", "Battery", "Keyboard"} else "records"


def _wanted(body: str) -> dict[str, Any] | None:
    """The change that a ticket asks for: field, value, and the name unless it is the sender's own."""
    for pattern in PATTERNS:
        if (match := pattern.fullmatch(body)) is not None:
            return match.groupdict()
    return None


POLICIES = {"oracle": scripted(oracle), "hasty": scripted(hasty)}
SPLIT = "eval"
REWARD = "mean"
SCORES = {"oracle": 1.0, "hasty": 0.269, "no-op": 0.0}
