"""Two processes that share a directory: one goes on with what the other began, on a virtual clock."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from sessions.core.config import SessionConfig
from sessions.core.events import CarrierLost, ResponseCreate
from sessions.core.timeline import from_ms
from sessions.handle import SessionHandle
from sessions.keeper import FLUSH_EVERY, Keeper
from sessions.manager import SessionManager
from sessions.ownership import MemoryDirectory, OwnershipInMemory
from sessions.ports import Busy, NotResumable
from sessions.virtual_clock import run
from tests.sessions.fakes import CountingEngine, LoudnessPerception, NotebookCarrier
from tests.sessions.test_manager import microphone

CONFIG = SessionConfig(transcribe_input=True, grace=from_ms(30_000), tenant="acme")


@dataclass
class Node:
    manager: SessionManager
    engine: CountingEngine
    perception: LoudnessPerception
    port: OwnershipInMemory

    async def take_over(self, session: str, tenant: str, token: str, carrier: NotebookCarrier) -> SessionHandle:
        return self.manager.go_on(await self.manager.recover(session, tenant, token), carrier)

    def dies(self) -> None:
        """As if killed: it hears and writes nothing more, and is not told."""
        assert self.manager.keeper._task is not None
        self.manager.keeper._task.cancel()
        self.port.on_wanted(lambda session: None)


class Cluster:
    def __init__(self) -> None:
        self.directory = MemoryDirectory(ttl=3.0, clock=asyncio.get_running_loop().time)

    def node(self, tenant_sessions: int | None = None) -> Node:
        engine, perception, port = CountingEngine(seconds=4.0), LoudnessPerception(), OwnershipInMemory(self.directory)
        manager = SessionManager(engine, perception, keeper=Keeper(port), tenant_sessions=lambda _: tenant_sessions)
        return Node(manager, engine, perception, port)


def test_another_process_goes_on_with_the_history_and_none_of_the_old_audio() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        here, there = cluster.node(), cluster.node()
        before, after = NotebookCarrier(), NotebookCarrier()
        handle = here.manager.open(before, CONFIG)
        await microphone(handle, (0.5, False), (1.0, True), (2.0, False))
        assert before.frames
        here.dies()
        await asyncio.sleep(1.0)
        joined = await there.take_over(handle.session, "acme", handle.resume_token, after)
        assert joined.session == handle.session
        assert handle.input_end - from_ms(1000 * FLUSH_EVERY) <= joined.input_end <= handle.input_end
        await microphone(joined, (0.5, False), (1.0, True), (3.0, False))
        history = [entry.text for entry in there.engine.started[-1].context]
        assert history[0] == history[-1] == "what is the time"
        heard = history[1].split()
        assert heard
        assert heard == [f"w{n}" for n in range(len(heard))]
        assert {(frame.fence.incarnation, frame.fence.epoch) for _, frame in after.frames} == {(2, 1)}
        assert [frame.sequence for _, frame in after.frames] == list(range(len(after.frames)))
        # The process before may still think that it owns the session: what it sends carries an older fence.
        assert all(not after.frames[0][1].fence.admits(frame.fence) for _, frame in before.frames)
        await there.manager.close()
        assert there.manager.counters["ledger_fault"] == 0
        await here.manager.close()

    run(scenario())


def test_a_process_that_lives_is_asked_and_lets_the_session_go_with_its_last_moment() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        here, there = cluster.node(), cluster.node()
        before, after = NotebookCarrier(), NotebookCarrier()
        handle = here.manager.open(before, CONFIG)
        handle.post(ResponseCreate())
        await asyncio.sleep(2.0)
        joined = await there.take_over(handle.session, "acme", handle.resume_token, after)
        await asyncio.sleep(0.1)
        assert before.ended == "ownership_lost"
        assert (len(here.manager), len(there.manager)) == (0, 1)
        sent = len(before.frames)
        joined.post(ResponseCreate())
        await asyncio.sleep(2.0)
        assert len(before.frames) == sent
        (told,) = [entry.text for entry in there.engine.started[-1].context]
        # About a second and a half was heard, in words of a fifth of a second.
        assert 6 <= len(told.split()) <= 8
        await there.manager.close()
        await here.manager.close()

    run(scenario())


def test_a_process_that_was_stopped_says_nothing_more_once_another_owns_the_session() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        here, there = cluster.node(), cluster.node()
        before = NotebookCarrier()
        handle = here.manager.open(before, CONFIG)
        await asyncio.sleep(1.0)
        here.dies()
        await asyncio.sleep(cluster.directory.ttl + 1)
        await there.take_over(handle.session, "acme", handle.resume_token, NotebookCarrier())
        # What it wakes up with.
        handle.post(ResponseCreate())
        await asyncio.sleep(2.0)
        assert (before.frames, here.engine.started) == ([], [])
        assert before.ended == "ownership_lost"
        await there.manager.close()
        await here.manager.close()

    run(scenario())


def test_tokens_are_good_for_one_carrier_after_another_wherever_it_comes() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        here, there = cluster.node(), cluster.node()
        first = here.manager.open(NotebookCarrier(), CONFIG)
        first.post(CarrierLost("gone"))
        await asyncio.sleep(0.5)
        second = here.manager.attach(first.session, first.resume_token, NotebookCarrier())
        await asyncio.sleep(0.5)
        third = await there.take_over(first.session, "acme", second.resume_token, NotebookCarrier())
        for token in (first.resume_token, "guessed"):
            with pytest.raises(NotResumable):
                await here.take_over(first.session, "acme", token, NotebookCarrier())
        with pytest.raises(NotResumable):
            await here.take_over(first.session, "other", third.resume_token, NotebookCarrier())
        fourth = await here.take_over(first.session, "acme", third.resume_token, NotebookCarrier())
        assert fourth.session == first.session
        await here.manager.close()
        await there.manager.close()

    run(scenario())


def test_a_session_that_ended_or_that_nobody_may_come_back_to_is_not_found() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        here, there = cluster.node(), cluster.node()
        brief = here.manager.open(NotebookCarrier(), SessionConfig(tenant="acme"))
        ended = here.manager.open(NotebookCarrier(), CONFIG)
        await asyncio.sleep(0.5)
        await here.manager.close()
        for handle in (brief, ended):
            await handle.closed()
        with pytest.raises(NotResumable):
            await there.take_over(brief.session, "acme", brief.resume_token, NotebookCarrier())
        # The process ended in good order, so what somebody can come back to was handed over.
        await there.take_over(ended.session, "acme", ended.resume_token, NotebookCarrier())
        await there.manager.close()

    run(scenario())


def test_what_cannot_be_restored_is_told_as_gone_and_let_go_of() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        here, there = cluster.node(), cluster.node()
        handle = here.manager.open(NotebookCarrier(), CONFIG)
        await asyncio.sleep(0.5)
        here.dies()
        cluster.directory.sessions[handle.session].snapshot = b'{"type": "State", "session": 1}'
        with pytest.raises(NotResumable):
            await there.take_over(handle.session, "acme", handle.resume_token, NotebookCarrier())
        assert (len(there.manager), cluster.directory.sessions) == (0, {})
        await here.manager.close()
        await there.manager.close()

    run(scenario())


def test_what_finds_no_room_here_may_go_on_somewhere_else() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        here, there, third = cluster.node(), cluster.node(), cluster.node()
        handle = here.manager.open(NotebookCarrier(), CONFIG)
        handle.note(lambda: {"spoken": "with"})
        await asyncio.sleep(0.5)
        here.dies()
        there.engine.room = 0
        with pytest.raises(Busy):
            await there.take_over(handle.session, "acme", handle.resume_token, NotebookCarrier())
        await asyncio.sleep(0.1)
        assert (len(there.manager), there.perception.closed) == (0, [handle.session])
        found = await third.manager.recover(handle.session, "acme", handle.resume_token)
        assert (found.note, found.taken.lease.incarnation) == ({"spoken": "with"}, 3)
        third.manager.go_on(found, NotebookCarrier())
        for node in (third, there, here):
            await node.manager.close()

    run(scenario())


def test_a_tenants_sessions_are_counted_over_all_processes() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        here, there = cluster.node(1), cluster.node(1)
        here.manager.open(NotebookCarrier(), CONFIG)
        await asyncio.sleep(0.5)
        carrier = NotebookCarrier()
        there.manager.open(carrier, CONFIG)
        await asyncio.sleep(0.5)
        assert carrier.ended == "too_many_sessions"
        await here.manager.close()
        await there.manager.close()

    run(scenario())


def test_a_server_that_ends_takes_nobody_and_waits_for_those_that_it_has() -> None:
    async def scenario() -> None:
        node = Cluster().node()
        handle = node.manager.open(NotebookCarrier(), SessionConfig())
        draining = asyncio.create_task(node.manager.drain(20.0))
        await asyncio.sleep(1.0)
        with pytest.raises(Busy, match="shutting down"):
            node.manager.open(NotebookCarrier(), SessionConfig())
        assert not draining.done()
        handle.post(CarrierLost("gone"))
        await asyncio.sleep(0.1)
        assert draining.done()
        await node.manager.close()

    run(scenario())


def test_a_server_that_ends_does_not_wait_for_ever() -> None:
    async def scenario() -> None:
        node = Cluster().node()
        carrier = NotebookCarrier()
        node.manager.open(carrier, SessionConfig())
        before = asyncio.get_running_loop().time()
        await node.manager.drain(20.0)
        assert asyncio.get_running_loop().time() - before == pytest.approx(20.0)
        await node.manager.close()
        assert carrier.ended == "server_shutdown"

    run(scenario())
