"""The TRL examples, run with TRL itself on a toy model: one step each, against a real server."""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

import agent_env
from agent_env.loopback import serving
from agent_env.openenv import build_app
from agent_env.training.miles.rows import write_rows
from agent_env.training.types import ServerSettings
from tests.peers import peer_python

pytestmark = [pytest.mark.peers, pytest.mark.timeout(900)]

ROOT = Path(agent_env.__file__).parents[1]
SERVER = ("fastapi", "uvicorn", "websockets", "httpx", "h11", "docker", "huggingface-hub", "prometheus-client", "rich")

# TRL knows a template's way to write tool calls by the template's text: the toy gets the one that TRL ships.
TOY = """
import sys
from pathlib import Path
import trl
from tokenizers import Tokenizer, models, pre_tokenizers, decoders
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

alphabet = pre_tokenizers.ByteLevel.alphabet()
tokenizer = Tokenizer(models.BPE(vocab={letter: place for place, letter in enumerate(sorted(alphabet))}, merges=[]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
tokenizer.decoder = decoders.ByteLevel()
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>",
                               additional_special_tokens=["<|im_start|>"])
fast.chat_template = (Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text()
config = Qwen3Config(vocab_size=len(fast), hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                     num_attention_heads=2, num_key_value_heads=1, head_dim=16, max_position_embeddings=8192,
                     eos_token_id=fast.eos_token_id, pad_token_id=fast.pad_token_id)
Qwen3ForCausalLM(config).save_pretrained(sys.argv[1])
fast.save_pretrained(sys.argv[1])
"""


@pytest.fixture(scope="module")
def python() -> Path:
    return peer_python("torch==2.13.0", "trl==1.16.0", "peft", *SERVER)


@pytest.fixture(scope="module")
def toy(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    subprocess.run([python, "-c", TOY, folder], check=True, timeout=300, capture_output=True)
    return folder


@asynccontextmanager
async def server(folder: Path) -> AsyncIterator[str]:
    """A GridSim server, with its rows in `folder`."""
    async with serving(build_app("gridsim-v1", max_concurrent_envs=4)) as url:
        await write_rows(ServerSettings(urls=(url,)), folder, progress=lambda text: None)
        yield url


async def run(python: Path, *arguments: object, url: str) -> str:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "AGENTENV_URL": url.replace("http", "ws", 1) + "/ws?wait=60"}
    process = await asyncio.create_subprocess_exec(
        python,
        *map(str, arguments),
        env={**environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out = (await asyncio.wait_for(process.communicate(), 600))[0].decode()
    assert process.returncode == 0, out[-3000:]
    return out


@pytest.mark.parametrize("more", [(), ("--lora", 4)], ids=["full", "lora"])
async def test_the_warm_start_trains_on_what_the_expert_said(
    python: Path, toy: Path, tmp_path: Path, more: tuple[object, ...]
) -> None:
    async with server(tmp_path / "data") as url:
        arguments = ("--model", toy, "--out", tmp_path / "out", "--days", 3, "--batch", 1, "--max-steps", 1, "--cpu")
        rows = ("--rows", tmp_path / "data" / "train.jsonl", "--policy", "optimum")
        out = await run(python, ROOT / "examples" / "sft.py", *rows, *arguments, *more, url=url)
    assert "3 of 3 conversations" in out
    assert "'loss'" in out
    assert (tmp_path / "out" / ("adapter_model.safetensors" if more else "model.safetensors")).exists()


async def test_grpo_plays_each_rollout_as_an_episode(python: Path, toy: Path, tmp_path: Path) -> None:
    async with server(tmp_path / "data") as url:
        arguments = ("--group", 2, "--batch", 2, "--max-steps", 1, "--max-completion-length", 8, "--cpu")
        rows = ("--rows", tmp_path / "data" / "train.jsonl", "--days", 2)
        script = ROOT / "examples" / "trl_grpo.py"
        out = await run(python, script, *rows, "--model", toy, "--out", tmp_path / "out", *arguments, url=url)
        async with httpx.AsyncClient(trust_env=False) as client:
            status = (await client.get(f"{url}/status")).json()
    assert status["totals"]["scored"] == 2, json.dumps(status)
    assert status["live"] == 0
    assert "GridSim" in out  # the env's own reward, logged by its name
