"""The callers of a load at a real server, over each carrier: they are understood, answered, and leave nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from loadtest.cycles import Slope, all_at_once, cycle
from loadtest.observed import observe
from loadtest.person import Person
from loadtest.scenarios import Crowd, lines_to, server_for, session_object
from loadtest.socket import Refused, Socket
from loadtest.talkers import Talker
from server.carriers.webrtc.pacer import Pacer
from tests.servers import ServerProcess

pytestmark = pytest.mark.models

PATIENCE = 90.0
CROWDS = {"ws": "bargein", "twilio": "bargein", "webrtc": "talk"}


class Until(Talker):
    """Tells when so many pieces have come."""

    wanted = 40

    def piece(self, at: float, payload: str | bytes, seconds: float) -> None:
        super().piece(at, payload, seconds)
        if self.tally.frames == self.wanted:
            self.enough.set()

    def watch(self) -> asyncio.Event:
        self.enough = asyncio.Event()
        return self.enough


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with server_for(Crowd("bargein", "twilio").scenario, 8) as process:
        yield process


@pytest.mark.parametrize("carrier", ["ws", "twilio", "webrtc"])
def test_who_asks_is_answered_in_tones_that_are_told_apart(server: ServerProcess, carrier: str) -> None:
    crowd = Crowd(CROWDS[carrier], carrier)
    lines = lines_to(server, carrier, session_object(crowd.scenario, 200))

    async def scenario() -> Until:
        pacer = Pacer()

        def person() -> Person:
            return Person(
                crowd.scenario.habits, crowd.voice, {kind: crowd.clips(kind) for kind in crowd.scenario.kinds}, 3
            )

        talker = Until(lines, person, pacer)
        enough, began, until = talker.watch(), asyncio.Event(), asyncio.Event()
        began.set()
        task = asyncio.create_task(talker.run(began, until))
        async with asyncio.timeout(PATIENCE):
            await enough.wait()
        until.set()
        await task
        return talker

    talker = asyncio.run(scenario())
    (memory,) = talker.memories
    assert memory.failed == []
    assert memory.said[0].kind == "question"
    seen = observe([memory], crowd.voice.coding, memory.said[0].end + PATIENCE)
    assert seen.first_audio
    assert seen.stale == 0


def test_sessions_that_come_and_go_leave_nothing_but_room(server: ServerProcess) -> None:
    looks = asyncio.run(cycle(server, 12, "ws", warm_up=4))
    before, after = looks[0][1], looks[-1][1]
    assert (after.sessions, after.calls) == (0, 0)
    assert after.descriptors <= before.descriptors
    assert after.tasks <= before.tasks
    assert asyncio.run(all_at_once(server, 8)) == 8


def test_a_server_that_says_no_is_told_with_its_reason(server: ServerProcess) -> None:
    async def scenario() -> None:
        with pytest.raises(Refused, match=r"404|403"):
            await Socket(f"ws://127.0.0.1:{server.port}/nowhere", lambda text: None).connect()

    asyncio.run(scenario())


def test_a_slope_is_one_only_beyond_its_noise() -> None:
    flat = Slope.of([(0, 100.0), (50, 100.4), (100, 99.7), (150, 100.2)])
    assert not flat.grows
    leak = Slope.of([(0, 0.0), (50, 202.0), (100, 398.0), (150, 601.0)])
    assert leak.value == pytest.approx(4.0, abs=0.1)
    assert leak.grows
    with pytest.raises(ValueError, match="three points"):
        Slope.of([(0, 1.0), (1, 2.0)])
