"""What strangers and other tenants get: over real connections, by every way that was thought of."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin

from server.carriers import uvicorn_http
from server.carriers.phone_line import MESSAGE_MOST
from server.security.tenants import changed, new_key, switched, with_key
from tests.caller import Caller
from tests.server.serving import Served, refusal, served

from .making import make_tenants
from .outside import HANDSHAKE, code, dripped, head, raw, to_the_end, until

PUBLIC = {"/", "/replay", "/replay/{recording}", "/web/{path:path}", "/healthz", "/readyz"}
VENDORS_OWN = "/telephony/{vendor}/connect"
"""Gives a document that names no secret; a vendor's signature is asked for where its secret is set."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tenants.json"


@pytest.fixture
def keys(file: Path) -> dict[str, str]:
    return make_tenants(file, ["acme", "bolt", "ops"], operators=["ops"])


@pytest.fixture
async def place(file: Path, keys: dict[str, str], tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tenants_file=file, record=tmp_path / "recordings") as running:
        yield running


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def guarded(place: Served) -> Iterator[tuple[str, str]]:
    """Every route of the application that is not public, as method and path."""
    application = place.app.asgi._app  # type: ignore[attr-defined]
    assert isinstance(application, Starlette)
    for route in application.routes:
        if isinstance(route, Route) and route.path not in PUBLIC | {VENDORS_OWN}:
            path = route.path
            for name in route.param_convertors:
                path = path.replace(f"{{{name}}}", "0")
            yield from ((method, path) for method in sorted(route.methods or ()) if method != "HEAD")


# --- keys ------------------------------------------------------------------------------------------------------------


async def test_no_route_answers_without_a_key_or_to_a_wrong_one(place: Served, keys: dict[str, str]) -> None:
    routes = list(guarded(place))
    assert len(routes) > 15
    value, expired = new_key(days=0.000001)
    wrong = [
        {},
        {"Authorization": "Bearer"},
        bearer("wrong"),
        bearer(keys["acme"][:-1]),
        bearer(keys["acme"].upper()),
        bearer(value),
    ]
    wrong += [bearer("ek_" + "0" * 32), bearer("eyJhbGciOiJub25lIn0.e30."), {"Authorization": keys["acme"]}]
    wrong += [
        {"Authorization": f"Basic {keys['acme']}"},
        {"X-API-Key": keys["acme"]},
        {"Cookie": f"key={keys['acme']}"},
    ]
    body = {"Content-Type": "application/json"}
    async with place.http() as http:
        for method, path in routes:
            for headers in wrong:
                answer = await http.request(method, path, headers={**headers, **body}, content=b"{}")
                assert error(answer) == (401, "invalid_api_key"), (method, path, headers)
                assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        for name in ("key", "api_key", "token", "access_token", "authorization"):
            answer = await http.get("/metrics", params={name: keys["ops"]})
            assert error(answer) == (401, "invalid_api_key"), "a key in an address stands in the logs of every proxy"
    assert expired.operator is False


async def test_an_ephemeral_key_reaches_sessions_and_nothing_else(place: Served, keys: dict[str, str]) -> None:
    async with place.http(keys["acme"]) as http:
        value = (await http.post("/v1/realtime/client_secrets", json={})).json()["value"]
    sessions = {"/v1/realtime", "/v1/realtime/calls", "/v1/realtime/calls/0/hangup"}
    phones = {"/telephony/calls/0/hangup", "/telephony/calls/0/transfer"}
    async with place.http(value) as http:
        for method, path in guarded(place):
            if path in sessions:
                continue
            answer = await http.request(method, path, json={"to": "x"})
            wanted = (404, "call_not_found") if path in phones else (403, "insufficient_scope")
            assert error(answer) == wanted, (method, path)


async def test_what_concerns_the_whole_server_needs_an_operators_key(place: Served, keys: dict[str, str]) -> None:
    async with place.http() as http:
        for path in ("/metrics", "/v1/talkover/tenants"):
            assert error(await http.get(path, headers=bearer(keys["acme"]))) == (403, "insufficient_scope")
            assert (await http.get(path, headers=bearer(keys["ops"]))).status_code == 200
        assert set((await http.get("/healthz", headers=bearer(keys["acme"]))).json()) == {"status"}
        assert "sessions" in (await http.get("/healthz", headers=bearer(keys["ops"]))).json()


