from __future__ import annotations

from dataclasses import replace

import pytest

from sessions.core.fence import Fence

NOW = Fence("sess_a", 2, 5)


def test_a_fence_admits_its_own_epoch() -> None:
    assert NOW.admits(Fence("sess_a", 2, 5))


@pytest.mark.parametrize(
    "other",
    [
        replace(NOW, epoch=4),
        replace(NOW, epoch=6),
        replace(NOW, incarnation=1),
        replace(NOW, incarnation=3),
        replace(NOW, session="sess_b"),
    ],
)
def test_a_fence_admits_nothing_else(other: Fence) -> None:
    assert not NOW.admits(other)


def test_the_incarnation_outweighs_the_epoch() -> None:
    fences = [Fence("s", 2, 0), Fence("s", 1, 9), Fence("s", 1, 3)]
    assert [fence.order for fence in sorted(fences, key=lambda fence: fence.order)] == [(1, 3), (1, 9), (2, 0)]
