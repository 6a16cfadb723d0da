"""The channel `oai-events`: events of the session to the client, which wait until it is open, and its own, in turn."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Callable
from typing import Final

from aiortc import RTCDataChannel

from server.carriers.websocket import CONTROL_MAX

EVENTS: Final = "oai-events"
MAX_MESSAGE: Final = 256 * 1024
"""Characters of one event of the client; a longer one is refused and the session goes on."""
INBOX_MOST: Final = 4 * MAX_MESSAGE
"""Characters of events that may wait for a session that is behind."""
INBOX_EVENTS_MOST: Final = 4096


class EventChannel:
    """Both directions of it. A data channel cannot be told to wait, so what comes is kept, and bounded, here."""

    def __init__(self, shorten: Callable[[str, int], str], longest: Callable[[], int]) -> None:
        """`shorten` makes the error in the place of an event, by its type, that is longer than the bytes given;
        `longest` gives the bytes of the longest message that the peer takes (0: any)."""
        self._shorten = shorten
        self._longest = longest
        self._channel: RTCDataChannel | None = None
        self._unsent: deque[str] = deque()
        self._unsent_size = 0
        self._inbox: deque[str | bytes] = deque()
        self._inbox_size = 0
        self._mail = asyncio.Event()
        self.listeners: list[Callable[[str], None]] = []
        """Who gets every event that goes out as well."""

    # --- out ---------------------------------------------------------------------------------------------------------

    def open(self, channel: RTCDataChannel) -> bool:
        """Use `channel`, and send what waited for it; False where there is one already."""
        if self._channel is not None:
            return False
        self._channel = channel
        unsent, self._unsent, self._unsent_size = self._unsent, deque(), 0
        for message in unsent:
            self._write(message)
        return True

    def greet(self, messages: list[str]) -> None:
        """Send `messages` before all that has been said."""
        said, self._unsent, self._unsent_size = self._unsent, deque(), 0
        for message in (*messages, *said):
            self.say(message)

    def say(self, message: str) -> None:
        """Send an event, now or as soon as the channel is open."""
        for listener in list(self.listeners):
            listener(message)
        if self._channel is not None:
            self._write(message)
            return
        self._unsent.append(message)
        self._unsent_size += len(message)
        while self._unsent_size > CONTROL_MAX and len(self._unsent) > 1:
            # A client may never open it, and only listen. The first one is the greeting, and stays.
            dropped = self._unsent[1]
            del self._unsent[1]
            self._unsent_size -= len(dropped)

    def _write(self, message: str) -> None:
        channel = self._channel
        if channel is None or channel.readyState != "open":
            return
        most = self._longest()
        if most and len(message) > most // 4 and len(message.encode()) > most:
            message = self._shorten(str(json.loads(message).get("type", "")), most)
        channel.send(message)

    @property
    def waiting(self) -> int:
        """Bytes that the peer has not got."""
        return self._unsent_size + (self._channel.bufferedAmount if self._channel is not None else 0)

    @property
    def stuck(self) -> bool:
        """Whether the peer has an open channel and does not read it."""
        return self._channel is not None and self._channel.bufferedAmount > CONTROL_MAX

    async def drain(self, within: float) -> None:
        """Wait until the transport has taken everything or is gone, at most `within` seconds."""
        channel = self._channel
        if channel is not None and channel.readyState == "open" and channel.bufferedAmount:
            drained = asyncio.Event()
            channel.once("bufferedamountlow", drained.set)
            channel.once("close", drained.set)  # what waits then is never taken
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(drained.wait(), within)

    # --- in ----------------------------------------------------------------------------------------------------------

    def put(self, message: str | bytes) -> bool:
        """Keep an event of the client until it is taken; False where that are too many."""
        self._inbox.append(message)
        self._inbox_size += len(message)
        self._mail.set()
        return self._inbox_size <= INBOX_MOST and len(self._inbox) <= INBOX_EVENTS_MOST

    async def take(self) -> str | bytes:
        """The next event of the client."""
        while not self._inbox:
            self._mail.clear()
            await self._mail.wait()
        message = self._inbox.popleft()
        self._inbox_size -= len(message)
        return message
