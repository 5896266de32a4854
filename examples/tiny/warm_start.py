"""Teach a model of random weights the task's form, and a little of its content: GRPO needs some reward to begin with.

    python warm_start.py data/train.jsonl tiny-random tiny-warm --until 0.45

Trains on an expert's conversations about fresh days, shown exactly as Miles shows them in a rollout, until the model's
own replies (at temperature 1, to other fresh days) are worth --until, or --minutes are over.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import days
import torch
from model import read_rows, render
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from transformers import AutoModelForCausalLM, AutoTokenizer

GRADED_STREAM = 1_000_000
"""Days that the model is graded on; it is trained on streams from 0 on."""

Sample = tuple[list[int], list[bool]]
"""Token ids, and which of them the model is to learn: those that it writes itself."""


def encode(tokenizer: Any, asked: list[dict[str, Any]], answer: list[dict[str, Any]], tools: Any) -> Sample:
    """One conversation. What is rendered up to each of the model's turns is what a rollout shows it there."""
    ids: list[int] = []
    learnt: list[bool] = []
    done = ""
    for turn, message in enumerate(answer):
        if message["role"] != "assistant":
            continue
        before = render(tokenizer, asked + answer[:turn], tools)
        after = render(tokenizer, asked + answer[: turn + 1], tools).removesuffix("\n")
        if not (before.startswith(done) and after.startswith(before)):
            raise ValueError("the chat template rewrites earlier turns, so a rollout's tokens can't be shown")
        for text, own in ((before[len(done) :], False), (after[len(before) :], True)):
            tokens = tokenizer.encode(text, add_special_tokens=False)
            ids += tokens
            learnt += [own] * len(tokens)
        done = after
    return ids, learnt


class Conversations(IterableDataset[Sample]):
    """An expert's conversations, without end; each worker process draws days of its own."""

    def __init__(self, tokenizer: Any, messages: list[dict[str, Any]], tools: list[dict[str, Any]], seed: int) -> None:
        self.tokenizer, self.messages, self.tools, self.first = tokenizer, messages, tools, 1000 * seed

    def __iter__(self) -> Iterator[Sample]:
        worker = get_worker_info()
        for day in days.fresh_days(self.first + (worker.id if worker else 0)):
            asked = days.question(day, self.messages)
            yield encode(self.tokenizer, asked, days.expert(day), self.tools)


def collate(samples: list[Sample]) -> tuple[torch.Tensor, torch.Tensor]:
    """Padded on the right, where a causal model needs no mask: ids, and which are learnt; [batch, tokens] each."""
    longest = max(len(ids) for ids, _ in samples)
    ids = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _ in samples])
    learnt = torch.tensor([own + [False] * (longest - len(own)) for _, own in samples])
    return ids, learnt


def loss_of(model: Any, ids: torch.Tensor, learnt: torch.Tensor) -> torch.Tensor:
    """The mean over the learnt tokens. The head is run for those alone."""
    hidden = model.model(input_ids=ids[:, :-1]).last_hidden_state[learnt[:, 1:]]
    return cross_entropy(model.lm_head(hidden).float(), ids[:, 1:][learnt[:, 1:]])


@torch.no_grad()
def graded(model: Any, tokenizer: Any, messages: list[dict[str, Any]], tools: Any, count: int) -> float:
    """The mean score of the model's first replies to `count` days, at temperature 1."""
    asked = list(itertools.islice(days.fresh_days(GRADED_STREAM), count))
    texts = [render(tokenizer, days.question(day, messages), tools) for day in asked]
    batch = tokenizer(texts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=False)
    model.eval()
    replies = model.generate(
        **batch.to(model.device),
        max_new_tokens=120,
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        use_cache=True,
    )
    model.train()
    said = tokenizer.batch_decode(replies[:, batch["input_ids"].shape[1] :], clean_up_tokenization_spaces=False)
    return sum(map(days.score, asked, said)) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, help="train.jsonl: the rules and tools as served; its days are not used")
    parser.add_argument("model", type=Path, help="folder that model.py wrote")
    parser.add_argument("out", type=Path, help="folder for the trained model")
    parser.add_argument("--until", type=float, default=1.0, metavar="SCORE", help="stop at this mean score")
    parser.add_argument("--minutes", type=float, default=5.0, help="stop then, whatever the score (default: 5)")
    parser.add_argument("--steps", type=int, default=10**9, help="stop after so many steps")
    parser.add_argument("--batch", type=int, default=128, help="conversations a step (default: %(default)s)")
    parser.add_argument("--lr", type=float, default=1e-3, help="peak; it falls to a tenth over --minutes")
    parser.add_argument("--grade-every", type=int, default=100, metavar="STEPS", help="(default: %(default)s)")
    parser.add_argument("--grade-days", type=int, default=256, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2), help="draw the days")
    parser.add_argument("--seed", type=int, default=0, help="of the days, below 1000; another to train on from a model")
    arguments = parser.parse_args()

    torch.manual_seed(arguments.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32).to(device).train()
    messages, tools = next(read_rows(arguments.rows))
    conversations = Conversations(tokenizer, messages, tools, arguments.seed)
    batches = DataLoader(conversations, arguments.batch, num_workers=arguments.workers, collate_fn=collate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr, betas=(0.9, 0.95), weight_decay=0.1)
    started = time.monotonic()
    tokens = 0
    for step, (ids, learnt) in enumerate(batches, start=1):
        spent = (time.monotonic() - started) / (60 * arguments.minutes)
        for group in optimizer.param_groups:
            group["lr"] = arguments.lr * min(1.0, step / 100) * max(0.1, 1 - 0.9 * spent)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = loss_of(model, ids.to(device), learnt.to(device))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        tokens += ids.numel()
        last = spent >= 1 or step >= arguments.steps
        if last or step % arguments.grade_every == 0:
            score = graded(model, tokenizer, messages, tools, arguments.grade_days)
            seconds = time.monotonic() - started
            told = f"loss {loss.item():.3f}, {tokens / seconds:,.0f} tokens/s, {seconds:.0f} s"
            print(f"step {step}: score {score:.3f}, {told}", flush=True)
            if last or score >= arguments.until:
                break
    model.bfloat16().save_pretrained(arguments.out)
    tokenizer.save_pretrained(arguments.out)
    for name in ("config.json", "generation_config.json"):
        if (arguments.model / name).exists():
            shutil.copy(arguments.model / name, arguments.out / name)


if __name__ == "__main__":
    main()
