from __future__ import annotations

import pytest

from sessions.core.timeline import TICK_RATE, TICKS_PER_MS, Span, Word, from_ms, ticks_per_sample, to_ms, to_seconds


def test_a_second_is_forty_eight_thousand_ticks() -> None:
    assert TICK_RATE == 48_000
    assert TICKS_PER_MS == 48
    assert from_ms(80) == 3840


def test_milliseconds_are_rounded_to_the_nearest_tick() -> None:
    assert from_ms(0.01) == 0
    assert from_ms(0.02) == 1
    assert from_ms(-2) == -96


def test_ticks_to_milliseconds_never_claims_more_than_there_is() -> None:
    assert to_ms(47) == 0
    assert to_ms(48) == 1
    assert to_ms(95) == 1


def test_ticks_to_seconds_is_a_fraction() -> None:
    assert to_seconds(72_000) == 1.5


@pytest.mark.parametrize(("rate", "ticks"), [(8000, 6), (12000, 4), (16000, 3), (24000, 2), (48000, 1)])
def test_the_rates_of_the_timeline_divide_it(rate: int, ticks: int) -> None:
    assert ticks_per_sample(rate) == ticks


@pytest.mark.parametrize("rate", [44_100, 22_050, 32_000, 96_000, 0, -8000])
def test_any_other_rate_is_refused_with_the_remedy(rate: int) -> None:
    with pytest.raises(ValueError, match=f"rate {rate} Hz does not divide 48000 Hz; resample"):
        ticks_per_sample(rate)


def test_a_span_is_half_open() -> None:
    assert Span(10, 25).length == 15


def test_the_texts_of_words_join_to_the_transcript() -> None:
    assert "".join(word.text for word in (Word("The", 0, 10), Word(" end.", 10, 20))) == "The end."
