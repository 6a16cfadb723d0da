"""The loudspeaker of the measuring client plays what a plain player would."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from server.client import RATE, Played, Received, play_out, to_wire_rate


def delta(at: float, samples: int, response: str = "r1") -> Received:
    audio = base64.b64encode(np.ones(samples, "<i2").tobytes()).decode()
    return Received(at, {"type": "response.output_audio.delta", "response_id": response, "delta": audio})


def started(at: float) -> Received:
    return Received(at, {"type": "input_audio_buffer.speech_started", "audio_start_ms": 0})


def test_audio_that_is_there_in_time_plays_without_a_gap() -> None:
    out = play_out([delta(1.0, 4800), delta(1.1, 480), delta(1.15, 480)])
    assert out.played == [Played("r1", 1.0, 0, 5760)]
    assert out.heard("r1") == 5760


def test_audio_that_comes_late_plays_when_it_comes() -> None:
    out = play_out([delta(1.0, 2400), delta(1.5, 2400)])
    assert out.played == [Played("r1", 1.0, 0, 2400), Played("r1", 1.5, 2400, 2400)]


def test_speech_started_empties_the_buffer_at_that_moment() -> None:
    out = play_out([delta(1.0, RATE), started(1.25), delta(2.0, 480, "r2")])
    assert out.played == [Played("r1", 1.0, 0, RATE // 4), Played("r2", 2.0, 0, 480)]
    assert out.flushed == RATE * 3 // 4
    assert out.heard("r1") == RATE // 4


def test_speech_started_over_an_empty_buffer_takes_nothing_back() -> None:
    out = play_out([delta(1.0, 2400), started(2.0)])
    assert out.heard("r1") == 2400
    assert out.flushed == 0


def test_what_would_play_after_the_end_of_the_story_was_not_heard() -> None:
    assert play_out([delta(1.0, RATE)], until=1.5).heard("r1") == RATE // 2


def test_all_that_arrived_is_kept_by_response_even_where_it_was_not_heard() -> None:
    out = play_out([delta(1.0, RATE), started(1.1), delta(1.2, 480, "r2")])
    assert {response: len(pcm) for response, pcm in out.pcm.items()} == {"r1": RATE, "r2": 480}


def test_a_missing_field_is_empty_and_not_an_error() -> None:
    event = Received(0.0, {"type": "response.done", "response": {"id": "r9"}})
    assert event.response == "r9"
    assert event.text("response", "status") == ""
    assert event.number("response", "id") is None


@pytest.mark.parametrize("rate", [8000, 16_000, 24_000])
def test_a_second_stays_a_second_at_the_wire_rate(rate: int) -> None:
    assert abs(len(to_wire_rate(np.zeros(rate, np.int16), rate)) - RATE) <= 1
