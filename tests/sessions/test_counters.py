from __future__ import annotations

from sessions.core.counters import ENGINE_FAULT, LEDGER_FAULT, SESSION_FAULT, STALE_AT_GATE
from sessions.counters import Counters


def test_what_was_never_counted_is_zero() -> None:
    assert Counters()["holds"] == 0


def test_counts_add_up_by_name() -> None:
    counters = Counters()
    counters.add("holds")
    counters.add("holds")
    counters.add("dropped_ticks_stale", 960)
    assert (counters["holds"], counters["dropped_ticks_stale"]) == (2, 960)


def test_a_snapshot_names_what_must_stay_zero_even_while_it_is() -> None:
    assert Counters().snapshot() == dict.fromkeys((ENGINE_FAULT, LEDGER_FAULT, SESSION_FAULT, STALE_AT_GATE), 0)


def test_a_snapshot_hides_no_fault_and_is_not_touched_later() -> None:
    counters = Counters()
    counters.add(LEDGER_FAULT)
    seen = counters.snapshot()
    counters.add(LEDGER_FAULT)
    assert seen[LEDGER_FAULT] == 1


def test_asking_for_a_count_does_not_make_one() -> None:
    counters = Counters()
    assert counters["holds"] == 0
    assert "holds" not in counters.snapshot()