async def test_a_key_is_refused_from_the_moment_it_is_disabled_and_its_sessions_end(
    place: Served, keys: dict[str, str], file: Path
) -> None:
    async with place.http(keys["acme"]) as http:
        minted = (await http.post("/v1/realtime/client_secrets", json={})).json()["value"]
    async with place.socket(keys["acme"]) as connection, place.socket(keys["bolt"]) as other:
        await connection.recv()
        await other.recv()
        with changed(file) as tenants:
            tenants["acme"] = switched(tenants["acme"], None, on=False)
        await to_the_end(connection)
        status, told = await refusal(place.socket(keys["acme"]))
        assert (status, told["code"]) == (401, "invalid_api_key")
        assert "disabled" in told["message"]
        assert (await refusal(place.socket(minted)))[0] == 401
        await other.send(json.dumps({"type": "response.create"}))
        assert json.loads(await other.recv())["type"] == "response.created"


async def test_a_single_use_key_that_comes_many_times_at_once_opens_one_session(
    place: Served, keys: dict[str, str]
) -> None:
    async with place.http(keys["acme"]) as http:
        body = {"x_talkover": {"single_use": True}}
        values = [(await http.post("/v1/realtime/client_secrets", json=body)).json()["value"] for _ in range(2)]
        assert error(await http.post("/v1/realtime/client_secrets", json={"x_talkover": {"single_use": 1}}))[0] == 400

    # These are all let in before any of them says what it wants, which is when its session is opened.
    url = f"{place.realtime}&duplex=1&autostart=0"
    async with contextlib.AsyncExitStack() as stack:
        waiting = [
            await stack.enter_async_context(connect(url, additional_headers=bearer(values[0]), proxy=None))
            for _ in range(5)
        ]
        for connection in waiting:
            await connection.send(json.dumps({"type": "session.heartbeat"}))
        told = [json.loads(await connection.recv()) for connection in waiting]
        assert sorted(one["type"] for one in told) == ["error"] * 4 + ["session.created"]
        assert {one["error"]["code"] for one in told if one["type"] == "error"} == {"invalid_api_key"}

    async def dial() -> int:
        try:
            async with place.socket(values[1]) as connection:
                await connection.recv()
                return 101
        except InvalidStatus as refused:
            return refused.response.status_code

    assert sorted(await asyncio.gather(*(dial() for _ in range(5)))) == [101, 401, 401, 401, 401]
    assert (await refusal(place.socket(values[1])))[0] == 401, "replayed later"


# --- tenants ---------------------------------------------------------------------------------------------------------


async def test_another_tenants_session_is_not_there(place: Served, keys: dict[str, str]) -> None:
    url = f"{place.realtime}&duplex=1&autostart=0"
    async with connect(url, additional_headers=bearer(keys["acme"]), proxy=None) as mine:
        await mine.send(json.dumps({"type": "session.heartbeat"}))
        created = json.loads(await mine.recv())
        session, token = created["session"]["id"], created["resume_token"]
        async with connect(url, additional_headers=bearer(keys["bolt"]), proxy=None) as theirs:
            resume = {"type": "session.resume", "session_id": session, "resume_token": token}
            await theirs.send(json.dumps({**resume, "last_received_server_event_seq": 0}))
            assert json.loads(await theirs.recv())["error"]["code"] == "invalid_resume_token"
        async with place.http(keys["bolt"]) as http:
            for path in ("acme/state", f"acme/sessions/{session}/state", "nobody/state", "default/state", "-/state"):
                for method in ("GET", "DELETE"):
                    answer = await http.request(method, f"/v1/talkover/tenants/{path}")
                    assert error(answer) == (404, "tenant_not_found"), path
            own = await http.request("DELETE", f"/v1/talkover/tenants/bolt/sessions/{session}/state")
            assert own.json()["held"] == [], "under its own name it finds nothing either"
            assert error(await http.get(f"/v1/talkover/recordings/{session}"))[1] == "recording_not_found"
            assert (await http.get("/v1/talkover/recordings")).json()["data"] == []
        await mine.send(json.dumps({"type": "session.heartbeat"}))
        assert place.app.manager is not None
        assert session in place.app.manager


