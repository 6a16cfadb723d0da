from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from sessions.core.config import SessionConfig
from sessions.core.events import CarrierLost, Close, ResponseCreate
from sessions.core.notices import InputTranscriptDone, PlaybackCleared, ResponseClosed, SpeechStarted
from sessions.core.timeline import from_ms, to_seconds
from sessions.handle import SessionHandle
from sessions.journal import Recorder
from sessions.manager import SessionManager
from sessions.ports import Busy, NotResumable
from sessions.replay.rerun import rerun
from sessions.virtual_clock import run
from tests.freed import Freed, no_collector
from tests.sessions.fakes import CountingEngine, LoudnessPerception, NotebookCarrier
from tests.sessions.recordings import lines_of, rewrite

CONFIG = SessionConfig(transcribe_input=True)
PATIENT = replace(CONFIG, grace=from_ms(3000))
LOUD = b"\x00\x20" * 480
QUIET = bytes(960)


class HoldingCarrier(NotebookCarrier):
    """Holds its session, as carriers do."""

    handle: SessionHandle


async def microphone(handle: SessionHandle, *stretches: tuple[float, bool]) -> None:
    """Play 20 ms chunks in real time: (seconds, speaking) after each other."""
    for seconds, speaking in stretches:
        for _ in range(round(seconds * 50)):
            await asyncio.sleep(0.02)
            handle.audio(LOUD if speaking else QUIET, 24_000)


def test_a_spoken_turn_is_answered_and_the_audio_goes_out_at_most_the_lead_ahead() -> None:
    async def scenario() -> None:
        carrier, engine = NotebookCarrier(), CountingEngine()
        manager = SessionManager(engine, LoudnessPerception())
        handle = manager.open(carrier, CONFIG)
        await microphone(handle, (0.5, False), (1.0, True), (4.0, False))
        assert [entry.text for entry in engine.started[0].context] == ["what is the time"]
        assert any(isinstance(notice, InputTranscriptDone) for notice in carrier.notices)
        first = carrier.frames[0][0]
        for at, frame in carrier.frames:
            assert to_seconds(frame.end) <= at - first + 0.2 + 1e-6
        assert b"".join(frame.pcm for _, frame in carrier.frames) == b"".join(
            (i % 32768).to_bytes(2, "little") for i in range(48_000)
        )
        assert [frame.sequence for _, frame in carrier.frames] == list(range(len(carrier.frames)))
        await manager.close()
        assert carrier.ended == "server_shutdown"

    run(scenario())


def test_an_interruption_stops_the_engine_flushes_the_carrier_and_nothing_of_the_old_epoch_follows() -> None:
    async def scenario() -> None:
        carrier, engine = NotebookCarrier(), CountingEngine(seconds=5.0)
        manager = SessionManager(engine, LoudnessPerception())
        handle = manager.open(carrier, CONFIG)
        await microphone(handle, (0.5, False), (1.0, True), (1.5, False), (0.5, True), (3.0, False))
        assert "hold" in carrier.calls
        assert "flush 1" in carrier.calls
        epochs = [frame.fence.epoch for _, frame in carrier.frames]
        assert epochs == sorted(epochs)
        cleared = next(notice for notice in carrier.notices if isinstance(notice, PlaybackCleared))
        sent = max(frame.end for _, frame in carrier.frames if frame.response == cleared.response)
        assert 0 < cleared.heard <= sent
        assert sum(isinstance(notice, SpeechStarted) for notice in carrier.notices) == 2
        await manager.close()
        assert manager.counters["ledger_fault"] == 0

    run(scenario())


def test_a_session_that_is_over_is_freed_without_the_garbage_collector() -> None:
    async def scenario() -> None:
        manager, freed = SessionManager(CountingEngine(), perception := LoudnessPerception()), Freed()

        async def session() -> None:
            carrier = HoldingCarrier()
            handle = carrier.handle = manager.open(carrier, CONFIG)
            (runner,) = manager.runners()
            freed.watch(runner, runner._core, handle, carrier)
            await microphone(handle, (0.5, False), (1.0, True), (2.0, False))
            assert carrier.frames
            handle.post(Close("done"))
            await handle.closed()

        with no_collector():
            await session()
            perception._emit.clear()  # it keeps what it was given, for tests to look at
            await freed.all()
        await manager.close()

    run(scenario())


def test_a_session_too_many_is_refused_at_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async def scenario() -> None:
        recorder = Recorder(tmp_path)
        manager = SessionManager(CountingEngine(room=1), LoudnessPerception(), recorder=recorder)
        manager.open(NotebookCarrier(), CONFIG)
        with pytest.raises(Busy):
            manager.open(NotebookCarrier(), CONFIG)
        assert len(manager) == 1
        await manager.close()
        assert len(list(tmp_path.iterdir())) == 1

    run(scenario())


