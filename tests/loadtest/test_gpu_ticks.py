"""The measurement of ticks runs at reduced size without a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadtest import gpu_ticks


def test_reduced_it_measures_every_part_of_a_tick(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = gpu_ticks.main(["--reduced", "--slots", "1,2", "--ticks", "2", "--json", str(tmp_path / "rows.json")])
    assert [row.slots for row in rows] == [1, 2]
    for row in rows:
        assert row.context == 250
        assert 0 < row.decode < row.p50 <= row.p99
        assert row.encode > 0
    assert "sessions whose tick fits 80 ms" in capsys.readouterr().out
    written = json.loads((tmp_path / "rows.json").read_text())
    assert [row["slots"] for row in written["rows"]] == [1, 2]


def test_the_window_can_be_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = gpu_ticks.main(["--reduced", "--slots", "1", "--ticks", "1", "--context", "50"])
    assert row.context == 50
    # Keys and values of four layers, and the codec beside them.
    assert row.memory_gb < 0.01
