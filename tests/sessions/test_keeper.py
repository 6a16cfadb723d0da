"""The keeper of a process's sessions, on a virtual clock, between two processes that share a directory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from sessions import virtual_clock
from sessions.core.config import SessionConfig
from sessions.core.events import AudioArrived, CarrierAttached, Close
from sessions.core.records import Plain
from sessions.core.session import Session
from sessions.core.state import Abilities
from sessions.counters import Counters
from sessions.keeper import FLUSH_EVERY, SNAPSHOT_AFTER, Keeper, recovered
from sessions.ownership import (
    DirectoryDown,
    Lease,
    MemoryDirectory,
    OwnershipInMemory,
    Taken,
    Write,
    Written,
)
from sessions.ports import Busy, NotResumable


@dataclass
class Core:
    """A session whose state is a number."""

    session: str = "sess_1"
    state: int = 0
    lost: list[int] = field(default_factory=list)
    refusals: list[Busy] = field(default_factory=list)

    def plain(self) -> Plain:
        return {"state": self.state}

    def owned_by_another(self, incarnation: int) -> None:
        self.lost.append(incarnation)

    def refused(self, why: Busy) -> None:
        self.refusals.append(why)


class Flaky(OwnershipInMemory):
    """A directory that can be out of reach."""

    down = False

    def _check(self) -> None:
        if self.down:
            raise DirectoryDown("nobody answers")

    async def claim(self, session: str, tenant: str, token: str, limit: int | None) -> Lease:
        self._check()
        return await super().claim(session, tenant, token, limit)

    async def write(self, writes: Sequence[Write]) -> Written:
        self._check()
        return await super().write(writes)

    async def release(self, lease: Lease) -> None:
        self._check()
        await super().release(lease)


class Place:
    """Two processes."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.directory = MemoryDirectory(ttl=3.0, clock=loop.time)
        self.port = Flaky(self.directory)
        self.here = Keeper(self.port, Counters())
        self.there = OwnershipInMemory(self.directory)

    async def taken(self, token: str = "token") -> Taken:
        return await self.there.take_over("sess_1", "acme", token, "next")


def stopped(keeper: Keeper) -> None:
    """As a process that is killed, or stopped: it writes and hears nothing more."""
    assert keeper._task is not None
    keeper._task.cancel()
    keeper.port.on_wanted(lambda session: None)


def test_a_session_is_kept_by_a_snapshot_and_the_events_since() -> None:
    async def scene() -> None:
        place, core = Place(), Core(state=7)
        keeping = place.here.begin(core, "acme", "token", None)
        await asyncio.sleep(1)
        keeping.event(AudioArrived(0, 960), 960)
        keeping.event(Close("bye"), 1920)
        await asyncio.sleep(1)
        stopped(place.here)
        taken = await place.taken()
        assert json.loads(taken.snapshot) == {"core": {"state": 7}, "note": None}
        assert [json.loads(entry) for entry in taken.entries] == [
            [960, {"type": "AudioArrived", "start": 0, "end": 960}],
            [1920, {"type": "Close", "reason": "bye"}],
        ]
        await place.here.close()

    virtual_clock.run(scene())


def test_what_has_not_been_written_when_the_process_dies_is_at_most_one_batch() -> None:
    async def scene() -> None:
        place, core = Place(), Core()
        keeping = place.here.begin(core, "acme", "token", None)
        await asyncio.sleep(1)
        for number in range(100):
            keeping.event(AudioArrived(number, number + 1), number)
            await asyncio.sleep(0.02)
        stopped(place.here)
        taken = await place.taken()
        assert len(taken.entries) >= 100 - FLUSH_EVERY / 0.02
        await place.here.close()

    virtual_clock.run(scene())


def test_a_former_owner_is_told_at_its_next_word_to_the_directory() -> None:
    async def scene() -> None:
        place, core = Place(), Core()
        place.here.begin(core, "acme", "token", None)
        await asyncio.sleep(1)
        place.port.on_wanted(lambda session: None)  # it does not hear that it is asked
        await place.taken()
        await asyncio.sleep(place.port.ttl)
        assert core.lost == [2]
        assert place.here.counters["sessions_lost"] == 1
        await place.here.close()

    virtual_clock.run(scene())


def test_a_session_that_is_wanted_is_handed_over_with_its_last_moment() -> None:
    async def scene() -> None:
        place, core = Place(), Core()
        keeping = place.here.begin(core, "acme", "token", None)
        await asyncio.sleep(1)
        core.state = 8
        keeping.event(Close(), 5)
        before = asyncio.get_running_loop().time()
        taken = await place.taken()
        assert asyncio.get_running_loop().time() - before < 0.1
        assert json.loads(taken.snapshot)["core"] == {"state": 8}
        assert taken.entries == ()
        assert core.lost == [2]
        await place.here.close()

    virtual_clock.run(scene())


