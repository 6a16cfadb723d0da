"""Figures are counted as the text says."""

from __future__ import annotations

import json
import math
from pathlib import Path

from tests.bench.report import milliseconds, percentile, table, write
from tests.bench.words import plain, word_error_rate


def test_a_percentile_is_a_value_that_occurred() -> None:
    values = [float(n) for n in range(1, 21)]
    assert (percentile(values, 0.5), percentile(values, 0.95), percentile(values, 1.0)) == (10.0, 19.0, 20.0)
    assert percentile([7.0], 0.95) == 7.0
    assert math.isnan(percentile([], 0.5))


def test_seconds_become_milliseconds() -> None:
    assert milliseconds([0.1, 0.2]) == {"n": 2, "p50_ms": 100.0, "p95_ms": 200.0, "max_ms": 200.0}


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert table([["a", 1.0], ["bbb", 22.5]], ("name", "ms")).splitlines() == [
        "name    ms",
        "----  ----",
        "a      1.0",
        "bbb   22.5",
    ]


def test_figures_are_written_with_the_machine_they_are_from(tmp_path: Path) -> None:
    write({"bench": "x"}, tmp_path / "x.json")
    written = json.loads((tmp_path / "x.json").read_text())
    assert written["bench"] == "x"
    assert written["on"]["python"]


def test_spelling_does_not_count_as_an_error_and_a_wrong_word_does() -> None:
    assert plain("What's 24 + 2?") == "whats twenty four two"
    assert word_error_rate(["How many days?"], ["how many days"]) == 0.0
    assert word_error_rate(["How many days?"], ["how many legs"]) == 1 / 3
    assert word_error_rate(["How many days?"], [""]) == 1.0
