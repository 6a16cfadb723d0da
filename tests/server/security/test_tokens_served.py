"""Tokens at the running application: the issuer's keys are fetched, and what a token opens is what it says."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from server.security import tokens as tokens_module
from server.security.tenants import changed, switched
from tests.server.serving import Served, refusal, served

from .making import make_tenants
from .test_tokens import AUDIENCE, EC, ISSUER, OTHER_RSA, RSA, jwks, public, signed


class Keys:
    """An issuer's document over HTTP."""

    def __init__(self) -> None:
        self.document = jwks(public("r1", "RS256", RSA), public("e1", "ES256", EC))
        self.asked = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(self.document)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + self.document)
        await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def trusting(**settings: Any) -> AsyncIterator[tuple[Served, Keys]]:
    keys = Keys()
    server = await asyncio.start_server(keys.answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        issuer = {"jwt_jwks": f"http://127.0.0.1:{port}/", "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
        async with served(**issuer, **settings) as place:
            yield place, keys


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_a_token_opens_sessions_and_what_its_scopes_say(tmp_path: Path) -> None:
    async with trusting(record=tmp_path) as (place, _):
        for token in (signed(), signed("e1")):
            async with place.socket(token) as connection:
                assert json.loads(await connection.recv())["type"] == "session.created"
        offered = ["realtime", f"openai-insecure-api-key.{signed()}"]
        async with place.socket(subprotocols=offered) as connection:
            assert json.loads(await connection.recv())["type"] == "session.created"
        for scope, recordings, minting in (
            ("", 403, 403),
            ("talkover:recordings", 200, 403),
            ("talkover:manage", 403, 200),
            ("talkover:operate talkover:recordings", 200, 403),
            ("recordings manage", 403, 403),
        ):
            async with place.http(signed(scope=scope)) as http:
                assert (await http.get("/v1/talkover/recordings")).status_code == recordings
                assert (await http.post("/v1/realtime/client_secrets", json={})).status_code == minting
                assert error(await http.get("/metrics")) == (403, "insufficient_scope")


async def test_what_is_no_good_token_is_told_why_and_gets_nothing() -> None:
    async with trusting() as (place, _):
        for token, said in (
            (signed(exp=1), "expired"),
            (signed(aud="others"), "somebody else"),
            (signed("r1", OTHER_RSA), "signature"),
            (signed("r9", OTHER_RSA), "does not publish"),
        ):
            status, told = await refusal(place.socket(token))
            assert (status, told["code"]) == (401, "invalid_api_key")
            assert said in told["message"]
        status, _ = await refusal(place.socket())
        assert status == 401, "tokens are keys: without one nobody gets in"


async def test_a_new_key_of_the_issuer_is_good_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "ASK_AGAIN_AFTER", 0.0)
    async with trusting() as (place, keys):
        async with place.socket(signed()) as connection:
            await connection.recv()
        keys.document = jwks(public("r2", "RS256", OTHER_RSA))
        async with place.socket(signed("r2", OTHER_RSA)) as connection:
            assert json.loads(await connection.recv())["type"] == "session.created"
        assert (await refusal(place.socket(signed())))[0] == 401, "the former key is withdrawn"


async def test_tenants_of_tokens_are_as_apart_as_others(tmp_path: Path) -> None:
    async with trusting(record=tmp_path) as (place, _):
        url = f"{place.realtime}&duplex=1&autostart=0"
        mine = {"Authorization": f"Bearer {signed()}"}
        async with connect(url, additional_headers=mine, proxy=None) as connection:
            await connection.send(json.dumps({"type": "session.heartbeat"}))
            session = json.loads(await connection.recv())["session"]["id"]
            own, other = signed(scope="talkover:manage"), signed(scope="talkover:manage", tenant="bolt")
            async with place.http(own) as http:
                answer = await http.get(f"/v1/talkover/tenants/acme/sessions/{session}/state")
                assert session in {one["name"] for one in answer.json()["held"]}
            async with place.http(other) as http:
                answer = await http.get(f"/v1/talkover/tenants/acme/sessions/{session}/state")
                assert error(answer) == (404, "tenant_not_found")


async def test_a_tenant_that_is_disabled_here_gets_nothing_by_its_tokens(tmp_path: Path) -> None:
    file = tmp_path / "tenants.json"
    make_tenants(file, ["acme"])
    with changed(file) as tenants:
        tenants["acme"] = switched(tenants["acme"], None, on=False)
    async with trusting(tenants_file=file) as (place, _):
        status, told = await refusal(place.socket(signed()))
        assert status == 401
        assert "disabled" in told["message"]
        async with place.socket(signed(tenant="bolt")) as connection:
            await connection.recv()
