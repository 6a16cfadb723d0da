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
SPAN: int = BLOCK + LATEST - EARLIEST
"""Samples of the reference that a block is compared with."""
NEAR: int = SAMPLE_RATE * 3 // 2000
"""Samples by which the lag of one echo may move from window to window."""
CLOSE: int = SAMPLE_RATE * 30 // 1000
"""Samples by which it may seem to move at once: after a pause the two clocks are matched anew."""
ALIKE = 0.25
"""Correlation from which a lag may be that of an echo: what counts is that it comes again."""
STILL = 0.25
"""Correlation at the known lag from which no other is looked for."""
COARSE: int = 4
"""Lags that are searched for as one, in signals of a fourth of the rate; the best of them is then looked at closely."""
MOVED = 0.4
"""Correlation from which the known lag has moved. Of windows of another voice one in a hundred reaches it by chance."""
RISE = 0.2
FALL = 0.01
"""Parts of the way by which the usual correlation of an echo follows a higher and a lower one: who talks over an echo
only makes it less alike."""
LEAST_USUAL = 0.5
SURE = 2
"""Windows that must agree with the one before about the lag until it is believed."""
_EMPHASIS = np.float32(0.95)
_QUARTER = np.float32(0.25)
_REACH = 7
"""Samples that one of a fourth of the rate is made of."""
_TINY = 1e-12
_QUIET = 1e-11
"""Mean square of a reference, pre-emphasized and at a fourth of its rate, in which nothing is played."""


@dataclass(frozen=True, slots=True)
class _Piece:
    start: Ticks
    pcm: bytes
    rate: int

    @property
    def end(self) -> Ticks:
        return self.start + len(self.pcm) // 2 * (48_000 // self.rate)


