"""The ticket system: an inbox to be routed."""

from typing import Annotated, Any, Literal, TypedDict

from agent_env.env import Env, Field, ToolError, extension, serve, tool

Team = Literal["billing", "access", "network", "hardware", "records"]
Priority = Literal["low", "normal", "high", "urgent"]
SHOWN = ("id", "sender", "subject", "body")


class Ticket(TypedDict):
    """A ticket, with where it belongs: that is for the verifier, and no tool shows it."""

    id: str
    sender: Annotated[str, Field("Name <address>")]
    subject: str
    body: str
    team: Team
    priority: Priority


class Tickets(Env):
    """A helpdesk's inbox: tickets are read, and routed to a team with a priority."""

    name = "tickets"

    def __init__(self) -> None:
        self.tickets: dict[str, Ticket] = {}
        self.routes: dict[str, dict[str, str]] = {}

    @extension("urn:helpdesk:load-inbox/v1")
    def load_inbox(self, tickets: Annotated[list[Ticket], Field(min_length=1)]) -> None:
        """Set the tickets that the episode is about."""
        self.tickets = {ticket["id"]: ticket for ticket in tickets}
        self.routes = {}

    @tool
    def list_tickets(self) -> list[dict[str, Any]]:
        """List all tickets, with what they say and where they were routed."""
        return [
            {**{key: ticket[key] for key in SHOWN}, "routed": self.routes.get(ticket["id"])}
            for ticket in self.tickets.values()
        ]

    @tool
    def route_ticket(self, ticket_id: Annotated[str, Field("as T-101")], team: Team, priority: Priority) -> str:
        """Route a ticket to a team, with a priority. Routing it again replaces the earlier choice."""
        if ticket_id not in self.tickets:
            raise ToolError(f"there is no ticket {ticket_id!r}; there are {', '.join(self.tickets) or 'none'}")
        self.routes[ticket_id] = {"team": team, "priority": priority}
        return f"{ticket_id} is routed to {team}, {priority}."

    def get_data(self) -> dict[str, Any]:
        """For the verifier: each ticket, where it belongs, and where it was routed."""
        return {"tickets": [{**ticket, "routed": self.routes.get(ticket["id"])} for ticket in self.tickets.values()]}


if __name__ == "__main__":
    serve(Tickets)