def test_what_is_being_written_when_a_session_is_wanted_is_not_written_behind_its_last_moment() -> None:
    underway = asyncio.Event()

    class Slow(Flaky):
        """Batches take a while, and so does letting go."""

        async def write(self, writes: Sequence[Write]) -> Written:
            if any(write.entries for write in writes):
                underway.set()
                await asyncio.sleep(0.1)
            return await super().write(writes)

        async def hand_over(self, lease: Lease) -> None:
            await asyncio.sleep(0.2)
            await super().hand_over(lease)

    async def scene() -> None:
        place, core = Place(), Core()
        slow = Slow(place.directory)
        keeper = Keeper(slow, Counters())
        keeping = keeper.begin(core, "acme", "token", None)
        await asyncio.sleep(1)
        keeping.event(AudioArrived(0, 960), 960)
        await underway.wait()
        core.state = 8
        taken = await place.taken()
        assert (json.loads(taken.snapshot)["core"], taken.entries) == ({"state": 8}, ())
        await keeper.close()

    virtual_clock.run(scene())


def test_leases_are_renewed_where_nothing_happens() -> None:
    async def scene() -> None:
        place, core = Place(), Core()
        place.here.begin(core, "acme", "token", None)
        await asyncio.sleep(20 * place.directory.ttl)
        place.directory.sweep()
        assert place.directory.sessions["sess_1"].until > asyncio.get_running_loop().time()
        assert core.lost == []
        await place.here.close()

    virtual_clock.run(scene())


def test_many_events_make_a_snapshot_and_a_settled_moment_makes_one_sooner() -> None:
    async def scene() -> None:
        place, core = Place(), Core()
        keeping = place.here.begin(core, "acme", "token", None)
        await asyncio.sleep(1)
        core.state = 1
        for number in range(SNAPSHOT_AFTER + 1):
            keeping.event(AudioArrived(number, number + 1), number)
        await asyncio.sleep(1)
        entry = place.directory.sessions["sess_1"]
        assert (json.loads(entry.snapshot)["core"], entry.entries) == ({"state": 1}, [])
        core.state = 2
        keeping.event(Close(), 9)
        await asyncio.sleep(1)
        assert (json.loads(entry.snapshot)["core"], len(entry.entries)) == ({"state": 1}, 1)
        keeping.settled()
        await asyncio.sleep(1)
        assert (json.loads(entry.snapshot)["core"], entry.entries) == ({"state": 2}, [])
        await place.here.close()

    virtual_clock.run(scene())


def test_without_a_directory_running_sessions_go_on_and_new_ones_are_refused_until_it_is_back() -> None:
    async def scene() -> None:
        place, core = Place(), Core()
        keeping = place.here.begin(core, "acme", "token", None)
        await asyncio.sleep(1)
        place.port.down = True
        await asyncio.sleep(10)
        with pytest.raises(Busy, match="directory of sessions"):
            place.here.begin(Core("sess_2"), "acme", "token", None)
        assert (core.lost, place.here.fresh) == ([], True)
        core.state = 9
        keeping.event(Close(), 1)
        await asyncio.sleep(1)
        place.port.down = False
        await asyncio.sleep(1)
        place.here.begin(Core("sess_2"), "acme", "token", None)
        await asyncio.sleep(1)
        # What could not be written is in a snapshot.
        assert json.loads(place.directory.sessions["sess_1"].snapshot)["core"] == {"state": 9}
        assert place.here.counters["directory_down"] > 0
        await place.here.close()

    virtual_clock.run(scene())


def test_a_process_that_was_stopped_for_long_asks_before_it_goes_on() -> None:
    async def scene() -> None:
        place, core = Place(), Core()
        place.here.begin(core, "acme", "token", None)
        await asyncio.sleep(1)
        assert place.here.fresh
        stopped(place.here)
        await asyncio.sleep(place.port.ttl + 1)
        assert not place.here.fresh
        await place.taken()
        await place.here.ask()
        assert core.lost == [2]
        assert place.here.fresh
        await place.here.close()

    virtual_clock.run(scene())


def test_a_session_that_ended_is_gone_from_the_directory() -> None:
    async def scene() -> None:
        place, core = Place(), Core()
        place.here.begin(core, "acme", "token", None)
        await asyncio.sleep(1)
        place.here.end("sess_1")
        place.here.end("sess_1")
        await place.here.close()
        assert place.directory.sessions == {}

    virtual_clock.run(scene())


