"""One rollout: the model chats through the trainer's session, its tool calls run in the row's episode, and the
verifier's reward comes back. The failure contract of docs/architecture.md is held here."""

from __future__ import annotations

import logging
import math
import time

from agent_env.openenv.client import TooLarge
from agent_env.openenv.protocol import END_TURN
from agent_env.training.arguments import InvalidArguments, parse_arguments
from agent_env.training.chat import ChatSession, ContextOverflow, Reply, ToolCall
from agent_env.training.content import sound
from agent_env.training.episode import Answer, Episode, Final
from agent_env.training.history import History
from agent_env.training.notices import Notices
from agent_env.training.types import EndReason, RolloutFailed, RolloutResult, Row, Status

__all__ = ["COUNTS", "Rollout"]

COUNTS = (
    "turns",
    "tool_calls",
    "tool_errors",
    "invalid_arguments",
    "unknown_tools",
    "unparsed_tool_markup",
    "cut_results",
    "recoveries",
)
MAX_ENV_TURNS = 1000
"""Turns of one task that are ended before the server is taken to be broken."""
MARKUP = ("<tool_call>", "<|tool_call", "[TOOL_CALLS]", "<function=", "<|python_tag|>", "<｜tool▁call")
"""How tool calls look in text that no parser took apart."""

logger = logging.getLogger("agent_env.training")
_notices = Notices(logger)


