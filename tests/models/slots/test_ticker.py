"""Deadlines that do not drift."""

from __future__ import annotations

import pytest

from models.slots.ticker import Ticker


def run(ticker: Ticker, times: list[float]) -> list[bool]:
    return [ticker.due(time) for time in times]


def test_ticks_are_due_on_the_grid_of_the_start() -> None:
    ticker = Ticker(10.0, 0.08)
    assert run(ticker, [9.99, 10.0, 10.01, 10.079, 10.081, 10.16]) == [False, True, False, False, True, True]
    assert ticker.deadline == pytest.approx(10.24)


def test_three_hours_of_ticks_end_where_they_should() -> None:
    ticker = Ticker(0.0, 0.08)
    for n in range(135_000):
        # Called a little late every time, as by any thread.
        assert ticker.due(n * 0.08 + 0.003)
    assert ticker.deadline == pytest.approx(10_800.0)
    assert ticker.missed == 0


def test_a_short_stall_is_caught_up_and_a_long_one_is_not() -> None:
    ticker = Ticker(0.0, 0.08, catch_up=2)
    assert ticker.due(0.0)
    assert run(ticker, [0.25] * 4) == [True, True, True, False]
    assert ticker.missed == 0
    assert run(ticker, [8.01] * 4) == [True, True, True, False]
    assert ticker.missed == 94
    assert ticker.deadline == pytest.approx(8.08)


def test_impossible_tickers_are_refused() -> None:
    with pytest.raises(ValueError, match="period"):
        Ticker(0.0, 0.0)
    with pytest.raises(ValueError, match="catch_up"):
        Ticker(0.0, catch_up=-1)
