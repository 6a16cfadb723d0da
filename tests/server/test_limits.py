"""Limits per key: the buckets, the engine behind them, and what a client of the running application sees."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection

from server.dialects.base import Allowance
from server.limits import EXCEEDED, REFUSED, Budget, LimitedEngine, Limits
from sessions.core.config import SessionConfig
from sessions.core.context import ContextEntry
from sessions.core.effects import StartResponse
from sessions.core.events import EngineFailed, Event
from sessions.core.fence import Fence
from sessions.core.notices import ResponseView
from sessions.counters import Counters
from tests.server.security.making import make_tenants
from tests.server.serving import Served, refusal, served
from tests.sessions.fakes import CountingEngine

FENCE = Fence("sess_1", 1, 0)


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def budget(requests: int | None = None, tokens: int | None = None) -> tuple[Budget, Clock]:
    clock = Clock()
    return Limits(requests, tokens, clock=clock).of("key_1"), clock


def done(used: int = 0, status: Any = "completed", detail: str = "") -> ResponseView:
    return ResponseView("r", status, "audio", detail=detail, input_tokens=used // 2, output_tokens=used - used // 2)


# --- buckets ---------------------------------------------------------------------------------------------------------


def test_a_bucket_is_full_at_first_and_tells_what_is_left() -> None:
    made, _ = budget(requests=60, tokens=600)
    assert made.allowances() == [Allowance("requests", 60, 60, 0), Allowance("tokens", 600, 600, 0)]
    made.opened()
    made.closed(done(40))
    assert made.allowances() == [Allowance("requests", 60, 59, 1.0), Allowance("tokens", 600, 560, 4.0)]


def test_it_fills_evenly_and_no_further_than_full() -> None:
    made, clock = budget(requests=60)
    for _ in range(60):
        made.opened()
    assert made.allowances() == [Allowance("requests", 60, 0, 60.0)]
    clock.now += 30
    assert made.allowances() == [Allowance("requests", 60, 30, 30.0)]
    clock.now += 3600
    assert made.allowances() == [Allowance("requests", 60, 60, 0)]


def test_an_empty_bucket_lets_nothing_begin_and_says_for_how_long() -> None:
    made, clock = budget(requests=2)
    made.opened()
    assert made.refusal() is None
    made.opened()
    refused = made.refusal()
    assert refused is not None
    assert (refused.name, refused.limit, refused.retry_after) == ("requests", 2, 30)
    clock.now += 30
    assert made.refusal() is None


def test_what_the_last_response_used_too_much_is_missing_for_longer() -> None:
    made, clock = budget(tokens=60)
    made.closed(done(90))
    assert made.allowances() == [Allowance("tokens", 60, 0, 90.0)]
    clock.now += 30
    assert made.refusal() is not None
    clock.now += 1
    assert made.refusal() is None


def test_a_response_that_was_not_let_begin_uses_nothing() -> None:
    made, _ = budget(requests=10, tokens=100)
    made.opened()
    made.closed(done(0, "failed", EXCEEDED))
    assert [one.remaining for one in made.allowances()] == [10, 100]
    made.opened()
    made.closed(done(0, "failed", "engine_failed"))
    assert [one.remaining for one in made.allowances()] == [9, 100]


def test_each_tenant_has_a_budget_of_its_own_and_keeps_it() -> None:
    limits = Limits(requests=1)
    limits.of("key_1").opened()
    assert limits.of("key_1").refusal() is not None
    assert limits.of("key_2").refusal() is None
    assert limits.any
    assert not Limits().any


# --- the engine -------------------------------------------------------------------------------------------------------


def test_an_engine_is_asked_while_something_is_left_and_fails_by_name_afterwards() -> None:
    started: list[StartResponse] = []

    class Engine(CountingEngine):
        def start(self, request: StartResponse) -> None:
            started.append(request)

        def open(self, *_: Any) -> None:
            pass

        def close(self, session: str) -> None:
            started.clear()

    limits, counters, told = Limits(requests=1), Counters(), list[Event]()
    engine = LimitedEngine(Engine(), limits, counters)

    def emit(event: Event, pcm: bytes | None = None) -> None:
        told.append(event)

    def request(response: str) -> StartResponse:
        return StartResponse(FENCE, response, (), "", "audio", "default", 1.0, (), "auto", None, 0.8, 0)

    engine.open(FENCE, SessionConfig(tenant="key_1"), emit)
    engine.start(request("one"))
    limits.of("key_1").opened()
    engine.start(request("two"))
    assert [start.response for start in started] == ["one"]
    (failed,) = told
    assert isinstance(failed, EngineFailed)
    assert (failed.fence, failed.response, failed.code) == (FENCE, "two", EXCEEDED)
    assert "try again in 60.0 s" in failed.message
    assert counters.snapshot()[REFUSED] == 1
    assert engine.capabilities == Engine().capabilities
    engine.close("sess_1")
    engine.close("sess_1")
    assert started == []


def test_what_an_engine_can_do_besides_it_can_with_limits_too() -> None:
    told: list[object] = []

    class Plain(CountingEngine):
        def advance(self, fence: Fence) -> None:
            told.append(("advance", fence))

    class Able(Plain):
        def rewind(self, fence: Fence, heard: int) -> None:
            told.append(("rewind", fence, heard))

        def tell(self, fence: Fence, entries: tuple[ContextEntry, ...], anew: bool) -> None:
            told.append(("tell", entries, anew))

    entry = ContextEntry("user", "message", "hi")
    for kind in (Able, Plain):
        engine = LimitedEngine(kind(), Limits(requests=1), Counters())
        engine.rewind(FENCE, 480)
        engine.tell(FENCE, (entry,), False)
    assert told == [("rewind", FENCE, 480), ("tell", (entry,), False), ("advance", FENCE)]


# --- the application --------------------------------------------------------------------------------------------------


async def hear(connection: ClientConnection, kind: str) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while True:
            event: dict[str, Any] = json.loads(await connection.recv())
            if event["type"] == kind:
                return event


async def answered(connection: ClientConnection) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Ask for a response in text; how it ended, and the limits after it."""
    await connection.send(json.dumps({"type": "response.create", "response": {"output_modalities": ["text"]}}))
    ended = (await hear(connection, "response.done"))["response"]
    return ended, (await hear(connection, "rate_limits.updated"))["rate_limits"]


