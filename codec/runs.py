"""A resampler for a stream that is let out piece by piece from longer runs of audio that is there already.

Resampling ten frames at once costs half of resampling them one by one, and encoding them a tenth. What is given for a
piece is exactly what a `Resampler` that knew nothing beyond it would give; the rest waits until its piece comes, and is
thrown away and computed anew where another piece comes instead.
"""

from __future__ import annotations

from collections.abc import Callable

from .pcm import Samples, to_samples
from .resample import Resampler

Encode = Callable[[Samples], bytes]
"""Samples, shape (n,), int16, to n times `width` bytes, each sample by itself."""


class RunResampler:
    """One lane from one rate to another, encoded. The parameters of `Resampler`, whose words on lanes hold here too."""

    def __init__(self, in_rate: int, out_rate: int, encode: Encode, width: int) -> None:
        """`width`: bytes that `encode` makes of a sample."""
        self._lane = Resampler(in_rate, out_rate)
        self._encode = encode
        self._width = width
        self._run = b""
        self._at = 0
        """Bytes of the run that were let out; what stands before the first of them is not counted as consumed."""
        self._ahead = b""
        """Made from the run, encoded; `_given` bytes of it have been given."""
        self._given = 0
        self._before = self._lane.state()
        """The lane before the run."""
        self._begin = 0

    @property
    def in_rate(self) -> int:
        return self._lane.in_rate

    @property
    def pending(self) -> int:
        """Output samples that belong to what was let out and have not been given yet."""
        unused = (len(self._run) - self._at) // 2
        given_not = (len(self._ahead) - self._given) // self._width
        return self._lane.due(self._lane.consumed - unused) - self._lane.produced + given_not

    def push(self, run: bytes, at: int, size: int) -> bytes:
        """Let out run[at : at + size], PCM16 little-endian; returns what that completes.

        The same `run` object means the same audio; nothing that lies behind the piece shows in what is returned.
        """
        if run is not self._run or at != self._at:
            self._settle()
            self._before = self._lane.state()
            self._run, self._begin = run, at
            self._ahead = self._encode(self._lane.process(to_samples(run[at:])))
            self._given = 0
        self._at = at + size
        unused = (len(run) - self._at) // 2
        if not unused:
            piece = self._ahead[self._given :]
            self._given = len(self._ahead)
            return piece
        whole = self._lane.due(max(self._lane.consumed - unused - self._lane.delay, 0)) - self._before.produced
        begin, self._given = self._given, max(self._given, whole * self._width)
        return self._ahead[begin : self._given]

    def flush(self) -> bytes:
        """The rest of what was let out, as if silence followed; the lane is new afterwards."""
        self._settle()
        rest = self._encode(self._lane.flush())
        self.reset()
        return rest

    def reset(self) -> None:
        """Forget everything; the next sample is the first of a new stream."""
        self._lane.reset()
        self._run, self._ahead = b"", b""
        self._at = self._begin = self._given = 0

    def _settle(self) -> None:
        """Take the lane back to where the last piece ended."""
        if self._at < len(self._run):
            self._lane.restore(self._before)
            self._lane.process(to_samples(self._run[self._begin : self._at]))
        self._run, self._ahead = b"", b""
        self._at = self._begin = self._given = 0
