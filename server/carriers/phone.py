"""A telephone call over a line: the same last gate as elsewhere, and a buffer at the other end that is told to flush.

Order. Audio goes out in the order given, and the end of an output behind its audio. Gate. A frame is checked after the
line was found to have room and just before it is encoded and written, with no await in between. Flush. The gate moves,
what waits here is dropped and the vendor is told to clear, in one step: the message goes to the line at once, even
where it has no room for more audio.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from server.dialects.base import InputAudio, InputImage, ItemAudio
from server.dialects.realtime_track import TrackDialect
from server.dialects.telephony.base import (
    IMPATIENT_AFTER,
    Answer,
    Call,
    Counted,
    Digit,
    Flow,
    HungUp,
    Message,
    PhoneDialect,
    PhoneReceived,
    Started,
)
from server.dialects.telephony.media import Heard
from sessions.core import counters
from sessions.core.context import ImageRef
from sessions.core.events import (
    CarrierBlocked,
    CarrierLost,
    CarrierReady,
    Close,
    CommandRejected,
    DigitPressed,
    Event,
    ItemCreate,
)
from sessions.core.fence import Fence
from sessions.core.notices import Notice, OutputClosed
from sessions.ports import CarrierCapabilities, OutputFrame
from sessions.tracks import SAMPLE_BYTES

from .webrtc.pacer import Pacer

log = logging.getLogger(__name__)

MAX_MESSAGE: Final = 1024 * 1024
"""Bytes or characters of one message from the peer."""
START_WITHIN: Final = 10.0
"""Seconds that a peer has to start its call."""
EARLY_MOST: Final = 256
"""Messages that may come before the session is there."""
BLOCKED_AFTER: Final = 24_000
"""Bytes of PCM that wait for a line without room before the session is told: half a second at 24 kHz."""
UNSENT_MOST: Final = 256 * 1024
"""Bytes below us that nobody took; beyond that the line is given up."""
AHEAD_MOST: Final = 5.0
"""Seconds of audio that may have come beyond the time that has passed; a line that stood still brings no more than it
missed, so what is beyond is a flood and dropped."""
FLOOD_MOST: Final = 60.0
"""Seconds of audio beyond the time that has passed at which a call is given up."""

BAD_MESSAGE: Final = "phone_messages_refused"
"""Counter: messages of phone lines that were refused."""
FLOOD: Final = "phone_audio_flood"
"""Counter: chunks that came faster than time passes, dropped."""
CLEARED: Final = "cleared_frames"
"""Counter: queued frames that a flush threw away."""
SLOW_CONSUMER: Final = "slow_consumer"
CLOSED: Final = "client_closed"
"""Why a line ended whose other end closed it properly."""
HUNG_UP: Final = "hung_up"

_CLOSE_CODES: Final = {"server_shutdown": 1001, "internal_error": 1011, "flood": 1008, "too_many_errors": 1008}


class Line(Protocol):
    """The connection below: messages in both directions, in order."""

    @property
    def peer(self) -> str:
        """The address of the other end."""

    def take(self, deliver: Callable[[Message], bool]) -> None:
        """Hand over every message from here on; `deliver` is False where no more should be read until `resume`."""

    def resume(self) -> None: ...

    def has_room(self) -> bool: ...

    async def room(self) -> None: ...

    def send(self, *messages: Message) -> None:
        """Write at once, room or not, as one."""

    def unsent(self) -> int: ...

    async def ended(self) -> str:
        """Wait until the other end has closed; why."""

    async def close(self, code: int, reason: str) -> None: ...

    def fail(self, code: int, reason: str) -> None: ...


class PhoneHandle(Protocol):
    """What the carrier needs of its session."""

    @property
    def session(self) -> str: ...

    def post(self, event: Event) -> None: ...

    def audio(self, pcm: bytes, rate: int, concealed: bool = False) -> None: ...

    def item(self, create: ItemCreate, pcm: bytes, rate: int) -> None: ...

    def image(self, image: ImageRef, data: bytes) -> None: ...

    @property
    def has_room(self) -> bool: ...

    async def room(self) -> None: ...

    async def parted(self) -> None: ...


class Counts(Protocol):
    """Where the carrier counts."""

    def add(self, name: str, by: int = 1) -> None: ...


class NoCall(Exception):
    """The peer started no call. `code` and the message say why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class PhoneCarrier:
    """`CarrierPort` over one line. All methods are called on the event loop."""

    def __init__(self, line: Line, dialect: PhoneDialect, counts: Counts, pacer: Pacer | None = None) -> None:
        """`pacer` is needed where the dialect's capabilities say that we pace."""
        self._line = line
        self.dialect = dialect
        self._counts = counts
        self._pacer = pacer
        self._paced = pacer is not None and dialect.needs_pacing
        """Whether frames leave by the clock."""
        self._loop = asyncio.get_running_loop()
        self._handle: PhoneHandle | None = None
        self._early: deque[PhoneReceived] = deque()
        self._start: asyncio.Future[Call] | None = None
        self._queue: deque[OutputFrame | OutputClosed] = deque()
        self._waiting = 0
        self._gate: Fence | None = None
        self._held = False
        self._full = False
        """The vendor's own buffer takes no more."""
        self._blocked = False
        self._gone = False
        self._hung_up = False
        """The caller has: the line may still be open, but nothing that is said on it means anything."""
        self._ending: asyncio.Future[str] = self._loop.create_future()
        self._drain: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._began = 0.0
        self._heard = 0.0
        self._refused = 0
        self._application: TrackDialect | None = None
        self._watchers: set[Callable[[str], None]] = set()

    @property
    def capabilities(self) -> CarrierCapabilities:
        return self.dialect.capabilities

    @property
    def waiting(self) -> int:
        """Bytes that the session handed over and the peer's machine has not got."""
        return self._waiting + self._line.unsent()

    @property
    def heard_seconds(self) -> float:
        """How much audio of the caller has come."""
        return self._heard

    @property
    def refused(self) -> int:
        """How many of the peer's messages were refused."""
        return self._refused

    # --- the call's life ---------------------------------------------------------------------------------------------

    async def start(self, within: float = START_WITHIN) -> Call:
        """Wait for the start of the call. What comes behind it waits for `run`. Raises NoCall."""
        self._start = asyncio.get_running_loop().create_future()
        self._began = asyncio.get_running_loop().time()
        ended = asyncio.create_task(self._line.ended())
        self._line.take(self._deliver)
        waited: list[asyncio.Future[Call] | asyncio.Task[str]] = [self._start, ended]
        try:
            await asyncio.wait(waited, timeout=within, return_when=asyncio.FIRST_COMPLETED)
            if self._start.done():
                return self._start.result()
            if ended.done():
                raise NoCall("no_start", "the connection was closed before the call started")
            raise NoCall("start_timeout", f"the call did not start within {within:.0f} s of the connection")
        finally:
            ended.cancel()

    async def run(self, handle: PhoneHandle) -> str:
        """Carry `handle`'s session until line and session are both done; returns why it ended."""
        self._handle = handle
        while self._early:
            self._act(handle, self._early.popleft())
        if self._pacer is not None and self.capabilities.paced and self.dialect.needs_pacing:
            self._pacer.add(self)
        ended = asyncio.create_task(self._line.ended())
        reason = "cancelled"
        try:
            await asyncio.wait([ended, self._ending], return_when=asyncio.FIRST_COMPLETED)
            if self._ending.done():
                reason = self._ending.result()
                await self._part(reason)
            else:
                reason = ended.result()
                if reason == CLOSED:
                    # Said goodbye, which is how vendors hang up that have no message for it: nobody will come back.
                    self._post(Close(HUNG_UP))
            self._lose(reason)
        finally:
            self._lose("cancelled")
            if self._pacer is not None:
                self._pacer.remove(self)
            tasks = [task for task in (ended, self._drain, self._reading) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await handle.parted()
        return self._ending.result() if self._ending.done() else reason

    async def _part(self, reason: str) -> None:
        self._line.send(*self.dialect.hang_up(reason))
        await self._line.close(_CLOSE_CODES.get(reason, 1000), reason[:100])

    def refuse(self, code: str, message: str) -> None:
        """Close the line of a call that gets no session."""
        self._line.send(*self.dialect.hang_up(code))
        # A closing frame holds 123 bytes of reason (RFC 6455 section 5.5), and the message may quote the peer.
        self._line.fail(1008, f"{code}: {message}".encode("ascii", "replace")[:120].decode())

    def _deliver(self, data: Message) -> bool:
        """One message of the peer; False where no more should be read now."""
        try:
            return self._take(data)
        except Exception:
            log.exception("reading a call of %s failed", self.dialect.vendor)
            self._give_up("internal_error")
            return False

    def _take(self, data: Message) -> bool:
        if self._gone or self._ending.done():
            return True
        if len(data) > MAX_MESSAGE:
            why = f"the message has {len(data)} characters; at most {MAX_MESSAGE} are taken: send smaller ones"
            received: Sequence[PhoneReceived] = [CommandRejected("message_too_large", why)]
        else:
            received = self.dialect.receive(data)
        handle = self._handle
        for one in received:
            if isinstance(one, Answer):
                self._line.send(*one.messages)
            elif handle is not None:
                self._act(handle, one)
            elif isinstance(one, Started):
                self._started(one)
            else:
                self._wait(one)
        if handle is None or handle.has_room:
            return True
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_on(handle), name=f"{handle.session}-reader")
        return False

    def _started(self, started: Started) -> None:
        if self._start is not None and not self._start.done():
            self._start.set_result(started.call)

    def _wait(self, one: PhoneReceived) -> None:
        """Something before there is a session; what is too much is dropped, the newest first."""
        if isinstance(one, CommandRejected):
            self._count_refusal(one)
        elif isinstance(one, Counted):
            self._counts.add(one.name)
        elif len(self._early) < EARLY_MOST:
            self._early.append(one)
        else:
            self._counts.add(FLOOD)

    async def _read_on(self, handle: PhoneHandle) -> None:
        await handle.room()
        self._line.resume()

    def _act(self, handle: PhoneHandle, one: PhoneReceived) -> None:
        if isinstance(one, Heard):
            self._hear(handle, one)
        elif isinstance(one, CommandRejected):
            self._count_refusal(one)
            handle.post(one)
        elif isinstance(one, Counted):
            self._counts.add(one.name)
        elif isinstance(one, Digit):
            handle.post(DigitPressed(one.digit))
        elif isinstance(one, HungUp):
            self._hung_up = True
            handle.post(Close(one.reason))
        elif isinstance(one, Flow):
            self._full = not one.open
            self._pour()
        elif not isinstance(one, Answer | Started):
            handle.post(one)

    def _hear(self, handle: PhoneHandle, heard: Heard) -> None:
        seconds = len(heard.pcm) / (SAMPLE_BYTES * heard.rate)
        ahead = self._heard + seconds - (self._loop.time() - self._began)
        if ahead > AHEAD_MOST:
            self._counts.add(FLOOD)
            # What is dropped counts too, or a flood could go on for ever.
            self._heard += seconds
            if ahead > FLOOD_MOST:
                self._give_up("flood")
            return
        self._heard += seconds
        handle.audio(heard.pcm, heard.rate, heard.concealed)

    def _count_refusal(self, refused: CommandRejected) -> None:
        self._counts.add(BAD_MESSAGE)
        self._counts.add(f"{BAD_MESSAGE}_{refused.code}"[:80])
        self._refused += 1
        if self._refused >= IMPATIENT_AFTER:
            self._give_up("too_many_errors")

    def _lose(self, reason: str) -> None:
        """The peer is out of reach: the session, if it still lives, is told so once."""
        if self._gone:
            return
        self._gone = True
        self._queue.clear()
        self._waiting = 0
        if self._handle is not None and not self._ending.done():
            self._handle.post(CarrierLost(reason))

    def _give_up(self, reason: str) -> None:
        self._counts.add(reason)
        self._line.fail(_CLOSE_CODES.get(reason, 1013), reason)
        if self._handle is not None:
            self._handle.post(Close(reason))

    # --- out ---------------------------------------------------------------------------------------------------------

    @property
    def _stopped(self) -> bool:
        return self._held or self._full

    def _pour(self) -> None:
        """Send what waits, as far as the line and the vendor take it."""
        if not self._paced:
            while self._queue and not self._stopped and self._line.has_room():
                self._release()
            if self._queue and not self._stopped and (self._drain is None or self._drain.done()):
                self._drain = asyncio.create_task(self._pour_on(), name=f"{self.dialect.vendor}-writer")
        self._judge()

    async def _pour_on(self) -> None:
        while self._queue and not self._stopped and not self._gone:
            await self._line.room()
            while self._queue and not self._stopped and self._line.has_room():
                self._release()
            self._judge()

    def _release(self) -> None:
        """The next of the queue goes out, if the gate lets it."""
        entry = self._queue.popleft()
        if isinstance(entry, OutputFrame):
            self._waiting -= len(entry.pcm)
            self._send_frames((entry,))
            return
        self._line.send(*self.dialect.send(entry))

    def _send_frames(self, frames: Sequence[OutputFrame]) -> None:
        """The last gate: no await stands between it and the line."""
        messages = [message for frame in frames for message in self._through_gate(frame)]
        if messages:
            self._line.send(*messages)

    def _through_gate(self, frame: OutputFrame) -> list[Message]:
        if self._gate is None or not self._gate.admits(frame.fence):
            self._counts.add(counters.STALE_AT_GATE)
            return []
        return self.dialect.send_frame(frame)

    def _judge(self) -> None:
        """Tell the session whether the peer takes its audio."""
        blocked = self._full or (self._waiting > BLOCKED_AFTER and not self._stopped and not self._line.has_room())
        if blocked and not self._blocked:
            self._blocked = True
            self._post(CarrierBlocked(self.waiting))
        elif self._blocked and not self._full and not self._queue:
            self._blocked = False
            self._post(CarrierReady())

    def _post(self, event: Event) -> None:
        if self._handle is not None:
            self._handle.post(event)

    def tick(self, due: int, missed: int) -> None:
        """`Paced`: release the frames of one tick."""
        try:
            for _ in range(due):
                while self._queue and not self._stopped:
                    sound = isinstance(self._queue[0], OutputFrame)
                    self._release()
                    if sound:
                        break
            self._judge()
        except Exception:
            log.exception("writing a call of %s failed", self.dialect.vendor)
            self._give_up("internal_error")

    # --- CarrierPort -------------------------------------------------------------------------------------------------

    def admit(self, *frames: OutputFrame) -> None:
        """Send frames, or queue them. The first one sets the gate where no flush did."""
        if self._gone or self._ending.done():
            return
        if self._gate is None:
            self._gate = frames[0].fence
        if not (self._queue or self._paced or self._stopped or self._blocked) and self._line.has_room():
            # Nothing is ahead of them, so their turn is now.
            self._send_frames(frames)
            return
        self._queue.extend(frames)
        self._waiting += sum(len(frame.pcm) for frame in frames)
        self._pour()

    def hold(self) -> None:
        self._held = True
        self._tell(self.dialect.hold())

    def resume(self) -> None:
        self._held = False
        self._tell(self.dialect.resume())
        self._pour()

    def flush(self, fence: Fence) -> None:
        """Move the gate to `fence`, drop what waits and have the vendor drop what it holds, before anything else."""
        self._gate = fence
        self._held = False
        dropped = [entry for entry in self._queue if isinstance(entry, OutputFrame) and not fence.admits(entry.fence)]
        self._queue = deque(
            entry for entry in self._queue if isinstance(entry, OutputFrame) and fence.admits(entry.fence)
        )
        self._waiting = sum(len(entry.pcm) for entry in self._queue if isinstance(entry, OutputFrame))
        if dropped:
            self._counts.add(CLEARED, len(dropped))
        self._tell(self.dialect.flush(fence))
        self._judge()

    def _tell(self, messages: Sequence[Message]) -> None:
        if self._gone or self._hung_up or self._ending.done():
            return
        self._line.send(*messages)
        if self._line.unsent() > UNSENT_MOST:
            self._give_up(SLOW_CONSUMER)

    def notify(self, notice: Notice) -> None:
        """A phone shows no notices; the end of an output stands in the queue behind its audio."""
        if self._application is not None and self._watchers:
            for message in self._application.send(notice):
                for watcher in list(self._watchers):
                    watcher(message)
        if isinstance(notice, OutputClosed) and not self._gone and not self._ending.done():
            self._queue.append(notice)
            self._pour()

    def end(self, reason: str) -> None:
        """Hang up. Audio that still waits is not waited for: the session ends by a cut, which has cleared it."""
        if not self._ending.done():
            self._queue.clear()
            self._waiting = 0
            self._ending.set_result(reason)

    # --- the application beside the call -----------------------------------------------------------------------------

    def accompany(self, application: TrackDialect) -> None:
        """Whoever watches the call speaks `application`."""
        self._application = application

    def greet(self, session: str) -> list[str]:
        """The first messages to one who watches."""
        return [] if self._application is None else self._application.open(session)

    def listen(self, watcher: Callable[[str], None]) -> Callable[[], None]:
        """Have everything told to `watcher` until the function that is returned is called."""
        self._watchers.add(watcher)
        return lambda: self._watchers.discard(watcher)

    def receive(self, message: str | bytes) -> None:
        """A command of one who watches."""
        handle = self._handle
        if handle is None or self._application is None:
            return
        for one in self._application.receive(message):
            if isinstance(one, InputAudio):
                handle.post(CommandRejected("not_supported", "the call's audio comes from its line alone"))
            elif isinstance(one, ItemAudio):
                handle.item(one.create, one.pcm, one.rate)
            elif isinstance(one, InputImage):
                handle.image(one.image, one.data)
            else:
                handle.post(one)