async def ephemeral(place: Served, key: str) -> str:
    async with place.http(key) as client:
        return str((await client.post("/v1/realtime/client_secrets")).json()["value"])


async def test_a_tenant_and_all_that_was_minted_with_its_key_share_one_limit(tmp_path: Path) -> None:
    path = tmp_path / "tenants.json"
    one, other = make_tenants(path, ["acme", "bolt"]).values()
    async with served(tenants_file=path, limit_requests=2, limit_tokens=100_000) as place:
        async with place.socket(one) as connection:
            ended, limits = await answered(connection)
            assert ended["status"] == "completed"
            assert (limits[0]["name"], limits[0]["limit"], limits[0]["remaining"]) == ("requests", 2, 1)
            assert 0 < limits[0]["reset_seconds"] <= 60
            assert limits[1]["remaining"] <= 100_000
        async with place.socket(await ephemeral(place, one)) as connection:
            assert (await answered(connection))[0]["status"] == "completed"
            ended, limits = await answered(connection)
            assert ended["status"] == "failed"
            assert ended["status_details"]["error"]["code"] == EXCEEDED
            assert "2 requests a minute" in ended["status_details"]["error"]["message"]
            assert limits[0]["remaining"] == 0
        async with place.socket(other) as connection:
            assert (await answered(connection))[0]["status"] == "completed"
        assert place.app.counters.snapshot()[REFUSED] == 1


async def test_without_limits_none_are_listed() -> None:
    async with served() as place, place.socket() as connection:
        assert (await answered(connection))[1] == []


async def test_a_wrong_key_has_no_budget() -> None:
    async with served(api_keys=("key-one-of-the-tests-0123",), limit_requests=1) as place:
        status, _ = await refusal(place.socket("wrong"))
        assert status == 401


@pytest.mark.parametrize("limits", [{"limit_requests": 1}, {"limit_tokens": 1}])
async def test_one_limit_alone_is_told_alone(limits: dict[str, int]) -> None:
    async with served(**limits) as place, place.socket() as connection:
        _, told = await answered(connection)
        assert [limit["name"] for limit in told] == [next(iter(limits)).removeprefix("limit_")]
