"""The trainer's end of one episode: it calls tools, ends turns, and survives the loss of its env.

What the env has answered is what the model has seen, so a lost env can be replaced: a fresh one of the same task is
opened, the recorded calls are played again, and if every answer is equal the rollout goes on where it was, and the
model never notices. If one differs, the past that the model saw did not happen there, and the rollout has failed.
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent_env.openenv.client import (
    ConnectionLost,
    Observation,
    OpenEnvError,
    ProtocolError,
    Refused,
    ServerError,
    Session,
    TooLarge,
)
from agent_env.openenv.protocol import END_TURN, REASON_UNSCORED
from agent_env.training.content import cut, is_error, result_text, sound
from agent_env.training.notices import Notices
from agent_env.training.opening import open_episode
from agent_env.training.rewards import finite
from agent_env.training.types import EndReason, RolloutFailed, Row

__all__ = ["Answer", "Episode", "Final"]

CALL_GRACE = 10.0
"""Seconds over call_timeout that the client waits: the server, which keeps the deadline, answers first."""
SCORE_GRACE = 300.0
"""Seconds over call_timeout for an end_turn, which may run the verifier under the server's deadline for it."""

MESSAGE_TOO_BIG = 1009

logger = logging.getLogger("agent_env.training")
_notices = Notices(logger)


@dataclass(frozen=True, slots=True)
class Final:
    """The episode's end."""

    reward: float
    """Finite."""
    scores: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call came to."""

    text: str
    """For the model; never empty, cut to the row's max_result_chars."""
    error: str | None = None
    """The kind of a failed call: `execution_error`, `invalid_args`, `tool_not_found` or `timeout`."""
    was_cut: bool = False
    final: Final | None = None
    """Set by the call that ended the episode."""


@dataclass(frozen=True, slots=True)
class _Call:
    tool: str
    arguments: Mapping[str, Any]


class _Lost(Exception):
    """The env is gone.

    `by_env`: it died while the call ran, so the call may be why; `sent`: the call may have reached it; `hopeless`: the
    same would happen in a fresh one.
    """

    def __init__(self, message: str, *, by_env: bool = False, sent: bool = True, hopeless: bool = False) -> None:
        self.by_env = by_env
        self.sent = sent
        self.hopeless = hopeless
        super().__init__(message)


