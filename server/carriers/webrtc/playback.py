"""What the peer's speaker is at: RTP timestamps to content positions.

RTP time runs on through silence, holds and stalls, content does not; what was sent when is kept for as long as a peer
may take to play it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from sessions.core.timeline import Ticks, from_ms

from .downlink import Piece

KEPT: Final[Ticks] = from_ms(30_000)
"""How far back a report may lie."""
LEAD: Final[Ticks] = from_ms(10)
"""By how much the timestamp that browsers report is ahead of what is heard: measured as 10 to 12 ms at the median, the
encoder's own delay included."""

_WRAP: Final = 1 << 32


@dataclass(slots=True)
class _Span:
    """Content [start, start + length) of `response` went out from RTP position `at` on, without a pause inside."""

    at: Ticks
    length: Ticks
    response: str
    start: Ticks


class PlaybackMap:
    """RTP timestamps of one connection, unwrapped, and the content that was sent under them."""

    def __init__(self, origin: int) -> None:
        """`origin`: timestamp of the first packet."""
        self._origin = origin
        self._next: Ticks = 0
        self._spans: deque[_Span] = deque()

    @property
    def timestamp(self) -> int:
        """RTP timestamp of the next packet."""
        return (self._origin + self._next) % _WRAP

    def sent(self, pieces: list[Piece], length: Ticks) -> None:
        """The next packet went out, with `pieces` of content."""
        for piece in pieces:
            last = self._spans[-1] if self._spans else None
            at = self._next + piece.offset
            if (
                last is not None
                and last.response == piece.response
                and last.at + last.length == at
                and last.start + last.length == piece.start
            ):
                last.length += piece.length
            else:
                self._spans.append(_Span(at, piece.length, piece.response, piece.start))
        self.skip(length)

    def skip(self, length: Ticks) -> None:
        """RTP time passes without a packet."""
        self._next += length
        oldest = self._next - KEPT
        while len(self._spans) > 1 and self._spans[1].at <= oldest:
            self._spans.popleft()

    def forget(self) -> None:
        """Of what was sent so far nothing may be heard any more."""
        self._spans.clear()

    def locate(self, timestamp: int, ahead: Ticks = 0) -> tuple[str, Ticks] | None:
        """What is heard when a peer reports `timestamp`, `ahead` ticks later: response and content position.

        In a pause it is the end of what was sent before it. None where nothing was sent before it, or where the
        timestamp is of no packet that was sent in the last `KEPT`.
        """
        distance = (self.timestamp - timestamp) % _WRAP
        if distance > KEPT or distance == 0:
            return None
        position = min(self._next - distance - LEAD + ahead, self._next)
        for span in reversed(self._spans):
            if span.at < position:
                return span.response, span.start + min(span.length, position - span.at)
        return None

    def end_of(self, response: str) -> Ticks | None:
        """Content position up to which `response` was sent, if it was in the last `KEPT`."""
        for span in reversed(self._spans):
            if span.response == response:
                return span.start + span.length
        return None
