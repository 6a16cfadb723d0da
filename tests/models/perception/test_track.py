from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codec.resample import Resampler
from models.perception.track import TICKS_PER_SAMPLE, AudioForgotten, AudioMissing, InputTrack, windows
from sessions.core.timeline import TICK_RATE, TICKS_PER_MS, from_ms, ticks_per_sample

RATES = [8_000, 12_000, 16_000, 24_000, 48_000]
LIMIT = 120 * TICK_RATE


def pcm(samples: np.ndarray) -> bytes:
    return np.asarray(samples, "<i2").tobytes()


def tone(rate: int, seconds: float, hertz: float = 440.0) -> np.ndarray:
    return np.round(8000 * np.sin(2 * np.pi * hertz * np.arange(round(rate * seconds)) / rate))


def filled(rate: int, samples: np.ndarray, start: int = 0, limit: int = LIMIT) -> InputTrack:
    """A track that got `samples` in 20 ms pieces."""
    track = InputTrack(limit)
    step = rate // 50
    for first in range(0, len(samples), step):
        track.append(start + first * ticks_per_sample(rate), pcm(samples[first : first + step]), rate)
    return track


@pytest.mark.parametrize("rate", RATES)
def test_a_click_is_found_where_it_was_to_half_a_millisecond(rate: int) -> None:
    samples = np.zeros(rate)
    samples[rate // 2] = 20_000
    start = 7 * TICK_RATE
    track = filled(rate, samples, start)
    heard = track.read(start, start + TICK_RATE)
    found = start + int(np.argmax(np.abs(heard))) * TICKS_PER_SAMPLE
    assert abs(found - (start + TICK_RATE // 2)) <= TICKS_PER_MS // 2


@pytest.mark.parametrize("rate", RATES)
def test_no_more_than_five_milliseconds_are_held_back(rate: int) -> None:
    track = filled(rate, tone(rate, 1.0))
    assert track.received == TICK_RATE
    assert 0 <= track.received - track.end <= from_ms(5)


@pytest.mark.parametrize("rate", RATES)
def test_what_the_resampler_still_holds_reads_as_silence_and_not_as_an_error(rate: int) -> None:
    track = filled(rate, tone(rate, 0.5))
    heard = track.read(0, TICK_RATE // 2)
    assert heard.shape == (8000,)
    assert np.abs(heard[: track.end // TICKS_PER_SAMPLE]).max() == pytest.approx(8000 / 32768, rel=0.02)
    assert np.all(heard[track.end // TICKS_PER_SAMPLE :] == 0)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(RATES), st.lists(st.integers(1, 4000), min_size=1, max_size=12))
def test_samples_do_not_depend_on_how_the_stream_was_cut(rate: int, pieces: list[int]) -> None:
    samples = np.arange(sum(pieces)) * 7919 % 20011 - 10_000
    whole, cut = InputTrack(LIMIT), InputTrack(LIMIT)
    whole.append(0, pcm(samples), rate)
    at = 0
    for piece in pieces:
        cut.append(at * ticks_per_sample(rate), pcm(samples[at : at + piece]), rate)
        at += piece
    assert (whole.received, whole.end) == (cut.received, cut.end)
    np.testing.assert_array_equal(whole.read(0, whole.end), cut.read(0, cut.end))


def test_a_hole_reads_as_silence_and_what_follows_is_in_its_place() -> None:
    track = filled(16_000, np.full(16_000, 5000))
    track.append(2 * TICK_RATE, pcm(np.full(16_000, 6000)), 16_000)
    heard = track.read(0, 3 * TICK_RATE) * 32768
    np.testing.assert_allclose(heard[:16_000], 5000)
    np.testing.assert_allclose(heard[16_000:32_000], 0)
    np.testing.assert_allclose(heard[32_000:], 6000)


def test_a_change_of_rate_keeps_the_place() -> None:
    track = filled(8_000, np.zeros(8_000))
    click = np.zeros(24_000)
    click[12_000] = 20_000
    track.append(TICK_RATE, pcm(click), 24_000)
    heard = track.read(0, 2 * TICK_RATE)
    assert abs(int(np.argmax(heard)) * TICKS_PER_SAMPLE - 3 * TICK_RATE // 2) <= TICKS_PER_MS // 2


def test_a_step_back_begins_the_track_anew() -> None:
    track = InputTrack(LIMIT)
    assert track.append(TICK_RATE, pcm(np.ones(16_000)), 16_000)
    assert not track.append(2 * TICK_RATE, pcm(np.ones(16_000)), 16_000)
    assert track.append(0, pcm(np.ones(1_600)), 16_000)
    assert (track.oldest, track.received) == (0, TICK_RATE // 10)


def test_a_hole_longer_than_the_track_begins_it_anew() -> None:
    track = InputTrack(TICK_RATE)
    track.append(0, pcm(np.ones(160)), 16_000)
    assert track.append(50 * TICK_RATE, pcm(np.ones(160)), 16_000)
    assert track.oldest == 50 * TICK_RATE


def test_only_the_newest_stretch_is_kept() -> None:
    track = filled(16_000, np.repeat(np.arange(5), 16_000), limit=2 * TICK_RATE)
    assert track.received - track.oldest == 2 * TICK_RATE
    np.testing.assert_allclose(track.read(3 * TICK_RATE, 5 * TICK_RATE) * 32768, np.repeat([3, 4], 16_000))
    with pytest.raises(AudioForgotten, match=r"from 2\.000 s on was asked for; what is held begins at 3\.000 s"):
        track.read(2 * TICK_RATE, 4 * TICK_RATE)


def test_forgotten_audio_is_freed_and_refused_and_the_rest_stays() -> None:
    track = filled(16_000, tone(16_000, 10.0))
    track.forget(8 * TICK_RATE + 30)
    assert sum(block.nbytes for block in track._blocks) <= 3 * 32_000
    track.read(8 * TICK_RATE + 30, 10 * TICK_RATE)
    with pytest.raises(AudioForgotten):
        track.read(8 * TICK_RATE, 10 * TICK_RATE)


def test_everything_can_be_forgotten_and_the_track_goes_on() -> None:
    track = filled(16_000, tone(16_000, 2.0))
    track.forget(99 * TICK_RATE)
    assert track.oldest == 2 * TICK_RATE
    track.append(2 * TICK_RATE, pcm(np.full(160, 77)), 16_000)
    np.testing.assert_allclose(track.read(2 * TICK_RATE, 2 * TICK_RATE + 480) * 32768, 77)


def test_audio_that_has_not_come_is_refused() -> None:
    with pytest.raises(AudioMissing):
        InputTrack(LIMIT).read(0, 480)
    with pytest.raises(AudioMissing, match=r"up to 1\.500 s was asked for; 1\.000 s came"):
        filled(16_000, np.zeros(16_000)).read(0, 3 * TICK_RATE // 2)


def test_a_rate_off_the_timeline_and_half_a_sample_are_refused() -> None:
    track = InputTrack(LIMIT)
    with pytest.raises(ValueError, match="rate 44100 Hz does not divide"):
        track.append(0, b"\0\0", 44_100)
    with pytest.raises(ValueError, match="3 bytes"):
        track.append(0, b"\0\0\0", 16_000)


def heard(track: InputTrack) -> np.ndarray:
    return np.round(track.read(track.oldest, track.end) * 32768)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(RATES), st.integers(1, 4000)), min_size=2, max_size=6))
def test_windows_of_many_tracks_are_what_each_reads_by_itself(fed: list[tuple[int, int]]) -> None:
    tracks, alone = ([InputTrack(LIMIT) for _ in fed] for _ in range(2))
    rng = np.random.default_rng(len(fed))
    for (rate, count), one, other in zip(fed * 2, tracks * 2, alone * 2, strict=True):
        samples = pcm(rng.integers(-20_000, 20_000, count))
        for track in (one, other):
            track.append(track.received, samples, rate)
        other.read(other.oldest, other.received)
    length = min(track.received for track in tracks) // TICKS_PER_SAMPLE // 2
    starts = [track.received // 2 for track in tracks]
    together = windows(tracks, starts, length)
    for row, start, track, other in zip(together, starts, tracks, alone, strict=True):
        np.testing.assert_array_equal(row, other.read(start, start + length * TICKS_PER_SAMPLE))
        np.testing.assert_array_equal(heard(track), heard(other))


@pytest.mark.parametrize("rate", RATES)
def test_what_is_forgotten_before_anybody_asked_is_never_resampled(rate: int, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = np.random.default_rng(1).integers(-20_000, 20_000, 4 * rate)
    asked = filled(rate, samples[: 3 * rate])
    asked.read(0, 3 * TICK_RATE)
    made: list[int] = []
    monkeypatch.setattr("models.perception.track.process", lambda *given: made.append(1))
    track = filled(rate, samples[: 3 * rate])
    for one in (track, asked):
        one.forget(2 * TICK_RATE + 777)
    assert not made
    assert sum(map(len, track._waiting)) <= 2 * rate * 1.05
    monkeypatch.undo()
    for one in (track, asked):
        one.append(3 * TICK_RATE, pcm(samples[3 * rate :]), rate)
    assert (track.oldest, track.end, track.received) == (asked.oldest, asked.end, asked.received)
    np.testing.assert_array_equal(heard(track), heard(asked))


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(RATES),
    st.lists(
        st.tuples(st.sampled_from(("append", "append", "forget", "read")), st.integers(1, 40_000), st.floats(0, 1)),
        min_size=3,
        max_size=24,
    ),
)
def test_whatever_is_forgotten_and_asked_for_in_between_the_samples_are_those_of_one_stream(
    rate: int, steps: list[tuple[str, int, float]]
) -> None:
    samples = np.round(np.random.default_rng(1).normal(0, 3000, 40_000 * len(steps)))
    whole = Resampler(rate, 16_000).process(samples.astype(np.int16))
    track, given_samples = InputTrack(4 * TICK_RATE), 0
    for kind, count, share in steps:
        within = track.oldest + round(share * (track.end - track.oldest))
        if kind == "append":
            start = given_samples * ticks_per_sample(rate)
            track.append(start, pcm(samples[given_samples : given_samples + count]), rate)
            given_samples += count
        elif kind == "forget":
            track.forget(within)
        elif given_samples:
            first, last = within // TICKS_PER_SAMPLE, min(track.end // TICKS_PER_SAMPLE, within // 3 + count)
            if track.oldest <= first * TICKS_PER_SAMPLE and first < last:
                heard = track.read(first * TICKS_PER_SAMPLE, last * TICKS_PER_SAMPLE)
                assert np.array_equal(heard * 32768, whole[first:last])


@pytest.mark.parametrize("rate", RATES)
def test_what_nobody_asks_for_takes_no_more_room_than_the_limit_at_16_khz_twice(rate: int) -> None:
    samples = np.random.default_rng(2).integers(-20_000, 20_000, 7 * rate)
    track = filled(rate, samples, limit=4 * TICK_RATE)
    assert sum(map(len, track._waiting)) <= 2 * 4 * 16_000
    assert sum(block.nbytes for block in track._blocks) <= 2 * 5 * 16_000
    assert track.end - track.oldest == 4 * TICK_RATE
    lane = Resampler(rate, 16_000)
    np.testing.assert_array_equal(heard(track), lane.process(samples.astype(np.int16))[-4 * 16_000 :])


def test_noise_is_reduced_from_where_it_was_asked_for_though_audio_waits() -> None:
    class Mute:
        def frame(self, samples: np.ndarray) -> np.ndarray:
            return np.zeros_like(samples)

    track = filled(8_000, np.full(8_000, 5000))
    track.clean_with(Mute())
    track.append(TICK_RATE, pcm(np.full(8_000, 5000)), 8_000)
    sound = track.read(0, 2 * TICK_RATE - TICK_RATE // 10) * 32768
    np.testing.assert_allclose(sound[200:15_800], 5000)
    np.testing.assert_allclose(sound[16_200:], 0)
