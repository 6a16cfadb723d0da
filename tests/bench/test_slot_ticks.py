"""The benchmark of ticks measures what it says."""

from __future__ import annotations

from tests.bench.slot_ticks import measure


def test_ticks_are_measured_for_every_size_against_one_slot() -> None:
    found = measure([2], ticks=2)
    assert found["parameters_million"] == 18.1
    ticks, ratios = found["tick_ms"], found["ratio"]
    assert isinstance(ticks, dict)
    assert isinstance(ratios, dict)
    assert list(ticks) == ["1", "2"]
    assert all(milliseconds > 0 for milliseconds in ticks.values())
    assert ratios["1"] == 1.0
