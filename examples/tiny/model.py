"""A model small enough to train in minutes: a Qwen3 of random weights, with a tokenizer made for the rows it will see.

    python model.py data/train.jsonl tiny-random            # needs transformers and torch

Miles and SGLang take the folder as they would take Qwen3-4B's: the architecture, the special tokens and the chat markup
are Qwen3's. Only the vocabulary is its own. It is trained on the rows' prompts, so that a line of the rules is a few
tokens, a number of up to three digits is one, and a whole GridSim prompt is some 360 tokens instead of 2,500 bytes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

TEMPLATE = Path(__file__).with_name("chat_template.jinja")

# Qwen3's, in its order. Those without <| |> are ordinary text to a decoder: SGLang's parsers must see the tool calls.
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKUP = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]

PIECES = r"\d{1,3}|\n|[^\d\n]+"
"""What a token never crosses: numbers stay apart from words, and lines from each other."""

VOCABULARY = 4096
CONTEXT = 2048  # tokens


def make_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer for `texts`; other text becomes more tokens, never unknown ones."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(  # type: ignore[assignment]
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    numbers = [f"{n}\n" for n in range(1000)] + [f"{n:02}\n" for n in range(100)]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL) - len(MARKUP),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(numbers * 50 + texts, trainer)
    bpe.add_special_tokens(SPECIAL)
    bpe.add_tokens(MARKUP)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = TEMPLATE.read_text(encoding="utf-8")
    return tokenizer


def make_model(tokenizer: PreTrainedTokenizerFast, *, layers: int, width: int) -> Qwen3ForCausalLM:
    """Random weights. About 12 x layers x width^2 parameters, and the embedding."""
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=-(-len(tokenizer) // 64) * 64,
            hidden_size=width,
            intermediate_size=width * 3,
            num_hidden_layers=layers,
            num_attention_heads=width // 64,
            num_key_value_heads=width // 64,
            head_dim=64,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            # With a cache, transformers 5 takes the position ids of Miles' packed samples for one long sample's, and
            # they attend to each other: nothing fails, and the policy falls apart.
            use_cache=False,
        )
    )


def shown_tools(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tools as SGLang and Miles hand them to the chat template: SGLang's own schema, with its defaults and its
    order of keys. What a warm start is trained on must show them so, or rollouts begin with an unknown prompt."""
    return [
        {
            "type": "function",
            "function": {
                "description": tool["function"].get("description"),
                "name": tool["function"]["name"],
                "parameters": tool["function"].get("parameters"),
                "strict": tool["function"].get("strict", False),
            },
            "defer_loading": None,
        }
        for tool in tools
    ]


def render(tokenizer: PreTrainedTokenizerFast, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> str:
    """The chat as text, and the beginning of the model's turn if that is next; thinking is off."""
    text = tokenizer.apply_chat_template(
        messages,
        tools=shown_tools(tools),
        tokenize=False,
        add_generation_prompt=messages[-1]["role"] != "assistant",
        enable_thinking=False,
    )
    assert isinstance(text, str)
    return text


def read_rows(path: Path, count: int | None = None) -> Iterator[tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    """(messages, tools) of the first `count` rows that `python -m agent_env.training.miles` wrote."""
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if number == count:
                return
            row = json.loads(line)
            yield row["messages"], json.loads(row["metadata"]["tools"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, help="train.jsonl, as the row writer wrote it")
    parser.add_argument("out", type=Path, help="folder for config, weights and tokenizer")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=512, help="a multiple of 64 (default: %(default)s)")
    arguments = parser.parse_args()
    plain = make_tokenizer([])
    said = [
        "Buy in hours 1, 2; sell in hours 3, 4.\n<tool_call>\n"
        '{"name": "submit_schedule", "arguments": {"schedule": [0, -1, 1, 0]}}\n</tool_call>',
        "<tool_response>\nAccepted: it keeps the rules and makes $1.00. There is nothing more to do.\n</tool_response>",
        "Submitted.",
    ]
    texts = [render(plain, messages, tools) for messages, tools in read_rows(arguments.rows, 200)]
    tokenizer = make_tokenizer(texts + said * 200)
    model = make_model(tokenizer, layers=arguments.layers, width=arguments.width)
    tokenizer.save_pretrained(arguments.out)
    model.bfloat16().save_pretrained(arguments.out)
    messages, tools = next(read_rows(arguments.rows))
    size = sum(parameter.numel() for parameter in model.parameters())
    length = len(tokenizer.encode(render(tokenizer, messages, tools)))
    print(f"{arguments.out}: {size / 1e6:.1f} M parameters, {len(tokenizer)} tokens; the first prompt takes {length}")


if __name__ == "__main__":
    main()
