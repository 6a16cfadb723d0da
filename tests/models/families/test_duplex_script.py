"""`models.families.duplex_script`: an engine clocked by its input."""

from __future__ import annotations

import pytest

from models.families.duplex_script import FRAME, DuplexManners, ScriptedDuplexEngine
from models.families.script import PreparedReply, ScriptedTool, tone
from sessions.core.config import SessionConfig
from sessions.core.effects import GrantCredit
from sessions.core.events import DuplexFrame, EngineFailed
from sessions.core.timeline import TICK_RATE, Word, from_ms
from sessions.ports import Busy, EnginePort

from .hearing import Ear, fence, start

RATE = 16_000
TICK = TICK_RATE // RATE
LOUD = (5000).to_bytes(2, "little")
QUIET = bytes(2)
FRAME_SAMPLES = FRAME // TICK
REPLY = PreparedReply(0, tone(500, 0.4), (Word("Five", 0, 100), Word(" hundred", from_ms(100), from_ms(200))))


class Caller:
    """Feeds an engine contiguous input and keeps the frames that it answers with."""

    def __init__(self, *replies: PreparedReply, manners: DuplexManners | None = None) -> None:
        self.engine = ScriptedDuplexEngine(replies or (REPLY,), manners=manners)
        self.ear = Ear()
        self.at = 0
        self.engine.open(fence(), SessionConfig(), self.ear)

    def feed(self, sample: bytes, samples: int) -> None:
        self.engine.append("s", self.at, sample * samples, RATE)
        self.at += samples * TICK

    def frames(self, sample: bytes, count: int) -> list[tuple[DuplexFrame, bytes]]:
        before = len(self.ear.heard)
        self.feed(sample, count * FRAME_SAMPLES)
        return [(event, pcm or b"") for event, pcm in self.ear.heard[before:] if isinstance(event, DuplexFrame)]

    def speaking(self, sample: bytes, count: int) -> list[bool]:
        return [frame.speaking for frame, _ in self.frames(sample, count)]


def test_it_is_an_engine_port_that_owns_its_turns_and_listens_itself() -> None:
    engine: EnginePort = ScriptedDuplexEngine((REPLY,))
    assert engine.capabilities.turns == "engine"
    assert engine.capabilities.listens == "audio"
    assert not engine.capabilities.tools


def test_every_80_ms_of_input_are_answered_by_80_ms_of_output_on_the_same_clock() -> None:
    caller = Caller()
    for samples in (100, 1280, 37, 4000, 703):
        caller.feed(QUIET, samples)
    frames = [event for event, _ in caller.ear.heard]
    assert [(frame.start, frame.end) for frame in frames] == [(n * FRAME, (n + 1) * FRAME) for n in range(4)]  # type: ignore[union-attr]
    assert all(len(pcm or b"") == 1920 * 2 for _, pcm in caller.ear.heard)


