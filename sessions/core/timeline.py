"""The session timeline: one integer clock of 1/48000 s ticks.

8, 12, 16, 24 and 48 kHz and the Opus RTP clock (RFC 7587 section 4.1) divide it exactly, so a position
never needs a fraction. An 80 ms codec frame is 3,840 ticks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from .quick import quicken

Ticks: TypeAlias = int

TICK_RATE: int = 48_000
"""Ticks per second."""

TICKS_PER_MS: int = TICK_RATE // 1000


def from_ms(milliseconds: int | float) -> Ticks:
    """Milliseconds to ticks, rounded to the nearest tick."""
    return round(milliseconds * TICKS_PER_MS)


def to_ms(ticks: Ticks) -> int:
    """Ticks to whole milliseconds, rounded down: a protocol that counts in ms never claims more than there is."""
    return ticks // TICKS_PER_MS


def to_seconds(ticks: Ticks) -> float:
    """Ticks to seconds, for people and for reports; never feed it back into the timeline."""
    return ticks / TICK_RATE


@lru_cache(maxsize=64)
def ticks_per_sample(rate: int) -> int:
    """Ticks that one sample at `rate` Hz lasts.

    Raises ValueError for a rate that does not divide 48 kHz; such audio is resampled at the edge first.
    """
    if rate <= 0 or TICK_RATE % rate:
        raise ValueError(f"rate {rate} Hz does not divide {TICK_RATE} Hz; resample to 8, 12, 16, 24 or 48 kHz first")
    return TICK_RATE // rate


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open stretch [start, end) of a track, in ticks."""

    start: Ticks
    end: Ticks

    @property
    def length(self) -> Ticks:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Word:
    """One word (or punctuation-carrying piece) with its place in a track.

    `text` carries its own leading space, so that joining the texts of consecutive words gives the transcript.
    `start` and `end` are ticks: content positions for agent words, input-track positions for user words.
    """

    text: str
    start: Ticks
    end: Ticks


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a transcript as the recognizer wrote it.

    `text` carries its own leading space. A piece may hold part of a character: then `text` has U+FFFD there, and `raw`,
    its bytes in UTF-8 (0..255 each), says what it is. `logprob`: natural logarithm of its probability, given the pieces
    before it.
    """

    text: str
    raw: tuple[int, ...]
    logprob: float


quicken((Span, Word, Token))
