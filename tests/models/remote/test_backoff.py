"""`models.remote.backoff`: longer and longer, never for ever, never all at once."""

from __future__ import annotations

import pytest

from models.remote.backoff import Backoff


def test_the_longest_wait_doubles_up_to_its_bound() -> None:
    backoff = Backoff(first=0.5, longest=3.0, attempts=4)
    assert [backoff.delay(attempt, lambda low, high: high) for attempt in (0, 1, 2, 3, 10_000)] == [0.5, 1, 2, 3, 3]
    assert backoff.delay(3, lambda low, high: low) == 0.5


@pytest.mark.parametrize("fields", [{"first": 0.0}, {"first": 5.0, "longest": 1.0}, {"attempts": 0}])
def test_what_cannot_be_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Backoff(**fields)  # type: ignore[arg-type]