async def test_another_tenants_call_is_not_there(place: Served, keys: dict[str, str]) -> None:
    caller = Caller()
    resume = {"type": "realtime", "x_talkover": {"resume": True}}
    try:
        async with place.http(keys["acme"]) as http:
            await caller.call(http, resume)
        created = await caller.event("session.created")
        async with place.http(keys["bolt"]) as http:
            assert error(await http.post(f"/v1/realtime/calls/{caller.call_id}/hangup")) == (404, "call_not_found")
            stolen = {"session": created["session"]["id"], "token": created["session"]["x_talkover"]["resume_token"]}
            other = Caller()
            try:
                offer = await other.offer()
                part = {"type": "realtime", "x_talkover": {"resume": stolen}}
                files = {"sdp": (None, offer, "application/sdp"), "session": (None, json.dumps(part))}
                assert error(await http.post("/v1/realtime/calls", files=files)) == (409, "unknown_session")
            finally:
                await other.close()
        watch = f"{place.url.replace('http', 'ws')}/v1/realtime?call_id={caller.call_id}"
        status, told = await refusal(connect(watch, additional_headers=bearer(keys["bolt"]), proxy=None))
        assert (status, told["code"]) == (404, "call_not_found")
        async with connect(watch, additional_headers=bearer(keys["acme"]), proxy=None) as own:
            assert json.loads(await own.recv())["type"] == "session.created"
    finally:
        await caller.close()


async def test_a_page_shows_nothing_without_a_key(place: Served) -> None:
    async with place.http() as http:
        for path in ("/replay/sess_0123456789abcdef", "/replay/..%2f..%2fetc", "/replay/%00"):
            answer = await http.get(path)
            assert answer.status_code in (200, 404)
            assert "sess_" not in answer.text, "the page is the same for everybody and asks for the rest with a key"


# --- paths and headers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/v1/talkover/recordings/..%2f..%2fetc%2fpasswd",
        "/v1/talkover/recordings/../../../etc/passwd",
        "/v1/talkover/recordings/%2e%2e/x",
        "/v1/talkover/recordings/..%5c..%5cx",
        "/v1/talkover/recordings/x%00.json",
        "/v1/talkover/recordings/%252e%252e%252fx",
        "/healthz/../metrics",
        "/healthz/..%2fmetrics",
        "/web/..%2f..%2fserver%2fapp.py",
        "/web/%2e%2e/%2e%2e/server/app.py",
        "/./metrics",
        "//metrics",
        "/metrics/",
        "/metrics%2f",
        "/METRICS",
        "/metrics;x=1",
        "/metrics%20",
    ],
)
async def test_a_path_that_is_written_in_another_way_leads_nowhere(
    place: Served, keys: dict[str, str], path: str
) -> None:
    status, _, body = await raw(place, head(path, ("Authorization", f"Bearer {keys['ops']}")))
    assert status in (307, 404), body
    assert b"talkover_sessions" not in body
    assert b"root:" not in body


async def test_an_encoded_path_is_guarded_as_the_plain_one_is(place: Served, keys: dict[str, str]) -> None:
    for path in ("/%6detrics", "/%6d%65%74%72%69%63%73", "/v1/talkover/%72ecordings"):
        status, _, body = await raw(place, head(path))
        assert (status, code(body)) == (401, "invalid_api_key")


async def test_a_header_that_is_there_twice_is_refused(place: Served, keys: dict[str, str]) -> None:
    good, wrong = ("Authorization", f"Bearer {keys['ops']}"), ("authorization", "Bearer wrong")
    for headers in ((good, wrong), (wrong, good), (good, good)):
        status, _, body = await raw(place, head("/metrics", *headers))
        assert (status, code(body)) == (400, "duplicate_header")
    for name in ("Host", "Origin", "Content-Type"):
        status, _, body = await raw(place, head("/metrics", good, (name, "http://127.0.0.1"), (name, "http://a")))
        assert status == 400
    status, _, body = await raw(place, head("/v1/realtime", *HANDSHAKE, good, wrong))
    assert (status, code(body)) == (400, "duplicate_header")
    assert place.app.counters["requests_refused"] >= 4


