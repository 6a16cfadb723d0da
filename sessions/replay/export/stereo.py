"""Both sides in one WAV file: the user left, the agent as heard right, on the session timeline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import soundfile
import soxr

from ...core.timeline import TICK_RATE, Ticks, ticks_per_sample
from ..reader import Recording, Samples

BLOCK: Ticks = 30 * TICK_RATE


def write_stereo(recording: Recording, path: Path) -> None:
    """Write `path`: 16-bit, at the agent's rate; a user track of another rate is resampled."""
    rate = recording.manifest.agent_rate
    with soundfile.SoundFile(path, "w", samplerate=rate, channels=2, format="WAV", subtype="PCM_16") as file:
        for both in blocks(recording):
            file.write(both)


def blocks(recording: Recording) -> Iterator[Samples]:
    """The session in stretches of samples [n, 2] at the agent's rate, from where the recording begins."""
    rate = recording.manifest.agent_rate
    length = _length(recording)
    foreign = _foreign(recording, rate, length)
    for start in range(recording.manifest.begins // 6 * 6, length, BLOCK):
        end = min(length, start + BLOCK)
        left = recording.session_audio("user", start, end, rate)
        if foreign is not None:
            tick = ticks_per_sample(rate)
            left = left + foreign[start // tick : start // tick + len(left)]
        right = recording.session_audio("agent", start, end, rate)
        yield np.stack([left, right], axis=1)


def _length(recording: Recording) -> Ticks:
    """Where the last sample of either side lies; a whole number of samples at every rate."""
    stretches = recording.input_clock.stretches
    user = max((stretch.end + stretch.offset for stretch in stretches), default=0)
    agent = max((piece.end for piece in recording.pieces("heard")), default=0)
    return max(user, agent, 6) // 6 * 6


def _foreign(recording: Recording, rate: int, length: Ticks) -> Samples | None:
    """What the user said in tracks of other rates, resampled."""
    rates = {track.rate for name, track in recording.tracks().items() if name.startswith("user_in")} - {rate}
    if not rates:
        return None
    total = np.zeros(length // ticks_per_sample(rate), np.int16)
    for other in rates:
        heard = recording.session_audio("user", 0, length, other)
        resampled = soxr.resample(heard, other, rate)
        fitting = min(len(total), len(resampled))
        total[:fitting] += resampled[:fitting]
    return total
