"""The order in which a task's steps are played."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from agent_env.bundle.steps import Step

__all__ = ["Cycle", "play_order"]


class Cycle(ValueError):
    """Steps wait for each other; `ids` are those that can never start."""

    def __init__(self, ids: Sequence[str]) -> None:
        self.ids = tuple(ids)
        super().__init__(" and ".join(map(repr, ids)))


def play_order(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps so that each comes after all it depends on, and otherwise in the file's order.

    `depends_on` None means every earlier step of the file. Every id in it must be one of the steps'. Raises Cycle.
    """
    if all(step.depends_on is None for step in steps):
        return tuple(steps)
    position = {step.id: index for index, step in enumerate(steps)}
    needs = [
        set(range(index)) if step.depends_on is None else {position[step_id] for step_id in step.depends_on}
        for index, step in enumerate(steps)
    ]
    ready = [index for index, before in enumerate(needs) if not before]
    ordered: list[int] = []
    while ready:
        done = heapq.heappop(ready)
        ordered.append(done)
        for index, before in enumerate(needs):
            if done in before:
                before.remove(done)
                if not before:
                    heapq.heappush(ready, index)
    if len(ordered) < len(steps):
        raise Cycle([step.id for index, step in enumerate(steps) if needs[index]])
    return tuple(steps[index] for index in ordered)