def test_after_close_no_task_no_timer_and_no_session_is_left() -> None:
    async def scenario() -> None:
        perception, engine = LoudnessPerception(), CountingEngine()
        manager = SessionManager(engine, perception)
        before = len(asyncio.all_tasks())
        handles = [manager.open(NotebookCarrier(), CONFIG) for _ in range(5)]
        for handle in handles:
            handle.post(ResponseCreate())
        await asyncio.sleep(1.0)
        for handle in handles:
            handle.post(CarrierLost("gone"))
            await handle.closed()
        await asyncio.sleep(0)
        assert len(manager) == 0
        assert len(asyncio.all_tasks()) == before
        assert sorted(engine.closed) == sorted(perception.closed) == sorted(engine.opened)

    run(scenario())


def test_a_flood_of_audio_keeps_the_newest_and_marks_the_rest_as_a_gap() -> None:
    async def scenario() -> None:
        perception = LoudnessPerception()
        manager = SessionManager(CountingEngine(), perception)
        handle = manager.open(NotebookCarrier(), CONFIG)
        minute = b"\x00\x20" * 24_000 * 40
        handle.audio(minute, 24_000)
        handle.audio(minute, 24_000)
        handle.audio(minute, 24_000)
        await asyncio.sleep(0.1)
        fed = perception.fed[handle.session]
        assert [any(pcm) for _, pcm, _ in fed] == [False, False, True]
        assert [start for start, _, _ in fed] == [0, 40 * 48_000, 80 * 48_000]
        assert manager.counters["input_overflow"] == 2
        await manager.close()

    run(scenario())


def test_the_journal_of_an_interrupted_conversation_re_runs_identically(tmp_path: Path) -> None:
    async def scenario() -> None:
        manager = SessionManager(CountingEngine(seconds=5.0), LoudnessPerception(), recorder=Recorder(tmp_path))
        carrier = NotebookCarrier()
        handle = manager.open(carrier, CONFIG)
        await microphone(handle, (0.5, False), (1.0, True), (1.5, False), (0.5, True), (3.0, False))
        handle.post(Close())
        await handle.closed()
        assert any(isinstance(notice, ResponseClosed) for notice in carrier.notices)
        await manager.close()

    run(scenario())
    (folder,) = tmp_path.iterdir()
    result = rerun(folder)
    assert result.identical, str(result.difference)
    assert result.events > 200


def test_a_changed_journal_is_told_apart_at_its_first_difference(tmp_path: Path) -> None:
    async def scenario() -> None:
        manager = SessionManager(CountingEngine(), LoudnessPerception(), recorder=Recorder(tmp_path))
        handle = manager.open(NotebookCarrier(), CONFIG)
        await microphone(handle, (0.5, False), (1.0, True), (1.0, False))
        await manager.close()

    run(scenario())
    (folder,) = tmp_path.iterdir()
    lines = lines_of(folder)
    started = next(
        effect["notice"]
        for line in lines
        for effect in line.get("effects", [])
        if effect.get("notice", {}).get("type") == "SpeechStarted"
    )
    started["at"] += 1
    rewrite(folder, lines)
    result = rerun(folder)
    assert result.difference is not None
    assert result.difference.recorded != result.difference.rerun
    assert "SpeechStarted" in str(result.difference)


# --- another carrier -----------------------------------------------------------------------------------------------


def test_a_carrier_that_joins_goes_on_with_the_conversation_and_the_one_before_is_told_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = CountingEngine(seconds=5.0)
        manager = SessionManager(engine, LoudnessPerception(), recorder=Recorder(tmp_path))
        first, second = NotebookCarrier(), NotebookCarrier()
        handle = manager.open(first, PATIENT)
        await microphone(handle, (0.5, False), (1.0, True), (1.5, False))
        assert first.frames
        again = manager.attach(handle.session, handle.resume_token, second)
        await handle.parted()
        assert (first.calls[-1], first.ended) == ("flush 1", "replaced")
        assert (again.attachment, again.session) == (2, handle.session)
        assert again.resume_token != handle.resume_token
        sent = len(first.frames)
        await microphone(again, (0.5, False), (1.0, True), (1.5, False))
        assert len(first.frames) == sent
        assert {frame.fence.epoch for _, frame in second.frames} == {1}
        texts = [entry.text for entry in engine.started[-1].context]
        assert texts[0] == texts[-1] == "what is the time"
        assert texts[1].startswith("w0")
        await manager.close()

    run(scenario())
    (folder,) = tmp_path.iterdir()
    assert rerun(folder).identical


