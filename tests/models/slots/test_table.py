"""Leases and the guess of when there will be room."""

from __future__ import annotations

import pytest

from models.slots.table import SlotTable
from sessions.ports import Busy


def test_every_lease_of_a_slot_is_another_generation() -> None:
    table = SlotTable(1)
    seen = set()
    for _ in range(5):
        lease = table.admit(0.0)
        assert lease not in seen
        seen.add(lease)
        assert table.release(lease, 1.0)
        assert not table.release(lease, 1.0)
    assert table.taken == 0


def test_slots_are_to_be_zeroed_when_let_and_when_left() -> None:
    table = SlotTable(2)
    lease = table.admit(0.0)
    assert table.clean() == {0}
    assert table.clean() == frozenset()
    table.release(lease, 1.0)
    assert table.clean() == {0}
    table.admit(2.0)
    assert table.clean() == {1}


def test_the_time_to_wait_is_what_the_oldest_session_usually_has_left() -> None:
    table = SlotTable(2, usual=100.0)
    table.admit(0.0)
    table.admit(60.0)
    with pytest.raises(Busy) as refused:
        table.admit(70.0)
    assert refused.value.retry_after == pytest.approx(30.0)


def test_sessions_that_outlast_the_usual_are_guessed_by_their_share() -> None:
    table = SlotTable(4, usual=100.0)
    for _ in range(4):
        table.admit(0.0)
    assert table.retry_after(500.0) == pytest.approx(25.0)


def test_the_usual_follows_the_sessions_that_ended() -> None:
    table = SlotTable(1, usual=100.0)
    for _ in range(60):
        table.release(table.admit(0.0), 10.0)
    table.admit(0.0)
    assert table.retry_after(0.0) == pytest.approx(10.0, abs=0.3)


def test_a_table_needs_a_slot() -> None:
    with pytest.raises(ValueError, match="capacity"):
        SlotTable(0)
