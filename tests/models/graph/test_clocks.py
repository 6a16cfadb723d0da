"""`models.graph.clocks`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from codec.identity import CodecIdentity
from models.graph.clocks import (
    ClockMismatch,
    Codes,
    Conversion,
    Frames,
    Rate,
    Steps,
    Tokens,
    codes_per_frame,
    frame_rate,
    media_positions,
)

MIMI = CodecIdentity("mimi", "1", 24_000, 1920, 8, 2048)
FRAMES = frame_rate(MIMI)
TOKENS = Rate(Tokens("thinker"), Fraction(40))


def test_frames_come_at_the_sample_rate_over_the_hop() -> None:
    assert FRAMES.per_second == Fraction(25, 2)
    assert FRAMES.seconds(25) == 2


def test_codes_come_as_many_times_as_there_are_codebooks() -> None:
    codes = FRAMES.convert(codes_per_frame(MIMI))
    assert codes == Rate(Codes("mimi/1"), Fraction(100))
    assert str(codes) == "100 codes of mimi/1 per second"


def test_positions_come_by_what_a_medium_takes_in_a_time() -> None:
    assert media_positions("video", 120, Fraction(4)).per_second == 30


@pytest.mark.parametrize("operation", [operator.truediv, operator.add, operator.lt])
@pytest.mark.parametrize(
    "other",
    [
        TOKENS,
        Rate(Steps("image"), Fraction(1)),
        FRAMES.convert(codes_per_frame(MIMI)),
        Rate(Frames("encodec/1"), Fraction(75)),
    ],
    ids=["tokens", "steps", "codes", "frames of another codec"],
)
def test_rates_of_different_clocks_do_not_mix(operation: Callable[[Any, Any], object], other: Any) -> None:
    with pytest.raises(ClockMismatch) as caught:
        operation(FRAMES, other)
    assert caught.value.left == "frames of mimi/1"
    assert caught.value.right == other.clock.name
    assert "Conversion" in str(caught.value)


def test_rates_of_one_clock_divide_and_compare() -> None:
    twice = FRAMES + FRAMES
    assert twice / FRAMES == 2
    assert twice > FRAMES


def test_a_number_is_not_a_rate() -> None:
    with pytest.raises(TypeError, match="is not a rate"):
        FRAMES / 2  # type: ignore[operator]


def test_a_stated_conversion_makes_rates_comparable() -> None:
    needed = FRAMES.convert(Conversion(FRAMES.clock, Tokens("thinker"), Fraction(1)))
    assert TOKENS / needed == Fraction(16, 5)


def test_a_conversion_of_another_clock_is_refused() -> None:
    with pytest.raises(ClockMismatch):
        TOKENS.convert(codes_per_frame(MIMI))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Rate(Tokens("t"), Fraction(0)),
        lambda: Conversion(Tokens("t"), Frames("f"), Fraction(-1)),
        lambda: media_positions("video", 1, Fraction(0)),
        lambda: media_positions("video", 0, Fraction(1)),
    ],
)
def test_nothing_ticks_backwards_or_not_at_all(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        make()
