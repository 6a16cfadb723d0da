"""The input track as the models hear it: 16 kHz, addressed in ticks, bounded.

What arrives waits as it came until somebody asks for samples: of many sessions at once they cost a fraction of those of
one, and of a session that nobody listens to nothing.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from codec.pcm import SAMPLE_BYTES, to_samples
from codec.resample import Resampler, process
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
        """One past the newest sample that was made."""
        self._lane: Resampler | CleanLane | None = None
        self._waiting: deque[bytes] = deque()
        """What `_lane`, a resampler, is given next."""
        self._waiting_samples = 0
        self._ready = 0
        """Samples that `_lane` makes of it."""
        self._suppressor: Suppressor | None = None

    @property
    def oldest(self) -> Ticks:
        """Position of the oldest sample that is held."""
        return self._position(self._oldest)

    @property
    def end(self) -> Ticks:
        """Position after the newest 16 kHz sample; behind `received` by what the lane holds back: 2 to 4 ms, 45 ms at
        most where noise is reduced."""
        return self._position(self._count + self._ready)

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
        if len(pcm) % SAMPLE_BYTES:
            raise ValueError(f"pcm has {len(pcm)} bytes; 16-bit samples need an even number")
        samples = len(pcm) // SAMPLE_BYTES
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
        self._received = start + samples * length
        if isinstance(self._lane, CleanLane):
            # What reduces noise takes so long that it is given little at a time, as it comes.
            self._store(self._lane.process(to_samples(pcm)))
        else:
            self._waiting.append(pcm)
            self._waiting_samples += samples
            self._ready = self._lane.ready(self._waiting_samples)
        self._bound()
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
        if start < self.oldest:
            raise AudioForgotten(
                f"audio from {to_seconds(start):.3f} s on was asked for; what is held begins at "
                f"{to_seconds(self.oldest):.3f} s"
            )
        out: NDArray[np.float32] = windows([self], [start], max(0, self._index(end) - self._index(start)))[0]
        return out

    def forget(self, before: Ticks) -> None:
        """Free audio before `before`."""
        if self._origin is None:
            return
        self._oldest = max(self._oldest, min(self._index(before), self._count + self._ready))
        while self._blocks and self._first + _BLOCK <= self._oldest:
            self._blocks.popleft()
            self._first += _BLOCK
        # What waits and ends before is not made at all.
        while self._waiting and isinstance(self._lane, Resampler):
            if self._count + self._lane.ready(len(self._waiting[0]) // SAMPLE_BYTES) > self._oldest:
                break
            made = self._lane.skip(to_samples(self._next()))
            self._ready -= made
            self._count += made
            self._blocks.clear()
        if not self._blocks:
            self._first = self._count  # the last one was not full, where what is forgotten goes beyond what is made

    def _begin(self, start: Ticks) -> None:
        self._origin = self._received = start
        self._blocks.clear()
        self._waiting.clear()
        self._first = self._oldest = self._count = self._waiting_samples = self._ready = 0
        self._lane = None

    def _finish_lane(self) -> None:
        """Let out what the lane holds, as if silence followed; the next lane begins where the audio ended."""
        if self._lane is not None:
            catch_up([self])
            self._store(self._lane.flush())
            self._lane = None
        # Lanes whose sample periods do not divide each other leave a remainder of one 16 kHz sample at most.
        self._store(np.zeros(max(0, self._index(self._received) - self._count), np.int16))

    def _bound(self) -> None:
        """Hold no more than the limit, and let no more wait than takes the room of as much at 16 kHz."""
        if self._count + self._ready - self._oldest > self._limit:
            self.forget(self._position(self._count + self._ready - self._limit))
        while self._waiting_samples > self._limit and isinstance(self._lane, Resampler):
            self._made(self._lane.process(to_samples(self._next())))

    def _next(self) -> bytes:
        """The oldest piece that waits."""
        pcm = self._waiting.popleft()
        self._waiting_samples -= len(pcm) // SAMPLE_BYTES
        return pcm

    def _all(self) -> bytes:
        """Everything that waits."""
        pcm = self._waiting[0] if len(self._waiting) == 1 else b"".join(self._waiting)
        self._waiting.clear()
        self._waiting_samples = 0
        return pcm

    def _made(self, samples: NDArray[np.int16]) -> None:
        """Store what was `_ready`."""
        self._ready -= len(samples)
        self._store(samples)

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

    def _copy(self, start: Ticks, out: NDArray[np.int16]) -> None:
        """As many samples as `out` has from `start` on; what is not made yet is left as it is."""
        first = at = self._index(start)
        last = min(first + len(out), self._count)
        while at < last:
            block, place = divmod(at - self._first, _BLOCK)
            taken = min(_BLOCK - place, last - at)
            out[at - first : at - first + taken] = self._blocks[block][place : place + taken]
            at += taken


def catch_up(tracks: Iterable[InputTrack]) -> None:
    """Make samples of what waits in `tracks`, of all with one rate together."""
    lanes: defaultdict[int, list[Resampler]] = defaultdict(list)
    those: defaultdict[int, list[InputTrack]] = defaultdict(list)
    for track in tracks:
        if track._waiting and isinstance(track._lane, Resampler):
            lanes[track._lane.in_rate].append(track._lane)
            those[track._lane.in_rate].append(track)
    for rate, together in those.items():
        made = process(lanes[rate], [to_samples(track._all()) for track in together])
        for track, samples in zip(together, made, strict=True):
            track._made(samples)


def windows(tracks: Sequence[InputTrack], starts: Sequence[Ticks], length: int) -> NDArray[np.float32]:
    """`InputTrack.read` for many: `length` samples of each from its start on, float32 [B, length] in -1..1.

    Of stretches that the tracks hold: from `oldest` to `received`.
    """
    catch_up(tracks)
    out = np.zeros((len(tracks), length), np.int16)
    for track, start, row in zip(tracks, starts, out, strict=True):
        track._copy(start, row)
    return out.astype(np.float32) * np.float32(1.0 / 32768.0)
