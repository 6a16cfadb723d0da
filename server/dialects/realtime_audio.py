"""Agent audio on its way out: to the rate and format that the client chose, one lane per session.

The lane is streaming, so a sample may wait in it for the next frame; it then keeps the place that it was given.
"""

from __future__ import annotations

from functools import partial

from codec import g711
from codec.pcm import to_bytes, to_samples
from codec.runs import Encode, RunResampler
from sessions.core.timeline import Ticks, ticks_per_sample
from sessions.ports import OutputFrame

PCM_RATE = 24000
_LAWS: dict[str, g711.Law] = {"audio/pcmu": "ulaw", "audio/pcma": "alaw"}


class OutputLane:
    """Converts the frames of one item after the other. `media` is the format, as the session object names it."""

    def __init__(self, media: str) -> None:
        self.media = media
        law = _LAWS.get(media)
        self._plain = law is None
        """Whether it is PCM."""
        # No method of the lane: it would hold itself, by its resampler, and stay until the garbage collector comes.
        self._encode: Encode = to_bytes if law is None else partial(g711.compress, law=law)
        self._rate = PCM_RATE if law is None else g711.RATE
        self._width = 2 if law is None else 1
        self._lane: RunResampler | None = None
        self._last: OutputFrame | None = None
        self._end: Ticks = 0

    @property
    def last(self) -> OutputFrame | None:
        """The frame whose samples may still wait here; None when nothing waits."""
        return self._last if self._lane is not None and self._lane.pending else None

    def push(self, frame: OutputFrame) -> tuple[bytes, Ticks]:
        """(encoded audio, session time of its first sample); the audio is empty while the resampler fills."""
        if frame.rate == self._rate:
            self._lane = None
            audio = frame.pcm if self._plain else self._encode(to_samples(frame.pcm))
            return audio, frame.placed_at
        if self._lane is None or self._lane.in_rate != frame.rate:
            self._lane = RunResampler(frame.rate, self._rate, self._encode, self._width)
        starts = self._waiting_from(frame.placed_at)
        audio = self._lane.push(frame.run or frame.pcm, frame.at, len(frame.pcm))
        self._last = frame
        self._end = frame.placed_at + (frame.end - frame.start)
        return audio, starts

    def tail(self) -> tuple[bytes, Ticks]:
        """The samples that still wait, and the session time of the first; the lane is new afterwards."""
        if self._lane is None:
            return b"", 0
        starts = self._waiting_from(self._end)
        audio = self._lane.flush()
        self._last = None
        return audio, starts

    def reset(self) -> None:
        """Forget what waits: it belongs to an epoch that is over."""
        if self._lane is not None:
            self._lane.reset()
        self._last = None

    def _waiting_from(self, otherwise: Ticks) -> Ticks:
        """Where the oldest waiting sample lies; `otherwise` where none waits."""
        pending = 0 if self._lane is None else self._lane.pending
        return self._end - pending * ticks_per_sample(self._rate) if pending else otherwise
