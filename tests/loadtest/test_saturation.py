"""The search finds the last number that still holds."""

from __future__ import annotations

import pytest

from loadtest.plot import chart, shares
from loadtest.saturation import most_sessions
from loadtest.scenarios import spread


@pytest.mark.parametrize("limit", [0, 9, 10, 57, 99, 100, 131, 1000, 5000])
def test_the_most_sessions_are_found_to_a_step(limit: int) -> None:
    tried: list[int] = []

    def holds(count: int) -> bool:
        tried.append(count)
        return count <= limit

    found = most_sessions(holds, 50, 10)
    assert found <= limit
    # Nothing below the first number is tried but by halving, and nothing above 1000.
    assert found > limit - 10 or found == 1000
    assert len(tried) == len(set(tried)) < 15


def test_percentiles_are_those_of_the_nearest_rank() -> None:
    assert spread([]) is None
    assert spread([one / 1000 for one in range(100, 0, -1)]) == {"n": 100, "p50": 50, "p95": 95, "p99": 99, "max": 100}


def test_a_chart_is_svg_with_all_its_lines() -> None:
    svg = chart("a < b", "ms", "%", {"one": shares([3.0, 1.0]), "none": []}, bound=2.0)
    assert svg.startswith("<svg ")
    assert svg.count("<polyline") == 2
    assert "a &lt; b" in svg
    assert svg.count("stroke-dasharray") == 1