class Reference:
    """What the agent said of late, on the clock of the input track; bounded, made into samples only when asked for.

    Asked for from earlier to later: what was made into samples lies in one array, which moves on, and beside it the
    same at a rate at which all lags can be looked at.
    """

    def __init__(self) -> None:
        self._waiting: deque[_Piece] = deque()
        self._samples: Samples = np.zeros(2 * SPAN, np.float32)
        self._coarse: Samples = np.zeros(2 * SPAN // COARSE, np.float32)
        self._first = -SPAN
        """Where both begin, in samples; a multiple of `COARSE`."""
        self._coarse_known = 0
        """Up to which of `_coarse` they are what `_samples` are."""
        self._lane: Resampler | None = None
        self._lane_from: Ticks = 0
        self._lane_end: Ticks = 0
        self.end: Ticks = 0
        """Where the newest of it ends."""

    def play(self, at: Ticks, pcm: bytes, rate: int) -> None:
        """`pcm` (mono PCM16 at `rate` Hz) sounds from input position `at` on. What was to sound then is forgotten."""
        self.hush(at)
        piece = _Piece(at, pcm, rate)
        self._waiting.append(piece)
        self.end = piece.end
        oldest = at - 2 * SPAN * TICKS_PER_SAMPLE
        while self._waiting[0].end < oldest:
            self._waiting.popleft()

    def hush(self, at: Ticks) -> None:
        """Nothing sounds from `at` on."""
        if at >= self.end:
            return  # nothing does: what follows the newest piece is silence already
        self.end = at
        while self._waiting and self._waiting[-1].start >= at:
            self._waiting.pop()
        if self._waiting and (last := self._waiting[-1]).end > at:
            self._waiting[-1], _ = _split(last, at)
        place = max(0, at // TICKS_PER_SAMPLE - self._first)
        self._samples[place:] = 0.0
        self._changed(place)

    def read(self, start: Ticks, count: int) -> Samples:
        """`count` samples at 16 kHz from `start` on, float32 in -1..1, silence where nothing is known.

        `count` is at most `SPAN`, and `start` not before that of an earlier call.
        """
        self._ask(start, start + count * TICKS_PER_SAMPLE)
        out = np.zeros(count, np.float32)
        at = start // TICKS_PER_SAMPLE - self._first
        known = self._samples[max(0, at) : max(0, at + count)]
        before = max(0, -at)
        out[before : before + len(known)] = known
        return out

    def coarse(self, start: Ticks) -> tuple[Samples, int]:
        """`SPAN` samples from `start` on, pre-emphasized, at a fourth of the rate; and where they begin, in samples."""
        reach = _REACH - COARSE
        self._ask(start, start + (SPAN + COARSE + reach) * TICKS_PER_SAMPLE)
        first = max(0, start // TICKS_PER_SAMPLE - self._first) // COARSE
        last = first + SPAN // COARSE
        known = max(first, self._coarse_known)
        if known < last:
            part = _emphasized(self._samples[max(0, known * COARSE - 1) : last * COARSE + reach])
            self._coarse[known:last] = _fourth(part[min(known, 1) :])
            self._coarse_known = last
        return self._coarse[first:last], self._first + first * COARSE

    def _ask(self, start: Ticks, end: Ticks) -> None:
        """Make samples of what sounds from `start` to `end`, and room for them."""
        if end // TICKS_PER_SAMPLE - self._first >= len(self._samples):
            self._forget((start // TICKS_PER_SAMPLE - self._first) // COARSE)
        pieces: list[_Piece] = []
        while self._waiting and self._waiting[0].start < end:
            piece, rest = _split(self._waiting.popleft(), end)
            if rest.pcm:
                self._waiting.appendleft(rest)
            if piece.end <= start:
                continue
            if pieces and (piece.start != pieces[-1].end or piece.rate != pieces[-1].rate):
                self._render(pieces)
                pieces = []
            pieces.append(piece)
        if pieces:
            self._render(pieces)

    def _render(self, pieces: list[_Piece]) -> None:
        """`pieces` of one rate that follow each other: resampling them at once costs little more than one of them."""
        first, last = pieces[0], pieces[-1]
        if self._lane is None or self._lane.in_rate != first.rate or self._lane_end != first.start:
            self._lane = Resampler(first.rate, SAMPLE_RATE)
            self._lane_from = first.start
        self._lane_end = last.end
        # What the lane held back of the piece before comes first.
        at = self._lane_from // TICKS_PER_SAMPLE + self._lane.produced - self._first
        pcm = b"".join(piece.pcm for piece in pieces)
        samples = self._lane.process(to_samples(pcm)).astype(np.float32) / np.float32(32768)
        samples, at = samples[max(0, -at) :], max(0, at)
        room = self._samples[at : at + len(samples)]
        room[:] = samples[: len(room)]
        self._changed(at)

    def _forget(self, count: int) -> None:
        """The first `count` of `_coarse`, and as many samples as they stand for."""
        self._coarse = _moved(self._coarse, count)
        self._coarse_known = max(0, self._coarse_known - count)
        self._samples = _moved(self._samples, count * COARSE)
        self._first += count * COARSE

    def _changed(self, at: int) -> None:
        """`_samples` are others from `at` on."""
        self._coarse_known = max(0, min(self._coarse_known, (at - _REACH) // COARSE))


class EchoDetector:
    """Compares one session's input with its reference; the lag of its echo is learned and kept."""

    def __init__(self) -> None:
        self.reference = Reference()
        self.lag: int | None = None
        """Samples by which the echo lies behind the reference, once that is known."""
        self.vain = False
        """Whether the newest window was compared at every lag and was like the reference at none."""
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
        self.vain = False
        start = end - (BLOCK + LATEST) * TICKS_PER_SAMPLE
        played, begins = self.reference.coarse(start)
        if float(np.dot(played, played)) < _QUIET * len(played):
            return 0.0
        x = _emphasized(heard)
        here = 0.0
        if self.lag is not None:
            lag, here = self._best(x, start, self.lag - NEAR, self.lag + NEAR)
            if here >= STILL:
                return self._found(lag, here)
            lag, alike = self._best(x, start, self.lag - CLOSE, self.lag + CLOSE) if search else (lag, here)
            if alike >= MOVED:
                return self._found(lag, alike)
        if not search:
            return min(1.0, here / self._usual)
        near = start // TICKS_PER_SAMPLE + LATEST - begins - COARSE * _roughly(_fourth(x), played)
        lag, alike = self._best(x, start, near - 2 * COARSE, near + 2 * COARSE)
        if alike < ALIKE:
            self._candidate, self.vain = None, True
        elif self._candidate is not None and abs(lag - self._candidate) <= NEAR:
            self._agreed += 1
            self._candidate = lag
        else:
            self._candidate, self._agreed = lag, 0
        if self._candidate is None or self._agreed < SURE:
            return min(1.0, here / self._usual)
        return self._found(lag, alike)

    def _best(self, x: Samples, start: Ticks, first: int, last: int) -> tuple[int, float]:
        """The lag in `first`..`last` at which `x`, pre-emphasized, is most like the reference, and the normalized
        correlation there. At the lag `LATEST` its first sample is compared with the one at `start`."""
        first, last = (max(EARLIEST, min(lag, LATEST)) for lag in (first, last))
        begins = start + (LATEST - last - 1) * TICKS_PER_SAMPLE
        part = _emphasized(self.reference.read(begins, last - first + BLOCK + 1))[1:]
        power = _sliding(np.square(part), BLOCK) * float(np.dot(x, x))
        alike = np.abs(np.correlate(part, x, "valid")) / np.sqrt(power + _TINY)
        place = int(np.argmax(alike))
        return last - place, float(min(1.0, alike[place]))

    def _found(self, lag: int, alike: float) -> float:
        """The likeness by what it is in this room when nobody else speaks: the tail of a room is like nothing."""
        self.lag = lag
        self._usual += (alike - self._usual) * (RISE if alike > self._usual else FALL)
        self._usual = max(LEAST_USUAL, self._usual)
        return min(1.0, alike / self._usual)


def _emphasized(samples: Samples) -> Samples:
    out = samples.copy()
    out[1:] -= _EMPHASIS * samples[:-1]
    return out


def _fourth(samples: Samples) -> Samples:
    """`samples` at a fourth of their rate. What lies above is damped enough for a comparison, not for listening.

    Sample n of it is made of `_REACH` from 4 n on; one for every four that have as many.
    """
    for _ in range(2):
        samples = _QUARTER * (samples[:-2:2] + samples[1:-1:2] + samples[1:-1:2] + samples[2::2])
    return samples


def _roughly(x: Samples, r: Samples) -> int:
    """Where in `r`, [m], `x`, [n], is most like it."""
    both = np.zeros((2, 1 << (len(r) - 1).bit_length()), np.float32)
    both[0, : len(r)] = r
    both[1, : len(x)] = x
    spectra = np.fft.rfft(both)
    sums = np.fft.irfft(spectra[0] * np.conj(spectra[1]), both.shape[1])[: len(r) - len(x) + 1]
    return int(np.argmax(np.square(sums) / (_sliding(np.square(r), len(x)) + _TINY)))


def _sliding(values: Samples, length: int) -> Floats:
    """Sums of every `length` neighbours of `values`, none of which is negative."""
    ends = np.concatenate(([0.0], np.cumsum(values, dtype=np.float64)))
    sums: Floats = np.maximum(ends[length:] - ends[:-length], 0.0)
    return sums


def _split(piece: _Piece, at: Ticks) -> tuple[_Piece, _Piece]:
    """The samples of `piece` that begin before `at`, and the rest."""
    ticks = 48_000 // piece.rate
    samples = -(-max(0, at - piece.start) // ticks)
    rest = _Piece(piece.start + samples * ticks, piece.pcm[2 * samples :], piece.rate)
    return (piece if not rest.pcm else _Piece(piece.start, piece.pcm[: 2 * samples], piece.rate)), rest


def _moved(samples: Samples, by: int) -> Samples:
    """`samples` without the first `by`, zeros behind them."""
    moved = np.zeros_like(samples)
    kept = samples[by:]
    moved[: len(kept)] = kept
    return moved
