"""What clients, clocks, networks and Redis do to one server, in this process; its engine counts its samples."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import tempfile
import time
from pathlib import Path
from unittest import mock

from server.carriers.webrtc.downlink import SILENCE
from tests.redis_server import RedisServer, needs_redis
from tests.server.serving import Served, served
from tests.server.test_calls import called
from tests.server.test_resumable import Client, ask
from tests.sessions.fakes import CountingEngine

from .witness import DELTA, QUESTION, begin, dial, errors, history, neighbour, speaking, stale

FLOOD = 10_000
"""Messages."""


def engine(seconds: float = 3.0) -> CountingEngine:
    return CountingEngine(seconds=seconds, delay=0.0)


async def goes_on(client: Client) -> None:
    """The session answers another question, and nothing of before is heard or forgotten."""
    await ask(client, "go on")
    assert (await client.hear("response.done"))["response"]["status"] == "completed"
    told = await history(client)
    assert (told[0], told[2]) == (QUESTION, "go on")
    assert told[1].split()[:2] == ["w0", "w1"]
    assert stale(client) == 0


def all_well(place: Served) -> None:
    for counter in ("ledger_fault", "session_fault", "keeper_fault"):
        assert place.app.counters[counter] == 0


async def test_ten_thousand_messages_are_each_answered_and_the_session_and_its_neighbour_go_on() -> None:
    bad = ("{", '{"type": "no.such"}', '{"type": "conversation.item.retrieve", "item_id": "item_x"}')
    good = (json.dumps({"type": "session.heartbeat"}),)
    kinds = (*bad, *good)
    async with served(engine()) as place, neighbour(place.realtime, counts=True):
        client, _ = await begin(place.realtime)
        await speaking(client)

        async def flood() -> None:
            for number in range(FLOOD):
                await client.connection.send(kinds[number % len(kinds)])

        flooding = asyncio.create_task(flood())
        async with asyncio.timeout(120):
            missing = FLOOD * len(bad) // len(kinds)
            while missing:
                event = json.loads(await client.connection.recv())
                client.events.append(event)
                missing -= event["type"] == "error"
            await flooding
        assert set(errors(client)) == {"invalid_json", "invalid_value", "item_retrieve_invalid_item_id"}
        if not any(event["type"] == "response.done" for event in client.events):
            await client.hear("response.done")
        await goes_on(client)
        all_well(place)


async def test_a_client_that_stops_reading_hears_afterwards_what_it_missed_and_holds_up_nobody() -> None:
    async with served(engine(4.0)) as place:
        narrow = socket.socket()
        narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        narrow.connect(("127.0.0.1", place.port))
        client, _ = await begin(place.realtime, sock=narrow, max_queue=1)
        await speaking(client)
        async with neighbour(place.realtime, counts=True):
            pass  # its whole answer, while nobody reads here
        await client.say("response.cancel")
        status = (await client.hear("response.done"))["response"]["status"]
        assert status in ("cancelled", "completed")
        await client.hear("error") if status == "completed" else None
        await goes_on(client)
        all_well(place)


async def test_a_wall_clock_that_jumps_by_a_day_changes_nothing() -> None:
    true = time.time
    async with served(engine()) as place, neighbour(place.realtime, counts=True):
        client, _ = await begin(place.realtime)
        await speaking(client)
        for step in (86_400, -86_400, 0):
            with mock.patch("time.time", lambda step=step: true() + step):
                for _ in range(10):
                    await client.hear(DELTA)
        assert (await client.hear("response.done"))["response"]["status"] == "completed"
        await goes_on(client)
        all_well(place)


@needs_redis
async def test_conversations_go_on_when_redis_is_killed_and_when_it_answers_nobody() -> None:
    with tempfile.TemporaryDirectory(prefix="r") as folder, RedisServer(Path(folder)) as redis:
        async with served(engine(), directory=redis.url) as place:
            client, _ = await begin(place.realtime)
            await speaking(client)
            async with neighbour(place.realtime, counts=True):
                redis.kill()
            await _until(place, ready=False)
            refused = await dial(place.realtime)
            await refused.say("session.update", session={})
            error = (await refused.hear("error"))["error"]
            assert error["code"] == "server_busy"
            assert "directory of sessions" in error["message"]
            await client.hear("response.done")
            redis.start()
            await _until(place, ready=True)
            redis.pause()
            try:
                await goes_on(client)
            finally:
                redis.go_on()
            await _until(place, ready=True)
            all_well(place)


async def _until(place: Served, ready: bool) -> None:
    """Ask until the server says so."""
    async with asyncio.timeout(30), place.http() as http:
        while (await http.get("/readyz")).is_success != ready:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


LOSS = 0.2
"""Share of packets, each way."""


async def test_over_a_network_that_loses_a_fifth_a_cut_is_a_cut_and_a_turn_is_heard() -> None:
    dice, mouth = random.Random(1), engine(6.0)
    async with (
        served(mouth) as place,
        neighbour(place.realtime, counts=True),
        called(place, {"type": "realtime", "x_talkover": {"notices": True}}) as caller,
    ):
        await caller.event("session.created")
        receive, send = caller.packet, caller.send_sound

        def received(sequence: int, timestamp: int, payload: bytes) -> None:
            if dice.random() > LOSS:
                receive(sequence, timestamp, payload)

        def sent(pcm: bytes) -> None:
            caller.skip_packet() if dice.random() < LOSS else send(pcm)

        with mock.patch.object(caller, "packet", received):
            caller.say({"type": "response.create"})
            await caller.until(lambda: len(caller.sounding) > 40)
            caller.say({"type": "response.cancel"})
            assert (await caller.event("response.done"))["response"]["status"] == "cancelled"
            cleared = len(caller.packets)
            await caller.until(lambda: len(caller.packets) > cleared + 40)
            # What was on its way when the end was told may still come; nothing of it comes later.
            assert all(packet.payload == SILENCE for packet in caller.packets[cleared + 10 :])
            with mock.patch.object(caller, "send_sound", sent):
                await caller.speak(b"\x00\x20\x00\xe0" * 160 * 25)
            await caller.speak(bytes(640 * 35))
            await caller.event("input_audio_buffer.committed")
            await caller.event("output_audio_buffer.started", 2)
        history = [entry.text for entry in mouth.started[-1].context]
        assert history[0].startswith("w0")
        assert history[-1] == "what is the time"
        async with place.http() as http:
            await http.post(f"/v1/realtime/calls/{caller.call_id}/hangup")
