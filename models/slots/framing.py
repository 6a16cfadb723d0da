"""A user's audio as frames of the model: cut where its frames lie, at its rate, and without gaps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codec.pcm import to_samples
from codec.resample import Resampler
from sessions.core.timeline import Ticks, ticks_per_sample


@dataclass(frozen=True, slots=True)
class CutFrame:
    """`samples` int16 [hop] at the model's rate; `start` in ticks on the input track."""

    start: Ticks
    samples: NDArray[np.int16]


class FrameCutter:
    """One session's input. `rate` in Hz and `hop` in samples are the model's. One thread at a time."""

    def __init__(self, rate: int, hop: int) -> None:
        self._to = rate
        self._hop = hop
        self._length: Ticks = hop * ticks_per_sample(rate)
        self._rate = 0
        self._resampler: Resampler | None = None
        self._buffer: list[NDArray[np.int16]] = []
        self._buffered = 0
        self._expected: Ticks = 0
        self._next: Ticks = 0
        self.base: Ticks | None = None
        """Where its first frame lies on the input track."""
        self.missing: Ticks = 0
        """What the last `take` found missing before its audio, and put silence for."""

    def take(self, start: Ticks, pcm: bytes, rate: int) -> list[CutFrame]:
        """The frames that are whole now. Raises ValueError for half a sample and a rate that does not divide 48 kHz."""
        self._accept(start, to_samples(pcm), rate)
        if self._buffered < self._hop:
            return []
        joined = np.concatenate(self._buffer)
        whole = len(joined) // self._hop * self._hop
        self._buffer, self._buffered = [joined[whole:]], len(joined) - whole
        frames = []
        for samples in joined[:whole].reshape(-1, self._hop):
            frames.append(CutFrame(self._next, samples))
            self._next += self._length
        return frames

    def _accept(self, start: Ticks, samples: NDArray[np.int16], rate: int) -> None:
        tick = ticks_per_sample(rate)
        if self.base is None:
            self.base = self._expected = self._next = start
        if rate != self._rate:
            if self._resampler is not None:
                self._keep(self._resampler.flush())
            self._rate, self._resampler = rate, Resampler(rate, self._to)
        self.missing = max(0, start - self._expected)
        late = max(0, self._expected - start) // tick
        self._expected = max(self._expected, start + len(samples) * tick)
        heard = np.concatenate([np.zeros(self.missing // tick, np.int16), samples[late:]])
        if self._resampler is not None:
            self._keep(self._resampler.process(heard))

    def _keep(self, samples: NDArray[np.int16]) -> None:
        self._buffer.append(samples)
        self._buffered += len(samples)
