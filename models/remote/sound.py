"""What voices that run elsewhere have in common: their audio as ours, and words laid over it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import soundfile
from numpy.typing import NDArray

from codec.pcm import Samples, to_bytes, to_samples
from codec.resample import Resampler
from sessions.core.timeline import Word, ticks_per_sample

from .errors import RemoteError

RATE = 24_000
"""Hz of what talkers give."""
_TICK = ticks_per_sample(RATE)

QUIET = 10 ** (-50 / 20)
"""Amplitude, as a fraction of full scale, below which the edge of a clause is silence."""
_LEAD, _TAIL = RATE * 20 // 1000, RATE * 150 // 1000
"""Samples of silence that are left: voices elsewhere begin and end with much more, and the next clause waits for it."""


@dataclass(frozen=True, slots=True)
class Trimmed:
    """Audio without the silence at its edges. `cut`: samples that went at the beginning."""

    samples: Samples
    cut: int


def decoded(setting: str, body: bytes) -> Samples:
    """What a voice answered, int16 [N] at `RATE`: bare PCM of that rate, or any file that libsndfile reads.

    Raises RemoteError.
    """
    if body[:4] in (b"RIFF", b"fLaC", b"OggS", b"FORM"):
        try:
            floats, rate = soundfile.read(io.BytesIO(body), dtype="float32", always_2d=True)
        except (soundfile.SoundFileError, RuntimeError) as error:
            raise RemoteError("remote_bad_response", f"{setting}: the audio cannot be read ({error})") from None
        return resampled(floats.mean(axis=1, dtype=np.float32), int(rate))
    if body[:1] in (b"{", b"<"):
        raise RemoteError("remote_bad_response", f"{setting}: text came instead of audio; does it speak this protocol?")
    if len(body) % 2:
        raise RemoteError(
            "remote_bad_response", f"{setting}: {len(body)} bytes came; 16-bit samples need an even number"
        )
    return to_samples(body)


def resampled(floats: NDArray[np.float32], rate: int) -> Samples:
    """float32 [N] in -1..1 at `rate` Hz as int16 at `RATE`."""
    pcm = np.rint(np.clip(floats, -1.0, 1.0) * 32767).astype(np.int16)
    if rate == RATE:
        return pcm
    lane = Resampler(rate, RATE)
    return np.concatenate([lane.process(pcm), lane.flush()])


def trimmed(samples: Samples) -> Trimmed:
    """Nothing is left of what is silent all through."""
    loud = np.flatnonzero(np.abs(samples.astype(np.int32)) >= QUIET * 32768)
    if not loud.size:
        return Trimmed(samples[:0], 0)
    first = max(0, int(loud[0]) - _LEAD)
    return Trimmed(samples[first : int(loud[-1]) + _TAIL], first)


def worded(text: str, spans: Sequence[tuple[int, int]], *, first: bool) -> tuple[Word, ...]:
    """The words of `text` at `spans` (samples at `RATE`); the first has a leading space unless it begins a response."""
    return tuple(
        Word(word if first and not place else f" {word}", begin * _TICK, end * _TICK)
        for place, (word, (begin, end)) in enumerate(zip(text.split(), spans, strict=True))
    )


def pcm(samples: Samples) -> bytes:
    """As `Spoken.pcm`."""
    return to_bytes(samples)


def pronounceable(text: str) -> bool:
    """Whether there is anything in it to say."""
    return any(character.isalnum() for character in text)
