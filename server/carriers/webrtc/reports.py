"""The channel `talkover-playback`: what the page says of its speaker, and what it must not let sound (docs/webrtc.md).

Every message on it is state, so nothing is kept and nothing is sent again.
"""

from __future__ import annotations

import json
from typing import Final

from aiortc import RTCDataChannel

from sessions.core.events import PlaybackReported
from sessions.core.timeline import TICK_RATE, Ticks, from_ms

from .playback import PlaybackMap

PLAYBACK: Final = "talkover-playback"
MAX_REPORT: Final = 1024
"""Characters of one message."""
AHEAD_MOST: Final[Ticks] = from_ms(500)
"""Of the way of a report that is made up for at most."""


class NoReport(ValueError):
    """A message is none of this channel."""


class PlaybackReports:
    """One connection's reports. `played` knows what was sent under which timestamp."""

    def __init__(self, played: PlaybackMap) -> None:
        self._played = played
        self._channel: RTCDataChannel | None = None
        self._latest = float("-inf")
        self._reported: dict[str, Ticks] = {}
        self.epoch = 0
        self.mute_until: int | None = None
        """RTP timestamp of the first packet of the epoch; None in the first one until something was cut."""

    def open(self, channel: RTCDataChannel) -> bool:
        """Use `channel`; False where there is one already."""
        if self._channel is not None:
            return False
        self._channel = channel
        return True

    def take(self, message: str | bytes, round_trip: float) -> list[PlaybackReported]:
        """What a message says of playback, in order; it is answered. `round_trip` in seconds. Raises NoReport."""
        timestamp, at = _read(message)
        events: list[PlaybackReported] = []
        # Unordered as the channel is, an older report may come after a newer one.
        if timestamp is not None and at > self._latest:
            self._latest = at
            events = self._positions(timestamp, round_trip)
        self._tell({"at_ms": at})
        return events

    def _positions(self, timestamp: int, round_trip: float) -> list[PlaybackReported]:
        if self.mute_until is not None and _before(timestamp, self.mute_until):
            # Of the last epoch: what was heard of it is settled.
            return []
        # The report itself took half a round trip.
        found = self._played.locate(timestamp, min(round(round_trip / 2 * TICK_RATE), AHEAD_MOST))
        if found is None:
            return []
        response, position = found
        events: list[PlaybackReported] = []
        for earlier in [one for one in self._reported if one != response]:
            # It was played to its end, though no report may have hit that.
            del self._reported[earlier]
            end = self._played.end_of(earlier)
            if end is not None:
                events.append(PlaybackReported(earlier, end))
        if position > self._reported.get(response, -1):
            self._reported[response] = position
            events.append(PlaybackReported(response, position))
        return events

    def begin_epoch(self, epoch: int) -> None:
        """What is sent from now on is of `epoch`, and nothing else may be heard: the page is told."""
        self.epoch = epoch
        self.mute_until = self._played.timestamp
        self._reported.clear()
        self._tell({})

    def _tell(self, answer: dict[str, float]) -> None:
        channel = self._channel
        if channel is not None and channel.readyState == "open":
            state = {"epoch": self.epoch, "mute_until_rtp": self.mute_until, **answer}
            channel.send(json.dumps(state, separators=(",", ":")))


def _read(message: str | bytes) -> tuple[int | None, float]:
    """Timestamp and the page's own time. Raises NoReport."""
    if not isinstance(message, str) or len(message) > MAX_REPORT:
        raise NoReport
    try:
        report = json.loads(message)
    except (ValueError, RecursionError):
        raise NoReport from None
    if not isinstance(report, dict):
        raise NoReport
    timestamp, at = report.get("rtp"), report.get("at_ms")
    if isinstance(at, bool) or not isinstance(at, int | float) or not -1e15 < at < 1e15:
        raise NoReport
    if timestamp is None:
        return None, at
    if isinstance(timestamp, bool) or not isinstance(timestamp, int) or not 0 <= timestamp < 1 << 32:
        raise NoReport
    return timestamp, at


def _before(timestamp: int, other: int) -> bool:
    """Whether an RTP timestamp lies before another one."""
    return 0 < (other - timestamp) % (1 << 32) < 1 << 31
