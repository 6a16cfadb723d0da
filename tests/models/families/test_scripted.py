"""`models.families.scripted`, with tones, and time that a test moves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from models.families.script import PreparedReply, ScriptedTool, tone
from models.families.scripted import ScriptedEngine
from sessions.core.config import SessionConfig
from sessions.core.effects import GrantCredit
from sessions.core.events import EngineDone, EngineToolCall
from sessions.core.timeline import Word, from_ms
from sessions.ports import Busy, EnginePort

from .hearing import Ear, fence, start

LOW = PreparedReply(0, tone(300, 0.5))
HIGH = PreparedReply(0, tone(600, 0.3))
LATE = PreparedReply(400, tone(900, 0.2), (Word("Late", 0, 100),), "Late")


class Clock:
    """A `Scheduler` whose time stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.entries: list[Clock.Entry] = []

    class Entry:
        def __init__(self, due: float, call: Callable[[], None]) -> None:
            self.due, self.call, self.cancelled = due, call, False

        def cancel(self) -> None:
            self.cancelled = True

    def call_later(self, seconds: float, call: Callable[[], None]) -> Clock.Entry:
        self.entries.append(Clock.Entry(self.now + seconds, call))
        return self.entries[-1]

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [entry for entry in self.entries if entry.due <= self.now]
        self.entries = [entry for entry in self.entries if entry.due > self.now]
        for entry in due:
            if not entry.cancelled:
                entry.call()


def engine_of(*replies: PreparedReply, clock: Clock | None = None, max_sessions: int = 3) -> ScriptedEngine:
    return ScriptedEngine(replies, scheduler=clock or Clock(), max_sessions=max_sessions)


def test_it_is_an_engine_port_that_leaves_the_turns_to_the_core() -> None:
    engine: EnginePort = engine_of(LOW)
    assert engine.capabilities.turns == "core"
    assert engine.capabilities.output_rate == 24_000


def test_replies_come_in_turn_over_and_over_for_each_session_by_itself() -> None:
    engine = engine_of(LOW, HIGH)
    ears = {name: Ear() for name in "ab"}
    for name, ear in ears.items():
        engine.open(fence(name), SessionConfig(), ear)
    for number in range(3):
        engine.start(start(f"r{number}", at=fence("a")))
    engine.start(start("r0", at=fence("b")))
    assert [ears["a"].pcm(f"r{number}") for number in range(3)] == [LOW.pcm, HIGH.pcm, LOW.pcm]
    assert ears["b"].pcm("r0") == LOW.pcm
    assert isinstance(ears["b"].end("r0"), EngineDone)
    assert engine.active == 0


def test_the_delay_passes_before_the_first_audio() -> None:
    clock, ear = Clock(), Ear()
    engine = engine_of(LATE, clock=clock)
    engine.open(fence(), SessionConfig(), ear)
    engine.start(start())
    clock.advance(0.399)
    assert ear.heard == []
    clock.advance(0.001)
    assert ear.pcm() == LATE.pcm
    assert ear.spoken() == "Late"
    assert engine.active == 0


@pytest.mark.parametrize("how", ["cancel", "advance", "close"])
def test_what_waits_for_its_delay_can_be_stopped(how: str) -> None:
    clock, ear = Clock(), Ear()
    engine = engine_of(LATE, clock=clock)
    engine.open(fence(), SessionConfig(), ear)
    engine.start(start())
    match how:
        case "cancel":
            engine.cancel(fence(), "r")
        case "advance":
            engine.advance(fence(epoch=1))
        case _:
            engine.close("s")
    clock.advance(10)
    assert ear.heard == []
    assert engine.active == 0
    assert engine.counters == {"responses_stopped": 1}


def test_audio_obeys_the_credit() -> None:
    ear = Ear()
    engine = engine_of(LOW)
    engine.open(fence(), SessionConfig(), ear)
    engine.start(start(credit=from_ms(100)))
    assert ear.length() == from_ms(100)
    assert ear.end() is None
    assert engine.active == 1
    engine.grant(GrantCredit(fence(), "r", from_ms(1000)))
    assert ear.pcm() == LOW.pcm
    assert isinstance(ear.end(), EngineDone)
    assert engine.active == 0


def test_a_cancelled_response_takes_no_more_credit() -> None:
    ear = Ear()
    engine = engine_of(LOW)
    engine.open(fence(), SessionConfig(), ear)
    engine.start(start(credit=from_ms(100)))
    engine.cancel(fence(), "r")
    engine.grant(GrantCredit(fence(), "r", from_ms(1000)))
    assert ear.length() == from_ms(100)


def test_a_tool_reply_calls_the_tool_and_text_modality_gets_the_text() -> None:
    ear = Ear()
    engine = engine_of(PreparedReply(0, b"", tool=ScriptedTool("f", "{}")), LATE, clock=(clock := Clock()))
    engine.open(fence(), SessionConfig(), ear)
    engine.start(start("r1"))
    assert ear.events(EngineToolCall) == [EngineToolCall(fence(), "r1", "call_r1", "f", "{}")]
    engine.start(start("r2", modality="text"))
    clock.advance(1)
    assert ear.text("r2") == "Late"
    assert not ear.audio("r2")


def test_stale_and_unknown_requests_are_counted_and_answered_by_nothing() -> None:
    ear = Ear()
    engine = engine_of(LOW)
    engine.start(start())
    engine.advance(fence())
    engine.open(fence(), SessionConfig(), ear)
    engine.cancel(fence(), "none")
    engine.advance(fence(epoch=2))
    engine.start(start(at=fence(epoch=1)))
    engine.advance(fence(epoch=1))
    engine.close("none")
    assert engine.counters == {"requests_unknown": 3, "requests_stale": 2}
    assert ear.heard == []


def test_one_session_too_many_is_busy_and_an_open_one_is_not_counted_twice() -> None:
    engine = engine_of(LOW, max_sessions=1)
    engine.open(fence("a"), SessionConfig(), Ear())
    engine.open(fence("a", epoch=1), SessionConfig(), Ear())
    with pytest.raises(Busy):
        engine.open(fence("b"), SessionConfig(), Ear())
    engine.close("a")
    engine.open(fence("b"), SessionConfig(), Ear())


def test_a_hundred_sessions_share_one_timer_thread() -> None:
    engine = ScriptedEngine((PreparedReply(1, LOW.pcm),))
    ears = [Ear() for _ in range(100)]
    for number, ear in enumerate(ears):
        engine.open(fence(f"s{number}"), SessionConfig(), ear)
        engine.start(start(at=fence(f"s{number}")))
    for ear in ears:
        ear.wait_for_end()
        assert ear.pcm() == LOW.pcm
    engine.shutdown()
    engine.shutdown()


def test_an_empty_script_is_refused() -> None:
    with pytest.raises(ValueError, match="replies"):
        ScriptedEngine(())
    with pytest.raises(ValueError, match="max_sessions"):
        ScriptedEngine((LOW,), max_sessions=0)
