"""Serve a model folder as an OpenAI-compatible endpoint with transformers, one reply at a time: slow, but on any CPU.

    python serve_model.py tiny-warm --port 8000
    agent-env session-server --upstream http://127.0.0.1:8000/v1 --model tiny

A rollout through the second is played as Miles would have it played, by this model instead of SGLang's.
"""

from __future__ import annotations

import argparse
import json
import re
import time
import uuid
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import torch
from model import render
from transformers import AutoModelForCausalLM, AutoTokenizer

CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


def parsed(text: str, tools: list[dict[str, Any]]) -> dict[str, Any]:
    """A reply as SGLang's qwen25 parser gives it: calls that aren't JSON, or of tools not offered, vanish."""
    names = {tool["function"]["name"] for tool in tools}
    calls = []
    for block in CALL.findall(text):
        try:
            call = json.loads(block)
            name, arguments = call["name"], json.dumps(call.get("arguments", {}))
        except (ValueError, TypeError, KeyError):
            continue
        if name in names:
            function = {"name": name, "arguments": arguments}
            calls.append({"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": function})
    content = text.partition("<tool_call>")[0] if tools else text
    return {"role": "assistant", "content": content, "tool_calls": calls or None}


class Engine:
    def __init__(self, folder: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.no_grad()
    def complete(self, request: dict[str, Any]) -> dict[str, Any]:
        """A chat completion. Knows temperature and max_tokens."""
        tools = request.get("tools") or []
        text = render(self.tokenizer, request["messages"], tools)
        ids = torch.tensor([self.tokenizer.encode(text, add_special_tokens=False)])
        limit, temperature = request.get("max_tokens") or 160, request.get("temperature", 1.0)
        made = self.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=limit,
            do_sample=temperature > 0,
            temperature=temperature or None,
            top_k=0,
            use_cache=True,
        )[0, ids.shape[1] :].tolist()
        ended = made[-1] == self.tokenizer.eos_token_id
        message = parsed(self.tokenizer.decode(made[:-1] if ended else made), tools)
        finish = "length" if not ended else "tool_calls" if message["tool_calls"] else "stop"
        usage = {
            "prompt_tokens": ids.shape[1],
            "completion_tokens": len(made),
            "total_tokens": ids.shape[1] + len(made),
        }
        choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
        head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "object": "chat.completion", "created": int(time.time())}
        return {**head, "model": "tiny", "choices": [choice], "usage": usage}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--port", type=int, default=8000, help="0: a free one (default: %(default)s)")
    arguments = parser.parse_args()
    engine = Engine(arguments.model)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            body = json.dumps(engine.complete(request)).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            """Say nothing of each request."""

    with HTTPServer(("127.0.0.1", arguments.port), Handler) as server:
        print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
