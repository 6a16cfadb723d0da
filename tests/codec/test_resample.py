from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from codec.resample import Resampler, process

RATES = [8000, 12000, 16000, 22050, 24000, 32000, 44100, 48000]
PAIRS = [(a, b) for a in RATES for b in RATES]


def noise(n: int, seed: int = 0) -> NDArray[np.int16]:
    return np.random.default_rng(seed).integers(-20000, 20000, n).astype(np.int16)


def whole(lane: Resampler, samples: NDArray[np.int16]) -> NDArray[np.int16]:
    return np.concatenate((lane.process(samples), lane.flush()))


def tone(hz: float, rate: int, seconds: float = 0.5, level: float = 20000) -> NDArray[np.int16]:
    return np.rint(level * np.sin(2 * np.pi * hz * np.arange(int(rate * seconds)) / rate)).astype(np.int16)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_samples_out_are_samples_in_times_the_ratio(source: int, target: int) -> None:
    for n in (0, 1, 7, source // 100, source // 50, 1234):
        assert len(whole(Resampler(source, target), noise(n))) == -(-n * target // source)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_chunks_of_ten_and_of_thirty_seven_ms_give_the_same_samples(source: int, target: int) -> None:
    samples = noise(source // 4 + 5)
    expected = whole(Resampler(source, target), samples)
    for size in (source // 100, 37 * source // 1000):
        lane = Resampler(source, target)
        parts = [lane.process(samples[at : at + size]) for at in range(0, len(samples), size)]
        assert np.array_equal(np.concatenate([*parts, lane.flush()]), expected)


@settings(max_examples=40, deadline=None)
@given(
    pair=st.sampled_from(PAIRS),
    sizes=st.lists(st.integers(0, 900), min_size=1, max_size=12),
    seed=st.integers(0, 1000),
)
def test_any_cut_of_the_stream_gives_the_same_samples(pair: tuple[int, int], sizes: list[int], seed: int) -> None:
    samples = noise(sum(sizes), seed)
    lane, parts, at = Resampler(*pair), [], 0
    for size in sizes:
        parts.append(lane.process(samples[at : at + size]))
        at += size
        assert lane.consumed == at
        assert lane.produced + lane.pending == -(-at * pair[1] // pair[0])
        assert lane.pending <= -(-lane.delay * pair[1] // pair[0])
    assert np.array_equal(np.concatenate([*parts, lane.flush()]), whole(Resampler(*pair), samples))


@settings(max_examples=60, deadline=None)
@given(
    pair=st.sampled_from(PAIRS),
    steps=st.lists(st.lists(st.integers(0, 900), min_size=4, max_size=4), min_size=1, max_size=6),
    seed=st.integers(0, 1000),
)
def test_lanes_that_go_through_together_give_what_each_gives_by_itself(
    pair: tuple[int, int], steps: list[list[int]], seed: int
) -> None:
    # A lane that is further on than the others has another phase.
    lanes, alone = ([Resampler(*pair) for _ in range(4)] for _ in range(2))
    lanes[3].process(noise(101))
    alone[3].process(noise(101))
    for step, sizes in enumerate(steps):
        stretches = [noise(size, seed + 4 * step + number) for number, size in enumerate(sizes)]
        together = process(lanes, stretches)
        for lane, other, samples, out in zip(lanes, alone, stretches, together, strict=True):
            assert np.array_equal(out, other.process(samples))
            assert (lane.consumed, lane.produced) == (other.consumed, other.produced)
    for lane, other in zip(lanes, alone, strict=True):
        assert np.array_equal(lane.flush(), other.flush())


def test_no_lanes_give_nothing_and_lanes_of_different_rates_are_refused() -> None:
    assert process([], []) == []
    with pytest.raises(ValueError, match="rates of the lanes differ"):
        process([Resampler(8000, 16000), Resampler(24000, 16000)], [noise(10), noise(10)])


@settings(max_examples=40, deadline=None)
@given(pair=st.sampled_from(PAIRS), sizes=st.lists(st.integers(0, 900), min_size=3, max_size=6))
def test_what_follows_skipped_samples_is_what_it_is_after_them(pair: tuple[int, int], sizes: list[int]) -> None:
    lane, other = Resampler(*pair), Resampler(*pair)
    for number, size in enumerate(sizes):
        samples = noise(size, number)
        expected = other.process(samples)
        assert lane.ready(size) == len(expected)
        if number % 2:
            assert np.array_equal(lane.process(samples), expected)
        else:
            assert lane.skip(samples) == len(expected)
    assert np.array_equal(lane.flush(), other.flush())


def test_single_samples_give_the_same_as_one_chunk() -> None:
    samples = noise(700)
    lane = Resampler(24000, 16000)
    parts = [lane.process(samples[i : i + 1]) for i in range(len(samples))]
    assert np.array_equal(np.concatenate([*parts, lane.flush()]), whole(Resampler(24000, 16000), samples))


@pytest.mark.parametrize(("source", "target", "ms"), [(24000, 8000, 4), (8000, 16000, 4), (24000, 16000, 2)])
def test_the_delay_is_the_one_that_is_told(source: int, target: int, ms: int) -> None:
    lane = Resampler(source, target)
    assert lane.delay == source * ms // 1000
    assert len(lane.process(noise(lane.delay))) == 0
    assert len(lane.process(noise(1))) == max(1, target // source)


@pytest.mark.parametrize(("source", "target"), [(24000, 8000), (8000, 24000), (24000, 16000), (48000, 24000)])
def test_a_tone_in_the_band_keeps_its_place_and_its_level(source: int, target: int) -> None:
    hz = 0.35 * min(source, target)
    out = whole(Resampler(source, target), tone(hz, source)).astype(float)
    expected = tone(hz, target).astype(float)
    middle = slice(len(out) // 4, 3 * len(out) // 4)
    assert np.abs(out[middle] - expected[middle]).max() < 20000 * 10 ** (-60 / 20)


@pytest.mark.parametrize(("source", "target"), [(24000, 8000), (24000, 16000), (48000, 24000), (44100, 16000)])
def test_a_tone_above_the_band_does_not_fold_back(source: int, target: int) -> None:
    for part in (0.58, 0.7, 0.9):
        if part * target < source / 2:
            out = whole(Resampler(source, target), tone(part * target, source)).astype(float)
            middle = slice(len(out) // 4, 3 * len(out) // 4)
            assert np.abs(out[middle]).max() < 20000 * 10 ** (-70 / 20)


@pytest.mark.parametrize(("low", "high"), [(8000, 24000), (8000, 16000), (8000, 48000), (16000, 24000)])
def test_up_and_down_again_leaves_the_whole_band_as_it_was(low: int, high: int) -> None:
    samples = noise(8000) // 4  # what overshoots must not clip
    back = whole(Resampler(high, low), whole(Resampler(low, high), samples))
    inside = slice(200, -200)
    error = back[inside].astype(float) - samples[inside]
    assert np.sqrt((error**2).mean()) < np.sqrt((samples[inside].astype(float) ** 2).mean()) * 10 ** (-70 / 20)


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize("level", [32767, -32768, 1])
def test_a_constant_comes_out_without_a_ripple(source: int, target: int, level: int) -> None:
    out = whole(Resampler(source, target), np.full(4000, level, dtype=np.int16))
    assert np.all(out[len(out) // 4 : 3 * len(out) // 4] == level)


def test_full_scale_is_clipped_and_does_not_wrap() -> None:
    square = np.where(np.arange(4000) // 40 % 2, 32767, -32768).astype(np.int16)
    out = whole(Resampler(24000, 16000), square).astype(int)
    assert out.max() == 32767
    assert out.min() == -32768
    # In the middle of each half-wave the sign is the input's: a wrapped overshoot would have turned it.
    centres = np.arange(20, 4000, 40)
    assert np.all(np.sign(out[centres * 2 // 3]) == np.sign(square[centres].astype(int)))


def test_a_reset_lane_knows_nothing_of_what_came_before() -> None:
    lane = Resampler(24000, 8000)
    lane.process(noise(1000, seed=1))
    lane.reset()
    assert (lane.consumed, lane.produced, lane.pending) == (0, 0, 0)
    assert np.array_equal(whole(lane, noise(500)), whole(Resampler(24000, 8000), noise(500)))


def test_a_flushed_lane_starts_a_new_stream() -> None:
    lane = Resampler(8000, 16000)
    assert np.array_equal(whole(lane, noise(300)), whole(lane, noise(300)))


def test_equal_rates_pass_samples_through_without_delay() -> None:
    lane = Resampler(16000, 16000)
    samples = noise(123)
    assert lane.delay == 0
    assert np.array_equal(lane.process(samples), samples)
    assert lane.pending == 0
    assert len(lane.flush()) == 0


@pytest.mark.parametrize(("source", "target", "field"), [(0, 8000, "in_rate"), (8000, -1, "out_rate")])
def test_an_impossible_rate_is_named(source: int, target: int, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        Resampler(source, target)
