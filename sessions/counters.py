"""Counts of what happened, over all sessions of a process."""

from __future__ import annotations

from collections import Counter

from .core.counters import MUST_BE_ZERO


class Counters:
    """Named sums. Not thread-safe: counted on the event loop; threads post events instead."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, name: str, by: int = 1) -> None:
        self._counts[name] += by

    def __getitem__(self, name: str) -> int:
        return self._counts[name]

    def snapshot(self) -> dict[str, int]:
        """All counts; those that must stay zero are always present."""
        return {**dict.fromkeys(MUST_BE_ZERO, 0), **self._counts}