class Rollout:
    """Plays `row` once over `chat`. `token`: for the env server; `max_seq_len`: tokens that the session may hold.

    `play` gives the result; when it is cancelled, `result` still says how far it came.
    """

    def __init__(
        self, row: Row, chat: ChatSession, *, token: str | None = None, max_seq_len: int | None = None
    ) -> None:
        self.row = row
        self._chat = chat
        self._max_seq_len = max_seq_len
        self._began = time.monotonic()
        limit = row.server.episode_timeout
        self._deadline = self._began + limit if limit else math.inf
        self._episode = Episode(row, token=token, deadline=self._deadline)
        self._history = History(row.messages)
        self._tools = frozenset(tool["function"]["name"] for tool in row.tools)
        self._counts = dict.fromkeys(COUNTS, 0)
        self._model_seconds = 0.0
        self._total_tokens = 0
        self._invalid_in_a_row = 0
        self._final: Final | None = None

    async def play(self) -> RolloutResult:
        """Play to the end; the env is closed when it returns. Raises nothing but cancellation for what a model, a
        session or a server may do."""
        try:
            await self._episode.open()
            reason = await self._converse()
            await self._finish()
            return self.result(reason)
        except RolloutFailed as failed:
            return self.result(failed.reason, str(failed))
        finally:
            try:
                await self._episode.close()
            finally:
                await self._chat.close()

    def result(self, reason: EndReason, error: str | None = None) -> RolloutResult:
        """The rollout as it stands: scored if its episode ended with a reward and nothing failed."""
        final = self._final if error is None else None
        total = time.monotonic() - self._began
        return RolloutResult(
            status=Status.FAILED if final is None else Status.SCORED,
            end_reason=reason,
            reward=0.0 if final is None else final.reward,
            error=error,
            episode_id=self._episode.episode_id,
            task_id=self.row.task_id,
            split=self.row.split,
            index=self.row.index,
            scores=dict(final.scores) if final else {},
            counts={**self._counts, "recoveries": self._episode.recoveries},
            seconds={**self._episode.seconds, "model": self._model_seconds, "total": total},
            messages=self._history.messages,
        )

    async def _converse(self) -> EndReason:
        """Chat until the rollout ends for a reason that is scored; else raises RolloutFailed."""
        while True:
            if self._counts["turns"] >= self.row.server.max_turns:
                return EndReason.MAX_TURNS
            if self._max_seq_len is not None and self._total_tokens >= self._max_seq_len:
                return EndReason.CONTEXT_OVERFLOW
            try:
                reply = await self._ask()
            except ContextOverflow:
                return EndReason.CONTEXT_OVERFLOW
            if reply.finish_reason == "abort":
                raise RolloutFailed(EndReason.ABORTED, "the trainer aborted the generation")
            if reply.finish_reason == "length":
                return EndReason.LENGTH
            if self._max_seq_len is not None and self._total_tokens > self._max_seq_len:
                return EndReason.CONTEXT_OVERFLOW  # the trainer cuts this turn, so nothing of it may run
            if not reply.tool_calls:
                self._note_markup(reply)
                await self._end_turn(reply.text)
                return EndReason.REPLIED
            if (reason := await self._run_calls(reply.tool_calls)) is not None:
                return reason

    async def _ask(self) -> Reply:
        """One model turn. Raises ContextOverflow, RolloutFailed."""
        began = time.monotonic()
        timeout = min(self.row.server.model_timeout, max(0.0, self._deadline - began))
        try:
            reply = await self._chat.complete(self._history, timeout=timeout)
        finally:
            self._model_seconds += time.monotonic() - began
        self._history.add_reply(reply.message)
        self._counts["turns"] += 1
        if reply.total_tokens is not None:
            self._total_tokens = reply.total_tokens
        return reply

    async def _run_calls(self, calls: tuple[ToolCall, ...]) -> EndReason | None:
        """Run one reply's calls in order, each answered once; the reason if they end the rollout.

        What comes after an end_turn, or after the last invalid call that is allowed, was written for a turn that is
        over: it is answered, and not run.
        """
        over: str | None = None
        reason: EndReason | None = None
        for call in calls:
            if over is not None:
                self._history.add_result(call.id, f"Not run: {over}")
                continue
            answer = await self._run(call)
            self._history.add_result(call.id, answer.text)
            if answer.final is not None:
                self._final = answer.final
                over, reason = "the episode has ended.", EndReason.END_TURN
            elif answer.error == "timeout":
                over, reason = "the call before it timed out.", EndReason.CALL_TIMEOUT
            elif 0 < self.row.server.max_invalid_calls <= self._invalid_in_a_row:
                over, reason = "too many invalid calls.", EndReason.INVALID_TOOL_CALLS
            elif call.name == END_TURN and answer.error is None:
                over = "end_turn came before it in the same message; this is the next turn."
        return reason

    async def _run(self, call: ToolCall) -> Answer:
        """One tool call: answered as the model's own error, or by the env. Raises RolloutFailed."""
        self._counts["tool_calls"] += 1
        if not isinstance(call.name, str) or call.name not in self._tools:
            self._counts["unknown_tools"] += 1
            self._invalid_in_a_row += 1
            named = repr(call.name[:80]) if isinstance(call.name, str) else "(no name)"
            return Answer(
                f"There is no tool {named}. The tools are: {', '.join(sorted(self._tools))}.", "tool_not_found"
            )
        try:
            answer = await self._episode.call(call.name, parse_arguments(call.arguments))
        except (InvalidArguments, TooLarge) as error:
            self._counts["invalid_arguments"] += 1
            self._invalid_in_a_row += 1
            said = str(error)
            return Answer(f"{said[:1].upper()}{said[1:]}. {call.name} was not called.", "invalid_args")
        if answer.error == "timeout":
            message = f"{call.name} gave no result within call_timeout, {self.row.server.call_timeout:g} s"
            if call.name == END_TURN:
                raise RolloutFailed(EndReason.UNSCORED, message)
            if self.row.server.on_call_timeout != "score":
                raise RolloutFailed(EndReason.CALL_TIMEOUT, message)
        counted = {"invalid_args": "invalid_arguments", "tool_not_found": "unknown_tools"}
        if answer.error is not None:
            self._counts[counted.get(answer.error, "tool_errors")] += 1
        self._invalid_in_a_row = self._invalid_in_a_row + 1 if answer.error in counted else 0
        self._counts["cut_results"] += answer.was_cut
        return answer

    async def _end_turn(self, response: str) -> None:
        """End the open turn in the model's stead. Raises RolloutFailed."""
        try:
            answer = await self._episode.call(END_TURN, {"response": sound(response)})
        except TooLarge as error:
            raise RolloutFailed(EndReason.MODEL_ERROR, f"the reply can't be sent to the env: {error}") from error
        if answer.error is not None:
            raise RolloutFailed(EndReason.UNSCORED, f"end_turn failed: {answer.text}")
        self._final = answer.final

    async def _finish(self) -> None:
        """End every turn that is still open, empty, so that the env is scored as it stands. Raises RolloutFailed."""
        for _ in range(MAX_ENV_TURNS):
            if self._final is not None:
                return
            await self._end_turn("")
        raise RolloutFailed(EndReason.UNSCORED, f"the episode didn't end after {MAX_ENV_TURNS} turns")

    def _note_markup(self, reply: Reply) -> None:
        """Say when a reply without calls was meant to have some: then the engine's parser doesn't fit the model."""
        if reply.finish_reason != "tool_calls" and not any(mark in reply.text for mark in MARKUP):
            return
        self._counts["unparsed_tool_markup"] += 1
        _notices.say(
            "markup",
            logging.WARNING,
            "a reply holds tool-call markup that was not parsed: does --sglang-tool-call-parser fit the model? It "
            f"begins {reply.text[:80]!r}",
        )
