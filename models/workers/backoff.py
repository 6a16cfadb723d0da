"""How long to wait before a worker that died is started again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Waits in seconds: `first`, then `factor` times as long each time, never above `longest`.

    A worker that lived for `calm` seconds is taken for a sound one, and the next wait is the first again.
    """

    first: float = 0.5
    factor: float = 2.0
    longest: float = 30.0
    calm: float = 60.0

    def __post_init__(self) -> None:
        if not 0 < self.first <= self.longest:
            raise ValueError(f"first {self.first} must lie above 0 and not above longest {self.longest}")
        if self.factor < 1:
            raise ValueError(f"factor {self.factor} must be at least 1")

    def wait(self, failures: int) -> float:
        """Before the restart after so many failures in a row, 1 for the first."""
        # Past some dozens the power alone would overflow.
        return min(self.longest, self.first * self.factor ** min(max(0, failures - 1), 64))
