"""How long a worker that died stays away."""

from __future__ import annotations

import pytest

from models.workers.backoff import Backoff


def test_each_wait_is_longer_than_the_last_up_to_the_longest() -> None:
    backoff = Backoff(first=0.5, factor=2, longest=3)
    assert [backoff.wait(failures) for failures in (1, 2, 3, 4, 5)] == [0.5, 1, 2, 3, 3]
    assert backoff.wait(100_000) == 3


@pytest.mark.parametrize(
    ("fields", "message"), [({"first": 0}, "first"), ({"first": 9, "longest": 3}, "first"), ({"factor": 0.5}, "factor")]
)
def test_waits_that_cannot_be_are_refused_by_name(fields: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Backoff(**fields)
