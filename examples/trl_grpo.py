#!/usr/bin/env python3
"""GRPO with TRL on GridSim: an `environment_factory` over a session with the OpenEnv server.

    agent-env serve gridsim-v1 --max-concurrent-envs 32
    python -m agent_env.training.miles http://127.0.0.1:8200 data      # the prompts
    python examples/trl_grpo.py --rows data/train.jsonl --model qwen3-4b-gridsim-sft

Needs `pip install trl`; the server needs agent-env[openenv]. TRL has no way to leave an episode out that the
infrastructure failed: it gets no reward (None), which TRL's mean over rewards skips.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

URL = os.environ.get("AGENTENV_URL", "ws://127.0.0.1:8200/ws?wait=1800&call_timeout=600")
TOKEN = os.environ.get("AGENTENV_TOKEN")


class GridSim:
    """One rollout's env. TRL resets it with the example's columns, and offers its other public methods as tools."""

    def __init__(self) -> None:
        self._socket: ClientConnection | None = None
        self._reward: float | None = None

    def reset(self, split: str = "train", index: int = 0, **_: Any) -> None:
        """Begin the example's task in a fresh env. The prompt is in the example already."""
        self._close()
        self._reward = None
        headers = {"Authorization": f"Bearer {TOKEN}"} if TOKEN else None
        self._socket = connect(URL, additional_headers=headers, proxy=None, max_size=2**24, open_timeout=60)
        began = self._ask({"type": "reset", "data": {"split": split, "index": index}})
        if began["done"]:
            raise RuntimeError(f"no episode began: {began['metadata']['error']}")

    def submit_schedule(self, schedule: list[int]) -> str:
        """Submit the battery's schedule for the day; only one counts.

        Args:
            schedule: 24 integers, hour 0 first: +n buys n MWh, -n sells n MWh, 0 does nothing.

        Returns:
            Whether it was accepted, and what it makes.
        """
        return self._call("submit_schedule", {"schedule": schedule})

    def get_reward(self) -> float | None:
        """The verifier's reward; asked for once, when the rollout is over."""
        if self._socket is not None:
            self._call("end_turn", {"response": ""})
            self._close()
        return self._reward

    def _call(self, tool: str, arguments: dict[str, Any]) -> str:
        answer = self._ask({"type": "step", "data": {"type": "call_tool", "tool_name": tool, "arguments": arguments}})
        if answer["done"]:
            self._reward = answer["reward"]
            return "The episode has ended."
        observation = answer["observation"]
        if observation["error"] is not None:
            return f"Error: {observation['error']['message']}"
        return str(observation["result"]["data"])

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        if self._socket is None:
            raise RuntimeError("no episode is open")
        self._socket.send(json.dumps(message))
        answer = json.loads(self._socket.recv())
        if answer["type"] == "error":
            raise RuntimeError(f"{answer['data']['code']}: {answer['data']['message']}")
        data: dict[str, Any] = answer["data"]
        return data

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def examples(rows: Path, count: int) -> list[dict[str, Any]]:
    """The prompt of each row, and the columns that `reset` takes."""
    found = []
    with rows.open(encoding="utf-8") as lines:
        for line, _ in zip(lines, range(count), strict=False):
            row = json.loads(line)
            split, index = row["metadata"]["split"], row["metadata"]["index"]
            found.append({"prompt": row["messages"], "split": split, "index": index})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", type=Path, default=Path("gridsim-grpo"))
    parser.add_argument("--days", type=int, default=2000)
    parser.add_argument("--group", type=int, default=8, help="rollouts of a day")
    parser.add_argument("--batch", type=int, default=32, help="rollouts a step")
    parser.add_argument("--max-steps", type=int, default=20)
    parser.add_argument("--max-completion-length", type=int, default=1024)
    parser.add_argument("--learning-rate", type=float, default=1e-6)
    parser.add_argument("--vllm", action="store_true", help="generate with vLLM, in this process")
    parser.add_argument("--cpu", action="store_true")
    arguments = parser.parse_args()

    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    config = GRPOConfig(
        output_dir=str(arguments.out),
        num_generations=arguments.group,
        per_device_train_batch_size=arguments.batch,
        max_steps=arguments.max_steps,
        max_completion_length=arguments.max_completion_length,
        learning_rate=arguments.learning_rate,
        temperature=1.1,
        use_vllm=arguments.vllm,
        use_cpu=arguments.cpu,
        bf16=not arguments.cpu,
        chat_template_kwargs={"enable_thinking": False},
        logging_steps=1,
        save_strategy="no",
        report_to=[],
    )
    trainer = GRPOTrainer(
        model=arguments.model,
        args=config,
        train_dataset=Dataset.from_list(examples(arguments.rows, arguments.days)),
        environment_factory=GridSim,
    )
    trainer.train()
    trainer.save_model(str(arguments.out))


if __name__ == "__main__":
    main()
