"""The row writer: what it writes, and that it writes everything or nothing."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from agent_env.training.miles.__main__ import main
from agent_env.training.miles.rows import RowsError, write_rows
from agent_env.training.row import read_row
from agent_env.training.types import ServerSettings
from tests.miles.doubles import TaskServer, task
from tests.miles.writer import rows, run, write
from tests.training.row import END_TURN, openai_tools, tool

SPLITS = {
    "all": [task(0), task(1), task(2)],
    "eval": [task(2)],
    "train": [task(0), task(1)],
}


async def test_writes_one_file_a_split_in_order(tmp_path: Path) -> None:
    server = TaskServer(SPLITS)
    out = tmp_path / "data"
    ran = await write(server, out)
    assert ran.code == 0, ran
    assert (ran.out, ran.err) == (f"wrote all.jsonl, eval.jsonl, train.jsonl to {out}\n", "")
    assert sorted(os.listdir(out)) == ["all.jsonl", "eval.jsonl", "train.jsonl"]
    assert [row["metadata"]["task_id"] for row in rows(out / "all.jsonl")] == [f"@local/listed/{i}" for i in range(3)]
    assert rows(out / "eval.jsonl") == [
        {
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Play 2."}],
            "metadata": {
                "split": "eval",
                "index": 0,
                "task_id": "@local/listed/2",
                "tools": json.dumps(openai_tools([tool("add"), END_TURN])),
                "server": {
                    "url": server.url,
                    "urls": [],
                    "token_var": None,
                    "url_var": None,
                    "bundle": "f" * 64,
                    "reset_timeout": 1800.0,
                    "call_timeout": 600.0,
                    "model_timeout": 1800.0,
                    "episode_timeout": 0.0,
                    "max_turns": 32,
                    "max_result_chars": 50000,
                    "max_invalid_calls": 0,
                    "recover": 2,
                    "on_call_timeout": "fail",
                },
            },
        }
    ]
    assert server.live == 0


async def test_rows_are_read_back_by_the_agent_function(tmp_path: Path) -> None:
    server = TaskServer(SPLITS)
    options = ("--max-turns", "4", "--call-timeout", "1.5", "--on-call-timeout", "score", "--url-var", "ENVS_URL")
    ran = await write(server, tmp_path, *options)
    assert ran.code == 0, ran
    (written,) = rows(tmp_path / "eval.jsonl")
    row = read_row(written["messages"], written["metadata"])
    assert row.server.urls == (server.url,)
    assert (row.server.max_turns, row.server.call_timeout, row.server.on_call_timeout) == (4, 1.5, "score")
    assert list(row.tools) == openai_tools([tool("add"), END_TURN])
    assert (row.split, row.index, row.task_id) == ("eval", 0, "@local/listed/2")


async def test_one_env_is_deployed_for_each_toolset(tmp_path: Path) -> None:
    """Case 100: one deploy per toolset, always torn down."""
    splits = {"all": [task(0), task(1, toolset="two"), task(2), task(3, toolset="two")], "train": [task(0)]}
    server = TaskServer(splits, toolsets={"one": [[tool("add"), END_TURN]], "two": [[tool("sub"), END_TURN]]})
    ran = await write(server, tmp_path)
    assert ran.code == 0, ran
    assert server.resets == [{"split": "all", "index": 0}, {"split": "all", "index": 1}]
    assert server.live == 0
    names = [
        [t["function"]["name"] for t in json.loads(row["metadata"]["tools"])] for row in rows(tmp_path / "all.jsonl")
    ]
    assert names == [["add", "end_turn"], ["sub", "end_turn"]] * 2


async def test_a_server_without_toolsets_is_played_once_for_each_agent(tmp_path: Path) -> None:
    listed = [{key: value for key, value in task(i, agent=f"a{i % 2}").items() if key != "toolset"} for i in range(4)]
    server = TaskServer({"all": listed})
    ran = await write(server, tmp_path)
    assert ran.code == 0, ran
    assert len(server.resets) == 2


async def test_a_multi_turn_tasks_tools_are_those_of_all_its_turns(tmp_path: Path) -> None:
    server = TaskServer({"all": [task(0)]}, toolsets={"one": [[tool("add"), END_TURN], [tool("sub"), END_TURN]]})
    ran = await write(server, tmp_path)
    assert ran.code == 0, ran
    (row,) = rows(tmp_path / "all.jsonl")
    assert json.loads(row["metadata"]["tools"]) == openai_tools([tool("add"), END_TURN, tool("sub")])


async def test_no_character_of_a_prompt_splits_its_line(tmp_path: Path) -> None:
    """Case 97: U+2028, U+2029 and U+0085 split lines for some readers."""
    odd = "a\u2028b\u2029c\u0085d\x0be\rf\ng"
    ran = await write(TaskServer({"all": [task(0, prompt=odd), task(1)]}), tmp_path)
    assert ran.code == 0, ran
    text = (tmp_path / "all.jsonl").read_bytes()
    assert text.isascii()
    assert len(text.decode().splitlines()) == text.count(b"\n") == 2
    assert rows(tmp_path / "all.jsonl")[0]["messages"][1]["content"] == odd


async def test_odd_ids_and_empty_system_prompts(tmp_path: Path) -> None:
    """Case 104: ids of any text are kept, as text (95); an empty system prompt is no message."""
    listed = [task(0, id="día/7 \u4e2d", system_prompt=""), task(1, id=7, system_prompt=None)]
    ran = await write(TaskServer({"all": listed}), tmp_path)
    assert ran.code == 0, ran
    first, second = rows(tmp_path / "all.jsonl")
    assert first["messages"] == [{"role": "user", "content": "Play 0."}]
    assert (first["metadata"]["task_id"], second["metadata"]["task_id"]) == ("día/7 \u4e2d", "7")


async def test_a_prompt_of_parts_is_refused_by_name(tmp_path: Path) -> None:
    """Case 104."""
    out = tmp_path / "data"
    ran = await write(TaskServer({"all": [task(0, prompt=[{"type": "image"}])]}), out)
    assert ran.code == 2
    assert ran.err == "error: task 0 of all, '@local/listed/0': its prompt is of type list, not text\n"
    assert not out.exists()


async def test_a_server_that_fails_half_way_changes_nothing(tmp_path: Path) -> None:
    """Case 99: old files intact, no partial new ones."""
    (tmp_path / "all.jsonl").write_text("old\n")
    server = TaskServer({"all": [task(i) for i in range(1200)]})
    server.fail_page_after = 2
    ran = await write(server, tmp_path)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.count("\n") == 1
    assert ran.err.startswith(f"error: {server.url}")
    assert os.listdir(tmp_path) == ["all.jsonl"]
    assert (tmp_path / "all.jsonl").read_text() == "old\n"


async def test_a_full_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 99."""

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "all.jsonl").write_text("old\n")
    monkeypatch.setattr(os, "fsync", full)
    async with TaskServer(SPLITS).serve() as server:
        with pytest.raises(RowsError, match="No space left on device"):
            await write_rows(ServerSettings(urls=(server.url,)), tmp_path)
    assert os.listdir(tmp_path) == ["all.jsonl"]
    assert (tmp_path / "all.jsonl").read_text() == "old\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_stopped_while_listing_it_leaves_no_env_and_no_file(tmp_path: Path, number: int, code: int) -> None:
    """Cases 99 and 100."""
    listing, held = asyncio.Event(), asyncio.Event()
    server = TaskServer(SPLITS)

    async def hold() -> None:
        listing.set()
        await held.wait()

    server.on_list = hold
    out = tmp_path / "data"
    async with server.serve():
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "agent_env.training.miles", server.url, str(out)), stderr=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(20):
            await listing.wait()
            process.send_signal(number)
            _, err = await process.communicate()
            held.set()
            await server.closed.wait()
    assert (process.returncode, err) == (code, b"")
    assert not out.exists()


