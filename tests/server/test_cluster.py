"""Two servers that share a real Redis: sessions found, taken over, handed over, refused. One that is killed: see
`tests/chaos`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.redis_server import RedisServer, needs_redis
from tests.servers import ServerProcess
from tests.sessions.fakes import CountingEngine

from .serving import Served, served
from .test_calls import RESUMABLE, _resumed, called
from .test_resumable import Client, ask, begin

pytestmark = needs_redis

SCRIPT = """
[[reply]]
text = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
"""


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with tempfile.TemporaryDirectory(prefix="r") as folder, RedisServer(Path(folder)) as server:
        yield server


@contextlib.asynccontextmanager
async def two(redis: RedisServer, **settings: Any) -> AsyncIterator[tuple[Served, Served]]:
    """Two servers, in this process."""
    engines = [CountingEngine(seconds=6.0, delay=0.0) for _ in range(2)]
    async with (
        served(engines[0], directory=redis.url, **settings) as here,
        served(engines[1], directory=redis.url, **settings) as there,
    ):
        yield here, there


async def dial(realtime: str) -> Client:
    return Client(await connect(f"{realtime}&duplex=1&autostart=0", proxy=None))


async def back(realtime: str, created: dict[str, Any], token: str, after: int) -> Client:
    client = await dial(realtime)
    session = created["session"]["id"]
    await client.say("session.resume", session_id=session, resume_token=token, last_received_server_event_seq=after)
    return client


def deltas(client: Client) -> list[dict[str, Any]]:
    return [event for event in client.events if event["type"] == "response.output_audio.delta"]


async def kept() -> None:
    """Long enough for the owner's next batch."""
    await asyncio.sleep(0.5)


