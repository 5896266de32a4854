#!/usr/bin/env python3
"""Warm start: fine-tune a model on an expert's conversations, so that its first rollouts make tool calls at all.

    python -m agent_env.training.miles http://127.0.0.1:8200 data      # the rows, from a server that is running
    python examples/sft.py --rows data/train.jsonl --model Qwen/Qwen3-4B --out qwen3-4b-gridsim-sft --lora 16

A scripted expert plays the rows through the very rollout that training uses, so that the conversations hold the real
tool answers. Each of its turns becomes one example: what the model's chat template makes of all before it, and of what
it said; TRL's SFTTrainer trains on the latter. Needs `pip install trl` (and peft for --lora), and agent-env[openenv].
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

from agent_env.evaluate.models import scripted
from agent_env.training.rehearsal import read_rows
from agent_env.training.rollout import Rollout
from agent_env.training.row import read_row, read_token
from agent_env.training.types import Status


async def conversations(rows: list[dict[str, Any]], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The chat and tools of each row that the expert played well enough."""
    room = asyncio.Semaphore(arguments.concurrency)

    async def play(given: dict[str, Any]) -> dict[str, Any] | None:
        row = read_row(given["messages"], given["metadata"])
        async with room, model.chat(row) as chat:
            result = await Rollout(row, chat, token=read_token(row.server)).play()
        if result.status is not Status.SCORED or result.reward < arguments.least_reward:
            return None
        return {"messages": result.messages, "tools": list(row.tools)}

    async with scripted(arguments.policy, {}) as model:
        found = await asyncio.gather(*(play(row) for row in rows))
    return [conversation for conversation in found if conversation is not None]


def turns(conversation: dict[str, Any], tokenizer: Any) -> list[dict[str, str]]:
    """One example an assistant turn, as text: no Arrow column ever mixes the arguments of different tools."""

    def render(messages: list[dict[str, Any]], ask: bool) -> str:
        text: str = tokenizer.apply_chat_template(
            messages, tools=conversation["tools"], tokenize=False, add_generation_prompt=ask, enable_thinking=False
        )
        return text

    messages = [with_parsed_arguments(message) for message in conversation["messages"]]
    examples = []
    for place, message in enumerate(messages):
        if message["role"] == "assistant":
            before, through = render(messages[:place], True), render(messages[: place + 1], False)
            if not through.startswith(before):
                raise SystemExit("the model's chat template writes a turn differently from how it asks for one")
            # Up to the token that ends the turn: the newline after it is the template's, not the model's.
            examples.append({"prompt": before, "completion": through[len(before) :].rstrip("\n")})
    return examples


def with_parsed_arguments(message: dict[str, Any]) -> dict[str, Any]:
    """Chat templates write a call's arguments as JSON themselves: text would be quoted twice by some."""
    if not message.get("tool_calls"):
        return message
    calls = [
        {"type": "function", "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}
        for call in message["tool_calls"]
    ]
    return {"role": "assistant", "content": message.get("content") or "", "tool_calls": calls}


def train(chats: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import SFTConfig, SFTTrainer

    peft_config = None
    if arguments.lora:
        from peft import LoraConfig

        peft_config = LoraConfig(r=arguments.lora, lora_alpha=2 * arguments.lora, target_modules="all-linear")
    config = SFTConfig(
        output_dir=str(arguments.out),
        num_train_epochs=arguments.epochs,
        max_steps=arguments.max_steps,
        learning_rate=arguments.learning_rate,
        per_device_train_batch_size=arguments.batch,
        max_length=arguments.max_length,
        completion_only_loss=True,  # learn what the expert said, not what it was told
        bf16=arguments.bf16,
        use_cpu=arguments.cpu,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
    )
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    trainer = SFTTrainer(
        model=str(arguments.model),
        args=config,
        train_dataset=Dataset.from_list([example for chat in chats for example in turns(chat, tokenizer)]),
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    trainer.train()
    trainer.save_model(str(arguments.out))
    tokenizer.save_pretrained(str(arguments.out))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=Path, required=True, help="rows of a running server, as its writer wrote them")
    parser.add_argument("--model", required=True, help="a model's name or folder")
    parser.add_argument("--out", type=Path, required=True, help="folder for the trained model")
    parser.add_argument("--policy", default="greedy", help="the expert: a scripted policy (default: %(default)s)")
    parser.add_argument("--least-reward", type=float, default=0.5, help="drop what it did worse (default: %(default)s)")
    parser.add_argument("--days", type=int, default=800, help="rows to play (default: %(default)s)")
    parser.add_argument("--concurrency", type=int, default=8, help="rows played at once (default: %(default)s)")
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--max-steps", type=int, default=-1, help="(default: all of the epochs)")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument(
        "--max-length", type=int, default=4096, help="tokens of one conversation (default: %(default)s)"
    )
    parser.add_argument(
        "--learning-rate", type=float, default=1e-5, help="(default: %(default)s; ten times that for LoRA)"
    )
    parser.add_argument(
        "--lora", type=int, default=0, metavar="RANK", help="train an adapter of this rank (default: all weights)"
    )
    parser.add_argument("--bf16", action=argparse.BooleanOptionalAction, default=False)
    parser.add_argument("--cpu", action="store_true", help="train on the CPU")
    arguments = parser.parse_args()
    rows = read_rows(arguments.rows)[: arguments.days]
    chats = asyncio.run(conversations(rows, arguments))
    print(f"{len(chats)} of {len(rows)} conversations have a reward of at least {arguments.least_reward}")
    if not chats:
        parser.error(f"the policy {arguments.policy!r} reached --least-reward on none of the rows")
    train(chats, arguments)


if __name__ == "__main__":
    main()
