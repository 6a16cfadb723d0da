"""Whether the peer is still there, by what comes from it; ICE's own answer takes half a minute."""

from __future__ import annotations

from typing import Final

CONNECT_WITHIN: Final = 15.0
"""Seconds from the answer to the connection."""
GONE_AFTER: Final = 4.0
"""Seconds of silence after media or reports that came steadily, before the client counts as lost."""
GONE_AFTER_QUIET: Final = 12.0
"""The same for a client that sends neither, whose checks and reports come every few seconds."""
STEADY: Final = 1.0
"""Seconds before the last sign of life within which the flow counts as having ended with everything else."""


class Life:
    """Signs of life of one peer. `now` is seconds of any steady clock."""

    def __init__(self, now: float) -> None:
        self.connected_at: float | None = None
        self._deadline = now + CONNECT_WITHIN
        self._flow_at = self._sign_at = now

    def connected(self, now: float) -> None:
        """The connection is there. Later calls change nothing."""
        if self.connected_at is None:
            self.connected_at = self._flow_at = self._sign_at = now

    def flow(self, now: float) -> None:
        """Something that comes many times a second: media, a playback report."""
        self._flow_at = self._sign_at = now

    def sign(self, now: float) -> None:
        """Anything else that comes from the peer."""
        self._sign_at = now

    def end(self, now: float) -> str | None:
        """Why the peer counts as lost, None while it does not."""
        if self.connected_at is None:
            return "never_connected" if now > self._deadline else None
        # What stopped together with everything else was cut; what had stopped before was only quiet.
        steady = self._sign_at - self._flow_at < STEADY
        return "connection_lost" if now - self._sign_at > (GONE_AFTER if steady else GONE_AFTER_QUIET) else None
