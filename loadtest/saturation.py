"""How many sessions one core of a server carries: the most at which it still answers in time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from loadtest.scenarios import Outcome, spread

Share = Literal["p50", "p95", "p99"]


@dataclass(frozen=True, slots=True)
class Bound:
    """`first_audio_ms` at the share `at` of all answers; `failures` and unanswered questions together at most."""

    first_audio_ms: float = 400.0
    at: Share = "p95"
    failures: int = 0

    def keeps(self, outcome: Outcome) -> bool:
        """Whether a load stayed within it."""
        first = spread(outcome.seen.first_audio)
        failed = len(outcome.seen.failures) + len(outcome.broken) + outcome.seen.unanswered
        return first is not None and first[self.at] <= self.first_audio_ms and failed <= self.failures


def most_sessions(try_out: Callable[[int], bool], begin: int, step: int = 10, most: int = 1000) -> int:
    """The largest number for which `try_out` says yes, to `step`; 0 where it says no to the smallest.

    Doubles from `begin` until one fails (or `most` is reached), then halves what lies between. It is taken that more
    sessions are never easier.
    """
    good, bad = 0, most + step
    count = max(step, begin)
    while count <= most:
        if try_out(count):
            good = count
            if count == most:
                return good
            count = min(most, 2 * count)
        else:
            bad = count
            break
    while bad - good > step:
        middle = (good + bad) // 2 // step * step
        if middle <= good:
            middle = good + step
        if middle >= bad:
            break
        if try_out(middle):
            good = middle
        else:
            bad = middle
    return good
