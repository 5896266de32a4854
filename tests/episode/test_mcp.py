"""MCP over HTTP, against servers that keep the protocol in their own ways, and against those that don't."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent_env.episode import mcp
from agent_env.episode.http import BadReply, HttpClient, PeerError
from agent_env.episode.mcp import McpClient, RpcError, UnreadableReply

from .servers import Answer, Peer, Server, event_stream, json_answer, raw_stream, reply, request_read


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


@pytest.mark.parametrize("sse", [False, True])
async def test_the_session_opens_with_the_first_request(sse: bool) -> None:
    peer = Peer({"tools/call": lambda message: text("4")}, sse=sse)
    client = peer.client(role="auditor")
    assert [tool.name for tool in await client.list_tools()] == ["add"]
    assert (await client.call_tool("add", {"a": 2})).text == "4"
    assert [message["method"] for message in peer.messages] == [
        "initialize",
        "notifications/initialized",
        "tools/list",
        "tools/call",
    ]
    assert peer.messages[-1]["params"] == {"name": "add", "arguments": {"a": 2}}
    assert "mcp-session-id" not in peer.heads[0]
    assert all("mcp-session-id: s1" in head for head in peer.heads[1:])
    assert all("mcp-protocol-version: 2025-06-18" in head for head in peer.heads[1:])
    assert all("agentenv-role: auditor" in head for head in peer.heads)
    assert peer.server.connections == 1


async def test_a_server_without_sessions_works() -> None:
    peer = Peer(session=None)
    await peer.client().list_tools()
    assert not any("mcp-session-id" in head for head in peer.heads)


async def test_every_page_of_tools_is_read() -> None:
    pages = {None: (["a", "b"], "2"), "2": (["b", "c"], "3"), "3": (["d"], None)}

    def listed(message: dict[str, Any]) -> Any:
        names, cursor = pages[message["params"].get("cursor")]
        tools = [{"name": name, "inputSchema": {}, "description": f"does {name}"} for name in names]
        return {"tools": tools, **({"nextCursor": cursor} if cursor else {})}

    tools = await Peer({"tools/list": listed}).client().list_tools()
    assert [tool.name for tool in tools] == ["a", "b", "c", "d"]
    assert tools[0].description == "does a"
    assert tools[0].input_schema == {"type": "object", "properties": {}}


async def test_pages_without_end_are_refused() -> None:
    peer = Peer({"tools/list": lambda message: {"tools": [], "nextCursor": "again"}})
    with pytest.raises(BadReply, match="doesn't end after 100 pages"):
        await peer.client().list_tools()


async def test_what_a_server_says_in_between_is_skipped() -> None:
    def chatty(message: dict[str, Any]) -> bytes:
        return event_stream(
            {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}},
            {"jsonrpc": "2.0", "id": 9, "method": "ping"},
            {"jsonrpc": "2.0", "id": message["id"], "method": "sampling/createMessage", "params": {}},
            {"jsonrpc": "2.0", "id": message["id"], "result": text("done")},
        )

    assert (await Peer({"tools/call": chatty}).client().call_tool("x", {})).text == "done"


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
async def test_events_end_in_every_way_that_they_may(end: bytes) -> None:
    def answer(message: dict[str, Any]) -> bytes:
        body = (
            b": comment"
            + end
            + b"data:"
            + end
            + b'data: {"jsonrpc": "2.0",'
            + end
            + b'data: "id": %d, "result": {"content": []}}' % message["id"]
            + end
            + end
        )
        return raw_stream(body)

    assert (await Peer({"tools/call": answer}).client().call_tool("x", {})).content == ()


async def test_a_server_mounted_with_a_slash_is_followed_once() -> None:
    def moved(message: dict[str, Any]) -> bytes | dict[str, Any]:
        if "post /mcp/ " not in peer.heads[-1]:
            return (
                b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:18765/mcp/\r\nContent-Length: 0\r\n\r\n"
            )
        return {"protocolVersion": "2025-06-18"}

    peer = Peer({"initialize": moved})
    await peer.client().list_tools()
    assert all(head.startswith("post /mcp/ ") for head in peer.heads[1:])


async def test_a_redirect_elsewhere_is_refused() -> None:
    answer = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n"
    with pytest.raises(BadReply, match="redirects /mcp to '/other'"):
        await Peer({"initialize": lambda message: answer}).client().list_tools()


async def test_a_json_rpc_error_is_the_servers_word() -> None:
    def refuse(message: dict[str, Any]) -> bytes:
        return json_answer({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32603, "message": "no such row"}})

    with pytest.raises(RpcError, match="no such row") as refused:
        await Peer({"tools/call": refuse}).client().call_tool("x", {})
    assert refused.value.code == -32603


async def test_arguments_refused_at_the_door_are_a_json_rpc_error() -> None:
    answer = json_answer(
        {"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32602, "message": "Validation error"}},
        "400 Bad Request",
    )
    with pytest.raises(RpcError) as refused:
        await Peer({"tools/call": lambda message: answer}).client().call_tool("x", {})
    assert refused.value.code == mcp.INVALID_PARAMS


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ('{"content": [], "structuredContent": NaN}', "NaN"),
        ('{"content": [], "structuredContent": -Infinity}', "-Infinity"),
        ('{"content": [{"type": "text", "text": "\\ud800"}]}', "a lone surrogate"),
        ('{"content": [{"type": "text", "text": "\\uDFFF"}]}', "a lone surrogate"),
        ('{"content": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
        ('{"content": [], "structuredContent": ' + "9" * 5000 + "}", "digits"),
    ],
    ids=["nan", "infinity", "surrogate", "upper", "deep", "digits"],
)
async def test_a_result_that_cannot_be_passed_on_says_why(result: str, why: str) -> None:
    with pytest.raises(UnreadableReply, match=why):
        await Peer({"tools/call": reply(result)}).client().call_tool("x", {})


async def test_a_surrogate_pair_is_a_character() -> None:
    answer = reply('{"content": [{"type": "text", "text": "\\ud83d\\ude00"}]}')
    assert (await Peer({"tools/call": answer}).client().call_tool("x", {})).text == "\U0001f600"


@pytest.mark.parametrize(
    "answer",
    [
        lambda message: json_answer(b"<html>"),
        lambda message: json_answer([]),
        lambda message: json_answer("text"),
        lambda message: json_answer({}),
        lambda message: json_answer({"jsonrpc": "2.0", "id": message["id"] + 1, "result": text("of another")}),
        lambda message: json_answer({"jsonrpc": "2.0", "id": str(message["id"]), "result": text("no")}),
        lambda message: json_answer({"jsonrpc": "2.0", "id": True, "result": text("no")}),
        lambda message: json_answer({"jsonrpc": "2.0", "id": message["id"], "result": []}),
        lambda message: json_answer({"jsonrpc": "2.0", "id": message["id"], "error": "no"}),
        lambda message: json_answer({"jsonrpc": "2.0", "id": message["id"], "error": {"code": "1", "message": 2}}),
        lambda message: json_answer({"error": {"code": -32600, "message": "Session not found"}}, "404 Not Found"),
        lambda message: b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\noops",
        lambda message: b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n",
        lambda message: b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\n<p/>",
        lambda message: event_stream(),
        lambda message: raw_stream(b"data: {not json\n\n"),
        lambda message: raw_stream(b"data: 1\n\n"),
        lambda message: raw_stream(b"\r" * 200_000),
        lambda message: raw_stream(b"data: {}"),
        reply('{"content": {}}'),
        reply('{"content": [1]}'),
        reply('{"content": [{}]}'),
        reply('{"content": [{"type": "text", "text": 1}]}'),
    ],
)
async def test_what_is_no_reply_is_the_peers_fault(answer: Answer) -> None:
    async with asyncio.timeout(10):
        with pytest.raises(PeerError) as failed:
            await Peer({"tools/call": answer}).client().call_tool("x", {})
    assert not isinstance(failed.value, UnreadableReply)


@pytest.mark.parametrize(
    "answers",
    [
        {"initialize": lambda message: {}},
        {"initialize": lambda message: json_answer({"id": True, "result": {"protocolVersion": "2025-06-18"}})},
        {"initialize": lambda message: {"protocolVersion": "1\r\nX-Evil: 1"}},
        {"notifications/initialized": lambda message: b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"},
        {"tools/list": lambda message: {}},
        {"tools/list": lambda message: {"tools": [{}]}},
        {"tools/list": lambda message: {"tools": [{"name": ""}]}},
        {"tools/list": lambda message: {"tools": [{"name": "a", "inputSchema": "x"}]}},
        {"tools/list": lambda message: {"tools": [], "nextCursor": 1}},
        {"tools/list": lambda message: {"tools": [{"name": str(n)} for n in range(3_000)]}},
    ],
)
async def test_a_session_that_opens_wrongly_is_the_peers_fault(answers: dict[str, Answer]) -> None:
    with pytest.raises(PeerError):
        await Peer(answers).client().list_tools()


async def test_a_session_id_that_is_no_header_value_is_refused() -> None:
    peer = Peer(session="x" * 5_000)
    with pytest.raises(BadReply, match="mcp-session-id is no header value"):
        await peer.client().list_tools()


async def test_a_stream_of_lines_without_a_reply_ends() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_read(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        while True:
            writer.write(b": still here\n" * 1_000)
            await writer.drain()

    async with asyncio.timeout(20):
        with pytest.raises(BadReply, match="100000 lines and no reply"):
            await McpClient(HttpClient(Server(script).connect)).list_tools()
