"""Draws the helpdesk's directories and inboxes, and writes artifacts/directory-*, tasks/ and evals/. No dependencies.

python build.py             # write the files
python build.py --check     # only compare: does drawing them again give the files here?
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))

from texts import (  # noqa: E402
    ALONE,
    CHANGES,
    MANY,
    QUESTIONS,
    REQUEST_SUBJECTS,
    REQUESTS,
    SYSTEM_PROMPT,
    TRIAGE,
    TROUBLES,
)

TASKS = {"train": 64, "eval": 24}
DIRECTORIES = 6
STEPS_UP = ("low", "normal", "high", "urgent")
PLAN_PRIORITY = {"gold": "high", "silver": "normal", "bronze": "low"}

FIRST = ("Ada", "Ben", "Carla", "Dario", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Kira", "Leo", "Mila")
LAST = ("Abel", "Berg", "Costa", "Diaz", "Evans", "Fuchs", "Grant", "Haas", "Ibsen", "Jansen", "Kovac", "Lind", "Novak")
COMPANIES = ("Amber Mills", "Birch Labs", "Cobalt Freight", "Delta Bakery", "Elm Press", "Fjord Optics", "Garnet Books")
ACCOUNT_MANAGERS = ("Irene Falk", "Marco Stein", "Noor Haddad", "Peter Lang")
REGIONS = ("north", "south", "east", "west")


def directory(number: int) -> dict[str, Any]:
    """Four companies with six people each: one leads, five report to one of the others or to the head."""
    draw = random.Random(f"helpdesk-v1 directory {number}")
    plans = ["gold", "silver", "bronze", draw.choice(("gold", "silver", "bronze"))]
    draw.shuffle(plans)
    names = draw.sample([f"{first} {last}" for first in FIRST for last in LAST], 24)
    companies, people = [], []
    for place, company in enumerate(draw.sample(COMPANIES, 4)):
        manager = draw.choice(ACCOUNT_MANAGERS)
        companies.append(
            {"name": company, "plan": plans[place], "region": draw.choice(REGIONS), "account_manager": manager}
        )
        domain = company.lower().replace(" ", "-") + ".example"
        staff = names[place * 6 : place * 6 + 6]
        emails = [f"{name.lower().replace(' ', '.')}@{domain}" for name in staff]
        for index, (name, email) in enumerate(zip(staff, emails, strict=True)):
            boss = emails[0] if index < 3 else emails[draw.choice((1, 2))]
            people.append(
                {
                    "name": name,
                    "email": email,
                    "phone": _phone(draw),
                    "desk": _desk(draw),
                    "company": company,
                    "manager": "" if index == 0 else boss,
                }
            )
    draw.shuffle(people)
    return {"companies": companies, "people": people}


def task(split: str, index: int) -> dict[str, Any]:
    """A pure function of its arguments: an inbox of three troubles and three requests, and a question."""
    draw = random.Random(f"helpdesk-v1 {split} {index}")
    number = 1 + index % DIRECTORIES
    seed = directory(number)
    people = {person["email"]: person for person in seed["people"]}
    plans = {company["name"]: company["plan"] for company in seed["companies"]}
    senders = draw.sample([person for person in seed["people"] if person["manager"]], 6)
    drawn = [_trouble(draw, sender, plans) for sender in senders[:3]]
    kinds = ["self" if draw.random() < 0.5 else "manager", draw.choice(("colleague", "outsider"))]
    kinds.append(draw.choice(("self", "manager", "colleague", "outsider")))
    requests = [_request(draw, kind, person, people, plans) for kind, person in zip(kinds, senders[3:], strict=True)]
    allowed = [change for _, change, is_allowed in requests if is_allowed]
    drawn += [ticket for ticket, _, _ in requests]
    draw.shuffle(drawn)
    tickets = [{"id": f"T-{101 + place}", **ticket} for place, ticket in enumerate(drawn)]
    kind, question, answer = _question(draw, tickets, people, seed["companies"])
    tags = {"question": kind, "changes": str(len(allowed))}
    return {"name": f"{split}-{index:03d}", "tags": tags, "steps": _steps(number, tickets, allowed, question, answer)}


def _trouble(draw: random.Random, sender: dict[str, str], plans: dict[str, str]) -> dict[str, str]:
    team = draw.choice(sorted(TROUBLES))
    subject, body = draw.choice(TROUBLES[team])
    many = draw.random() < 0.4
    body = f"{body} {draw.choice(MANY if many else ALONE)}"
    return _ticket(sender["name"], sender["email"], subject, body, team, _priority(plans[sender["company"]], many))


def _request(
    draw: random.Random,
    kind: str,
    person: dict[str, str],
    people: dict[str, dict[str, str]],
    plans: dict[str, str],
) -> tuple[dict[str, str], dict[str, str], bool]:
    """The ticket, the change of `person`'s record that it asks for, and whether it may be made."""
    field = draw.choice(("phone", "desk"))
    value = _phone(draw) if field == "phone" else _desk(draw)
    while value == person[field]:
        value = _phone(draw) if field == "phone" else _desk(draw)
    sender = person
    if kind == "manager":
        sender = people[person["manager"]]
    elif kind == "colleague":
        others = [
            other
            for other in people.values()
            if other["company"] == person["company"] and other["email"] not in (person["email"], person["manager"])
        ]
        sender = draw.choice(others)
    address = sender["email"]
    if kind == "outsider":
        address = address.partition("@")[0] + draw.choice(("@mailbox.example", "@quickmail.example"))
    own = kind in ("self", "outsider")
    body = REQUESTS["self" if own else "other"].format(field=field, name=person["name"], value=value)
    priority = "low" if kind == "outsider" else _priority(plans[sender["company"]], False)
    ticket = _ticket(sender["name"], address, draw.choice(REQUEST_SUBJECTS), body, "records", priority)
    change = {"email": person["email"], "field": field, "value": value}
    return ticket, change, kind in ("self", "manager")


