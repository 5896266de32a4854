"""What answers a session's chat requests: a scripted policy, or an OpenAI-compatible endpoint.

Both answer as SGLang does behind Miles: tool calls only if the request's `tools` names the tool, `content` always a
string, the context limit as a 400.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import httpx

from agent_env.training.policies import Call, Policy, Refusal, Reply

__all__ = ["Answer", "Engine", "ScriptedEngine", "UpstreamEngine", "estimate_tokens"]

logger = logging.getLogger(__name__)

CHARACTERS_PER_TOKEN = 4

OPENAI_FIELDS = frozenset(
    {
        "messages",
        "tools",
        "tool_choice",
        "temperature",
        "top_p",
        "max_tokens",
        "max_completion_tokens",
        "stop",
        "seed",
        "presence_penalty",
    }
    | {"frequency_penalty", "parallel_tool_calls", "response_format", "reasoning_effort", "n"}
)
"""The request fields that every OpenAI-compatible endpoint knows; SGLang's own would be refused by some."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the engine said: `body` is JSON, a chat completion if `status` is 200."""

    status: int
    body: Any


class Engine(Protocol):
    async def complete(self, session_id: str, request: Mapping[str, Any]) -> Answer:
        """Answer one chat request."""

    def abort(self) -> int:
        """Cut short every generation that is running, as Miles does once a step's batch is full; returns how many."""

    async def close(self) -> None:
        """Give up what it holds."""


def estimate_tokens(value: Any) -> int:
    """About how many tokens a text, or the JSON of anything else, takes. There is no tokenizer here."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def _bad_request(message: str) -> Answer:
    error = {"object": "error", "message": message, "type": "BadRequest", "param": None, "code": 400}
    return Answer(400, error)


def _max_tokens(request: Mapping[str, Any]) -> int | None:
    limit = request.get("max_completion_tokens") or request.get("max_tokens")
    return limit if isinstance(limit, int) else None


class ScriptedEngine:
    """A policy in place of a model."""

    def __init__(self, policy: Policy, *, context_length: int | None = None, seconds: float = 0.0) -> None:
        """`context_length`: tokens, as `estimate_tokens` counts; None: no limit. `seconds`: how long a turn takes."""
        self.policy = policy
        self.context_length = context_length
        self.seconds = seconds
        self._running: set[asyncio.Event] = set()

    async def complete(self, session_id: str, request: Mapping[str, Any]) -> Answer:
        prompt_tokens = estimate_tokens(request["messages"]) + estimate_tokens(request.get("tools") or "")
        limit, wanted = self.context_length, _max_tokens(request)
        if limit is not None and prompt_tokens >= limit:
            return _bad_request(
                f"The input ({prompt_tokens} tokens) is longer than the model's context length ({limit} tokens)."
            )
        if limit is not None and wanted is not None and prompt_tokens + wanted > limit:
            return _bad_request(
                f"Requested token count exceeds the model's maximum context length of {limit} tokens. "
                f"The request asks for {prompt_tokens + wanted}: {prompt_tokens} of input, {wanted} of completion."
            )
        offered = request.get("tools") if request.get("tool_choice") != "none" else None
        try:
            reply = self.policy(request["messages"], request.get("tools") or (), request)
        except Refusal as refusal:
            return Answer(refusal.status, refusal.body)
        except Exception as error:  # a policy is the user's code
            logger.exception("the policy raised")
            return Answer(500, {"error": f"the policy raised {type(error).__name__}: {error}"})
        if await self._interrupted():
            reply = Reply(content=reply.content, finish_reason="abort")
        return Answer(200, _completion(_parsed(reply, offered), request, prompt_tokens))

    def abort(self) -> int:
        for event in self._running:
            event.set()
        return len(self._running)

    async def close(self) -> None:
        self.abort()

    async def _interrupted(self) -> bool:
        """Spend the turn's time; True if it was aborted."""
        if not self.seconds:
            return False
        event = asyncio.Event()
        self._running.add(event)
        try:
            async with asyncio.timeout(self.seconds):
                await event.wait()
        except TimeoutError:
            return False
        finally:
            self._running.discard(event)
        return True


