"""A session over a WebSocket: a reader, a writer with one ordered queue, and the last gate before the wire.

Order. Audio and what belongs to a response (its items, texts, end) go out in the order given. Everything else may
overtake held audio: while the carrier is on hold, notices of the input, the conversation and the session go on, and a
response's own notices wait behind its audio, so that no client sees the end of a response before its sound.

Gate. A frame is checked after the wire was found to have room and just before it is encoded and written, with no await
that suspends in between; so no flush can slip in. What a flush removes was never encoded. `BoundedWebSocketProtocol`
gives this guarantee; behind any other server the room cannot be known, and one message may wait past the gate.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from starlette.websockets import WebSocket, WebSocketDisconnect

from server.dialects.base import Dialect, EnduringDialect, InputAudio, InputImage, ItemAudio, Reply
from sessions.core import counters
from sessions.core.context import ImageRef
from sessions.core.events import CarrierBlocked, CarrierLost, CarrierReady, CommandRejected, Event, ItemCreate
from sessions.core.fence import OUT_OF_BAND, Fence
from sessions.core.notices import (
    CommandFailed,
    InputTranscriptDone,
    InputTranscriptFailed,
    InputTranscriptHypothesis,
    ItemAdded,
    ItemRetrieved,
    Notice,
    OutputClosed,
    OutputOpened,
    OutputText,
    PlaybackStarted,
    PlaybackStopped,
    ResponseClosed,
    ResponseOpened,
    SessionConfigured,
)
from sessions.ports import CarrierCapabilities, OutputFrame

from .uvicorn_websocket import EXTENSION

log = logging.getLogger(__name__)

MAX_MESSAGE: Final = 16 * 1024 * 1024
"""Characters of one message from the peer; a longer one is refused and the session goes on."""
WIRE_MAX_MESSAGE: Final = 2 * MAX_MESSAGE
"""`ws_max_size` for uvicorn. A message must be read to be refused, so beyond this the connection is closed (1009)."""
BLOCKED_AFTER: Final = 24_000
"""Bytes of PCM that wait for a peer that does not read, before the session is told: half a second at 24 kHz."""
CONTROL_MAX: Final = 1024 * 1024
"""Bytes (estimated) of notices that may wait for a peer that does not read, before the connection is given up."""
DRAIN_TIMEOUT: Final = 5.0
"""Seconds that a peer has to take what was queued when the session ended."""

STALE_AT_GATE: Final = counters.STALE_AT_GATE
"""Counter: frames that reached the gate with another fence than the gate's. An invariant keeps it at zero."""
CLEARED_AT_GATE: Final = "cleared_frames"
"""Counter: queued frames that a flush threw away."""
SLOW_CONSUMER: Final = "slow_consumer"
"""Counter and reason: connections given up because the peer did not read."""

REPLACED: Final = "replaced"
SESSION_OVER: Final = "session_over"
"""Reasons that `end` is called for: another carrier took the place of this one; the session ended before this one could
join it."""

TRY_LATER: Final = 1013
_CLOSE_CODES: Final = {"server_shutdown": 1001, "internal_error": 1011}

_ORDERED = (OutputOpened, OutputText, OutputClosed, ResponseOpened, ResponseClosed, PlaybackStarted, PlaybackStopped)


class SessionHandle(Protocol):
    """What the carrier needs of its session."""

    @property
    def session(self) -> str: ...

    def post(self, event: Event) -> None: ...

    def audio(self, pcm: bytes, rate: int) -> None: ...

    def item(self, create: ItemCreate, pcm: bytes, rate: int) -> None: ...

    def image(self, image: ImageRef, data: bytes) -> None: ...

    @property
    def has_room(self) -> bool: ...

    async def room(self) -> None: ...

    async def parted(self) -> None: ...


class Counts(Protocol):
    """Where the carrier counts."""

    def add(self, name: str, by: int = 1) -> None: ...


class Wire(Protocol):
    """The connection below the ASGI interface, where the server shows it."""

    def has_room(self) -> bool: ...

    async def room(self) -> None: ...

    def write(self, *messages: str | bytes) -> None: ...

    def unsent(self) -> int: ...

    def take(self, deliver: Callable[[str | bytes], bool]) -> None: ...

    def resume(self) -> None: ...

    def fail(self, code: int, reason: str) -> None: ...


