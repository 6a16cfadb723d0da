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
LATELY: Final = 5.0
"""Seconds of which the swiftest message is remembered, and as many before."""


class NoReport(ValueError):
    """A message is none of this channel."""


class PlaybackReports:
    """One connection's reports. `played` knows what was sent under which timestamp."""

    def __init__(self, played: PlaybackMap) -> None:
        self._played = played
        self._channel: RTCDataChannel | None = None
        self._latest = float("-inf")
        self._ways = _Ways()
        self._reported: dict[str, Ticks] = {}
        self._standing = False
        self.held = False
        """Whether nothing of the conversation is sent: a page that stays at one place then has nothing left, and says
        so a second time."""
        self.epoch = 0
        self.mute_until: int | None = None
        """RTP timestamp of the first packet of the epoch; None in the first one until something was cut."""

    def open(self, channel: RTCDataChannel) -> bool:
        """Use `channel`; False where there is one already."""
        if self._channel is not None:
            return False
        self._channel = channel
        return True

    def take(self, message: str | bytes, round_trip: float, now: float) -> list[PlaybackReported]:
        """What a message that came at `now` says of playback, in order; it is answered. In seconds. Raises NoReport."""
        timestamp, at = _read(message)
        way = self._ways.of(at / 1000, now, round_trip)
        events: list[PlaybackReported] = []
        # Unordered as the channel is, an older report may come after a newer one.
        if timestamp is not None and at > self._latest:
            self._latest = at
            events = self._positions(timestamp, way)
        self._tell({"at_ms": at})
        return events

    def _positions(self, timestamp: int, way: float) -> list[PlaybackReported]:
        if self.mute_until is not None and _before(timestamp, self.mute_until):
            # Of the last epoch: what was heard of it is settled.
            return []
        found = self._played.locate(timestamp, min(round(way * TICK_RATE), AHEAD_MOST))
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
        before = self._reported.get(response, -1)
        stands = self.held and position == before
        if position > before or (stands and not self._standing):
            self._reported[response] = position
            self._standing = stands
            events.append(PlaybackReported(response, position))
        return events

    def begin_epoch(self, epoch: int) -> None:
        """What is sent from now on is of `epoch`, and nothing else may be heard: the page is told."""
        self.epoch = epoch
        self.mute_until = self._played.timestamp
        self._played.forget()
        self._reported.clear()
        self.held = self._standing = False
        self._tell({})

    def _tell(self, answer: dict[str, float]) -> None:
        channel = self._channel
        if channel is not None and channel.readyState == "open":
            state = {"epoch": self.epoch, "mute_until_rtp": self.mute_until, **answer}
            channel.send(json.dumps(state, separators=(",", ":")))


class _Least:
    """The least of what was told lately: clocks drift, and a machine that slept has another one."""

    def __init__(self) -> None:
        self._now = self._before = float("inf")
        self._since = float("-inf")

    def of(self, value: float, now: float) -> float:
        if now - self._since > LATELY:
            self._before, self._now, self._since = self._now, value, now
        self._now = min(self._now, value)
        return min(self._now, self._before)


class _Ways:
    """How long each message was on its way here, in seconds.

    The swiftest ones lately took half of the shortest round trip, and every other as much longer as both clocks say:
    busy machines take a while to send and to hear, and each time another one.
    """

    def __init__(self) -> None:
        self._took = _Least()
        self._round_trip = _Least()

    def of(self, sent: float, now: float, round_trip: float) -> float:
        """`sent` by the page's clock, `now` by ours. `round_trip`: 0 where it is not known yet."""
        took = now - sent
        half = self._round_trip.of(round_trip, now) / 2 if round_trip else 0.0
        return half + took - self._took.of(took, now)


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