async def test_a_folder_with_others_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    (tmp_path / "old-split.jsonl").write_text("{}\n")
    (tmp_path / ".gitignore").write_text("*")
    ran = await write(TaskServer(SPLITS), tmp_path)
    assert ran.code == 2
    assert ran.err.startswith(f"error: {tmp_path} holds files that aren't these rows (old-split.jsonl, thesis.tex)")
    assert len(os.listdir(tmp_path)) == 3


async def test_wrong_addresses_are_one_line_errors(tmp_path: Path, unused_tcp_port: int) -> None:
    """Case 102 among them: credentials in a URL are refused, and not repeated."""
    cases = {
        f"http://127.0.0.1:{unused_tcp_port}": f"error: cannot reach http://127.0.0.1:{unused_tcp_port}: ",
        "http://user:hunter2@127.0.0.1:1": "error: the server's address holds credentials: leave them out",
        "http://hunter2@127.0.0.1:1": "error: the server's address holds credentials: leave them out",
        "127.0.0.1:8200": "error: the server's address must read http://HOST:PORT",
        "ftp://host": "error: the server's address must read http://HOST:PORT",
        "http://host:0x1": "error: the server's address must read",
        "": "error: the server's address must read",
    }
    for url, wanted in cases.items():
        ran = await run(url, str(tmp_path / "data"))
        assert (ran.code, ran.out) == (2, ""), url
        assert ran.err.startswith(wanted), (url, ran)
        assert ran.err.count("\n") == 1
        assert "hunter2" not in ran.err
    assert os.listdir(tmp_path) == []


