"""From a task's steps to an episode's plan: its order, turns and scores, and whether it can be played at all.

The rules are the public format's for a trainer's agent: the one agent that the task prompts is played by the
trainer's model, each of its prompts is one turn, and a prompt without a system prompt keeps the last one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import cast

from agent_env.bundle.model import LeftOut, Task, Turn
from agent_env.bundle.order import Cycle, play_order
from agent_env.bundle.problems import Problems, closest
from agent_env.bundle.references import NotPlayable, Scope, resolve
from agent_env.bundle.steps import (
    AgentPromptResponseVerifier,
    AggregateVerifiers,
    DeployAgent,
    DeployEnv,
    DeploySandbox,
    EnvOutcomeVerifier,
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
        self, name: str, raw: object, place: Place, problems: Problems, *, replayable: bool = True
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
            draft.check_order(agent)
            draft.check_verifiers()
            task = draft.task(agent, replayable)
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

    def check_order(self, agent: DeployAgent) -> None:
        """Whatever a step acts on must be there when it is played."""
        envs: set[str] = set()
        sandboxes: set[str] = set()
        agent_there = False
        for step in self.steps:
            if isinstance(step, DeployEnv):
                if step.env_id in envs:
                    self.report(step, "env_id", f"the env {step.env_id!r} is deployed already", "deploy it once")
                envs.add(step.env_id)
            elif isinstance(step, DeploySandbox):
                if step.sandbox_name in sandboxes:
                    what = f"the sandbox {step.sandbox_name!r} is deployed already"
                    self.report(step, "sandbox_name", what, "deploy it once")
                sandboxes.add(step.sandbox_name)
            elif isinstance(step, DeployAgent):
                agent_there = True
                for index, env_id in enumerate(step.env_ids):
                    self._check_there(step, f"env_ids.{index}", "env", env_id, envs)
                if step.sandbox_name is not None:
                    self._check_there(step, "sandbox_name", "sandbox", step.sandbox_name, sandboxes)
            elif isinstance(step, PromptAgent) and not agent_there:
                what = f"the agent {step.agent_name!r} is prompted before it is deployed"
                self.report(step, "agent_name", what, "put its deploy_agent step before")
            elif isinstance(step, LoadArtifact | VerifySandbox) and getattr(step, "env_id", None) is None:
                if step.sandbox_name is not None:
                    self._check_there(step, "sandbox_name", "sandbox", step.sandbox_name, sandboxes)
                elif step.agent_name not in (None, agent.agent_name) or not agent_there:
                    name = step.agent_name or agent.agent_name
                    self.report(
                        step, "agent_name", f"no agent {name!r} is deployed before it", "put deploy_agent before"
                    )
            elif isinstance(named := getattr(step, "env_id", None), str):
                self._check_there(step, "env_id", "env", named, envs)

    def _check_there(self, step: Step, field: str, noun: str, name: str, there: set[str]) -> None:
        if name not in there:
            fix = f"put a deploy_{noun} step for it before"
            self.report(step, field, f"the {noun} {name!r} is not deployed before it", fix)

    def check_verifiers(self) -> None:
        """Prompts and verifiers are named once, and before they are needed."""
        prompts: set[str] = set()
        verifiers: dict[str, Step] = {}
        for step in self.steps:
            if isinstance(step, PromptAgent) and step.prompt_id is not None:
                if step.prompt_id in prompts:
                    what = f"the prompt_id {step.prompt_id!r} is taken by an earlier prompt"
                    self.report(step, "prompt_id", what, "give each prompt its own")
                prompts.add(step.prompt_id)
            if isinstance(step, AgentPromptResponseVerifier | EnvOutcomeVerifier):
                prompt_id = step.prompt_id
                if prompt_id is not None and prompt_id not in prompts:
                    fix = closest(prompt_id, prompts, "prompt_ids before it")
                    self.report(step, "prompt_id", f"no prompt before it has the prompt_id {prompt_id!r}", fix)
            if isinstance(step, AggregateVerifiers):
                for index, verifier_id in enumerate(step.verifier_ids):
                    found = verifiers.get(verifier_id)
                    if found is None:
                        what = f"no verifier before it has the verifier_id {verifier_id!r}"
                        fix = closest(verifier_id, verifiers, "verifier_ids before it")
                        self.report(step, f"verifier_ids.{index}", what, fix)
                    elif isinstance(found, AggregateVerifiers):
                        what = f"{verifier_id!r} is an aggregate, which has no rows of its own"
                        self.report(step, f"verifier_ids.{index}", what, "name the verifiers that it takes in")
            if isinstance(step, Verifier) and step.verifier_id is not None:
                if step.verifier_id in verifiers:
                    what = f"the verifier_id {step.verifier_id!r} is taken by an earlier step"
                    self.report(step, "verifier_id", what, "give each verifier its own")
                verifiers[step.verifier_id] = step

    def task(self, agent: DeployAgent, replayable: bool) -> Task:
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
