"""How messages get to a worker and back: what a transport must do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from .messages import Command, Note


class Link(Protocol):
    """One worker, from its start to its end. Methods are called from any thread."""

    @property
    def pid(self) -> int | None:
        """Its process, where that is one of this machine."""

    @property
    def counters(self) -> Mapping[str, int]:
        """ "frames_dropped": frames for a worker that did not take them in time."""

    @property
    def waiting(self) -> int:
        """Commands that are still to be sent."""

    def send(self, command: Command) -> None:
        """Never waits. Nothing happens once the worker is gone."""

    def forget(self, session: str) -> None:
        """Frames of that session that still wait are not wanted any more."""

    def kill(self) -> None:
        """End it at once. What it still had to say may be lost; `lost` is called when it is gone."""

    def join(self, within: float) -> bool:
        """Wait for its end; whether it came."""


class Launch(Protocol):
    """Starts a worker.

    `hear` is called with each thing it says, in order, from one thread. `lost` is called once, after the last of them,
    with the reason why there will be no more.
    """

    def __call__(self, hear: Callable[[Note], None], lost: Callable[[str], None]) -> Link: ...
