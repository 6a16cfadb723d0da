"""The input track as the models hear it: 16 kHz, addressed in ticks, bounded."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from codec.pcm import to_samples
from codec.resample import Resampler
from sessions.core.timeline import Ticks, ticks_per_sample, to_seconds

from .denoise import CleanLane, Suppressor
from .mel import SAMPLE_RATE

TICKS_PER_SAMPLE: int = ticks_per_sample(SAMPLE_RATE)

_BLOCK = SAMPLE_RATE
"""Samples per storage block. A session that forgets what it has handled holds two or three blocks of 32 kB."""


class AudioForgotten(LookupError):
    """The stretch asked for begins before the oldest audio that is still held."""


class AudioMissing(LookupError):
    """The stretch asked for ends after the newest audio that has arrived."""


class InputTrack:
    """Keeps the newest stretch of one session's input at 16 kHz; no delay on the way to it shifts positions."""

    def __init__(self, limit: Ticks) -> None:
        """`limit`: the longest stretch that is kept."""
        self._limit = limit // TICKS_PER_SAMPLE
        self._origin: Ticks | None = None
        """Track position of sample 0."""
        self._received: Ticks = 0
        self._blocks: deque[NDArray[np.int16]] = deque()
        self._first = 0
        """Sample number of the start of the first block."""
        self._oldest = 0
        self._count = 0
        """One past the newest sample."""
        self._lane: Resampler | CleanLane | None = None
        self._suppressor: Suppressor | None = None

    @property
    def oldest(self) -> Ticks:
        """Position of the oldest sample that is held."""
        return self._position(self._oldest)

    @property
    def end(self) -> Ticks:
        """Position after the newest 16 kHz sample; behind `received` by what the lane holds back: 2 to 4 ms, 45 ms at
        most where noise is reduced."""
        return self._position(self._count)

    @property
    def received(self) -> Ticks:
        """Position after the newest audio that was appended."""
        return self._received

    def append(self, start: Ticks, pcm: bytes, rate: int) -> bool:
        """Add PCM16 that begins at `start`, normally where the last stretch ended.

        A hole is filled with silence; one longer than the limit, or a step back, begins the track anew at `start`, as
        the first stretch does. Returns whether the track began.
        Raises ValueError for a rate that does not divide 48 kHz and for half a sample.
        """
        length = ticks_per_sample(rate)
        samples = to_samples(pcm)
        begins = self._origin is None or not 0 <= start - self._received < self._limit * TICKS_PER_SAMPLE
        if begins:
            self._begin(start)
        elif start > self._received:
            self._finish_lane()
            self._store(np.zeros(max(0, self._index(start) - self._count), np.int16))
        if self._lane is None or self._lane.in_rate != rate:
            self._finish_lane()
            self._lane = (
                Resampler(rate, SAMPLE_RATE)
                if self._suppressor is None
                else CleanLane(self._suppressor, rate, SAMPLE_RATE)
            )
        self._store(self._lane.process(samples))
        self._received = start + len(samples) * length
        return begins

    def clean_with(self, suppressor: Suppressor | None) -> None:
        """From here on noise is reduced by `suppressor`, or (None) not any more. Positions stay what they are."""
        if suppressor is not self._suppressor:
            self._finish_lane()
            self._suppressor = suppressor

    def read(self, start: Ticks, end: Ticks) -> NDArray[np.float32]:
        """Samples of [start, end) as float32 [N] in -1..1.

        The last milliseconds, which the lane has not given yet, read as silence. Raises AudioForgotten or
        AudioMissing when the track does not hold the stretch.
        """
        if self._origin is None or end > self._received:
            raise AudioMissing(
                f"audio up to {to_seconds(end):.3f} s was asked for; {to_seconds(self._received):.3f} s came"
            )
        first, last = self._index(start), self._index(end)
        if first < self._oldest:
            raise AudioForgotten(
                f"audio from {to_seconds(start):.3f} s on was asked for; what is held begins at "
                f"{to_seconds(self.oldest):.3f} s"
            )
        out = np.zeros(max(0, last - first), np.float32)
        self._copy(first, min(last, self._count), out)
        out *= 1.0 / 32768.0
        return out

    def forget(self, before: Ticks) -> None:
        """Free audio before `before`."""
        if self._origin is None:
            return
        self._oldest = max(self._oldest, min(self._index(before), self._count))
        while self._blocks and self._first + _BLOCK <= self._oldest:
            self._blocks.popleft()
            self._first += _BLOCK

    def _begin(self, start: Ticks) -> None:
        self._origin = self._received = start
        self._blocks.clear()
        self._first = self._oldest = self._count = 0
        self._lane = None

    def _finish_lane(self) -> None:
        """Let out what the lane holds, as if silence followed; the next lane begins where the audio ended."""
        if self._lane is not None:
            self._store(self._lane.flush())
            self._lane = None
        # Lanes whose sample periods do not divide each other leave a remainder of one 16 kHz sample at most.
        self._store(np.zeros(max(0, self._index(self._received) - self._count), np.int16))

    def _position(self, index: int) -> Ticks:
        return (self._origin or 0) + index * TICKS_PER_SAMPLE

    def _index(self, position: Ticks) -> int:
        return (position - (self._origin or 0)) // TICKS_PER_SAMPLE

    def _store(self, samples: NDArray[np.int16]) -> None:
        done = 0
        while done < len(samples):
            within = self._count - self._first - len(self._blocks) * _BLOCK
            if within == 0:
                self._blocks.append(np.zeros(_BLOCK, np.int16))
                within = -_BLOCK
            taken = min(-within, len(samples) - done)
            place = _BLOCK + within
            self._blocks[-1][place : place + taken] = samples[done : done + taken]
            done += taken
            self._count += taken
        if self._count - self._oldest > self._limit:
            self.forget(self._position(self._count - self._limit))

    def _copy(self, first: int, last: int, out: NDArray[np.float32]) -> None:
        at = first
        while at < last:
            block, place = divmod(at - self._first, _BLOCK)
            taken = min(_BLOCK - place, last - at)
            out[at - first : at - first + taken] = self._blocks[block][place : place + taken]
            at += taken