@pytest.mark.parametrize("rate", [8000, 16_000, 24_000, 48_000])
def test_any_rate_on_the_timeline_is_heard(rate: int) -> None:
    engine, ear = ScriptedDuplexEngine((REPLY,)), Ear()
    engine.open(fence(), SessionConfig(), ear)
    engine.append("s", 960, bytes(rate // 100 * 8 * 3 * 2), rate)
    assert [event.start for event, _ in ear.heard] == [960, 960 + FRAME, 960 + 2 * FRAME]  # type: ignore[union-attr]


def test_it_speaks_some_silence_after_it_has_heard_speech_and_then_falls_silent() -> None:
    caller = Caller()
    assert caller.speaking(QUIET, 20) == [False] * 20
    assert caller.speaking(LOUD, 5) == [False] * 5
    answer = caller.frames(QUIET, 12)
    assert [frame.speaking for frame, _ in answer] == [False] * 5 + [True] * 5 + [False] * 2
    assert b"".join(pcm for frame, pcm in answer if frame.speaking) == REPLY.pcm
    assert "".join(frame.text for frame, _ in answer) == "Five hundred"
    assert all(pcm == bytes(len(pcm)) for frame, pcm in answer if not frame.speaking)


def test_a_click_is_not_speech() -> None:
    caller = Caller()
    caller.frames(LOUD, 1)
    assert caller.speaking(QUIET, 20) == [False] * 20


def test_it_yields_after_the_user_has_spoken_over_it_for_some_frames() -> None:
    long = PreparedReply(0, tone(500, 4.0))
    caller = Caller(long, manners=DuplexManners(yield_frames=3))
    caller.frames(LOUD, 3)
    assert caller.speaking(QUIET, 8)[-1]
    assert caller.speaking(LOUD, 2) == [True, True]
    assert caller.speaking(QUIET, 1) == [True]  # a short sound over it does not count
    assert caller.speaking(LOUD, 4) == [True, True, False, False]


def test_what_was_said_over_it_is_answered_with_the_next_reply() -> None:
    first, second = PreparedReply(0, tone(300, 4.0)), PreparedReply(0, tone(900, 0.08))
    caller = Caller(first, second)
    caller.frames(LOUD, 3)
    caller.frames(QUIET, 8)
    caller.frames(LOUD, 6)
    spoken = [pcm for frame, pcm in caller.frames(QUIET, 10) if frame.speaking]
    assert spoken == [second.pcm]


def test_the_delay_of_a_reply_is_counted_in_frames() -> None:
    caller = Caller(PreparedReply(160, tone(300, 0.08)))
    caller.frames(LOUD, 3)
    assert caller.speaking(QUIET, 9) == [False] * 7 + [True] + [False]


def test_frames_carry_the_newest_fence_that_it_was_told() -> None:
    caller = Caller()
    caller.engine.advance(fence(epoch=2))
    caller.engine.advance(fence(epoch=1))  # late: no step back
    (frame, _), *_ = caller.frames(QUIET, 1)
    assert frame.fence == fence(epoch=2)
    assert caller.engine.counters == {"requests_stale": 1}


def test_an_epoch_does_not_silence_it_but_a_cancel_does() -> None:
    caller = Caller(PreparedReply(0, tone(500, 4.0)))
    caller.frames(LOUD, 3)
    caller.frames(QUIET, 7)
    caller.engine.advance(fence(epoch=1))
    assert caller.speaking(QUIET, 1) == [True]
    caller.engine.cancel(fence(epoch=1), "")
    assert caller.speaking(QUIET, 1) == [False]


def test_a_response_cannot_be_asked_of_it() -> None:
    caller = Caller()
    caller.engine.start(start())
    caller.engine.grant(GrantCredit(fence(), "r", 1))
    (event, _), *_ = caller.ear.heard
    assert isinstance(event, EngineFailed)
    assert event.code == "engine_owns_turns"


def test_missing_input_is_heard_as_silence_and_counted_and_repeated_input_is_not_heard_twice() -> None:
    caller = Caller()
    caller.feed(QUIET, 100)
    caller.engine.append("s", FRAME, QUIET * FRAME_SAMPLES, RATE)
    assert len(caller.ear.heard) == 2
    assert caller.engine.counters == {"input_gap_ticks": FRAME - 100 * TICK}
    caller.engine.append("s", FRAME, QUIET * FRAME_SAMPLES, RATE)
    assert len(caller.ear.heard) == 2


def test_unknown_sessions_and_too_many_are_handled() -> None:
    engine = ScriptedDuplexEngine((REPLY,), max_sessions=1)
    engine.append("x", 0, b"", RATE)
    engine.advance(fence("x"))
    engine.cancel(fence("x"), "")
    engine.start(start(at=fence("x")))
    assert engine.counters == {"requests_unknown": 4}
    engine.open(fence("a"), SessionConfig(), Ear())
    engine.open(fence("a"), SessionConfig(), Ear())
    with pytest.raises(Busy):
        engine.open(fence("b"), SessionConfig(), Ear())
    engine.close("a")
    engine.close("a")
    engine.open(fence("b"), SessionConfig(), Ear())
    engine.shutdown()


def test_a_script_without_audio_is_refused() -> None:
    with pytest.raises(ValueError, match="replies"):
        ScriptedDuplexEngine(())
    with pytest.raises(ValueError, match="tools"):
        ScriptedDuplexEngine((PreparedReply(0, b"", tool=ScriptedTool("f", "{}")),))