class WebSocketCarrier:
    """`CarrierPort` over one accepted WebSocket. All methods are called on the event loop."""

    capabilities = CarrierCapabilities(acknowledged=False, own_buffer=False)

    def __init__(
        self,
        websocket: WebSocket,
        dialect: Dialect,
        counts: Counts,
        *,
        max_message: int = MAX_MESSAGE,
        blocked_after: int = BLOCKED_AFTER,
        control_max: int = CONTROL_MAX,
        joins: bool = False,
    ) -> None:
        """`websocket` has been accepted. The limits are those of `MAX_MESSAGE`, `BLOCKED_AFTER`, `CONTROL_MAX`.

        `joins`: the session lives already, and its dialect serves another connection until this one is attached.
        """
        self._websocket = websocket
        self._dialect = dialect
        self._enduring = dialect if isinstance(dialect, EnduringDialect) else None
        self._joined = asyncio.Event()
        if not joins:
            self._joined.set()
        self._counts = counts
        self._max_message = max_message
        self._blocked_after = blocked_after
        self._control_max = control_max
        self._wire = _wire_of(websocket)
        self._handle: SessionHandle | None = None
        self._media: deque[tuple[int, OutputFrame | Notice]] = deque()
        self._control: deque[tuple[int, Notice | Reply]] = deque()
        self._serial = 0
        self._audio_waiting = 0
        self._control_waiting = 0
        self._gate: Fence | None = None
        self._held = False
        self._blocked = False
        self._gone = False
        self._ending: str | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._waiting: asyncio.Task[None] | None = None
        self._at_rest = False
        """Whether the writer has written everything and waits."""
        self._wake = asyncio.Event()

    # --- the connection's life ---------------------------------------------------------------------------------------

    async def run(self, handle: SessionHandle, first: str | bytes | None = None) -> str:
        """Carry `handle`'s session until the socket and the session are both done; returns why it ended.

        `first`: a message that was read already.
        """
        self._handle = handle
        writer = asyncio.create_task(self._write(handle.session), name=f"{handle.session}-writer")
        try:
            reason = await self._read(handle, first)
            self._lose(reason)
        finally:
            self._lose("cancelled")
            tasks = [writer] if self._waiting is None else [writer, self._waiting]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._deadline is not None:
                self._deadline.cancel()
        await handle.parted()
        return self._ending or reason

    async def _read(self, handle: SessionHandle, first: str | bytes | None) -> str:
        # What a client that joins says is for the session as it was left, so it waits for that.
        await self._joined.wait()
        if first is not None:
            self._take(handle, first)
        # Where the wire can, it hands over messages as they are read, with no queue and no task's turn in between; then
        # only the end of the connection comes this way.
        self._wire.take(functools.partial(self._deliver, handle))
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                return "client_closed" if message.get("code") in (1000, 1001) else "connection_lost"
            text = message.get("text")
            self._take(handle, message["bytes"] if text is None else text)
            await handle.room()

    def _deliver(self, handle: SessionHandle, data: str | bytes) -> bool:
        """One message from the wire; False where no more should be read, until the session has room again."""
        try:
            self._take(handle, data)
        except Exception:
            log.exception("reading for session %s failed", handle.session)
            self._lose("internal_error")
            self._wire.fail(1011, "internal_error")
            return False
        if handle.has_room:
            return True
        if self._waiting is None or self._waiting.done():
            self._waiting = asyncio.create_task(self._read_on(handle), name=f"{handle.session}-reader")
        return False

    async def _read_on(self, handle: SessionHandle) -> None:
        await handle.room()
        self._wire.resume()

    def _take(self, handle: SessionHandle, data: str | bytes) -> None:
        if self._ending is not None:
            # The dialect may already serve another connection, and what this one says would change its mind.
            return
        if len(data) > self._max_message:
            why = f"the message has {len(data)} characters; at most {self._max_message} are taken: send smaller ones"
            handle.post(CommandRejected("message_too_large", why))
            return
        for received in self._dialect.receive(data):
            if isinstance(received, InputAudio):
                handle.audio(received.pcm, received.rate)
            elif isinstance(received, ItemAudio):
                handle.item(received.create, received.pcm, received.rate)
            elif isinstance(received, InputImage):
                handle.image(received.image, received.data)
            else:
                handle.post(received)
        if self._enduring is not None:
            for reply in self._enduring.replies():
                self._put_control(reply)

    async def _write(self, session: str) -> None:
        try:
            await self._joined.wait()
            if self._ending != SESSION_OVER:
                for text in self._dialect.open(session):
                    await self._send(text)
            while not self._gone:
                await self._room()
                entry = self._next()
                if entry is not None:
                    # The first message finds the room that was just waited for, so it follows the gate without a break.
                    for text in self._encode(entry):
                        await self._send(text)
                elif self._ending is None:
                    self._drained()
                    self._wake.clear()
                    self._at_rest = not isinstance(self._wire, _UnknownWire)
                    await self._wake.wait()
                    self._at_rest = False
                else:
                    if self._enduring is not None:
                        for text in self._enduring.farewell(self._ending):
                            await self._send(text)
                    await self._websocket.close(_CLOSE_CODES.get(self._ending, 1000), self._ending[:100])
                    return
        except (WebSocketDisconnect, RuntimeError):
            # The peer went away, or closed while we wrote; the reader learns the same and ends the session.
            self._forget_queue()
        except Exception:
            log.exception("writing for session %s failed", session)
            self._lose("internal_error")
            self._wire.fail(1011, "internal_error")

    async def _room(self) -> None:
        # A ping of the server's own may take the room between the wake-up and now.
        while not self._wire.has_room():
            await self._wire.room()

    async def _send(self, text: str) -> None:
        await self._room()
        if isinstance(self._wire, _UnknownWire):
            await self._websocket.send_text(text)
        else:
            self._wire.write(text)

    def _lose(self, reason: str) -> None:
        """The peer is out of reach: the session, if it still lives, is told so once."""
        if self._gone:
            return
        self._gone = True
        self._forget_queue()
        if self._ending is None:
            self._post(CarrierLost(reason))

    # --- queue and gate ----------------------------------------------------------------------------------------------

    def _next(self) -> OutputFrame | Notice | Reply | None:
        media, control = self._media, self._control
        if media and (not control or media[0][0] < control[0][0]):
            head = media[0][1]
            if not (self._held and isinstance(head, OutputFrame)):
                media.popleft()
                return head
        return control.popleft()[1] if control else None

    def _encode(self, entry: OutputFrame | Notice | Reply) -> list[str]:
        if not isinstance(entry, OutputFrame):
            self._control_waiting -= _weight(entry)
            if isinstance(entry, Reply):
                return [] if self._enduring is None else self._enduring.reply(entry)
            return self._dialect.send(entry)
        self._audio_waiting -= len(entry.pcm)
        return self._through_gate(entry)

    def _through_gate(self, frame: OutputFrame) -> list[str]:
        if not self._passes(frame.fence):
            self._counts.add(STALE_AT_GATE)
            return []
        return self._dialect.send_frame(frame)

    def _passes(self, fence: Fence) -> bool:
        # Out-of-band audio may come first: it sets no gate, or nothing of the conversation would pass after it.
        return fence.epoch == OUT_OF_BAND if self._gate is None else self._gate.admits(fence)

    def _put_media(self, notice: Notice) -> None:
        self._media.append((self._serial + 1, notice))
        self._queued(notice)

    def _put_control(self, entry: Notice | Reply) -> None:
        self._control.append((self._serial + 1, entry))
        self._queued(entry)

    def _queued(self, entry: Notice | Reply) -> None:
        self._serial += 1
        self._control_waiting += _weight(entry)
        if self._control_waiting > self._control_max and not self._wire.has_room():
            self._give_up()
            return
        self._wake.set()

    def _forget_queue(self) -> None:
        """Nothing of it can be sent any more. What is not sound is kept, where there is a client that may come back."""
        if self._enduring is not None:
            self._drop_audio(None)
            for _, entry in sorted((*self._media, *self._control), key=_serial_of):
                if not isinstance(entry, OutputFrame):
                    self._enduring.keep(entry)
        self._media.clear()
        self._control.clear()
        self._audio_waiting = self._control_waiting = 0

    def _post(self, event: Event) -> None:
        if self._handle is not None:
            self._handle.post(event)

    def _drained(self) -> None:
        if self._blocked:
            self._blocked = False
            self._post(CarrierReady())

    def _give_up(self) -> None:
        """The peer takes nothing: nothing that we could still say would reach it."""
        self._counts.add(SLOW_CONSUMER)
        self._lose(SLOW_CONSUMER)
        self._wire.fail(TRY_LATER, "slow_consumer: the peer did not read; connect again and keep reading")
        self._wake.set()

    # --- CarrierPort -------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Bytes that the session handed over and the peer's machine has not got: queued here (as PCM and estimated
        notices) and unsent below."""
        return self._audio_waiting + self._control_waiting + self._wire.unsent()

    def admit(self, *frames: OutputFrame) -> None:
        """Queue frames. The first one of the conversation sets the gate where no flush did."""
        if self._gone or self._ending is not None:
            return
        if self._gate is None:
            self._gate = next((frame.fence for frame in frames if frame.fence.epoch != OUT_OF_BAND), None)
        if self._at_rest and not (self._media or self._control or self._held) and self._wire.has_room():
            # Nothing is ahead of them, so their turn is now: no task has to be woken for it.
            texts = [text for frame in frames for text in self._through_gate(frame)]
            if texts:
                self._wire.write(*texts)
            return
        for frame in frames:
            self._serial += 1
            self._media.append((self._serial, frame))
            self._audio_waiting += len(frame.pcm)
        if self._audio_waiting > self._blocked_after and not self._blocked and not self._wire.has_room():
            self._blocked = True
            self._post(CarrierBlocked(self.waiting))
        self._wake.set()

    def hold(self) -> None:
        self._held = True

    def resume(self) -> None:
        self._held = False
        self._wake.set()

    def flush(self, fence: Fence) -> None:
        """Move the gate to `fence`, drop all queued audio, and the captions that stand behind it: their words were
        never sent."""
        self._gate = fence
        self._held = False
        cleared = self._drop_audio(fence)
        self._dialect.flush(fence)
        if cleared:
            self._counts.add(CLEARED_AT_GATE, cleared)
        self._joined.set()
        self._wake.set()

    def _drop_audio(self, fence: Fence | None) -> int:
        """Drop queued audio that `fence` does not admit (None: any) and its captions; returns how many frames."""
        kept: deque[tuple[int, OutputFrame | Notice]] = deque()
        cleared = 0
        silenced: set[str] = set()
        for serial, entry in self._media:
            if isinstance(entry, OutputFrame) and not (fence is not None and fence.admits(entry.fence)):
                cleared += 1
                silenced.add(entry.response)
            elif isinstance(entry, OutputText) and entry.spoken and entry.response in silenced:
                self._control_waiting -= _weight(entry)
            else:
                kept.append((serial, entry))
        self._media = kept
        self._audio_waiting = sum(len(entry.pcm) for _, entry in kept if isinstance(entry, OutputFrame))
        return cleared

    def notify(self, notice: Notice) -> None:
        """Queue one notice, behind waiting audio if it belongs to a response."""
        if self._ending is not None:
            return
        if self._gone:
            if self._enduring is not None:
                self._enduring.keep(notice)
            return
        if self._media and isinstance(notice, _ORDERED):
            self._put_media(notice)
        else:
            self._put_control(notice)

    def end(self, reason: str) -> None:
        """Close the connection once what was queued is out; held audio is not waited for."""
        self._joined.set()
        if self._gone or self._ending is not None:
            return
        self._ending = reason
        if reason == REPLACED:
            # From here on the dialect speaks to another connection: the rest is said there.
            self._forget_queue()
        if self._held:
            self._held = False
            self._media = deque(pair for pair in self._media if not isinstance(pair[1], OutputFrame))
            self._audio_waiting = 0
        self._wake.set()
        self._deadline = asyncio.get_running_loop().call_later(DRAIN_TIMEOUT, self._cut_off)

    def _cut_off(self) -> None:
        if not self._gone:
            self._lose(SLOW_CONSUMER)
            self._wire.fail(TRY_LATER, "the peer did not read what was left")


class _UnknownWire:
    """Below some other ASGI server: always room, as far as can be seen."""

    def has_room(self) -> bool:
        return True

    async def room(self) -> None:
        return

    def write(self, *messages: str | bytes) -> None:
        raise NotImplementedError("below another server messages go through ASGI")

    def unsent(self) -> int:
        return 0

    def take(self, deliver: Callable[[str | bytes], bool]) -> None:
        """Messages come by ASGI alone."""

    def resume(self) -> None:
        """Nothing was stopped."""

    def fail(self, code: int, reason: str) -> None:
        """Nothing to hold on to; the server's own keep-alive ends the connection."""


def _wire_of(websocket: WebSocket) -> Wire:
    shown = (websocket.scope.get("extensions") or {}).get(EXTENSION)
    wire: Wire = _UnknownWire() if shown is None else shown["wire"]
    return wire


def _serial_of(queued: tuple[int, OutputFrame | Notice | Reply]) -> int:
    return queued[0]


def _weight(notice: Notice | Reply) -> int:
    """About how many bytes a notice becomes; it is encoded only when its turn comes."""
    match notice:
        case OutputText() | InputTranscriptDone() | InputTranscriptHypothesis():
            return 300 + len(notice.text)
        case ItemAdded() | OutputClosed():
            return 1200 + 4 * len(notice.item.text)
        case ItemRetrieved():
            return 400 + len(notice.item.text)
        case ResponseClosed():
            return 1200 + sum(len(item.text) + 300 for item in notice.response.items)
        case SessionConfigured():
            tools = sum(len(tool.parameters) + len(tool.description) + 100 for tool in notice.config.tools)
            return 1500 + len(notice.config.instructions) + tools
        case CommandFailed() | InputTranscriptFailed():
            return 300 + len(notice.message)
        case _:
            return 500
