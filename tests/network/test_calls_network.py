"""Calls over a bad network, from end to end: a server and a client in namespaces, and an emulated path between them.

`python -m pytest -m wide tests/network` (root, Debian's iproute2, the prepared model files; about seven minutes).
`python -m tests.network` prints the figures.
"""

from __future__ import annotations

import pytest

from tests.bench.report import percentile
from tests.network.bargein import barge_in
from tests.network.breaks import Rejoined, cut, move, rejoin
from tests.network.emulator import Conditions
from tests.network.namespaces import missing
from tests.network.uplink import PATH_MS, delay, words

WHY = missing()
pytestmark = [pytest.mark.wide, pytest.mark.models, pytest.mark.skipif(WHY is not None, reason=str(WHY))]


def test_two_per_cent_of_loss_and_jitter_cost_little_time_and_leave_no_delay() -> None:
    got = delay(0.02, 20.0)
    assert got.lost > 0
    assert got.median <= 5.0, got
    # What the machine adds on a clean path is none of the buffer's doing.
    assert got.p95 <= 40.0 + max(0.0, got.machine_ms), got
    assert abs(got.after) <= 5.0, got
    assert got.drift_s == pytest.approx(0.0, abs=0.001)


def test_questions_are_understood_at_five_per_cent_of_loss() -> None:
    got = words(Conditions(PATH_MS, jitter_ms=20.0, loss=0.05))
    assert got.lost > 0
    assert got.wer <= 0.15, got


def test_a_call_survives_a_cut_of_three_seconds_and_nothing_stale_is_heard_after_it() -> None:
    got = cut(3.0)
    assert got.survived
    assert got.same_history
    assert got.new_heard >= 45
    # What sounds after it is what is due then, not what waited.
    assert abs(got.behind_ms) <= 20.0, got
    assert got.stale == got.stale_at_gate == 0, got


def _joined(got: Rejoined) -> None:
    assert got.same_session
    assert got.new_token
    assert got.same_history
    assert got.epochs >= 1
    assert got.begun == 0, "a greeting, or the old answer once more"
    assert got.old_heard == got.stale_at_gate == 0, got
    assert got.new_heard >= 45
    assert got.old_status == "cancelled"


def test_a_client_joins_its_session_after_a_cut_that_the_call_did_not_survive() -> None:
    _joined(rejoin(8.0))


def test_a_client_joins_its_session_from_another_address() -> None:
    _joined(move())


@pytest.mark.parametrize("reports", [True, False], ids=["reports", "model"])
def test_after_a_cancel_over_a_slow_way_nothing_stale_arrives(reports: bool) -> None:
    got = barge_in(reports=reports)
    assert got.cuts == 12
    assert got.stale == got.stale_at_gate == 0, got
    assert got.heard_by == {"report" if reports else "model"}
    error = percentile([abs(one) for one in got.at_commit], 0.95)
    assert error <= (60.0 if reports else 120.0), got