async def test_lengths_that_contradict_each_other_are_refused(place: Served, keys: dict[str, str]) -> None:
    good = ("Authorization", f"Bearer {keys['acme']}")
    path = "/v1/realtime/client_secrets"
    smuggled = b"0\r\n\r\n" + head("/metrics", ("Authorization", f"Bearer {keys['ops']}"))
    for headers in (
        (("Content-Length", "4"), ("Content-Length", "5")),
        (("Content-Length", "4"), ("Transfer-Encoding", "chunked")),
        (("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "identity")),
        (("Content-Length", "-1"),),
        (("Content-Length", "4x"),),
    ):
        status, _, body = await raw(place, head(path, good, *headers, method="POST") + smuggled)
        assert status == 400, headers
        assert b"talkover_sessions" not in body


async def test_the_name_of_the_scheme_is_read_in_any_case_and_the_key_in_its_own(
    place: Served, keys: dict[str, str]
) -> None:
    for scheme in ("bearer", "BEARER", "Bearer"):
        assert (await raw(place, head("/metrics", ("AUTHORIZATION", f"{scheme} {keys['ops']}"))))[0] == 200
    for value in (keys["ops"].swapcase(), f"{keys['ops']},x", f"{keys['ops']} x", f'"{keys["ops"]}"'):
        assert (await raw(place, head("/metrics", ("Authorization", f"Bearer {value}"))))[0] == 401


async def test_headers_may_not_be_huge(place: Served) -> None:
    for request in (
        head("/healthz", ("X", "a" * 40_000)),
        head("/healthz", *((f"X-{number}", "a" * 100) for number in range(400))),
        head("/" + "a" * 40_000),
        head("/v1/realtime", *HANDSHAKE, ("X", "a" * 40_000)),
        b"GET /" + b"a" * 60_000,
    ):
        status, _, body = await raw(place, request)
        assert (status, code(body)) == (431, "headers_too_large")
    assert place.app.counters["requests_unreadable"] + place.app.counters["requests_refused"] == 5
    assert (await raw(place, head("/healthz")))[0] == 200


@pytest.mark.parametrize(
    "request_",
    [b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\r\n\r\n\r\n\x00\r\n\r\n"],
)
async def test_what_is_not_http_is_refused(place: Served, request_: bytes) -> None:
    status, _, body = await raw(place, request_)
    assert (status, code(body)) == (400, "invalid_request")


# --- large and slow --------------------------------------------------------------------------------------------------


async def test_a_body_may_not_be_huge_whether_it_says_so_or_not(place: Served, keys: dict[str, str]) -> None:
    good = (("Authorization", f"Bearer {keys['acme']}"), ("Content-Type", "application/json"))
    path = "/v1/realtime/client_secrets"
    announced = head(path, *good, ("Content-Length", str(10**12)), method="POST")
    assert (await raw(place, announced))[0] == 413
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    status, _, body = await dripped(
        place, head(path, *good, ("Transfer-Encoding", "chunked"), method="POST"), itertools.repeat(chunk, 1000)
    )
    assert (status, code(body)) == (413, "request_too_large")


async def test_a_stranger_on_a_telephone_line_cannot_make_the_server_hold_much(place: Served) -> None:
    url = f"{place.url.replace('http', 'ws')}/telephony/twilio"
    async with connect(url, proxy=None) as connection:
        with contextlib.suppress(ConnectionClosed):
            await connection.send("x" * (MESSAGE_MOST + 1))
        await connection.wait_closed()
        assert connection.close_code == 1009


async def test_a_message_may_be_as_long_as_the_tenants_limit(file: Path) -> None:
    key = make_tenants(file, ["acme"], message_kb=2)["acme"]
    async with served(tenants_file=file) as place, place.socket(key) as connection:
        await connection.recv()
        await connection.send(json.dumps({"type": "session.update", "session": {"instructions": "x" * 3000}}))
        told = json.loads(await connection.recv())["error"]
        assert told["code"] == "message_too_large"
        assert "2000" in told["message"]
        await connection.send(json.dumps({"type": "response.create"}))
        assert json.loads(await connection.recv())["type"] == "response.created", "the session lives"


async def test_a_head_that_comes_byte_by_byte_is_not_waited_for(place: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_http, "HEAD_WITHIN", 0.3)
    for beginning in (
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: ",
        b"GET /v1/realtime HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX: ",
    ):
        status, headers, body = await dripped(place, beginning, itertools.repeat(b"a"))
        assert (status, code(body)) == (408, "request_timeout")
        assert headers["connection"] == "close"
    status, _, _ = await dripped(place, b"", [])
    assert status == 0, "who says nothing at all is told nothing"
    assert place.app.counters["requests_too_slow"] == 3


async def test_a_second_head_on_a_connection_is_not_waited_for_either(
    place: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uvicorn_http, "HEAD_WITHIN", 0.3)
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        writer.write(head("/healthz"))
        await reader.readuntil(b"}")
        writer.write(b"GET /healthz HTTP/1.1\r\n")
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 408")
        await reader.read()
        writer.close()


async def test_a_body_that_comes_byte_by_byte_is_not_waited_for(
    place: Served, keys: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from server import http as http_module

    monkeypatch.setattr(http_module, "BODY_WITHIN", 0.3)
    good = (("Authorization", f"Bearer {keys['acme']}"), ("Content-Length", "100000"))
    for path, kind in (("/v1/realtime/client_secrets", "application/json"), ("/v1/realtime/calls", "application/sdp")):
        beginning = head(path, *good, ("Content-Type", kind), method="POST")
        status, _, body = await dripped(place, beginning, itertools.repeat(b" "))
        assert (status, code(body)) == (408, "request_timeout")


async def test_a_body_that_nobody_reads_does_not_keep_the_connection(
    place: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uvicorn_http, "BODY_WITHIN", 0.3)
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        writer.write(head("/metrics", ("Content-Length", "100000"), method="POST"))
        ended = asyncio.create_task(reader.read())
        while not ended.done():
            with contextlib.suppress(ConnectionError):
                writer.write(b" ")
            await asyncio.wait([ended], timeout=0.01)
        writer.close()


async def test_a_slow_client_does_not_disturb_one_that_is_not(place: Served, keys: dict[str, str]) -> None:
    slow = [await asyncio.open_connection("127.0.0.1", place.port) for _ in range(200)]
    try:
        for _, writer in slow:
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: ")
        async with place.socket(keys["acme"]) as connection:
            assert json.loads(await connection.recv())["type"] == "session.created"
    finally:
        for _, writer in slow:
            writer.close()


# --- pages of others -------------------------------------------------------------------------------------------------


async def test_where_origins_are_named_a_page_of_another_is_refused_whatever_key_it_has(
    file: Path, keys: dict[str, str]
) -> None:
    good, evil = "https://app.example", "https://evil.example"
    async with served(tenants_file=file, allow_origins=(good,)) as place:
        for origin in (
            evil,
            "null",
            "https://app.example.evil.example",
            "https://app.example:444",
            "http://app.example",
        ):
            status, told = await refusal(place.socket(keys["acme"], origin=Origin(origin)))
            assert (status, told["code"]) == (403, "origin_not_allowed"), origin
            async with place.http() as http:
                answer = await http.get("/metrics", headers={"Origin": origin, **bearer(keys["ops"])})
                assert error(answer) == (403, "origin_not_allowed")
                assert "Access-Control-Allow-Origin" not in answer.headers
        for origin in (good, place.url, None):
            async with place.socket(keys["acme"], origin=None if origin is None else Origin(origin)) as connection:
                assert json.loads(await connection.recv())["type"] == "session.created"


async def test_a_browser_is_told_which_pages_may_read_answers(file: Path, keys: dict[str, str]) -> None:
    good = "https://app.example"
    wish = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization"}
    async with served(tenants_file=file, allow_origins=(good,)) as place, place.http() as http:
        allowed = await http.options("/v1/talkover/recordings", headers={**wish, "Origin": good})
        assert allowed.status_code == 204
        assert allowed.headers["Access-Control-Allow-Origin"] == good
        assert "Access-Control-Allow-Credentials" not in allowed.headers
        assert allowed.headers["Vary"] == "Origin"
        refused = await http.options("/v1/talkover/recordings", headers={**wish, "Origin": "https://evil.example"})
        assert error(refused) == (403, "origin_not_allowed")
        assert "Access-Control-Allow-Origin" not in refused.headers
        read = await http.get("/healthz", headers={"Origin": good})
        assert read.headers["Access-Control-Allow-Origin"] == good


async def test_every_answer_says_what_a_browser_may_do_with_it(place: Served, keys: dict[str, str]) -> None:
    async with place.http(keys["ops"]) as http:
        for path in ("/", "/replay", "/healthz", "/metrics", "/nowhere", "/v1/talkover/recordings", "/web/main.js"):
            headers = (await http.get(path)).headers
            assert headers["X-Content-Type-Options"] == "nosniff", path
            assert headers["Referrer-Policy"] == "no-referrer"
            policy = headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "server" not in headers
            if path != "/v1/talkover/recordings":
                assert "frame-ancestors 'none'" in policy
            assert "no-store" in headers["Cache-Control"] or "no-cache" in headers["Cache-Control"]
            assert "Strict-Transport-Security" not in headers, "it would lock http://localhost out of a browser"
        page = (await http.get("/")).headers
        assert "script-src 'self'" in page["Content-Security-Policy"]
        assert "microphone=(self)" in page["Permissions-Policy"]


# --- how much --------------------------------------------------------------------------------------------------------


async def test_requests_beyond_a_tenants_rate_are_told_when_to_come_back(file: Path) -> None:
    keys = make_tenants(file, ["acme", "bolt"], http=1)
    async with served(tenants_file=file) as place, place.http(keys["acme"]) as http:
        assert (await http.get("/v1/talkover/recordings")).status_code == 404
        refused = await http.get("/v1/talkover/recordings")
        assert error(refused) == (429, "rate_limit_exceeded")
        assert 0 < int(refused.headers["Retry-After"]) <= 60
        status, told = await refusal(place.socket(keys["acme"]))
        assert (status, told["code"]) == (429, "rate_limit_exceeded")
        async with place.socket(keys["bolt"]) as connection:
            assert json.loads(await connection.recv())["type"] == "session.created"


async def test_sessions_beyond_a_tenants_limit_are_refused_by_name(file: Path) -> None:
    keys = make_tenants(file, ["acme", "bolt"], sessions=1)
    async with served(tenants_file=file) as place, place.socket(keys["acme"]) as connection:
        await connection.recv()
        status, told = await refusal(place.socket(keys["acme"]))
        assert (status, told["code"]) == (429, "too_many_sessions")
        assert "end one first" in told["message"]
        async with place.socket(keys["bolt"]) as other:
            await other.recv()


async def test_a_session_beyond_the_days_audio_is_told_and_ended(file: Path) -> None:
    key = make_tenants(file, ["acme"], audio_day=2)["acme"]
    second = json.dumps({"type": "input_audio_buffer.append", "audio": "AAAA" * 16_000})
    async with served(tenants_file=file) as place:
        async with place.socket(key) as connection:
            for _ in range(3):
                await connection.send(second)
            told, closed = await to_the_end(connection)
        assert [one["error"]["code"] for one in told if one["type"] == "error"] == ["audio_limit_exceeded"]
        assert closed == "audio_limit_exceeded"
        status, answer = await refusal(place.socket(key))
        assert (status, answer["code"]) == (429, "audio_limit_exceeded")
        assert place.app.counters["audio_limit_exceeded"] == 2


async def test_a_key_can_be_given_more_keys_while_the_server_runs(
    place: Served, keys: dict[str, str], file: Path
) -> None:
    value, kept = new_key()
    with changed(file) as tenants:
        tenants["acme"] = with_key(tenants["acme"], kept)

    async def opens() -> bool:
        try:
            async with place.socket(value) as connection:
                await connection.recv()
                return True
        except InvalidStatus:
            return False

    await until(opens)