def _ticket(name: str, address: str, subject: str, body: str, team: str, priority: str) -> dict[str, str]:
    sender = f"{name} <{address}>"
    return {"sender": sender, "subject": subject, "body": body, "team": team, "priority": priority}


def _priority(plan: str, many: bool) -> str:
    return STEPS_UP[STEPS_UP.index(PLAN_PRIORITY[plan]) + many]


def _question(
    draw: random.Random,
    tickets: list[dict[str, str]],
    people: dict[str, dict[str, str]],
    companies: list[dict[str, str]],
) -> tuple[str, str, str]:
    """Its kind, the question, the answer."""
    company_of = {company["name"]: company for company in companies}
    senders = {ticket["id"]: people.get(ticket["sender"].partition("<")[2].rstrip(">")) for ticket in tickets}
    kind = draw.choice(sorted(QUESTIONS))
    known = {ticket: person for ticket, person in senders.items() if person and person["manager"]}
    ticket, person = draw.choice(sorted(known.items()))
    if kind == "manager":
        answer = person["manager"]
    elif kind == "account":
        answer = company_of[person["company"]]["account_manager"]
    else:
        answer = str(sum(company_of[p["company"]]["plan"] == "gold" for p in senders.values() if p))
    return kind, QUESTIONS[kind].format(ticket=ticket), answer


def _steps(
    number: int, tickets: list[dict[str, str]], allowed: list[dict[str, str]], question: str, answer: str
) -> list[dict[str, Any]]:
    inbox = {"service": "tickets", "uri": "urn:helpdesk:load-inbox/v1", "args": {"tickets": tickets}}
    changes = {"service": "directory", "uri": "urn:helpdesk:load-allowed-changes/v1", "args": {"allowed": allowed}}
    pattern = rf"\A\W*{re.escape(answer)}\W*\Z"
    return [
        {"id": "tickets", "type": "deploy_env", "env_id": "tickets"},
        {"id": "directory", "type": "deploy_env", "env_id": "directory"},
        {"id": "seed", "type": "load_artifact", "env_id": "directory", "artifact_id": f"directory-{number}"},
        {"id": "inbox", "type": "apply_server_config", "env_id": "tickets", "directives": [inbox]},
        {"id": "allowed", "type": "apply_server_config", "env_id": "directory", "directives": [changes]},
        {"id": "agent", "type": "deploy_agent", "env_ids": ["tickets", "directory"], "system_prompt": SYSTEM_PROMPT},
        {"id": "route", "type": "prompt_agent", "prompt": TRIAGE.format(count=len(tickets))},
        {
            "id": "triage",
            "type": "env_outcome_verifier",
            "env_id": "tickets",
            "file_artifact_id": "check_triage",
            "score_aggregator": "weighted_average",
        },
        {"id": "ask", "type": "prompt_agent", "prompt_id": "question", "prompt": question},
        {
            "id": "answer",
            "type": "agent_prompt_response_verifier",
            "prompt_id": "question",
            "criteria": [{"type": "response_regex_present", "pattern": pattern, "flags": ["IGNORECASE"]}],
        },
        {
            "id": "trust",
            "type": "modify_env_tool_access",
            "env_id": "directory",
            "action": "enable",
            "role": "default",
            "tools": ["update_person"],
        },
        {"id": "update", "type": "prompt_agent", "prompt": CHANGES},
        {
            "id": "changes",
            "type": "env_outcome_verifier",
            "env_id": "directory",
            "file_artifact_id": "check_changes",
            "score_aggregator": "weighted_average",
        },
    ]


def _phone(draw: random.Random) -> str:
    return f"555-{draw.randrange(10000):04d}"


def _desk(draw: random.Random) -> str:
    return f"{draw.choice('ABCD')}-{draw.randrange(1, 100):02d}"


def files() -> Iterator[tuple[str, str]]:
    """(path in the bundle, text) of everything that is drawn."""
    for number in range(1, DIRECTORIES + 1):
        folder = f"artifacts/directory-{number}"
        toml = 'type = "environment"\nenvironment_name = "directory"\nfile = "directory.json"\n'
        yield f"{folder}/artifact.toml", toml
        yield f"{folder}/directory.json", json.dumps(directory(number), indent=1) + "\n"
    for split, count in TASKS.items():
        tasks = [task(split, index) for index in range(count)]
        yield f"tasks/{split}.jsonl", "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in tasks)
        names = "".join(f'    "{one["name"]}",\n' for one in tasks)
        yield f"evals/{split}.toml", f"tasks = [\n{names}]\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file differs")
    check, differs = parser.parse_args().check, False
    for name, text in files():
        path = FOLDER / name
        same = path.is_file() and path.read_text(encoding="utf-8") == text
        differs |= not same
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        print(f"{name}: {'same' if same else 'differs' if check else 'written'}")
    sys.exit(1 if check and differs else 0)


if __name__ == "__main__":
    main()