def _parsed(reply: Reply, tools: Sequence[Mapping[str, Any]] | None) -> Reply:
    """The reply as SGLang's tool-call parser leaves it.

    Without `tools` nothing is parsed, so the calls stay text. With them, calls of other tools vanish.
    """
    if not reply.calls:
        return reply
    if not tools:
        blocks = [
            f'<tool_call>\n{{"name": "{call.name}", "arguments": {call.arguments}}}\n</tool_call>'
            for call in reply.calls
        ]
        text = "\n".join([reply.content, *blocks] if reply.content else blocks)
        return Reply(text, (), _unless_cut(reply, "stop"), reply.reasoning_content)
    names = {tool.get("function", {}).get("name") for tool in tools}
    calls = tuple(call for call in reply.calls if call.name in names)
    return Reply(reply.content, calls, _unless_cut(reply, "tool_calls" if calls else "stop"), reply.reasoning_content)


def _unless_cut(reply: Reply, reason: str) -> str:
    return reply.finish_reason if reply.finish_reason in ("length", "abort") else reason


def _completion(reply: Reply, request: Mapping[str, Any], prompt_tokens: int) -> dict[str, Any]:
    content, calls, finish = reply.content, reply.calls, reply.finish_reason
    tokens = max(1, estimate_tokens(content) + sum(estimate_tokens(call.name + call.arguments) for call in calls))
    limit = _max_tokens(request)
    if limit is not None and tokens > limit:
        content, calls, finish, tokens = content[: limit * CHARACTERS_PER_TOKEN], (), "length", limit
    finish = finish or ("tool_calls" if calls else "stop")
    message = {
        "role": "assistant",
        "content": content,
        "reasoning_content": reply.reasoning_content,
        "tool_calls": [_tool_call(index, call) for index, call in enumerate(calls)] or None,
    }
    logprobs = [[0.0, 0, None]] * tokens
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": request.get("model") or "default",
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": finish,
                "matched_stop": None,
                "meta_info": {
                    "prompt_tokens": prompt_tokens,
                    "completion_tokens": tokens,
                    "output_token_logprobs": logprobs,
                    "finish_reason": {"type": "stop" if finish == "tool_calls" else finish},
                    "weight_version": "scripted",
                },
            }
        ],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": prompt_tokens + tokens,
        },
    }


def _tool_call(index: int, call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "index": index, "type": "function", "function": function}


class UpstreamEngine:
    """Any OpenAI-compatible endpoint: vLLM, SGLang, a hosted model."""

    def __init__(
        self, url: str, model: str, *, key: str | None = None, all_fields: bool = False, timeout: float | None = None
    ) -> None:
        """`url`: the endpoint's base, with its `/v1` if it has one. `key`: its bearer token.

        `all_fields`: pass on every field of a request, as an SGLang server wants them; else those that OpenAI's API
        knows. `timeout`: seconds for one answer; None, as in Miles: no limit, the agent function's own is the only one.
        """
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.AsyncClient(
            headers=headers,
            timeout=timeout,
            trust_env=False,
            limits=httpx.Limits(max_connections=1024, max_keepalive_connections=1024),
        )
        self._url = url.rstrip("/") + "/chat/completions"
        self._model = model
        self._all_fields = all_fields

    async def complete(self, session_id: str, request: Mapping[str, Any]) -> Answer:
        body = {key: value for key, value in request.items() if self._all_fields or key in OPENAI_FIELDS}
        body["model"] = self._model
        try:
            answer = await self._client.post(self._url, json=body, headers={"x-smg-routing-key": session_id})
        except httpx.TransportError as error:
            return Answer(502, {"error": f"backend transport error: {type(error).__name__}: {error}"})
        try:
            completion = answer.json()
        except ValueError:
            status = answer.status_code if answer.is_error else 502
            return Answer(status, {"error": f"not JSON: {answer.text[:500]}"})
        if answer.status_code != 200:
            return Answer(answer.status_code, completion)
        try:
            message, _ = completion["choices"][0]["message"], completion["choices"][0]["finish_reason"]
            if message["content"] is None:  # OpenAI's own with tool calls; behind Miles it is always text
                message["content"] = ""
        except (KeyError, IndexError, TypeError) as error:
            return Answer(502, {"error": f"not a chat completion: {error!r}"})
        return Answer(200, completion)

    def abort(self) -> int:
        return 0

    async def close(self) -> None:
        await self._client.aclose()
