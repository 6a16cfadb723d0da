"""Whether a frame of a model that is never silent by itself is speech."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

QUIET = 10 ** (-50 / 20)
"""RMS below which a frame counts as silence: -50 dBFS, well under breath noise of a speech codec."""
HANGOVER = 4
"""Quiet frames that speech bridges (320 ms): the gap of a stop consonant or between words is no end of a turn."""


class SpeechGate:
    """One agent's turns, from its audio and its inner text."""

    def __init__(self, *, quiet: float = QUIET, hangover: int = HANGOVER) -> None:
        self._quiet = quiet
        self._hangover = hangover
        self._left = 0

    def feed(self, pcm: NDArray[np.float32], word: bool) -> bool:
        """Whether the frame, float32 [samples], belongs to speech. `word`: the inner text says something in it."""
        if word or float(np.sqrt(np.mean(pcm * pcm))) >= self._quiet:
            self._left = self._hangover
            return True
        self._left = max(0, self._left - 1)
        return self._left > 0

    def close(self) -> None:
        """The agent was made silent: the next quiet frame is silence."""
        self._left = 0
