"""What a carrier holds of its session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from .core import counters
from .core.context import ImageRef
from .core.events import Event, ItemCreate
from .core.records import Plain
from .core.timeline import Ticks
from .mailbox import Mail

if TYPE_CHECKING:
    from .runner import Runner


class SessionHandle:
    """What a carrier holds of its session: a place to put events and audio, until another carrier takes its place.

    What comes through the handle of a carrier that was replaced is dropped and counted.
    """

    def __init__(self, runner: Runner, attachment: int, token: str, parted: asyncio.Event) -> None:
        self._runner = runner
        self._parted = parted
        self.attachment: Final = attachment
        """1 for the carrier that the session began with, one more for each that joined it later."""
        self.resume_token: Final = token
        """With this another carrier may join the session; good for one time."""

    @property
    def session(self) -> str:
        return self._runner.session

    @property
    def current(self) -> bool:
        """Whether no other carrier has taken the place of this one's."""
        return self._runner.attachment == self.attachment

    def post(self, event: Event) -> None:
        """Add an event; never dropped while the handle is current. On the event loop only."""
        if self._may():
            self._runner.put(Mail(event))

    def audio(self, pcm: bytes, rate: int, concealed: bool = False) -> None:
        """Add user audio: mono 16-bit PCM at `rate` Hz (dividing 48 kHz), any length. On the event loop only.

        `concealed`: nothing real arrived, the carrier filled a gap.
        """
        if self._may():
            self._runner.audio(pcm, rate, concealed)

    def item(self, create: ItemCreate, pcm: bytes, rate: int) -> None:
        """Add an item whose content is audio. It lies on the input track like live audio, but opens no turn."""
        if self._may():
            self._runner.item(create, pcm, rate)

    def image(self, image: ImageRef, data: bytes) -> None:
        """The file of an image that the next item names. On the event loop only."""
        if self._may():
            self._runner.image(image, data)

    def note(self, note: Callable[[], Plain]) -> None:
        """Keep what `note` gives with the session, for whoever goes on with it in another process."""
        if self._may():
            self._runner.note(note)

    def _may(self) -> bool:
        current = self.current
        if not current:
            self._runner.counters.add(counters.OLD_CARRIER)
        return current

    @property
    def input_end(self) -> Ticks:
        """Where the audio put so far ends on the input track."""
        return self._runner.input_end

    @property
    def has_room(self) -> bool:
        """Whether no more mail waits than a well-behaved client could have sent."""
        return self._runner.has_room

    async def room(self) -> None:
        """Wait for `has_room`."""
        await self._runner.room()

    async def parted(self) -> None:
        """Wait until the session wants nothing more of this carrier: it ended, was detached, or has another one."""
        await self._parted.wait()

    async def closed(self) -> None:
        """Wait until the session has ended and everything of it is freed."""
        await self._runner.done.wait()
