"""The directory: people and companies, and the right to change a person's details, which an agent is given late."""

import base64
import json
from typing import Annotated, Any, Literal, TypedDict

from agent_env.env import Env, Field, ToolError, extension, serve, tool

MOST_FOUND = 20


class Change(TypedDict):
    """A change of one person's record."""

    email: str
    field: Literal["phone", "desk"]
    value: str


class Directory(Env):
    """People and companies that a helpdesk serves. Its data is JSON: {"people": [...], "companies": [...]}."""

    name = "directory"

    def __init__(self) -> None:
        self.allowed: list[Change] = []
        self.reset_data()

    def reset_data(self) -> None:
        """An empty directory."""
        self.people: dict[str, dict[str, str]] = {}
        self.companies: dict[str, dict[str, str]] = {}
        self.before: dict[str, dict[str, str]] = {}

    def add_data(self, parts: list[dict[str, Any]]) -> None:
        """Take in JSON files: each has people and companies."""
        for part in parts:
            if part["kind"] != "file" or "bytes" not in part["file"]:
                raise ToolError("the directory takes JSON files with their bytes")
            seed = json.loads(base64.b64decode(part["file"]["bytes"]))
            self.people.update({person["email"]: dict(person) for person in seed["people"]})
            self.companies.update({company["name"]: dict(company) for company in seed["companies"]})
        self.before = {email: dict(person) for email, person in self.people.items()}

    @extension("urn:helpdesk:load-allowed-changes/v1")
    def load_allowed_changes(self, allowed: list[Change]) -> None:
        """Set the changes that should be made, and no others: for the verifier."""
        self.allowed = allowed

    @tool
    def find_people(
        self, query: Annotated[str, Field("part of a name, an email address or a company's name", min_length=2)]
    ) -> list[dict[str, str]]:
        """Find people: their name, email, phone, desk, company, and their manager's email."""
        wanted = query.casefold()
        keys = ("name", "email", "company")
        found = [p for p in self.people.values() if any(wanted in p[key].casefold() for key in keys)]
        return found[:MOST_FOUND]

    @tool
    def get_company(self, name: Annotated[str, Field("its full name")]) -> dict[str, str]:
        """Show a company: its plan, region and account manager."""
        if name not in self.companies:
            raise ToolError(f"there is no company {name!r}")
        return self.companies[name]

    @tool(hidden=True)
    def update_person(
        self,
        email: Annotated[str, Field("of the person whose record is changed")],
        field: Literal["phone", "desk"],
        value: Annotated[str, Field("the new value", min_length=1, max_length=40)],
    ) -> str:
        """Change a person's phone or desk."""
        if email not in self.people:
            raise ToolError(f"there is nobody with the address {email!r}")
        self.people[email][field] = value
        return f"The {field} of {self.people[email]['name']} is {value}."

    def get_data(self) -> dict[str, Any]:
        """For the verifier: the changes that should be made, and those that were, by what the records say now."""
        made = [
            {"email": email, "field": field, "value": person[field]}
            for email, person in self.people.items()
            for field in ("phone", "desk")
            if person[field] != self.before[email][field]
        ]
        return {"people": len(self.people), "allowed": self.allowed, "made": made}


if __name__ == "__main__":
    serve(Directory)
