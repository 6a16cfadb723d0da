"""The verdict of the soak: what is missed is named, and a busy machine is not blamed on the engine."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench.slot_soak import Tick, late_without_host, verdict

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


def test_late_ticks_are_the_hosts_where_each_would_have_been_in_time_without_it() -> None:
    found = {**GOOD, "ticks_late": 3, "ticks_late_by_host": 3}
    assert verdict(found)[0] == 2
    assert verdict({**found, "ticks_late_by_host": 2})[0] == 1
    assert verdict({**found, "loop_lag_ms_p99": 6.0})[0] == 1


def test_a_tick_that_was_held_up_holds_up_the_next_and_neither_counts_without_the_host() -> None:
    held = [Tick(0.0, 0.08, 0.04, 0.04, 0.0), Tick(0.08, 0.16, 0.13, 0.04, 0.09), Tick(0.21, 0.24, 0.04, 0.04, 0.0)]
    assert late_without_host(held) == 0
    slow = [Tick(0.0, 0.08, 0.04, 0.04, 0.0), Tick(0.08, 0.16, 0.13, 0.13, 0.0), Tick(0.21, 0.24, 0.04, 0.04, 0.0)]
    assert late_without_host(slow) == 2
