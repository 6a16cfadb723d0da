from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from models.families.fenced import advanced
from sessions.core.fence import Fence


@dataclass
class Open:
    fence: Fence


def test_a_session_takes_a_fence_that_is_not_older_and_counts_what_is() -> None:
    counters: Counter[str] = Counter()
    session = Open(Fence("a", 1, 3))
    sessions = {"a": session}
    assert advanced(sessions, Fence("a", 1, 4), counters) is session
    assert advanced(sessions, Fence("a", 1, 4), counters) is session
    assert session.fence == Fence("a", 1, 4)
    assert counters == {}
    assert advanced(sessions, Fence("a", 1, 3), counters) is None
    assert advanced(sessions, Fence("b", 1, 9), counters) is None
    assert advanced(sessions, Fence("a", 2, 0), counters) is session
    assert counters == {"requests_stale": 1, "requests_unknown": 1}
