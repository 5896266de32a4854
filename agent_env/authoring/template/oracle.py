"""For `agent-env probe`: policies that see what a model sees, and the mean reward that each should reach."""

from agent_env.authoring.script import Moves, call, scripted


def bisect(prompt: str) -> Moves:
    """Halves the range each time."""
    low, high = 1, 100
    while True:
        number = (low + high) // 2
        said = yield call("guess", number=number)
        if said == "right":
            return
        low, high = (number + 1, high) if said == "higher" else (low, number - 1)


def count_up(prompt: str) -> Moves:
    """What a policy that has understood half of it does."""
    for number in range(1, 20):
        if (yield call("guess", number=number)) == "right":
            return


POLICIES = {"oracle": scripted(bisect), "count-up": scripted(count_up)}
SCORES = {"oracle": 1.0, "count-up": 0.333, "no-op": 0.0}
