"""Tones tell replies apart, and the judge of stale audio cannot be fooled by a wrong response id."""

from __future__ import annotations

import base64
import tomllib

import numpy as np
import pytest

from server.client import RATE, Pcm, Received
from tests.bench.bargein import Outcome, judge
from tests.bench.tones import TONES, script, tone_of, tones_in


def tone(hz: int, samples: int, phase: float = 0.0) -> Pcm:
    return np.round(8000 * np.sin(2 * np.pi * hz * np.arange(samples) / RATE + phase)).astype(np.int16)


def delta(pcm: Pcm, response: str) -> Received:
    audio = base64.b64encode(pcm.tobytes()).decode()
    return Received(0.0, {"type": "response.output_audio.delta", "response_id": response, "delta": audio})


STARTED = Received(0.0, {"type": "input_audio_buffer.speech_started"})


@pytest.mark.parametrize("hz", TONES)
def test_every_tone_is_told_by_a_fortieth_of_a_second(hz: int) -> None:
    assert tone_of(tone(hz, RATE // 40, phase=1.0)) == hz


@pytest.mark.parametrize("hz", [300, 450, 2600])
def test_another_tone_is_none_of_ours(hz: int) -> None:
    assert tone_of(tone(hz, RATE // 50)) is None


def test_silence_has_no_tone() -> None:
    assert tones_in(np.zeros(RATE, np.int16)) == []


def test_runs_of_a_tone_are_counted_in_samples() -> None:
    assert tones_in(np.concatenate([tone(400, 960), np.zeros(960, np.int16), tone(900, 500)])) == [
        (400, 960),
        (900, 500),
    ]


def test_the_script_gives_one_reply_for_each_tone() -> None:
    replies = tomllib.loads(script(3.5))["reply"]
    assert [reply["tone_hz"] for reply in replies] == list(TONES)
    assert {reply["seconds"] for reply in replies} == {3.5}


def test_an_old_tone_after_the_commit_is_stale_whatever_its_id_says() -> None:
    outcome = Outcome([])
    judge([delta(tone(400, 960), "r1"), STARTED, delta(tone(400, 480), "r2"), delta(tone(500, 960), "r2")], outcome)
    assert (outcome.stale_by_tone, outcome.stale_by_response) == (480, 0)


def test_an_old_id_after_the_commit_is_stale_whatever_it_sounds_like() -> None:
    outcome = Outcome([], stale_by_tone=None)
    judge([delta(tone(400, 960), "r1"), STARTED, delta(tone(500, 480), "r1")], outcome)
    assert (outcome.stale_by_tone, outcome.stale_by_response) == (None, 480)


def test_the_next_reply_after_a_commit_is_not_stale() -> None:
    outcome = Outcome([])
    judge([delta(tone(400, 960), "r1"), STARTED, delta(tone(500, 960), "r2")], outcome)
    assert (outcome.stale_by_tone, outcome.stale_by_response) == (0, 0)
