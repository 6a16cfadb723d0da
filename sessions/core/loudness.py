"""The noise floor of a session's input, and what stands out from it.

A fricative or a breath before a word is heard 50 to 150 ms before a speech detector is sure of it. Over the agent that
is worth a hold: one that is taken back within the lead cannot even be heard. Two levels are followed: that of the whole
sound, and that of what hisses in it. The noise of rooms and lines is low, fricatives are high, so that an "s" far below
the loudness of the room stands out by its hiss, also where a telephone has cut away most of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from .timeline import TICK_RATE, Ticks

UNKNOWN = 0.0
"""The floor before anything was heard, in dBFS: the first window is no sound of its own, whatever it is."""
SILENT = -120.0
"""dBFS of a window without a sound."""
QUIETEST = -70.0
"""dBFS below which rooms are not told apart."""
FAINTEST = -46.0
"""dBFS that a sound must have to count by its whole level."""
ABOVE_FLOOR = 15.0
"""dB by which its whole level must stand out."""
FAINTEST_HISS = -60.0
"""dBFS that a sound must have to count by its hiss."""
ABOVE_HISS = 8.0
"""dB by which its hiss must stand out. That of a steady noise strays by less than half a dB from window to window."""
RISE = 0.1
"""dB per window by which the floor follows a louder room (3 dB/s)."""
LOUDER = 6.0
"""dB by which a sound must be louder than the last one that turned out to be no speech, to count again."""
FORGETS = 1.0
"""dB per second by which what is remembered of that one falls: a tone of a telephone, a breath or a click of the line
comes again within seconds, and is not to hold the agent each time."""


def followed(floor: float, level: float) -> float:
    """The floor after a window of `level` without speech: falls at once, rises slowly."""
    return max(QUIETEST, min(level, floor + RISE))


@dataclass(slots=True)
class NoiseFloor:
    """`level` and `hiss`: the floor of both, in dBFS."""

    level: float = UNKNOWN
    hiss: float = UNKNOWN
    known_level: float = SILENT
    """Of the last sound that was no speech, when it was over."""
    known_hiss: float = SILENT
    known_at: Ticks = 0
    """Where it was over on the input track."""

    def stands_out(self, level: float, hiss: float, at: Ticks) -> bool:
        """Whether a window of `level` dBFS (RMS), and `hiss` (`SpeechProbability.hiss`), is a sound of its own."""
        louder = LOUDER - self._fell(at)
        if level >= max(FAINTEST, self.level + ABOVE_FLOOR, self.known_level + louder):
            return True
        return level >= FAINTEST_HISS and hiss >= max(self.hiss + ABOVE_HISS, self.known_hiss + louder)

    def follow(self, level: float, hiss: float) -> None:
        """Take in a window without speech."""
        self.level = followed(self.level, level)
        self.hiss = followed(self.hiss, hiss)

    def accept(self, level: float, hiss: float, at: Ticks) -> None:
        """A sound of up to `level` and `hiss`, over at `at`, was no speech: its like is not to hold again soon."""
        fell = self._fell(at)
        self.known_level = max(level, self.known_level - fell)
        self.known_hiss = max(hiss, self.known_hiss - fell)
        self.known_at = at

    def _fell(self, at: Ticks) -> float:
        """dB by which what is remembered has fallen until `at`."""
        return FORGETS * (at - self.known_at) / TICK_RATE
