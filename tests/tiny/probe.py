"""Run by the tests in a Python that has torch: what examples/tiny's tokenizer, days and warm start promise, as JSON."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "tiny"))

import days
from model import read_rows, render
from serve_model import parsed
from transformers import AutoTokenizer
from warm_start import encode


def main(rows: Path, folder: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    messages, tools = next(read_rows(rows))
    text = render(tokenizer, messages, tools)
    numbers = [*map(str, range(1000)), *(f"{number:02}" for number in range(100))]
    drawn = list(itertools.islice(days.fresh_days(0), 40))
    own, replies = [], []
    for day in drawn:
        ids, learnt = encode(tokenizer, days.question(day, messages), days.expert(day), tools)
        own.append(tokenizer.decode([token for token, mine in zip(ids, learnt, strict=True) if mine]))
        replies.append(own[-1].partition("<|im_end|>")[0])
    chat = [{"role": "user", "content": "Q"}, *days.expert(drawn[0])]
    chat[1]["tool_calls"][0]["function"]["arguments"] = {"schedule": [0]}
    served = {json.loads(json.dumps(row[0][-1]["content"])) for row in read_rows(rows)}
    print(
        json.dumps(
            {
                "round trip": tokenizer.decode(tokenizer.encode(text)) == text,
                "prompt tokens": len(tokenizer.encode(text)),
                "split numbers": [number for number in numbers if len(tokenizer.encode(number)) != 1],
                "own turns": sorted({turn.count("<|im_end|>") for turn in own}),
                "expert": fmean(map(days.score, drawn, replies)),
                "as served": sum(days.prompt(day) in served for day in drawn),
                "markup": tokenizer.apply_chat_template(chat[:3], tokenize=False, add_generation_prompt=True),
                "parsed": parsed(replies[0], tools)["tool_calls"][0]["function"]["name"],
                "not offered": parsed(replies[0].replace("submit_schedule", "other"), tools)["tool_calls"],
                "garbage": [days.score(drawn[0], garbage) for garbage in ("", "<tool_call>{", "<tool_call>[1]")],
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
