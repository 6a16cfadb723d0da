"""Marks: what a carrier sends back when everything before them was played.

A mark's name carries the epoch. One that comes back after the agent was cut is of a dead epoch: carriers return what
they throw away as if it had been played, and it is neither counted as heard nor waited for.
"""

from __future__ import annotations

from typing import Final

from sessions.core.events import PlaybackReported
from sessions.core.timeline import Ticks, from_ms

EVERY: Final[Ticks] = from_ms(200)
"""How much content lies between two marks; in between the core carries the position on by its clock."""
PENDING_MOST: Final = 1024
"""Marks that may be on their way; a carrier that returns none is not remembered for ever."""

AFTER_CLEAR: Final = "marks_after_clear"
"""Counter: marks of an epoch that was over when they came back."""
UNKNOWN: Final = "unknown_marks"
"""Counter: marks that were never sent, or came twice."""


class Marks:
    """The marks of one connection that are on their way."""

    def __init__(self) -> None:
        self._pending: dict[str, PlaybackReported] = {}
        self._epoch = 0
        self._serial = 0
        self._marked: tuple[str, Ticks] = ("", 0)
        self._sent: tuple[str, Ticks] = ("", 0)

    def sent(self, response: str, end: Ticks, epoch: int) -> str | None:
        """Audio up to `end` of `response` went out; the name of the mark to send behind it, if one is due."""
        self._epoch = epoch
        self._sent = (response, end)
        marked, at = self._marked
        if marked == response and end - at < EVERY:
            return None
        return self._mark()

    def last(self) -> str | None:
        """The name of the mark behind the last audio that went out, if it has none yet."""
        return self._mark() if self._sent[0] and self._sent != self._marked else None

    def _mark(self) -> str:
        self._serial += 1
        name = f"{self._epoch}.{self._serial}"
        self._marked = self._sent
        self._pending[name] = PlaybackReported(*self._sent)
        if len(self._pending) > PENDING_MOST:
            del self._pending[next(iter(self._pending))]
        return name

    def returned(self, name: str) -> PlaybackReported | str:
        """What the return of a mark says, or the counter of one that says nothing."""
        report = self._pending.get(name)
        if report is None:
            epoch, _, serial = name.partition(".")
            old = epoch.isascii() and epoch.isdigit() and len(epoch) < 10 and int(epoch) < self._epoch
            return AFTER_CLEAR if old and serial else UNKNOWN
        # What was sent before it was played before it, whether its own mark came back or not.
        for earlier in list(self._pending):
            del self._pending[earlier]
            if earlier == name:
                break
        return report

    def clear(self, epoch: int) -> None:
        """What went out was thrown away; nothing of it will be believed. `epoch` holds from here on."""
        self._epoch = epoch
        self._pending.clear()
        self._marked = self._sent = ("", 0)