class Episode:
    """One row's episode. `open` it, `call` its tools, `close` it; one call at a time.

    `deadline`: monotonic time after which nothing is waited for any more (math.inf: none).
    """

    def __init__(self, row: Row, *, token: str | None, deadline: float = math.inf) -> None:
        self.row = row
        self.recoveries = 0
        self.seconds = {"wait": 0.0, "deploy": 0.0, "tool": 0.0, "score": 0.0}
        self.episode_id = ""
        """Of the env in use: every env of the rollout has its own."""
        self.system_prompt: str | None = None
        """The system prompt in force, as far as the server told."""
        self._name = uuid.uuid4().hex
        self._token = token
        self._deadline = deadline
        self._session: Session | None = None
        self._replayable = True
        self._prompt: Any = None
        self._record: list[tuple[_Call, str]] = []

    async def open(self) -> None:
        """Raises RolloutFailed (DEPLOY_FAILED) and InvalidRow."""
        observation = await self._open()
        self._replayable = observation.metadata.get("replayable") is not False
        self._prompt = observation.metadata.get("prompt")

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Answer:
        """Call a tool, end_turn among them; a lost env is replaced underneath.

        Raises TooLarge for arguments that no message carries, and RolloutFailed (ENV_LOST, UNSCORED, CALL_TIMEOUT).
        """
        call = _Call(tool, arguments)
        deaths = 0
        while True:
            try:
                answer = await self._play(call)
                break
            except _Lost as loss:
                deaths += loss.by_env
                if deaths > 1:
                    message = f"the call of {tool} lost its env twice: {loss}"
                    raise RolloutFailed(EndReason.ENV_LOST, message) from loss
                await self._recover(loss)
        if answer.final is None and answer.error != "timeout":
            self._record.append((call, answer.text))
        return answer

    async def close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def _open(self) -> Observation:
        tries = f"-{self.recoveries}" if self.recoveries else ""
        timeout = min(self.row.server.reset_timeout, self._left())
        opened = await open_episode(self.row, token=self._token, episode_id=self._name + tries, timeout=timeout)
        self._session = opened.session
        self.episode_id = self._name + tries
        self.seconds["wait"] += opened.wait
        self.seconds["deploy"] += opened.deploy
        self.system_prompt = _text(opened.observation.metadata.get("system_prompt"))
        return opened.observation

    async def _recover(self, loss: _Lost) -> None:
        """Replace the lost env by one in which the same calls had the same answers. Raises RolloutFailed."""
        while True:
            if (why := self._unrecoverable(loss)) is not None:
                raise RolloutFailed(EndReason.ENV_LOST, f"{loss}{why}") from loss
            self.recoveries += 1
            _notices.say("recovery", logging.WARNING, f"{loss}: replaying {len(self._record)} calls in a fresh env")
            await self.close()
            try:
                observation = await self._open()
            except RolloutFailed as failed:
                message = f"{loss}, and no fresh env came up: {failed}"
                raise RolloutFailed(EndReason.ENV_LOST, message) from failed
            try:
                if observation.metadata.get("prompt") != self._prompt:
                    raise RolloutFailed(EndReason.ENV_LOST, f"{loss}, and a fresh env of the task begins differently")
                await self._replay(loss)
                return
            except _Lost as again:
                loss = again

    def _unrecoverable(self, loss: _Lost) -> str | None:
        """Why the env can't be replaced; None if it can."""
        if loss.hopeless:
            return ""
        if not self._replayable and (self._record or loss.sent):
            return "; the task must not be replayed"
        if self.recoveries >= self.row.server.recover:
            return f"; {self.recoveries} envs were replaced, of {self.row.server.recover} allowed"
        return None

    async def _replay(self, loss: _Lost) -> None:
        for place, (call, seen) in enumerate(self._record):
            answer = await self._play(call)
            if answer.text != seen or answer.final is not None:
                message = (
                    f"{loss}, and in a fresh env call {place + 1} of {len(self._record)}, {call.tool}, answered "
                    f"differently: {_difference(seen, answer.text)}"
                )
                raise RolloutFailed(EndReason.ENV_LOST, message) from loss

    async def _play(self, call: _Call) -> Answer:
        """Send one call to the env. Raises _Lost, TooLarge, RolloutFailed."""
        if self._session is None:
            raise _Lost("the env's session is closed")
        ends_turn = call.tool == END_TURN
        timeout = self.row.server.call_timeout + (SCORE_GRACE if ends_turn else CALL_GRACE)
        began = time.monotonic()
        final = False
        try:
            observation = await self._session.call(call.tool, call.arguments, timeout=min(timeout, self._left()))
            final = observation.done
            return self._read(call, observation)
        except TooLarge:
            raise
        except TimeoutError as error:
            message = f"{call.tool} got no answer within {time.monotonic() - began:.0f} s"
            reason = EndReason.UNSCORED if ends_turn else EndReason.CALL_TIMEOUT
            raise RolloutFailed(reason, message) from error
        except ConnectionLost as error:
            raise _Lost(str(error), sent=error.sent, hopeless=error.code == MESSAGE_TOO_BIG) from error
        except (ServerError, Refused, ProtocolError) as error:
            raise _Lost(f"the server failed the call of {call.tool}: {error}") from error
        except OpenEnvError as error:
            raise _Lost(str(error)) from error
        finally:
            self.seconds["score" if final else "tool"] += time.monotonic() - began

    def _read(self, call: _Call, observation: Observation) -> Answer:
        """What an observation says. Raises _Lost, RolloutFailed (UNSCORED)."""
        metadata = observation.metadata
        if metadata.get("status") == "error":
            message = str(metadata.get("error") or "the episode failed, and its server didn't say why")
            if metadata.get("reason") == REASON_UNSCORED:
                raise RolloutFailed(EndReason.UNSCORED, message)
            raise _Lost(f"the env was lost: {message}", by_env=True)
        if observation.done:
            return Answer("The episode has ended.", final=_final(observation))
        error = observation.observation.get("error")
        if isinstance(error, Mapping):
            kind, message = str(error.get("error_type")), str(error.get("message") or "the tool failed")
            if kind == "transport_error":
                raise _Lost(f"the env was lost: {message}", by_env=True)
            return self._answer(sound(message), kind)
        result = observation.observation.get("result")
        if call.tool == END_TURN and isinstance(result, Mapping) and "prompt" in result:
            return Answer(sound(self._next_prompt(result)))
        return self._answer(result_text(result), "execution_error" if is_error(result) else None)

    def _answer(self, text: str, error: str | None) -> Answer:
        shown = cut(text, self.row.server.max_result_chars)
        return Answer(shown, error, was_cut=shown is not text)

    def _next_prompt(self, result: Mapping[str, Any]) -> str:
        """The next turn's prompt, after its system prompt if that is a new one."""
        prompt, system_prompt = _text(result.get("prompt")), _text(result.get("system_prompt"))
        if system_prompt is None or system_prompt == self.system_prompt:
            return prompt or "(the next turn has no prompt)"
        self.system_prompt = system_prompt
        return f"{system_prompt}\n\n{prompt or ''}"

    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())


def _final(observation: Observation) -> Final:
    """The reward and scores of an episode's end. Raises RolloutFailed (UNSCORED)."""
    reward = finite(observation.reward)
    if reward is None:
        raise RolloutFailed(EndReason.UNSCORED, f"the episode ended with the reward {observation.reward!r:.80}")
    scores = observation.metadata.get("scores")
    named = {str(name): finite(score) for name, score in scores.items()} if isinstance(scores, Mapping) else {}
    return Final(reward, {name: score for name, score in named.items() if score is not None})


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _difference(seen: str, now: str) -> str:
    """Both texts around the first character that differs."""
    at = next((place for place, (a, b) in enumerate(zip(seen, now, strict=False)) if a != b), min(len(seen), len(now)))
    begin = max(0, at - 20)
    return f"{seen[begin : at + 40]!r} was seen, {now[begin : at + 40]!r} came (character {at})"
