"""The env: a number from 1 to 100 to be found."""

from typing import Annotated, Any

from agent_env.env import Env, Field, ToolError, extension, serve, tool

LOW, HIGH = 1, 100


class Guess(Env):
    """Find a number. One process serves one episode, so plain attributes hold its state."""

    name = "guess"

    def __init__(self) -> None:
        self.secret: int | None = None
        self.guesses: list[int] = []

    @extension("urn:NAME:set-secret/v1")
    def set_secret(self, secret: Annotated[int, Field(minimum=LOW, maximum=HIGH)]) -> None:
        """Set the number; a task's apply_server_config step calls it. No model sees it."""
        self.secret = secret

    @tool
    def guess(self, number: Annotated[int, Field("your guess", minimum=LOW, maximum=HIGH)]) -> str:
        """Guess the number. The answer says whether it is higher, lower or right."""
        if self.secret is None:
            raise ToolError("no number is set")
        self.guesses.append(number)
        if number == self.secret:
            return "right"
        return "higher" if self.secret > number else "lower"

    @tool
    def history(self) -> list[int]:
        """List the guesses made so far."""
        return self.guesses

    def get_data(self) -> dict[str, Any]:
        """What the verifier reads; no model sees it."""
        return {"secret": self.secret, "guesses": self.guesses}


if __name__ == "__main__":
    serve(Guess)
