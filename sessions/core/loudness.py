"""The noise floor of a session's input, and what stands out from it.

A fricative or a breath before a word is heard 50 to 150 ms before a speech detector is sure of it. Over the agent that
is worth a hold: one that is taken back within the lead cannot even be heard.
"""

from __future__ import annotations

from dataclasses import dataclass

QUIETEST = -70.0
"""dBFS below which rooms are not told apart."""
FAINTEST = -46.0
"""dBFS that a sound must have to count at all."""
ABOVE_FLOOR = 15.0
"""dB by which a sound must stand out."""
RISE = 0.1
"""dB per window by which the floor follows a louder room (3 dB/s)."""


@dataclass(slots=True)
class NoiseFloor:
    """`level`: the floor in dBFS; falls at once, rises slowly, and jumps to a sound that turned out to be no speech."""

    level: float = QUIETEST

    def stands_out(self, level: float) -> bool:
        """Whether a window of `level` dBFS (RMS) is a sound of its own."""
        return level >= max(FAINTEST, self.level + ABOVE_FLOOR)

    def follow(self, level: float) -> None:
        """Take in a window without speech."""
        self.level = max(QUIETEST, min(level, self.level + RISE))

    def accept(self, level: float) -> None:
        """A sound of `level` was no speech: the like of it is not to hold the agent again soon."""
        self.level = max(self.level, level)