async def test_the_token_is_read_from_its_variable_and_never_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cases 59 and 102."""
    server = TaskServer(SPLITS, token="s3cret-token")
    out = tmp_path / "data"
    monkeypatch.delenv("ENVS_TOKEN", raising=False)
    ran = await write(server, out, "--token-var", "ENVS_TOKEN")
    assert ran.code == 2
    assert ran.err == "error: the environment variable ENVS_TOKEN is not set: it must hold the server's token\n"
    monkeypatch.setenv("ENVS_TOKEN", "  ")
    ran = await write(server, out, "--token-var", "ENVS_TOKEN")
    assert ran.code == 2
    assert "is empty" in ran.err
    monkeypatch.setenv("ENVS_TOKEN", "wrong")
    ran = await write(server, out, "--token-var", "ENVS_TOKEN")
    assert ran.code == 2
    assert "refused the token (HTTP 401)" in ran.err
    ran = await write(server, out)
    assert ran.code == 2
    assert "refused the token (HTTP 401)" in ran.err
    ran = await write(server, out, "--token-var", "s3cret-token")
    assert ran.code == 2
    assert "s3cret" not in ran.err
    assert not out.exists()
    monkeypatch.setenv("ENVS_TOKEN", "s3cret-token")
    ran = await write(server, out, "--token-var", "ENVS_TOKEN")
    assert ran.code == 0, ran
    for path in out.iterdir():
        assert "s3cret" not in path.read_text()
        assert '"token_var": "ENVS_TOKEN"' in path.read_text()


async def test_servers_without_tasks_are_named(tmp_path: Path) -> None:
    for splits in ({}, {"all": []}):
        server = TaskServer(splits)
        ran = await write(server, tmp_path / "data")
        assert ran.code == 2
        assert ran.err == f"error: {server.url} serves no tasks\n"


async def test_several_servers_must_be_equal(tmp_path: Path) -> None:
    first, second, other = TaskServer(SPLITS), TaskServer(SPLITS), TaskServer({"all": [task(0)]})
    async with first.serve(), second.serve(), other.serve():
        ran = await run(f"{first.url},{second.url}/", str(tmp_path / "data"))
        assert ran.code == 0, ran
        server = rows(tmp_path / "data" / "eval.jsonl")[0]["metadata"]["server"]
        assert (server["url"], server["urls"]) == (first.url, [first.url, second.url])
        ran = await run(f"{first.url},{other.url}", str(tmp_path / "more"))
        assert ran.code == 2
        assert ran.err == f"error: {other.url} serves other tasks than {first.url}: name equal servers only\n"


async def test_an_unwritable_folder_is_a_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = await write(TaskServer(SPLITS), tmp_path / "file")
    assert ran.code == 2
    assert ran.err == f"error: cannot write to {tmp_path / 'file'}: File exists\n"


def test_help_tells_every_setting_with_its_unit_and_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for part in ("--reset-timeout SECONDS", "(default: 1800)", "--max-turns N", "(default: 32)", "(default: fail)"):
        assert part in text


@pytest.mark.parametrize("option", ["--call-timeout=0", "--call-timeout=nan", "--max-turns=0", "--recover=-1"])
def test_settings_out_of_range_are_wrong_usage(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["http://127.0.0.1:1", "data", option])
    assert stopped.value.code == 2
    assert option.partition("=")[0] in capsys.readouterr().err
