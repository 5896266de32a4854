"""Reading rows: every row that can't be played names the flag, file or variable to mend."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_env.training.row import check_url, read_row, read_settings
from agent_env.training.types import InvalidRow, ServerSettings
from tests.training.row import PROMPT, TOOLS, metadata, openai_tools

URL = "http://127.0.0.1:8200"
GOOD = metadata(URL)


def test_a_row_is_read() -> None:
    row = read_row(list(PROMPT), {**GOOD, "session_server_id": "added by Miles", "max_seq_len": 5})
    assert row.messages == PROMPT
    assert list(row.tools) == openai_tools(TOOLS)
    assert (row.split, row.index, row.task_id) == ("train", 3, "@local/double/three")
    assert row.server == ServerSettings(urls=(URL,), reset_timeout=5.0, call_timeout=5.0, model_timeout=5.0)


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("<|im_start|>system...", "--apply-chat-template"),  # case 38
        (None, "--input-key messages"),
        ([], "--input-key messages"),
        ({"role": "user"}, "--input-key messages"),
        (["text"], "--input-key messages"),
        ([{"content": "x"}], "--input-key messages"),
        ([{"role": "user", "content": {1, 2}}], "not JSON"),
    ],
)
def test_a_prompt_that_is_no_chat_names_the_flag(prompt: Any, said: str) -> None:
    with pytest.raises(InvalidRow, match=said):
        read_row(prompt, GOOD)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (None, "--metadata-key metadata"),
        ("text", "--metadata-key metadata"),
        ({}, "no split, index, tools, server"),
        ({**GOOD, "server": None}, "no server"),
        ({**GOOD, "index": "3"}, "write the rows anew"),
        ({**GOOD, "index": True}, "write the rows anew"),
        ({**GOOD, "index": -1}, "write the rows anew"),
        ({**GOOD, "tools": "{"}, "tools is not JSON"),
        ({**GOOD, "tools": "{}"}, "not a list of tools"),
        ({**GOOD, "tools": 7}, "not a list of tools"),
        ({**GOOD, "tools": [{"name": "add"}]}, "--tool-key"),
        ({**GOOD, "server": "http://x"}, "metadata.server"),
    ],
)
def test_metadata_that_is_no_row_names_what_to_mend(changed: Any, said: str) -> None:
    with pytest.raises(InvalidRow, match=said):
        read_row(list(PROMPT), changed)


def test_tools_that_miles_put_in_place_of_ours_are_taken() -> None:
    """--tool-key replaces metadata.tools by a row's top-level list."""
    tools = openai_tools(TOOLS)
    assert list(read_row(list(PROMPT), {**GOOD, "tools": tools}).tools) == tools


def test_null_settings_have_their_defaults() -> None:
    """Case 95: readers that make columns of rows fill in nulls."""
    server = {"url": URL, "urls": [], "token_var": None, "recover": None, "other_writers_key": None}
    assert read_settings(server) == ServerSettings(urls=(URL,))


def test_whole_numbers_may_have_become_floats() -> None:
    assert read_settings({"url": URL, "max_turns": 4.0}).max_turns == 4


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ({}, "names no url"),
        ({"url": 7}, "url must be text"),
        ({"urls": "http://x"}, "urls a list"),
        ({"url": URL, "cal_timeout": 5}, "unknown setting 'cal_timeout'"),
        ({"url": URL, "call_timeout": "5"}, "must be a number of seconds"),
        ({"url": URL, "call_timeout": float("nan")}, "must be a number of seconds"),
        ({"url": URL, "call_timeout": -1}, "must be a number of seconds"),
        ({"url": URL, "call_timeout": 0}, "must be more"),
        ({"url": URL, "max_turns": 1.5}, "must be a whole number"),
        ({"url": URL, "max_turns": True}, "must be a whole number"),
        ({"url": URL, "token_var": 7}, "must be text"),
        ({"url": URL, "on_call_timeout": "retry"}, "one of fail, score"),
    ],
)
def test_settings_that_cant_be_used_are_named(server: Any, said: str) -> None:
    with pytest.raises(InvalidRow, match=said):
        read_settings(server)


@pytest.mark.parametrize(
    "url",
    ["http://h", "https://h/", "ws://h:1", "wss://h:8200/prefix/", "http://[::1]:8200", "http://envs.internal:8200"],
)
def test_addresses_of_servers(url: str) -> None:
    assert check_url(url) == url.rstrip("/")


@pytest.mark.parametrize(
    "url", ["", None, 7, "h:8200", "ftp://h", "http://", "http://h:x", "http://h:99999", "http://[::1"]
)
def test_what_is_no_address_is_refused(url: Any) -> None:
    with pytest.raises(InvalidRow, match="must read http://HOST:PORT"):
        check_url(url)


@pytest.mark.parametrize("url", ["http://u:secret@h:8200", "http://secret@h", "https://:secret@h", "x://u:secret@h"])
def test_credentials_in_an_address_are_refused_and_not_repeated(url: str) -> None:
    """Case 102."""
    with pytest.raises(InvalidRow) as refused:
        check_url(url)
    assert "secret" not in str(refused.value)


def test_rows_survive_json() -> None:
    assert read_row(list(PROMPT), json.loads(json.dumps(GOOD))) == read_row(list(PROMPT), GOOD)
