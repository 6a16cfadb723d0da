"""Audio held in memory between the engine that made it and the frames that are cut from it."""

from __future__ import annotations

from .core.timeline import TICK_RATE, Ticks, ticks_per_sample

SAMPLE_BYTES = 2


def ticks_of(pcm: bytes, rate: int) -> Ticks:
    """Length of mono 16-bit PCM at `rate` Hz, in ticks."""
    return len(pcm) // SAMPLE_BYTES * ticks_per_sample(rate)


def silence(length: Ticks, rate: int) -> bytes:
    """Mono 16-bit silence of `length` ticks at `rate` Hz."""
    return bytes(length // ticks_per_sample(rate) * SAMPLE_BYTES)


RUN: Ticks = TICK_RATE * 2 // 5
"""Longest stretch that frames are cut from as one."""


class OutputTrack:
    """Engine audio of one source, contiguous from where it begins; frames are cut from the front."""

    def __init__(self, rate: int, start: Ticks) -> None:
        self._per_sample = ticks_per_sample(rate)
        self._start = start
        self._pcm = bytearray()
        self._run = b""
        self._run_start: Ticks = start

    @property
    def end(self) -> Ticks:
        return self._start + self._ticks(len(self._pcm))

    def _ticks(self, size: int) -> Ticks:
        return size // SAMPLE_BYTES * self._per_sample

    def _bytes(self, ticks: Ticks) -> int:
        return ticks // self._per_sample * SAMPLE_BYTES

    def append(self, start: Ticks, pcm: bytes) -> bool:
        """Add audio at `start`; False (and nothing added) when it does not follow what is there."""
        if start != self.end:
            return False
        self._pcm += pcm
        return True

    def cut(self, start: Ticks, end: Ticks) -> bytes:
        """Take [start, end) and forget everything before `end`. Raises ValueError for audio that is not there."""
        run, at, size = self.cut_run(start, end)
        return run[at : at + size]

    def cut_run(self, start: Ticks, end: Ticks) -> tuple[bytes, int, int]:
        """The same as (run, at, size): it is run[at : at + size].

        Frames that follow each other share a run while it lasts; behind them it holds audio that may never be cut.
        """
        first = self._bytes(start - self._start)
        last = self._bytes(end - self._start)
        if first < 0 or last > len(self._pcm):
            raise ValueError(f"[{start}, {end}) is not in the track, which holds [{self._start}, {self.end})")
        at, size = self._bytes(start - self._run_start), last - first
        if at < 0 or at + size > len(self._run):
            self._run = bytes(self._pcm[first : max(last, first + self._bytes(RUN))])
            self._run_start, at = start, 0
        del self._pcm[:last]
        self._start = end
        return self._run, at, size

    def drop_before(self, position: Ticks) -> None:
        """Forget audio before `position` (an endless track whose frames were not all admitted)."""
        size = min(len(self._pcm), max(0, self._bytes(position - self._start)))
        del self._pcm[:size]
        self._start += self._ticks(size)
