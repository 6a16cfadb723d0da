"""The agent's own voice in the user's microphone: is this window a copy of what was played a moment ago?

Who listens through loudspeakers sends the agent back to itself. A copy is told from a talker by two things: it is like
the reference in its waveform (normalized cross-correlation, as in the double-talk detectors of Benesty, Morgan and Cho,
"A New Class of Doubletalk Detectors Based on Cross-Correlation", 2000), and it lies behind the reference by the same
time from window to window. Two voices are alike for a moment too, but never twice at one lag.

Both signals are pre-emphasized: speech has most of its energy where it is periodic, and there one lag looks like many.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from codec.pcm import to_samples
from codec.resample import Resampler
from sessions.core.timeline import Ticks

from .mel import SAMPLE_RATE
from .track import TICKS_PER_SAMPLE

Samples = NDArray[np.float32]
Floats = NDArray[np.float64]

BLOCK: int = SAMPLE_RATE * 128 // 1000
"""Samples of input that are compared at once: shorter ones are alike by chance, longer ones answer too late."""
EARLIEST: int = -SAMPLE_RATE * 50 // 1000
LATEST: int = SAMPLE_RATE * 800 // 1000
"""Lags of the input behind the reference, in samples. Where both lie is known to some 20 ms, so it may seem early."""
NEAR: int = SAMPLE_RATE * 3 // 2000
"""Samples by which the lag of one echo may move from window to window."""
CLOSE: int = SAMPLE_RATE * 30 // 1000
"""Samples by which it may seem to move at once: after a pause the two clocks are matched anew."""
ALIKE = 0.25
"""Correlation from which a lag may be that of an echo: what counts is that it comes again."""
STILL = 0.25
"""Correlation at the known lag from which no other is looked for."""
MOVED = 0.4
"""Correlation from which the known lag has moved. Of windows of another voice one in a hundred reaches it by chance."""
RISE = 0.2
FALL = 0.01
"""Parts of the way by which the usual correlation of an echo follows a higher and a lower one: who talks over an echo
only makes it less alike."""
LEAST_USUAL = 0.5
SURE = 2
"""Windows that must agree with the one before about the lag until it is believed."""
_EMPHASIS = 0.95
_QUIET = 1e-9
"""Mean square of a reference in which nothing is played."""


@dataclass(slots=True)
class _Piece:
    start: Ticks
    pcm: bytes
    rate: int
    samples: Samples | None = None
    first: Ticks = 0
    """Where the first of `samples` lies: what the lane held back of the piece before is among them."""

    @property
    def end(self) -> Ticks:
        return self.start + len(self.pcm) // 2 * (48_000 // self.rate)


class Reference:
    """What the agent said of late, on the clock of the input track; bounded, made into samples only when asked for."""

    def __init__(self) -> None:
        self._pieces: deque[_Piece] = deque()
        self._lane: Resampler | None = None
        self._lane_from: Ticks = 0
        self._lane_end: Ticks = 0

    def play(self, at: Ticks, pcm: bytes, rate: int) -> None:
        """`pcm` (mono PCM16 at `rate` Hz) sounds from input position `at` on. What was to sound then is forgotten."""
        self.hush(at)
        self._pieces.append(_Piece(at, pcm, rate))
        oldest = at - (LATEST + 4 * BLOCK) * TICKS_PER_SAMPLE
        while self._pieces and self._pieces[0].end < oldest:
            self._pieces.popleft()

    def hush(self, at: Ticks) -> None:
        """Nothing sounds from `at` on."""
        while self._pieces and self._pieces[-1].start >= at:
            self._pieces.pop()
        if self._pieces and (last := self._pieces[-1]).end > at:
            keep = (at - last.start) // (48_000 // last.rate) * 2
            self._pieces[-1] = _Piece(last.start, last.pcm[:keep], last.rate)

    @property
    def end(self) -> Ticks:
        """Where the newest of it ends."""
        return self._pieces[-1].end if self._pieces else 0

    def read(self, start: Ticks, count: int) -> Samples:
        """`count` samples at 16 kHz from `start` on, float32 in -1..1, silence where nothing is known."""
        out = np.zeros(count, np.float32)
        for piece in self._pieces:
            if piece.start >= start + count * TICKS_PER_SAMPLE or piece.end <= start:
                continue
            samples = self._samples(piece)
            at = (piece.first - start) // TICKS_PER_SAMPLE
            first = max(0, -at)
            last = min(len(samples), count - at)
            if first < last:
                out[at + first : at + last] = samples[first:last]
        return out

    def _samples(self, piece: _Piece) -> Samples:
        if piece.samples is None:
            if self._lane is None or self._lane.in_rate != piece.rate or self._lane_end != piece.start:
                self._lane = Resampler(piece.rate, SAMPLE_RATE)
                self._lane_from = piece.start
            self._lane_end = piece.end
            piece.first = self._lane_from + self._lane.produced * TICKS_PER_SAMPLE
            piece.samples = self._lane.process(to_samples(piece.pcm)).astype(np.float32) / np.float32(32768)
        return piece.samples


class EchoDetector:
    """Compares one session's input with its reference; the lag of its echo is learned and kept."""

    def __init__(self) -> None:
        self.reference = Reference()
        self.lag: int | None = None
        """Samples by which the echo lies behind the reference, once that is known."""
        self._usual = LEAST_USUAL
        self._candidate: int | None = None
        self._agreed = 0

    def wanted(self, end: Ticks, *, search: bool = True) -> bool:
        """Whether anything was played that could come back in a window that ends at `end`, and be known by `likeness`
        with the same `search`."""
        return (search or self.lag is not None) and end - (LATEST + BLOCK) * TICKS_PER_SAMPLE < self.reference.end

    def likeness(self, heard: Samples, end: Ticks, *, search: bool = True) -> float:
        """How much `heard`, float32 [BLOCK] ending at input position `end`, is our own voice coming back: 0..1.

        0 as long as no lag has been found at which it does so again and again. Without `search` none is looked for,
        which costs far more than to compare at the lag that is known.
        """
        start = end - (BLOCK + LATEST) * TICKS_PER_SAMPLE
        played = self.reference.read(start, BLOCK + LATEST - EARLIEST)
        if float(np.dot(played, played)) < _QUIET * len(played):
            return 0.0
        x, r = _emphasized(heard), _emphasized(played)
        here = 0.0
        if self.lag is not None:
            lag, here = _best(x, r, self.lag - NEAR, self.lag + NEAR)
            if here >= STILL:
                return self._found(lag, here)
            lag, alike = _best(x, r, self.lag - CLOSE, self.lag + CLOSE) if search else (lag, here)
            if alike >= MOVED:
                return self._found(lag, alike)
        if not search:
            return min(1.0, here / self._usual)
        lag, alike = _best(x, r, EARLIEST, LATEST)
        if alike < ALIKE:
            self._candidate = None
        elif self._candidate is not None and abs(lag - self._candidate) <= NEAR:
            self._agreed += 1
            self._candidate = lag
        else:
            self._candidate, self._agreed = lag, 0
        if self._candidate is None or self._agreed < SURE:
            return min(1.0, here / self._usual)
        return self._found(lag, alike)

    def _found(self, lag: int, alike: float) -> float:
        """The likeness by what it is in this room when nobody else speaks: the tail of a room is like nothing."""
        self.lag = lag
        self._usual += (alike - self._usual) * (RISE if alike > self._usual else FALL)
        self._usual = max(LEAST_USUAL, self._usual)
        return min(1.0, alike / self._usual)


