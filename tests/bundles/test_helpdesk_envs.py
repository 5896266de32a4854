"""The helpdesk's two envs and its verifiers, as a model and a verifier meet them."""

from __future__ import annotations

import asyncio
import base64
import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_env.env import ToolError
from agent_env.env.testing import Driver

HELPDESK = Path(__file__).parents[2] / "bundles" / "helpdesk-v1"
PERSON = {"name": "Ada Abel", "email": "ada@x.example", "phone": "1", "desk": "A-1", "company": "X", "manager": ""}
OTHER = {**PERSON, "name": "Ben Berg", "email": "ben@x.example"}
COMPANY = {"name": "X", "plan": "gold", "region": "north", "account_manager": "Irene Falk"}
TICKET = {"id": "T-1", "sender": "Ada <a@x>", "subject": "s", "body": "b", "team": "access", "priority": "high"}


@pytest.fixture
def directory() -> Iterator[Driver]:
    with Driver(runpy.run_path(str(HELPDESK / "envs" / "directory" / "server.py"))["Directory"]) as env:
        env.add_data([seed({"people": [PERSON, OTHER], "companies": [COMPANY]})])
        yield env


@pytest.fixture
def tickets() -> Iterator[Driver]:
    with Driver(runpy.run_path(str(HELPDESK / "envs" / "tickets" / "server.py"))["Tickets"]) as env:
        env.call_extension("load_inbox", tickets=[TICKET, {**TICKET, "id": "T-2"}])
        yield env


def seed(data: Any) -> dict[str, Any]:
    content = base64.b64encode(json.dumps(data).encode()).decode()
    return {"kind": "file", "file": {"bytes": content, "name": "directory.json"}}


def rows(name: str, data: dict[str, Any]) -> list[dict[str, Any]]:
    """What the verifier makes of an env's data."""
    module = runpy.run_path(str(HELPDESK / "artifacts" / name / "verify.py"))
    verify = module["verify"]
    verify.__globals__["data"] = lambda url: data
    found: list[dict[str, Any]] = asyncio.run(verify("http://127.0.0.1:1/mcp"))
    return found


def test_tickets_are_listed_without_where_they_belong(tickets: Driver) -> None:
    (first, _) = json.loads(tickets.call("list_tickets").text)
    assert first == {"id": "T-1", "sender": "Ada <a@x>", "subject": "s", "body": "b", "routed": None}


def test_the_last_route_of_a_ticket_counts(tickets: Driver) -> None:
    tickets.call("route_ticket", ticket_id="T-1", team="billing", priority="low")
    tickets.call("route_ticket", ticket_id="T-1", team="access", priority="low")
    assert [row["score"] for row in rows("check_triage", tickets.data())] == [0.5, 0.0]


def test_an_unknown_ticket_team_or_priority_is_an_error(tickets: Driver) -> None:
    assert "T-1, T-2" in tickets.call("route_ticket", ticket_id="T-9", team="access", priority="low").text
    assert tickets.call("route_ticket", ticket_id="T-1", team="sales", priority="low").is_error
    assert tickets.call("route_ticket", ticket_id="T-1", team="access", priority="soon").is_error


def test_people_are_found_by_name_address_or_company(directory: Driver) -> None:
    for query, names in (("abel", ["Ada Abel"]), ("ben@", ["Ben Berg"]), ("x.example", ["Ada Abel", "Ben Berg"])):
        assert [person["name"] for person in json.loads(directory.call("find_people", query=query).text)] == names
    assert json.loads(directory.call("get_company", name="X").text) == COMPANY
    assert directory.call("get_company", name="Y").is_error


def test_the_tool_that_changes_records_is_hidden_until_a_step_shows_it(directory: Driver) -> None:
    hidden = [
        tool["name"] for tool in directory.tools() if (tool.get("_meta") or {}).get("agentenv.io/hiddenByDefault")
    ]
    assert hidden == ["update_person"]


def test_changes_score_what_should_be_made_less_what_should_not(directory: Driver) -> None:
    wanted = [{"email": "ada@x.example", "field": "phone", "value": "2"}]
    directory.call_extension("load_allowed_changes", allowed=wanted)
    assert [(row["score"], row["weight"]) for row in rows("check_changes", directory.data())] == [(0.0, 1.0)]
    directory.call("update_person", email="ada@x.example", field="phone", value="2")
    directory.call("update_person", email="ben@x.example", field="desk", value="B-2")
    found = rows("check_changes", directory.data())
    assert [(row["score"], row["weight"]) for row in found] == [(1.0, 1.0), (0.0, -1.0)]
    directory.call("update_person", email="ben@x.example", field="desk", value="A-1")
    assert len(rows("check_changes", directory.data())) == 1


def test_verifiers_do_not_score_what_was_never_set_up() -> None:
    with pytest.raises(RuntimeError, match="nothing to score"):
        rows("check_triage", {"tickets": []})
    with pytest.raises(RuntimeError, match="nothing to score"):
        rows("check_changes", {"people": 0, "allowed": [], "made": []})


def test_seed_data_that_is_no_file_is_refused(directory: Driver) -> None:
    with pytest.raises(ToolError, match="JSON files"):
        directory.add_data([{"kind": "text", "text": "{}"}])
