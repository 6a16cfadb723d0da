"""What the agent is heard with, on the clock of the input: through a loudspeaker it comes back in the microphone."""

from __future__ import annotations

from collections import deque

from .core.timeline import TICK_RATE, Ticks
from .ports import PerceptionPort
from .tracks import ticks_of

SENT_KEPT: Ticks = TICK_RATE
"""How long what was sent is remembered, in case a hold moves it: longer than any lead."""
SLOWER = 500
"""By one part in so many the input's clock may run behind the session's."""
CLOCKS_APART: Ticks = TICK_RATE // 5
"""How far the clocks of input and session may drift apart within one stretch of speech before they are set anew."""


class OwnVoice:
    """Tells perception what of one session is being heard, as far as the server knows it."""

    def __init__(self, session: str, perception: PerceptionPort, rate: int) -> None:
        """`rate`: Hz of the agent's audio."""
        self._session = session
        self._perception = perception
        self._rate = rate
        self._ahead: Ticks = 0
        """Position of the input less session time, as packets that were not late have it."""
        self._told_until: tuple[Ticks, Ticks] = (0, 0)
        self._sent: deque[tuple[Ticks, bytes]] = deque()
        self._held_at: Ticks | None = None

    def arrived(self, start: Ticks, end: Ticks, now: Ticks) -> None:
        """Input [start, end) came at session time `now`.

        Packets come late and never early, so the earliest sets the clock; one that runs slow is followed.
        """
        ahead = end - now
        slower = self._ahead - (end - start) // SLOWER
        self._ahead = ahead if ahead > slower or start == 0 else slower

    def play(self, placed_at: Ticks, pcm: bytes, now: Ticks) -> None:
        """`pcm` (mono PCM16) is heard from session time `placed_at` on."""
        at = max(0, placed_at + self._ahead)
        # Input comes in packets, so the two clocks seem to jump against each other; one stretch of speech must not.
        ends, heard_until = self._told_until
        if placed_at == ends and abs(at - heard_until) < CLOCKS_APART:
            at = heard_until
        length = ticks_of(pcm, self._rate)
        self._told_until = (placed_at + length, at + length)
        self._sent.append((placed_at, pcm))
        while self._sent[0][0] < now - SENT_KEPT:
            self._sent.popleft()
        self._perception.play(self._session, at, pcm, self._rate)

    def hold(self, now: Ticks) -> None:
        """A carrier that paces releases nothing from `now` on."""
        self._held_at = now
        self._perception.hush(self._session, now + self._ahead)

    def resume(self, now: Ticks) -> None:
        """It goes on: what it had not released is heard so much later."""
        held_at, self._held_at = self._held_at, None
        if held_at is None:
            return
        sent, self._sent = self._sent, deque()
        for placed_at, pcm in sent:
            if placed_at >= held_at:
                self.play(placed_at + now - held_at, pcm, now)

    def flush(self, now: Ticks) -> None:
        """Nothing of what was sent is heard any more."""
        self._held_at = None
        self._sent.clear()
        self._perception.hush(self._session, now + self._ahead)