def _emphasized(samples: Samples) -> Floats:
    out = samples.astype(np.float64)
    out[1:] -= _EMPHASIS * samples[:-1]
    return out


@lru_cache(maxsize=4)
def _size(length: int) -> int:
    return 1 << (length - 1).bit_length()


def _best(x: Floats, r: Floats, first: int, last: int) -> tuple[int, float]:
    """The lag in `first`..`last` at which `x` is most like `r`, and the normalized correlation there.

    At lag k the block x[n] is compared with r[n + LATEST - k].
    """
    first, last = max(first, EARLIEST), min(last, LATEST)
    part = r[LATEST - last : LATEST - first + BLOCK]
    if len(part) < 4 * BLOCK:
        sums = np.correlate(part, x, "valid")
    else:
        size = _size(len(part))
        sums = np.fft.irfft(np.fft.rfft(part, size) * np.conj(np.fft.rfft(x, size)), size)[: last - first + 1]
    energy = np.concatenate(([0.0], np.cumsum(np.square(part))))
    power = np.maximum(energy[BLOCK:] - energy[:-BLOCK], 0.0) * float(np.dot(x, x))
    alike = np.abs(sums) / np.sqrt(power + 1e-12)
    place = int(np.argmax(alike))
    return last - place, float(min(1.0, alike[place]))
