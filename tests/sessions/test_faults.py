"""Faults that voice servers are known for, each provoked as its users met it. `docs/faults.md` lists them all."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from sessions.core.config import SessionConfig, TurnConfig
from sessions.core.effects import AdmitFrame, AdvanceEpoch, CancelResponse, FlushCarrier, StartResponse
from sessions.core.events import (
    CarrierLost,
    Close,
    EngineAudio,
    EngineDone,
    Event,
    ItemTruncate,
    OutputClear,
    ResponseCancel,
    ResponseCreate,
)
from sessions.core.notices import CommandFailed, PlaybackCleared
from sessions.core.timeline import Ticks, from_ms
from sessions.handle import SessionHandle
from sessions.manager import SessionManager
from sessions.virtual_clock import run
from tests.sessions.core.checker import Checker
from tests.sessions.core.driver import World, effects_in, notices_in
from tests.sessions.fakes import CountingEngine, LoudnessPerception, NotebookCarrier


def world(config: SessionConfig | None = None) -> World:
    config = config or SessionConfig()
    return World(config, observers=(Checker(config),))


# --- policy and flush are two things -------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [ResponseCancel(), OutputClear(), CarrierLost("gone")], ids=lambda e: type(e).__name__)
def test_an_agent_that_must_not_be_interrupted_by_speech_is_still_flushed_by_command_and_detach(stop: Event) -> None:
    room = world(SessionConfig(turns=TurnConfig(interrupt_response=False), grace=from_ms(20_000)))
    room.engine.length = from_ms(20_000)
    room.converse(600)
    room.talk(500)
    assert room.effects(AdvanceEpoch) == []
    effects = room.post(stop)
    (flush,) = effects_in(effects, FlushCarrier)
    assert flush.fence.epoch == 1
    assert effects_in(effects, CancelResponse)
    sent = len(room.effects(AdmitFrame))
    room.wait(1000)
    assert all(frame.fence.epoch == 1 for frame in room.effects(AdmitFrame)[sent:])


# --- the history is what was heard, whatever becomes of a truncate -------------------------------------------------


def interrupted() -> tuple[World, PlaybackCleared, str]:
    """An agent that was interrupted, how far it was heard, and its item."""
    room = world()
    room.engine.length = from_ms(4000)
    room.converse(1500)
    room.talk(400)
    (cleared,) = room.notices(PlaybackCleared)
    item = next(item for item in room.session.state.conversation.items if item.response == cleared.response)
    assert cleared.text
    return room, cleared, item.id


@pytest.mark.parametrize("client", ["silent", "beyond", "other part", "other item"])
def test_a_truncate_that_is_missing_or_refused_leaves_no_word_that_was_not_heard(client: str) -> None:
    room, cleared, item = interrupted()
    truncates = {
        "beyond": ItemTruncate(item, from_ms(60_000)),
        "other part": ItemTruncate(item, 0, content_index=3),
        "other item": ItemTruncate("item_x", 0),
    }
    if client in truncates:
        refused = notices_in(room.post(truncates[client]), CommandFailed)
        assert len(refused) == (0 if client == "beyond" else 1)
    room.ask()
    context = room.effects(StartResponse)[-1].context
    assert [entry.text for entry in context if entry.role == "assistant"] == [cleared.text]


def test_words_that_were_heard_are_in_the_very_next_question_to_the_model() -> None:
    """However soon the next reply begins after the cut: it cannot overtake what was heard."""
    room = world(SessionConfig(turns=None))
    room.engine.length = from_ms(4000)
    room.post(ResponseCreate())
    room.wait(1500)
    room.post(ResponseCancel())
    effects = room.post(ResponseCreate())
    (cleared,) = room.notices(PlaybackCleared)
    (start,) = effects_in(effects, StartResponse)
    assert cleared.text
    assert [entry.text for entry in start.context] == [cleared.text]


# --- one owner of the lane -----------------------------------------------------------------------------------------


def test_a_reply_that_is_asked_for_while_the_last_one_sounds_follows_it_and_is_not_mixed_in() -> None:
    room = world(SessionConfig(turns=None))
    room.engine.silent = True
    for _ in range(2):
        (start,) = effects_in(room.post(ResponseCreate()), StartResponse)
        room.post(EngineAudio(start.fence, start.response, 0, from_ms(150)))
        room.post(EngineDone(start.fence, start.response))
    room.wait(500)
    frames = room.effects(AdmitFrame)
    owners = [frame.response for frame in frames]
    assert [owner for owner, _ in itertools.groupby(owners)] == list(dict.fromkeys(owners))
    assert len(set(owners)) == 2
    ends = [frame.placed_at + frame.end - frame.start for frame in frames]
    assert [frame.placed_at for frame in frames[1:]] == ends[:-1]


# --- pacing --------------------------------------------------------------------------------------------------------


LENGTH = from_ms(20_000)


def long_reply(slip: float) -> tuple[World, list[tuple[Ticks, AdmitFrame]]]:
    """A reply of 20 s with every timer `slip` ms late: each frame, and when it was admitted."""
    room = world(SessionConfig(turns=None))
    room.engine.length = LENGTH
    room.slip = from_ms(slip)
    room.post(ResponseCreate())
    room.wait(100_000)
    frames = [(step.now, effect) for step in room.log for effect in step.effects if isinstance(effect, AdmitFrame)]
    assert frames[-1][1].end == LENGTH
    return room, frames


@pytest.mark.parametrize("slip", [0, 7, 30, 150])
def test_timers_that_are_late_do_not_add_up(slip: float) -> None:
    _, frames = long_reply(slip)
    first, last = frames[0][1], frames[-1][1]
    assert last.placed_at + last.end - last.start - first.placed_at == LENGTH


@pytest.mark.parametrize("slip", [0, 30, 150, 700])
def test_what_was_late_is_caught_up_with_only_as_far_as_the_lead(slip: float) -> None:
    room, frames = long_reply(slip)
    lead = room.config.lead
    assert all(frame.placed_at + frame.end - frame.start <= now + lead for now, frame in frames)
    bursts = [sum(f.end - f.start for _, f in group) for _, group in itertools.groupby(frames, lambda pair: pair[0])]
    assert max(bursts) <= lead


# --- long sessions -------------------------------------------------------------------------------------------------


def test_a_conversation_of_ten_minutes_goes_on_and_holds_no_more_than_one_of_one_minute() -> None:
    async def scenario() -> None:
        perception, engine, carrier = LoudnessPerception(), CountingEngine(seconds=2.0), NotebookCarrier()
        manager = SessionManager(engine, perception)
        handle = manager.open(carrier, SessionConfig(transcribe_input=True))
        runner = manager._runners[handle.session]
        sizes = []
        for _ in range(10):
            for _ in range(10):
                await microphone(handle, (1.0, True), (5.0, False))
            state = runner._core.state
            sizes.append(
                (
                    len(state.requests),
                    len(state.ledger.tracks),
                    len(state.sounding),
                    len(runner._tracks),
                    len(runner._timers),
                    len(runner.mailbox),
                )
            )
            perception.fed[handle.session].clear()
        assert len(engine.started) == 100
        assert len({frame.response for _, frame in carrier.frames}) == 100
        assert all(size == sizes[0] for size in sizes)
        await manager.close()
        assert manager.counters["ledger_fault"] == manager.counters["engine_fault"] == 0

    run(scenario())


# --- what comes after the end --------------------------------------------------------------------------------------


def test_what_an_engine_says_after_the_session_has_ended_brings_nothing_back() -> None:
    async def scenario() -> None:
        engine, carrier = CountingEngine(delay=5.0), NotebookCarrier()
        manager = SessionManager(engine, LoudnessPerception())
        handle = manager.open(carrier, SessionConfig())
        handle.post(ResponseCreate())
        await asyncio.sleep(0.1)
        (request,) = engine.started
        emit = engine._emit[handle.session]
        for _ in range(2):
            handle.post(Close("client_closed"))
        await handle.closed()
        emit(EngineAudio(request.fence, request.response, 0, from_ms(100)), bytes(4800))
        handle.audio(bytes(960), 24_000)
        handle.post(ResponseCreate())
        await asyncio.sleep(10.0)
        assert len(manager) == 0
        assert carrier.frames == []
        assert engine.closed == [handle.session]
        assert len(engine.started) == 1

    run(scenario())


async def microphone(handle: SessionHandle, *stretches: tuple[float, bool]) -> None:
    """Play 20 ms chunks in real time: (seconds, speaking) after each other."""
    for seconds, speaking in stretches:
        for _ in range(round(seconds * 50)):
            await asyncio.sleep(0.02)
            handle.audio(b"\x00\x20" * 480 if speaking else bytes(960), 24_000)
