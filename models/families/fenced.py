"""Sessions of an engine, each under the newest fence that it was told of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Protocol, TypeVar

from sessions.core.fence import Fence


class Fenced(Protocol):
    fence: Fence


S = TypeVar("S", bound=Fenced)


def holding(session: Fenced, made: Fence) -> Fence:
    """What holds for work under `made`: itself, unless the session has moved on."""
    return made if made.order >= session.fence.order else session.fence


def advanced(sessions: Mapping[str, S], fence: Fence, counters: Counter[str]) -> S | None:
    """The session of `fence`, which holds for it from here on. To be called with the engine's lock held.

    None, and counted, where there is no such session ("requests_unknown") or it has a newer fence ("requests_stale").
    """
    session = sessions.get(fence.session)
    if session is None:
        counters["requests_unknown"] += 1
        return None
    if fence.order < session.fence.order:
        counters["requests_stale"] += 1
        return None
    session.fence = fence
    return session