async def read_all(client: Client) -> None:
    """What has arrived so far."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.5):
            await client.hear("nothing of this name")


async def until_ready(place: Served, wanted: bool) -> None:
    """Ask until it says that it takes sessions, or that it does not."""
    async with asyncio.timeout(20), place.http() as http:
        while (await http.get("/readyz")).is_success != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


# --- two processes ---------------------------------------------------------------------------------------------------


async def begin_at(server: ServerProcess) -> tuple[Client, dict[str, Any]]:
    client = await dial(server.realtime_url)
    await client.say("session.update", session={"turn_detection": None, "voice": "default"})
    created = await client.hear("session.created")
    await client.hear("session.updated")
    return client, created


@contextlib.contextmanager
def processes(redis: RedisServer, number: int) -> Iterator[list[ServerProcess]]:
    servers = [ServerProcess("scripted", SCRIPT, arguments=("--directory", redis.url)) for _ in range(number)]
    with contextlib.ExitStack() as running:
        for server in servers:
            running.enter_context(server)
        yield servers


async def test_a_server_that_was_stopped_and_wakes_up_says_nothing_more(redis: RedisServer) -> None:
    with processes(redis, 1) as (here,):
        async with served(CountingEngine(), directory=redis.url) as there:
            client, created = await begin_at(here)
            await ask(client, "tell me")
            for _ in range(10):
                await client.hear("response.output_audio.delta")
            await kept()
            os.kill(here.pid, signal.SIGSTOP)
            try:
                await read_all(client)
                heard = len(deltas(client))
                again = await back(there.realtime, created, created["resume_token"], client.last)
                await again.hear("session.resumed")
                await asyncio.sleep(7.0)  # beyond the lease: the time of the stop is what the test is about
            finally:
                os.kill(here.pid, signal.SIGCONT)
            await client.ended()
            assert len(deltas(client)) == heard
            assert client.events[-1]["type"] == "session.closed"
            async with httpx.AsyncClient(trust_env=False) as http:
                text = (await http.get(f"http://127.0.0.1:{here.port}/metrics")).text
            assert 'talkover_events_total{event="sessions_lost"} 1' in text
            assert 'talkover_events_total{event="ledger_fault"} 0' in text


# --- two servers in one process --------------------------------------------------------------------------------------


async def test_a_server_that_lives_lets_a_session_go_to_where_its_client_went(redis: RedisServer) -> None:
    async with two(redis) as (here, there):
        client, created = await begin(here)
        await ask(client, "tell me")
        await client.hear("response.output_audio.delta")
        await kept()
        again = await back(there.realtime, created, created["resume_token"], client.last)
        resumed = await again.hear("session.resumed")
        await client.ended()
        assert client.events[-1]["type"] == "session.closed"
        # And back, with the newest token; the old one is good no more once something came over the new connection.
        await again.say("session.heartbeat")
        await again.hear("session.heartbeat_ack")
        await kept()
        third = await back(here.realtime, created, resumed["resume_token"], again.last)
        assert (await third.hear("session.resumed"))["attachment_generation"] == 3
        late = await back(there.realtime, created, "guessed", 0)
        assert (await late.hear("error"))["error"]["code"] == "invalid_resume_token"
        await third.say("session.close")
        await third.ended()
        await kept()
        gone = await back(there.realtime, created, resumed["resume_token"], 0)
        assert (await gone.hear("error"))["error"]["code"] == "session_resume_expired"


async def test_without_redis_conversations_go_on_new_ones_are_told_and_all_is_well_when_it_is_back(
    redis: RedisServer,
) -> None:
    async with two(redis) as (here, there):
        client, created = await begin(here)
        await kept()
        redis.kill()
        await until_ready(here, False)
        await ask(client, "tell me")
        await client.hear("response.output_audio.delta")
        with pytest.raises(InvalidStatus) as refused:
            await connect(here.realtime, proxy=None)
        assert refused.value.response.status_code == 503
        assert b"directory of sessions" in (refused.value.response.body or b"")
        elsewhere = await back(there.realtime, created, created["resume_token"], 0)
        assert (await elsewhere.hear("error"))["error"]["code"] == "server_busy"
        redis.start()
        await until_ready(here, True)
        await kept()
        # The new Redis knew nothing; the session was kept anew, so it can be taken over.
        again = await back(there.realtime, created, created["resume_token"], client.last)
        await again.hear("session.resumed")


async def test_a_server_that_ends_hands_its_sessions_over(redis: RedisServer) -> None:
    async with two(redis) as (_, there):
        async with served(CountingEngine(), directory=redis.url) as here:
            client, created = await begin(here)
            await kept()
        await client.ended()
        again = await back(there.realtime, created, created["resume_token"], client.last)
        await again.hear("session.resumed")
        await ask(again, "go on")
        await again.hear("response.output_audio.delta")


async def test_a_key_has_as_many_sessions_as_it_may_over_all_servers(redis: RedisServer) -> None:
    async with two(redis, tenant_sessions=1) as (here, there):
        client, _ = await begin(here)
        await kept()
        other, _ = await begin(there)
        await other.ended()
        assert other.events[-1]["reason"] == "too_many_sessions"
        await client.say("session.close")
        await client.ended()


async def test_a_call_goes_on_at_the_server_that_its_client_comes_back_to(redis: RedisServer) -> None:
    async with two(redis) as (here, there):
        async with called(here, RESUMABLE) as caller:
            created = await caller.event("session.created")
            caller.say({"type": "response.create"})
            await caller.until(lambda: len(caller.packets) > 40)
            await kept()
        again = await _resumed(there, created)
        try:
            hello = await again.event("session.created")
            assert hello["session"]["id"] == created["session"]["id"]
            assert hello["session"]["instructions"] == "Remember me."
            assert (await again.event("response.done"))["response"]["status"] == "cancelled"
            await again.until(lambda: len(again.packets) > 20)
            # Silence packets: nothing of what was being said goes on.
            assert {one.payload for one in again.packets} == {b"\xd8\xff\xfe"}
            again.say({"type": "response.create"})
            await again.event("output_audio_buffer.started")
            assert (len(here.app.manager or ()), len(there.app.manager or ())) == (0, 1)
            async with there.http() as http:
                await http.post(f"/v1/realtime/calls/{again.call_id}/hangup")
        finally:
            await again.close()