def test_a_session_that_ended_before_it_had_its_lease_is_gone_too() -> None:
    async def scene() -> None:
        place = Place()
        place.here.begin(Core(), "acme", "token", None)
        place.here.end("sess_1")
        await asyncio.sleep(1)
        assert place.directory.sessions == {}
        await place.here.close()

    virtual_clock.run(scene())


def test_the_newest_tokens_hold() -> None:
    async def scene() -> None:
        place, core = Place(), Core()
        keeping = place.here.begin(core, "acme", "token", None)
        await asyncio.sleep(1)
        keeping.offer("other", "another")
        await asyncio.sleep(1)
        with pytest.raises(NotResumable):
            await place.taken("token")
        await place.taken("another")
        await place.here.close()

    virtual_clock.run(scene())


def test_a_tenant_with_enough_sessions_is_refused_one_more() -> None:
    async def scene() -> None:
        place, second = Place(), Core("sess_2")
        place.here.begin(Core(), "acme", "token", 1)
        await asyncio.sleep(1)
        place.here.begin(second, "acme", "token", 1)
        await asyncio.sleep(1)
        assert len(second.refusals) == 1
        assert list(place.directory.sessions) == ["sess_1"]
        await place.here.close()

    virtual_clock.run(scene())


def test_what_nobody_can_come_back_to_has_a_lease_and_nothing_more() -> None:
    async def scene() -> None:
        place = Place()
        keeping = place.here.begin(Core(), "acme", "token", resumable=False)
        await asyncio.sleep(1)
        keeping.event(Close(), 1)
        keeping.settled()
        await asyncio.sleep(1)
        entry = place.directory.sessions["sess_1"]
        assert (entry.snapshot, entry.entries) == (b"", [])
        await place.here.hand_over_all()
        assert entry.owner is place.port
        await place.here.close()

    virtual_clock.run(scene())


def test_a_process_that_ends_hands_over_all_that_somebody_can_come_back_to() -> None:
    async def scene() -> None:
        place, core = Place(), Core(state=4)
        place.here.begin(core, "acme", "token", None)
        await asyncio.sleep(1)
        core.state = 5
        await place.here.hand_over_all()
        taken = await place.taken()
        assert (json.loads(taken.snapshot)["core"], core.lost) == ({"state": 5}, [2])
        await place.here.close()

    virtual_clock.run(scene())


def test_a_process_that_is_alone_has_nothing_to_keep_and_counts_by_itself() -> None:
    async def scene() -> None:
        keeper = Keeper()
        keeping = keeper.begin(Core(), "acme", "token", 1)
        keeping.event(Close(), 1)
        assert len(asyncio.all_tasks()) == 1
        assert keeping.waiting == []
        assert keeper.fresh
        with pytest.raises(Busy, match="all 1 sessions"):
            keeper.begin(Core("sess_2"), "acme", "token", 1)
        keeper.begin(Core("sess_3"), "other", "token", 1)
        keeper.end("sess_1")
        keeper.begin(Core("sess_2"), "acme", "token", 1)
        await keeper.close()

    virtual_clock.run(scene())


class Swallows(Flaky):
    """A directory whose client loses a cancellation and answers all the same."""

    def __init__(self, directory: MemoryDirectory) -> None:
        super().__init__(directory)
        self.asked = asyncio.Event()

    async def write(self, writes: Sequence[Write]) -> Written:
        self.asked.set()
        try:
            await asyncio.sleep(0.2)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return await super().write(writes)


def test_a_keeper_closes_though_the_directorys_client_loses_its_cancellation() -> None:
    async def main() -> None:
        port = Swallows(MemoryDirectory())
        keeper = Keeper(port, Counters())
        keeper.begin(Core(), "t", "token", None)
        await port.asked.wait()
        async with asyncio.timeout(60):
            await keeper.close()

    virtual_clock.run(main())


@pytest.mark.parametrize("entry", [b"5", b"[5]", b"[]", b"{}", b'["5", {}]', b"[5, 6]", b"[5, {}]", b"null", b"{", b""])
def test_a_damaged_event_in_the_directory_is_a_damaged_session(entry: bytes) -> None:
    core = Session("sess_1", 1, SessionConfig(), Abilities())
    core.handle(CarrierAttached(), 0)
    snapshot = json.dumps({"core": core.snapshot(), "note": {}}).encode()
    good = b'[5, {"type": "AudioArrived", "start": 0, "end": 960}]'
    with pytest.raises(ValueError, match=r"."):
        recovered(Taken(Lease("sess_1", 2), snapshot, (good, entry)), "token")
    assert recovered(Taken(Lease("sess_1", 2), snapshot, (good,)), "token").core.state.input.watermark == 960
