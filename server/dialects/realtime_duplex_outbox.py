"""What a client was told, by number, for the case that its connection breaks and it comes back for the rest."""

from __future__ import annotations

from collections import deque
from typing import Final

MOST_BYTES: Final = 512 * 1024
"""Characters of events that are kept for one session: minutes of conversation, or some long items."""
MOST_EVENTS: Final = 4096


class Gap(Exception):
    """Events that are asked for again are not kept any more."""


class Outbox:
    """The numbered events of one session, from 1 on without a gap; the newest are kept, as far as the bounds allow.

    Audio is not among them. Whoever comes back has missed what was said in the meantime: its epoch is over, and nothing
    of an epoch that is over may be heard.
    """

    def __init__(self, most_bytes: int = MOST_BYTES, most_events: int = MOST_EVENTS) -> None:
        self._most_bytes = most_bytes
        self._most_events = most_events
        self._kept: deque[str] = deque()
        self._bytes = 0
        self.last = 0
        """Number of the newest event; 0 before the first."""

    def go_on(self, number: int) -> None:
        """Events up to `number` were given out by another process, which kept them to itself."""
        self.last = number

    @property
    def waiting(self) -> int:
        """Characters that are kept."""
        return self._bytes

    @property
    def first(self) -> int:
        """Number of the oldest event that is kept; `last` + 1 where none is."""
        return self.last + 1 - len(self._kept)

    def add(self, text: str) -> None:
        """Keep the event with the number `last` + 1."""
        self.last += 1
        self._kept.append(text)
        self._bytes += len(text)
        while self._bytes > self._most_bytes or len(self._kept) > self._most_events:
            self._drop()

    def acknowledge(self, number: int) -> None:
        """The client has got everything up to `number`. Raises ValueError for one that was not given out yet."""
        self._known(number)
        while self._kept and self.first <= number:
            self._drop()

    def after(self, number: int) -> list[str]:
        """The events behind `number`, in order. Raises Gap, and ValueError for a number that was not given out yet."""
        self._known(number)
        if number + 1 < self.first:
            raise Gap(f"events {number + 1} to {self.first - 1} are not kept any more")
        return list(self._kept)[number + 1 - self.first :]

    def _known(self, number: int) -> None:
        if not 0 <= number <= self.last:
            raise ValueError(f"event {number} was never sent; the newest is {self.last}")

    def _drop(self) -> None:
        self._bytes -= len(self._kept.popleft())
