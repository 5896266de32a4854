"""From a task's steps to an episode's plan: its order, turns and scores, and whether it can be played at all.

The rules are the public format's for a trainer's agent: the one agent that the task prompts is played by the
trainer's model, each of its prompts is one turn, and a prompt without a system prompt keeps the last one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import cast

from agent_env.bundle.checks import check_deployed, check_verifiers
from agent_env.bundle.model import LeftOut, Task, Turn
from agent_env.bundle.order import Cycle, play_order
from agent_env.bundle.problems import Problems, closest
from agent_env.bundle.references import NotPlayable, Scope, resolve
from agent_env.bundle.steps import (
    AggregateVerifiers,
    DeployAgent,
    DeployEnv,
    DeploySandbox,
    LoadArtifact,
    ModifyEnvToolAccess,
    PromptAgent,
    Step,
    Verifier,
    VerifySandbox,
)
from agent_env.bundle.validation import Place, read_steps

__all__ = ["TaskReader"]


class TaskReader:
    """Reads the tasks of one bundle."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def read(
        self,
        name: str,
        raw: object,
        place: Place,
        problems: Problems,
        *,
        replayable: bool = True,
        tags: Mapping[str, str] | None = None,
    ) -> Task | LeftOut | None:
        """The task; or why it is left out; or None, with problems noted, if it isn't well formed."""
        before = len(problems)
        found = read_steps(raw, place, problems)
        if found is None:
            return None
        steps, unplayable = found
        if unplayable:
            return LeftOut(name, unplayable[0].step_id, unplayable[0].step_type, unplayable[0].why)
        draft = _Draft(self.scope, name, steps, place, problems)
        try:
            draft.resolve()
            draft.sort()
            if len(problems) > before:
                return None
            agent = draft.agent()
            check_deployed(draft.steps, agent.agent_name, draft.report)
            check_verifiers(draft.steps, draft.report)
            task = draft.task(agent, replayable, tags or {})
        except NotPlayable as error:
            step = error.step
            return LeftOut(name, step.id if step else "", step.type if step else "", str(error))
        return task if len(problems) == before else None


class _Draft:
    """One task being read."""

    def __init__(self, scope: Scope, name: str, steps: Sequence[Step], place: Place, problems: Problems) -> None:
        self.scope = scope
        self.name = name
        self.steps = tuple(steps)
        self.place = place
        self.problems = problems
        self.position = {step.id: index for index, step in enumerate(steps)}

    def report(self, step: Step, field: str, what: str, fix: str) -> None:
        path = [int(part) if part.isdigit() else part for part in field.split(".")]
        self.problems.add(self.place.file, self.place.at(self.position[step.id], *path), what, fix)

    def resolve(self) -> None:
        self.steps = tuple(resolve(step, self.scope, self.report, self.problems) for step in self.steps)

    def sort(self) -> None:
        """Put the steps in play order."""
        known = True
        for step in self.steps:
            for index, step_id in enumerate(step.depends_on or ()):
                if step_id not in self.position:
                    known = False
                    fix = closest(step_id, self.position, "steps")
                    self.report(step, f"depends_on.{index}", f"the task has no step {step_id!r}", fix)
        if not known:
            return
        try:
            self.steps = play_order(self.steps)
        except Cycle as cycle:
            first = self.steps[self.position[cycle.ids[0]]]
            self.report(first, "depends_on", f"the steps {cycle} wait for each other", "remove one of the dependencies")

    def agent(self) -> DeployAgent:
        """The agent that the trainer's model plays: the only one that the task prompts, deployed once."""
        prompted = list(dict.fromkeys(step.agent_name for step in self.steps if isinstance(step, PromptAgent)))
        if not prompted:
            raise NotPlayable(None, "it prompts no agent: there is nothing for a model to do")
        if len(prompted) > 1:
            names = ", ".join(map(repr, prompted))
            raise NotPlayable(None, f"it prompts {len(prompted)} agents ({names}), and a rollout plays one")
        deploys = [step for step in self.steps if isinstance(step, DeployAgent)]
        for step in deploys:
            if step.agent_name != prompted[0]:
                raise NotPlayable(step, f"it deploys the agent {step.agent_name!r}, which isn't the trainer's")
        if len(deploys) != 1:
            raise NotPlayable(None, f"it deploys the agent {prompted[0]!r} {len(deploys)} times instead of once")
        return deploys[0]

    def task(self, agent: DeployAgent, replayable: bool, tags: Mapping[str, str]) -> Task:
        scorers = [step for step in self.steps if isinstance(step, Verifier)]
        if not scorers:
            raise NotPlayable(None, "it has no verifier step, so nothing gives a score")
        sandbox = self._agent_sandbox(agent)
        return Task(
            id=f"@local/{self.scope.bundle}/{self.name}",
            name=self.name,
            steps=self.steps,
            turns=self._turns(agent),
            agent_name=agent.agent_name,
            env_ids=tuple(step.env_id for step in self.steps if isinstance(step, DeployEnv)),
            scores=tuple(step.id for step in scorers),
            reward_step=_reward_step(scorers),
            sandboxes=tuple(step.sandbox_name for step in self.steps if isinstance(step, DeploySandbox)),
            agent_sandbox=sandbox,
            replayable=replayable,
            tags=tags,
            toolset=self._toolset(agent, sandbox),
        )

    def _turns(self, agent: DeployAgent) -> tuple[Turn, ...]:
        turns = []
        system_prompt = agent.system_prompt or None
        for step in self.steps:
            if isinstance(step, PromptAgent):
                system_prompt = step.system_prompt or system_prompt
                turns.append(Turn(step.id, step.prompt_id, cast(str, step.prompt), system_prompt, agent.env_ids))
        return tuple(turns)

    def _agent_sandbox(self, agent: DeployAgent) -> str | None:
        if agent.sandbox_name is not None:
            return agent.sandbox_name
        for step in self.steps:
            own = isinstance(step, VerifySandbox) or (isinstance(step, LoadArtifact) and step.env_id is None)
            if own and getattr(step, "sandbox_name", None) is None:
                return agent.agent_name
        return None

    def _toolset(self, agent: DeployAgent, sandbox: str | None) -> str:
        """Equal for tasks whose agents have the same envs and the same rules of tool access, turn by turn."""
        rules: list[object] = []
        turn = 0
        for step in self.steps:
            if isinstance(step, PromptAgent):
                turn += 1
            elif isinstance(step, ModifyEnvToolAccess):
                rules.append([turn, step.env_id, step.action, step.role, sorted(step.tools)])
        envs = [self.scope.envs[name].digest for name in agent.env_ids]
        key = json.dumps([envs, agent.role, sandbox is not None, rules])
        return hashlib.sha256(key.encode()).hexdigest()[:16]


def _reward_step(scorers: Sequence[Verifier]) -> str | None:
    taken = {name for step in scorers if isinstance(step, AggregateVerifiers) for name in step.verifier_ids}
    left = [step.id for step in scorers if step.verifier_id not in taken]
    return left[0] if len(left) == 1 else None
