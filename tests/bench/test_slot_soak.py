"""The verdict of the soak: what is missed is named, and a busy machine is not blamed on the engine."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench.slot_soak import verdict

GOOD: dict[str, object] = {
    "frames": 2000,
    "frames_wanted": 2000,
    "failures": 0,
    "ticks_late": 0,
    "ticks_missed": 0,
    "frames_lost": 0,
    "loop_lag_ms_p99": 4.9,
    "others_cores": 0.05,
    "stolen_cores": 0.02,
}


def test_everything_in_time_is_met_whatever_else_ran() -> None:
    assert verdict(GOOD)[0] == 0
    assert verdict({**GOOD, "others_cores": 1.5})[0] == 0


@pytest.mark.parametrize(
    "change",
    [{"ticks_late": 1}, {"ticks_missed": 1}, {"frames_lost": 1}, {"failures": 1}, {"frames": 1999},
     {"loop_lag_ms_p99": 5.1}],
)  # fmt: skip
def test_what_is_missed_is_named(change: dict[str, Any]) -> None:
    status, meaning = verdict({**GOOD, **change})
    assert status == 1
    assert next(iter(change)) in meaning
    status, meaning = verdict({**GOOD, **change, "others_cores": 0.4})
    assert status == 2
    assert "0.42 cores" in meaning
    assert verdict({**GOOD, **change, "stolen_cores": 0.1})[0] == 2