def test_a_session_that_lost_its_carrier_waits_and_then_frees_everything() -> None:
    async def scenario() -> None:
        engine = CountingEngine()
        manager = SessionManager(engine, LoudnessPerception())
        handle = manager.open(NotebookCarrier(), PATIENT)
        handle.post(CarrierLost("gone"))
        await handle.parted()
        assert len(manager) == 1
        await handle.closed()
        assert len(manager) == 0
        assert engine.closed == engine.opened

    run(scenario())


def test_what_comes_through_a_replaced_carrier_is_dropped_and_counted() -> None:
    async def scenario() -> None:
        perception = LoudnessPerception()
        manager = SessionManager(CountingEngine(), perception)
        handle = manager.open(NotebookCarrier(), PATIENT)
        again = manager.attach(handle.session, handle.resume_token, NotebookCarrier())
        handle.audio(LOUD, 24_000)
        handle.post(CarrierLost("connection_lost"))
        handle.post(Close())
        await asyncio.sleep(5)
        assert (handle.current, again.current) == (False, True)
        assert perception.fed[handle.session] == []
        assert manager.counters["old_carrier"] == 3
        assert len(manager) == 1
        await manager.close()

    run(scenario())


@pytest.mark.parametrize("wrong", ["session", "token", "used token", "not ASCII"])
def test_a_carrier_without_the_newest_token_joins_nothing(wrong: str) -> None:
    async def scenario() -> None:
        manager = SessionManager(CountingEngine(), LoudnessPerception())
        carrier = NotebookCarrier()
        handle = manager.open(carrier, PATIENT)
        manager.attach(handle.session, handle.resume_token, carrier)
        session = "sess_nobody" if wrong == "session" else handle.session
        token = {"token": "x", "not ASCII": "\ud800é"}.get(wrong, handle.resume_token)
        with pytest.raises(NotResumable) as refused:
            manager.attach(session, token, NotebookCarrier())
        assert refused.value.code == ("unknown_session" if wrong == "session" else "invalid_token")
        await manager.close()

    run(scenario())


def test_a_carrier_that_comes_as_the_session_ends_is_told_so() -> None:
    async def scenario() -> None:
        manager = SessionManager(CountingEngine(), LoudnessPerception())
        handle = manager.open(NotebookCarrier(), PATIENT)
        handle.post(Close())
        late = NotebookCarrier()
        again = manager.attach(handle.session, handle.resume_token, late)
        await again.parted()
        assert late.ended == "session_over"

    run(scenario())


# --- what the agent says, on the clock of the input ----------------------------------------------------------------


def test_perception_is_told_what_is_heard_and_on_the_clock_of_the_input() -> None:
    async def scenario() -> None:
        perception, carrier = LoudnessPerception(), NotebookCarrier()
        manager = SessionManager(CountingEngine(seconds=1.0), perception)
        handle = manager.open(carrier, CONFIG)
        await asyncio.sleep(7)  # the microphone opens late, and the two clocks have nothing in common
        await microphone(handle, (0.5, False), (1.0, True), (3.0, False))
        played = [(at, size) for at, size in perception.played if size]
        assert sum(size for _, size in played) == 24_000 * 2
        # In one stretch, although the input that gives the time comes in packets.
        assert [at for at, _ in played] == [played[0][0] + n * 960 for n in range(50)]
        began = carrier.frames[0][0] - 7.0
        assert abs(to_seconds(played[0][0]) - began) < 0.05
        await manager.close()

    run(scenario())


def test_what_a_hold_delays_is_told_anew_and_what_a_flush_takes_is_taken_back() -> None:
    async def scenario() -> None:
        perception = LoudnessPerception()
        carrier = NotebookCarrier(paced=True)
        manager = SessionManager(CountingEngine(seconds=5.0), perception)
        handle = manager.open(carrier, CONFIG)
        await microphone(handle, (0.5, False), (1.0, True), (1.5, False), (0.06, True), (0.5, False))
        hushed = [at for at, size in perception.played if not size]
        assert carrier.calls[-2:] == ["hold", "resume"]
        told_anew = [at for at, _ in perception.played[perception.played.index((hushed[-1], 0)) + 1 :]]
        assert told_anew[0] > hushed[-1] + from_ms(100)
        assert told_anew == [told_anew[0] + n * 960 for n in range(len(told_anew))]
        await microphone(handle, (0.5, True), (0.5, False))
        assert "flush 1" in carrier.calls
        assert perception.played[-1][1] == 0
        await manager.close()

    run(scenario())
