"""What an untrained policy does: anything. A task on which it scores as the author's policy does is broken."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from agent_env.authoring.script import END_TURN, answer
from agent_env.training.policies import Call, Reply

__all__ = ["arguments_for", "random_policy"]

CALLS_IN_A_TURN = 5
WORDS = ("maybe", "no", "done", "0", "1", "42", "north", "alpha", "unknown")
DEPTH = 6


def random_policy(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], request: Mapping[str, Any]
) -> Reply:
    """A few calls of random tools, with random arguments that fit their schemas, then the turn's end.

    A pure function: chance is drawn from the chat's first messages and its length, so that it plays alike each time.
    """
    turn = sum(message.get("role") == "assistant" for message in messages)
    seed = json.dumps([[m.get("role"), m.get("content")] for m in messages[:2]] + [turn], sort_keys=True)
    draw = random.Random(hashlib.sha256(seed.encode()).digest())
    offered = [tool["function"] for tool in tools if tool["function"]["name"] != END_TURN]
    if not offered or turn % (CALLS_IN_A_TURN + 1) == CALLS_IN_A_TURN:
        return Reply(calls=(answer(draw.choice(WORDS)),))
    tool = draw.choice(offered)
    return Reply(calls=(Call(tool["name"], json.dumps(arguments_for(tool.get("parameters") or {}, draw))),))


def arguments_for(schema: Mapping[str, Any], draw: random.Random) -> Any:
    """A value that fits a JSON Schema, for the keywords that tools use; required keys always, others sometimes."""
    root = schema

    def value(schema: Any, depth: int) -> Any:
        if not isinstance(schema, Mapping) or depth > DEPTH:
            return None
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/"):
            found: Any = root
            for part in reference[2:].split("/"):
                found = found.get(part) if isinstance(found, Mapping) else None
            return value(found, depth + 1)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return draw.choice(schema["enum"])
        for key in ("anyOf", "oneOf"):
            if schema.get(key):
                return value(draw.choice(schema[key]), depth + 1)
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = draw.choice(kind)
        if kind == "object" or (kind is None and "properties" in schema):
            required = schema.get("required") or ()
            properties = schema.get("properties") or {}
            return {k: value(s, depth + 1) for k, s in properties.items() if k in required or draw.random() < 0.5}
        if kind == "array":
            return items(schema, depth)
        return scalar(kind, schema)

    def items(schema: Mapping[str, Any], depth: int) -> list[Any]:
        if isinstance(schema.get("prefixItems"), list):
            return [value(item, depth + 1) for item in schema["prefixItems"]]
        least = schema.get("minItems", 0)
        most = schema.get("maxItems", least + 3)
        return [value(schema.get("items"), depth + 1) for _ in range(draw.randint(least, min(most, least + 10)))]

    def scalar(kind: Any, schema: Mapping[str, Any]) -> Any:
        if kind in ("integer", "number"):
            least = schema.get("minimum", -100 if "maximum" not in schema else schema["maximum"] - 100)
            most = schema.get("maximum", least + 200)
            return draw.randint(round(least), round(most)) if kind == "integer" else draw.uniform(least, most)
        if kind == "boolean":
            return draw.random() < 0.5
        if kind == "null":
            return None
        word = draw.choice(WORDS)
        least = schema.get("minLength", 0)
        return (word * (least // len(word) + 1) if len(word) < least else word)[: schema.get("maxLength")]

    return value(schema, 0)
