"""A lane over runs gives, piece by piece, what a plain lane gives that knows nothing beyond each piece."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codec import g711
from codec.pcm import Samples, to_bytes, to_samples
from codec.resample import Resampler
from codec.runs import RunResampler

RATES = [(24_000, 8_000), (8_000, 16_000), (16_000, 24_000), (48_000, 24_000), (24_000, 24_000), (22_050, 8_000)]


def noise(samples: int, seed: int = 1) -> bytes:
    return to_bytes(np.random.default_rng(seed).integers(-30_000, 30_000, samples).astype(np.int16))


def ulaw(samples: Samples) -> bytes:
    return g711.compress(samples, "ulaw")


@pytest.mark.parametrize(("in_rate", "out_rate"), RATES)
def test_pieces_of_a_run_are_what_they_are_one_by_one(in_rate: int, out_rate: int) -> None:
    plain, lane = Resampler(in_rate, out_rate), RunResampler(in_rate, out_rate, ulaw, 1)
    size = in_rate // 50 * 2
    for seed in range(3):
        run = noise(in_rate // 5, seed)
        for at in range(0, len(run), size):
            piece = run[at : at + size]
            assert lane.push(run, at, len(piece)) == ulaw(plain.process(to_samples(piece)))
            assert lane.pending == plain.pending
    assert lane.flush() == ulaw(plain.flush())
    assert lane.pending == 0


@given(
    st.sampled_from(RATES[:4]),
    st.lists(
        st.tuples(st.integers(0, 900), st.integers(0, 4), st.sampled_from(["go on", "jump", "flush", "reset"])),
        max_size=12,
    ),
)
def test_whatever_is_let_out_and_whatever_is_not(rates: tuple[int, int], steps: list[tuple[int, int, str]]) -> None:
    plain, lane = Resampler(*rates), RunResampler(*rates, to_bytes, 2)
    run, at = noise(2000, 9), 0
    for number, (size, extra, then) in enumerate(steps):
        if at + 2 * size > len(run):
            run, at = noise(2 * size + 100 * extra, number), 0
        expected = plain.process(to_samples(run[at : at + 2 * size]))
        assert lane.push(run, at, 2 * size) == to_bytes(expected)
        assert lane.pending == plain.pending
        at += 2 * size
        if then == "flush":
            assert lane.flush() == to_bytes(plain.flush())
        elif then == "reset":
            lane.reset()
            plain.reset()
        elif then == "jump":  # the rest of the run never comes
            run, at = noise(1500, 100 + number), 40 * extra
        assert lane.pending == plain.pending


def test_what_lies_behind_a_piece_does_not_show_in_it() -> None:
    begin = noise(480)
    given_ = {RunResampler(24_000, 8_000, ulaw, 1).push(begin + noise(4000, seed), 0, 960) for seed in range(5)}
    assert len(given_) == 1


def test_the_same_bytes_in_another_run_are_another_stretch() -> None:
    plain, lane = Resampler(24_000, 8_000), RunResampler(24_000, 8_000, to_bytes, 2)
    run = noise(960)
    again = bytes(bytearray(run))
    assert again is not run
    given_ = lane.push(run, 0, 960) + lane.push(again, 960, 960)
    expected = to_bytes(plain.process(to_samples(run[:960]))) + to_bytes(plain.process(to_samples(again[960:])))
    assert given_ == expected
