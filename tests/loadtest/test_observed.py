"""What is said of a server is what its callers saw."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from codec import g711
from codec.opus import OpusEncoder
from loadtest.observed import RATE, SIZE, TONES, observe, tones
from loadtest.person import Memory, Said


def sine(tone: int, frames: int = 1, rate: int = RATE) -> np.ndarray:
    return (8000 * np.sin(2 * np.pi * tone * np.arange(frames * rate // 50) / rate)).astype(np.int16)


def pieces(tone: int, begin: float, end: float) -> list[tuple[float, str | bytes]]:
    """20 ms of a reply at a time, as they come."""
    codes = g711.compress(sine(tone), "ulaw")
    count = round((end - begin) / 0.02)
    return [(begin + 0.02 * one, base64.b64encode(codes).decode()) for one in range(count)]


def memory(*said: Said, heard: list[tuple[float, str | bytes]], cleared: list[float] | None = None) -> Memory:
    return Memory(list(said), heard, cleared or [])


def test_every_tone_is_told_from_20_ms_of_it() -> None:
    rows = np.stack([sine(tone) for tone in TONES] + [np.zeros(SIZE, np.int16)])
    assert list(tones(rows)) == [*TONES, 0]


def test_first_audio_is_from_the_end_of_speech_to_the_first_sound() -> None:
    seen = observe([memory(Said("question", 1.0, 2.0), heard=pieces(400, 2.25, 5.0))], "ulaw", 60.0)
    assert seen.first_audio == pytest.approx([0.25])
    assert max(seen.gaps) == pytest.approx(0.02)


def test_packets_of_a_call_are_decoded_to_be_told_apart() -> None:
    encoder = OpusEncoder(16_000, application="voip", bitrate=32_000)
    sound = sine(700, 50, 16_000).astype("<i2").tobytes()
    packets = [(2.3 + 0.02 * one, encoder.encode(sound[640 * one : 640 * one + 640])) for one in range(50)]
    seen = observe([memory(Said("question", 1.0, 2.0), heard=list(packets))], "opus", 60.0)
    assert seen.first_audio == pytest.approx([0.3], abs=0.021)


def test_a_stop_is_the_last_sound_before_the_clear_and_what_comes_after_it_is_stale() -> None:
    command = Said("command", 3.0, 4.0)
    heard = pieces(400, 1.0, 3.1) + pieces(400, 3.5, 3.54) + pieces(500, 4.3, 6.0)
    seen = observe([memory(Said("question", 0.0, 0.8), command, heard=heard, cleared=[3.2])], "ulaw", 60.0)
    assert seen.stop == pytest.approx([0.08])
    assert seen.clear == pytest.approx([0.2])
    assert seen.stale == 2
    assert seen.missed == 0
    assert seen.first_audio == pytest.approx([0.2, 0.3])


def test_where_no_clear_comes_a_pause_is_the_stop() -> None:
    heard = pieces(400, 1.0, 3.1) + pieces(400, 4.2, 4.24) + pieces(500, 4.3, 6.0)
    seen = observe([memory(Said("command", 3.0, 4.0), heard=heard)], "ulaw", 60.0)
    assert seen.stop == pytest.approx([0.08])
    assert seen.stale == 2


def test_an_agent_that_speaks_on_has_missed_the_interruption() -> None:
    seen = observe([memory(Said("command", 3.0, 4.0), heard=pieces(400, 1.0, 9.0))], "ulaw", 60.0)
    assert (seen.missed, seen.stop, seen.stale) == (1, [], 0)


def test_a_backchannel_costs_a_pause_or_the_reply() -> None:
    said = Said("backchannel", 3.0, 3.5)
    kept = observe([memory(said, heard=pieces(400, 1.0, 3.1) + pieces(400, 3.6, 9.0))], "ulaw", 60.0)
    assert (kept.backchannels, kept.lost) == (1, 0)
    assert kept.hold == pytest.approx([0.52])
    lost = observe([memory(said, heard=pieces(400, 1.0, 3.1), cleared=[3.4])], "ulaw", 60.0)
    assert (lost.backchannels, lost.lost) == (1, 1)


def test_what_had_no_time_to_be_answered_is_left_out() -> None:
    seen = observe([memory(Said("command", 3.0, 4.0), heard=pieces(400, 1.0, 4.1))], "ulaw", 4.2)
    assert (seen.missed, seen.stop) == (0, [])
