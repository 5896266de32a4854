"""The GridSim env: one day, one submission."""

from typing import Annotated, Any

from gridsim import HOURS, Day, RuleBroken, optimum, profit

from agent_env.env import Env, Field, ToolError, extension, serve, tool


class GridSim(Env):
    """A grid battery's day: the agent submits one schedule of 24 hours, which is graded against the best there is."""

    name = "gridsim"

    def __init__(self) -> None:
        self.day: Day | None = None
        self.reset_data()

    @extension("urn:gridsim:load-day/v1")
    def load_day(self, day: Day) -> None:
        """Set the day that the episode is about."""
        self.day = day
        self.reset_data()

    @tool
    def submit_schedule(
        self,
        schedule: Annotated[
            list[int],
            Field(
                "24 whole numbers, for hour 0 to hour 23: +n buys n MWh, -n takes n MWh out and sells it, 0 idles",
                min_length=HOURS,
                max_length=HOURS,
            ),
        ],
    ) -> str:
        """Submit the battery's schedule for the day. Only one submission counts, so get it right before you call."""
        if self.day is None:
            raise ToolError("no day is loaded")
        if self.schedule is not None:
            raise ToolError("a schedule was submitted already, and only one counts; there is nothing more to do")
        self.schedule = schedule
        try:
            self.profit = profit(self.day, schedule)
        except RuleBroken as error:
            self.broken = str(error)
            return f"Rejected: {error}. The score is 0; there is nothing more to do."
        dollars = f"{'-' if self.profit < 0 else ''}${abs(self.profit) / 10_000:.2f}"
        return f"Accepted: it keeps the rules and makes {dollars}. There is nothing more to do."

    def reset_data(self) -> None:
        """Forget the submission; the day stays."""
        self.schedule: list[int] | None = None
        self.profit: int | None = None
        self.broken: str | None = None

    def get_data(self) -> dict[str, Any]:
        """For the verifier. Profits are in hundredths of a cent; `broken` says which rule the schedule breaks."""
        return {
            "day": self.day,
            "schedule": self.schedule,
            "profit": self.profit,
            "broken": self.broken,
            "optimum": optimum(self.day)[0] if self.day is not None else None,
        }


if __name__ == "__main__":
    serve(GridSim)
