"""Speech as a telephone of the old network lets it through."""

from __future__ import annotations

import numpy as np

from codec.pcm import Samples
from server.call_command import at_rate
from tests.speech import RATE, Clip


def narrow(clip: Clip, rate: int) -> Samples:
    """The clip between 300 and 3400 Hz, int16 at `rate`."""
    spectrum = np.fft.rfft(clip.pcm.astype(float))
    hertz = np.fft.rfftfreq(len(clip.pcm), 1 / RATE)
    spectrum[(hertz < 300) | (hertz > 3400)] = 0
    return at_rate(np.round(np.fft.irfft(spectrum, len(clip.pcm))).astype(np.int16), RATE, rate)
