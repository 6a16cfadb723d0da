"""`models.families.lane`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.families.lane import CHUNK, ResponseLane
from sessions.core.events import EngineAudio, EngineDone, EngineWords, Event
from sessions.core.timeline import Word, from_ms

from .hearing import Ear, fence


def level(milliseconds: int, loudness: int = 1) -> bytes:
    return loudness.to_bytes(2, "little") * (24 * milliseconds)


def lane(ear: Ear, credit_ms: int = 60_000) -> ResponseLane:
    return ResponseLane(fence(), "r", from_ms(credit_ms), 24_000, ear)


def test_audio_goes_out_in_contiguous_chunks_of_at_most_200_ms() -> None:
    ear = Ear()
    lane(ear).say(level(450))
    assert [(a.start, a.end) for a in ear.audio()] == [
        (0, from_ms(200)),
        (from_ms(200), from_ms(400)),
        (from_ms(400), from_ms(450)),
    ]
    assert ear.pcm() == level(450)


def test_words_precede_the_audio_that_holds_them_and_lie_in_the_response() -> None:
    ear = Ear()
    out = lane(ear)
    out.say(level(100), [Word("One", 0, from_ms(90))])
    out.say(level(100), [Word(" two", from_ms(10), from_ms(100))])
    kinds = [type(event) for event, _ in ear.heard]
    assert kinds == [EngineWords, EngineAudio, EngineWords, EngineAudio]
    assert ear.words()[1] == Word(" two", from_ms(110), from_ms(200))


def test_audio_beyond_the_credit_waits_until_it_is_granted() -> None:
    ear = Ear()
    out = lane(ear, credit_ms=250)
    out.say(level(400))
    assert ear.length() == from_ms(250)
    out.grant(from_ms(300))
    assert ear.length() == from_ms(300)
    out.grant(from_ms(100))  # a late, smaller grant takes nothing back
    assert ear.length() == from_ms(300)
    out.grant(from_ms(1000))
    assert ear.length() == from_ms(400)
    assert ear.pcm() == level(400)


def test_an_event_comes_after_the_audio_before_it_even_where_that_waits_for_credit() -> None:
    ear = Ear()
    out = lane(ear, credit_ms=100)
    out.say(level(200))
    out.post(EngineDone(fence(), "r"), last=True)
    assert ear.end() is None
    assert not out.finished
    out.grant(from_ms(200))
    assert ear.end() is not None
    assert out.finished


def test_words_of_audio_that_may_not_begin_yet_are_kept_back() -> None:
    ear = Ear()
    out = lane(ear, credit_ms=100)
    out.say(level(100))
    out.say(level(100), [Word(" late", 0, 1)])
    assert ear.words() == []
    assert not out.wants_audio


def test_nothing_is_emitted_after_a_stop() -> None:
    ear = Ear()
    out = lane(ear, credit_ms=100)
    out.say(level(200))
    out.stop()
    out.grant(from_ms(1000))
    out.post(EngineDone(fence(), "r"), last=True)
    assert ear.length() == from_ms(100)
    assert ear.end() is None


def test_a_stop_during_a_long_drain_ends_it_at_the_next_chunk() -> None:
    ear = Ear()
    out: ResponseLane

    def emit(event: Event, pcm: bytes | None = None) -> None:
        ear(event, pcm)
        if len(ear.audio()) == 2:
            out.stop()

    out = ResponseLane(fence(), "r", from_ms(60_000), 24_000, emit)
    out.say(level(10_000))
    assert ear.length() == 2 * CHUNK


def test_ahead_is_what_lies_beyond_the_admitted_position() -> None:
    out = lane(Ear(), credit_ms=1000)
    out.say(level(600))
    assert out.ahead == from_ms(600)
    out.grant(from_ms(1400))  # the core moved on by 400 ms
    assert out.ahead == from_ms(200)


def test_a_rate_that_does_not_divide_the_timeline_is_refused() -> None:
    with pytest.raises(ValueError, match="22050"):
        ResponseLane(fence(), "r", 0, 22_050, Ear())


@given(
    st.lists(
        st.one_of(st.tuples(st.just("say"), st.integers(0, 700)), st.tuples(st.just("grant"), st.integers(0, 9000))),
        max_size=30,
    ),
    st.integers(0, 3000),
)
def test_whatever_is_said_and_granted_audio_is_contiguous_within_credit_and_complete(
    steps: list[tuple[str, int]], credit: int
) -> None:
    ear = Ear()
    out = ResponseLane(fence(), "r", credit, 24_000, ear)
    said, granted = b"", credit
    for kind, amount in steps:
        if kind == "say":
            piece = (len(said) % 30_000).to_bytes(2, "little") * amount
            said += piece
            out.say(piece)
        else:
            granted = max(granted, amount)
            out.grant(amount)
        position = 0
        for audio in ear.audio():
            assert audio.start == position
            assert audio.start < audio.end <= granted
            position = audio.end
        assert ear.pcm() == said[: len(ear.pcm())]
        assert position == min(len(said), granted // 2 * 2)
