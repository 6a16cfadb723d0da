"""How long to wait before the next attempt to reach a peer that did not answer."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Exponential, with full jitter, so that the sessions of a peer that comes back do not all knock at once.

    Seconds; attempt n waits between `first` and min(`longest`, `first` 2^n). Raises ValueError for what cannot be.
    """

    first: float = 0.25
    longest: float = 4.0
    attempts: int = 6

    def __post_init__(self) -> None:
        if not 0 < self.first <= self.longest:
            raise ValueError(f"first {self.first} must be above 0 and at most longest {self.longest}")
        if self.attempts < 1:
            raise ValueError(f"attempts {self.attempts} must be at least 1")

    def delay(self, attempt: int, draw: Callable[[float, float], float] = random.uniform) -> float:
        """Seconds before attempt `attempt`, counted from 0."""
        # The exponent is bounded so that a caller that never gives up does not overflow.
        return draw(self.first, min(self.longest, self.first * 2.0 ** min(attempt, 60)))
