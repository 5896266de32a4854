from __future__ import annotations

import asyncio
import base64
import hmac
import http.client

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from tests.openenv.doubles import adding_app, ask, open_ws, serving

TOKEN = "s3cret-token"
BEARER = f"Bearer {TOKEN}"


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture
async def address(world):
    async with serving(adding_app(world, token=TOKEN)) as address:
        yield address


async def test_only_health_answers_without_the_token(world):
    app = adding_app(world, token=TOKEN)
    paths = [
        *app.openapi()["paths"],
        "/openapi.json",
        "/docs",
        "/redoc",
        "/nowhere",
        "/health/",
        "//health",
    ]
    async with serving(app) as address, httpx.AsyncClient(base_url=f"http://{address}") as http:
        assert "/reset" in paths
        for path in paths:
            for method in ("GET", "POST", "HEAD", "OPTIONS", "PUT"):
                status = (await http.request(method, path.replace("{env_name}", "adding"))).status_code
                assert status == (200 if (method, path) == ("GET", "/health") else 401), (method, path)
        for path in ("/ws", "/mcp", "/ws?session_id=x", "/nowhere"):
            with pytest.raises(InvalidStatus) as refused:
                await open_ws(address, path)
            assert refused.value.response.status_code == 401
    assert world.started == []


@pytest.mark.parametrize(
    "given", [BEARER, f"bearer {TOKEN}", f"Bearer   {TOKEN}", basic("token", TOKEN), basic("", TOKEN)]
)
async def test_the_token_opens_routes_and_sockets(address, given):
    headers = {"Authorization": given}
    async with httpx.AsyncClient(base_url=f"http://{address}", headers=headers) as http:
        assert (await http.get("/metadata")).status_code == 200
    async with open_ws(address, additional_headers=headers) as socket:
        assert (await ask(socket, "state"))["type"] == "state"


@pytest.mark.parametrize(
    "values",
    [
        [b"Bearer wrong"],
        [b"Bearer"],
        [b"Bearer "],
        [b""],
        [TOKEN.encode()],
        [b"bearer x"],
        [b"Bearer caf\xe9"],
        [b"Bearer " + TOKEN.encode() + b"x"],
        [b"Bearer " + TOKEN[:-1].encode()],
        [BEARER.encode(), BEARER.encode()],
        [BEARER.encode(), b"Bearer x"],
        [b"Bearer " + b"x" * 30_000],
        [b"Basic !!!"],
        [b"Basic caf\xe9"],
        [b"Basic " + base64.b64encode(b"no-colon")],
        [b"Basic " + base64.b64encode(TOKEN.encode() + b":")],
        [b"Digest " + TOKEN.encode()],
        [b"Bearer\t" + TOKEN.encode()],
    ],
)
async def test_an_odd_authorization_header_is_401(world, values):
    app = adding_app(world, token=TOKEN)
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request"}

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/metadata",
        "query_string": b"",
        "headers": [(b"authorization", value) for value in values],
    }
    await app(scope, receive, send)
    assert sent[0]["status"] == 401


async def test_a_megabyte_of_header_is_refused_without_a_traceback(address):
    connection = http.client.HTTPConnection(*address.split(":"), timeout=10)

    def status() -> int:
        try:
            connection.request("GET", "/metadata", headers={"Authorization": "Bearer " + "x" * 2**20})
            return connection.getresponse().status
        except OSError:  # the server closed before it was all sent
            return 400
        finally:
            connection.close()

    assert await asyncio.to_thread(status) in (400, 401, 431)


async def test_the_token_is_compared_in_constant_time(world, monkeypatch):
    compared = []
    monkeypatch.setattr(hmac, "compare_digest", lambda *pair: compared.append(pair) or False)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(adding_app(world, token=TOKEN)),
        base_url="http://t",
        headers={"Authorization": BEARER},
    ) as http:
        assert (await http.get("/metadata")).status_code == 401
    assert compared == [(TOKEN.encode(), TOKEN.encode())]


@pytest.mark.parametrize("token", ["", "  ", "two\nlines", " spaced ", "caf\xe9"])
def test_a_token_that_guards_nothing_or_cant_be_sent_is_refused_at_start(world, token):
    with pytest.raises(ValueError, match="token"):
        adding_app(world, token=token)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "http://caf\xe9"])
async def test_pages_of_another_origin_are_refused(world, origin):
    async with serving(adding_app(world)) as address:
        with pytest.raises(InvalidStatus) as refused:
            await open_ws(address, additional_headers={"Origin": origin})
        assert refused.value.response.status_code == 403
        async with httpx.AsyncClient(
            base_url=f"http://{address}", headers={"Origin": origin.encode("latin-1")}
        ) as http:
            assert (await http.post("/reset")).status_code == 403
            assert (await http.get("/metadata")).status_code == 200
    assert world.started == []


async def test_a_page_of_the_server_itself_may_open_a_socket(world):
    async with (
        serving(adding_app(world)) as address,
        open_ws(address, additional_headers={"Origin": f"http://{address}"}) as socket,
    ):
        assert (await ask(socket, "state"))["type"] == "state"


async def test_the_token_is_in_no_log_line(world, caplog, capfd):
    caplog.set_level("DEBUG")
    async with serving(adding_app(world, token=TOKEN), access_log=True) as address:
        async with open_ws(address, additional_headers={"Authorization": BEARER}) as socket:
            await ask(socket, "reset")
        with pytest.raises(InvalidStatus):
            await open_ws(address, additional_headers={"Authorization": f"{BEARER}x"})
    server_side = [record for record in caplog.records if not record.name.startswith(("websockets", "httpcore"))]
    assert server_side
    assert not [record for record in server_side if TOKEN in record.getMessage()]
    assert TOKEN not in "".join(capfd.readouterr())
