"""What every telephone dialect is: one vendor's messages, translated to and from the vocabulary of the session core.

Sans-I/O, like all dialects, with the same two methods: `receive` takes a message and gives what it means, `send` takes
what the session wants said and gives messages. A phone shows no events, so of the notices only the end of an output
matters; its frames go out as media, with marks behind them where the vendor has marks.
"""

from __future__ import annotations

import binascii
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from sessions.core.events import CommandRejected, Event
from sessions.core.fence import Fence
from sessions.core.notices import Notice, OutputClosed
from sessions.core.timeline import Ticks
from sessions.ports import CarrierCapabilities, OutputFrame

from ..checks import INVALID_TYPE, INVALID_VALUE, Json, Object, Rejected, a_string, an_integer, an_object, parse
from .marks import Marks
from .media import Heard, InputLane, MediaFormat, OutputLane, Packet

Message = str | bytes
"""A text or a binary message; on a byte stream always bytes."""

ID_MOST: Final = 256
PARAMETERS_MOST: Final = 64
PARAMETER_MOST: Final = 4096
PACKET_MS: Final = 20
IMPATIENT_AFTER: Final = 200
"""Refused messages in one call after which it is given up: a peer that speaks another protocol does not learn."""


@dataclass(frozen=True, slots=True)
class Call:
    """What the vendor says of a call. `stream`: of the media, where it has an id of its own. `parameters`: what the
    connect document, or whoever made the call, said besides."""

    vendor: str
    id: str
    stream: str = ""
    caller: str = ""
    callee: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Started:
    """The call's media begins; comes once, before any audio."""

    call: Call


@dataclass(frozen=True, slots=True)
class Answer:
    """Messages that the protocol itself wants back, now."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Flow:
    """The vendor's buffer is full (`open` False), or takes more again."""

    open: bool


@dataclass(frozen=True, slots=True)
class HungUp:
    """The vendor ended the call, or its media."""

    reason: str


@dataclass(frozen=True, slots=True)
class Digit:
    """A key was pressed: 0-9, *, #, or A-D."""

    digit: str


@dataclass(frozen=True, slots=True)
class Counted:
    """Something that is only counted."""

    name: str


PhoneReceived = Event | Heard | Started | Answer | Flow | HungUp | Digit | Counted


class PhoneDialect(ABC):
    """One call's translator. `media` is known from the start of the call on."""

    vendor: ClassVar[str]
    """As it stands in the path, in settings and in metrics."""
    capabilities: CarrierCapabilities
    """What is known of the way to the ear; set before `Started` is given."""

    depth: ClassVar[int] = 0
    """Chunks that are waited for one that is missing."""
    packet_ms: ClassVar[int] = PACKET_MS
    """Length of what is sent at a time."""
    has_marks: ClassVar[bool] = True
    needs_pacing: ClassVar[bool] = False
    """Whether each packet must leave when its time has come, because the peer plays it as it comes."""

    def __init__(self) -> None:
        self.call: Call | None = None
        self.over = False
        self.marks = Marks()
        self.input: InputLane | None = None
        self.output: OutputLane | None = None
        self.epoch = 0
        self.transfer_to = ""
        """Where the call goes on when our part of it ends."""

    def addressed(self, query: Mapping[str, str]) -> None:  # noqa: B027 (most vendors say nothing there)
        """What the address that the peer connected to says."""

    # --- in -----------------------------------------------------------------------------------------------------------

    def receive(self, message: Message) -> list[PhoneReceived]:
        """One message. Never raises for what a peer can send: bad input is a `CommandRejected`."""
        try:
            if self.over:
                raise Rejected("already_stopped", "the call is over; connect again for another one")
            return self._received(message)
        except Rejected as why:
            return [CommandRejected(why.code, f"{self.vendor}: {why.message}", why.param)]

    @abstractmethod
    def _received(self, message: Message) -> list[PhoneReceived]:
        """Raises Rejected."""

    def _start(self, call: Call, heard: MediaFormat, spoken: MediaFormat | None = None) -> Started:
        """The media begins. `spoken`: the format of what goes back, where it is another. Raises Rejected."""
        if self.call is not None:
            raise Rejected("already_started", "the call has started already; one connection carries one call")
        self.input = InputLane(heard, self.depth)
        self.output = OutputLane(spoken or heard, self.packet_ms)
        self.call = call
        return Started(call)

    def _stop(self, reason: str) -> HungUp:
        self.over = True
        return HungUp(reason)

    def _audio(self, payload: bytes, number: int | None = None, at_ms: int | None = None) -> list[PhoneReceived]:
        return list(self._listening().chunk(payload, number, at_ms))

    def _listening(self) -> InputLane:
        if self.input is None:
            raise Rejected("not_started", "media came before the start of the call; send the start first")
        return self.input

    def _marked(self, name: str) -> list[PhoneReceived]:
        """A mark came back."""
        found = self.marks.returned(name)
        return [Counted(found) if isinstance(found, str) else found]

    def _digit(self, value: Json, path: str) -> Digit:
        digit = a_string(value, path, longest=1, shortest=1).upper()
        if digit not in "0123456789*#ABCD":
            raise Rejected(INVALID_VALUE, f"{path!r} is {digit!r}; keys are 0 to 9, *, #, A to D", path)
        return Digit(digit)

    # --- out ----------------------------------------------------------------------------------------------------------

    def send_frame(self, frame: OutputFrame) -> list[Message]:
        """The media of a frame; none while it waits for a packet to be full."""
        if self.output is None:
            return []
        return self._packets(self.output.push(frame), frame.fence.epoch)

    def _packets(self, packets: list[Packet], epoch: int) -> list[Message]:
        messages: list[Message] = []
        for packet in packets:
            messages.append(self._media(packet.payload))
            if self.has_marks:
                name = self.marks.sent(packet.response, packet.end, epoch)
                if name is not None:
                    messages += self._mark(name)
        return messages

    def send(self, notice: Notice) -> list[Message]:
        """What a notice makes the peer hear or know; called in order with the frames."""
        if not isinstance(notice, OutputClosed) or self.output is None or self.output.response != notice.response:
            return []
        messages = self._packets(self.output.tail(), self.epoch)
        name = self.marks.last() if self.has_marks else None
        return messages + (self._mark(name) if name is not None else [])

    def flush(self, fence: Fence) -> list[Message]:
        """From here on audio belongs to `fence`; tell the vendor to throw away what it holds."""
        self.epoch = fence.epoch
        self.marks.clear(fence.epoch)
        if self.output is None:
            return []
        self.output.reset()
        return self._clear()

    def hold(self) -> list[Message]:
        """The agent is held. A vendor that can pause does so; most cannot, and play what they have."""
        return []

    def resume(self) -> list[Message]:
        """The agent goes on."""
        return []

    def hang_up(self, reason: str) -> list[Message]:
        """The last messages before the connection is closed, which is what ends the media at most vendors."""
        return []

    @abstractmethod
    def _media(self, payload: bytes) -> Message: ...

    def _mark(self, name: str) -> list[Message]:
        return []

    @abstractmethod
    def _clear(self) -> list[Message]: ...


# --- what vendors' JSON has in common ---------------------------------------------------------------------------------


def json_object(message: Message) -> Object:
    """The object of a text message. Raises Rejected."""
    if isinstance(message, bytes):
        raise Rejected("invalid_message", "binary messages are not part of this protocol; send JSON text")
    return parse(message)


def payload_of(value: Json, path: str) -> bytes:
    """Audio in base64, strictly read. Raises Rejected."""
    text = a_string(value, path, longest=1 << 24)
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError) as error:
        raise Rejected(
            INVALID_VALUE, f"{path!r} is not base64 ({error}); send the whole payload, padded", path
        ) from None


def base64_text(payload: bytes) -> str:
    return binascii.b2a_base64(payload, newline=False).decode("ascii")


def a_count(value: Json, path: str, most: int = 1 << 53) -> int:
    """A whole number, which some vendors write as a string. Raises Rejected."""
    if isinstance(value, str):
        if not (value.isascii() and value.isdigit() and len(value) < 18):
            raise Rejected(INVALID_TYPE, f"{path!r} is {value[:40]!r}; give a whole number", path)
        value = int(value)
    return an_integer(value, path, 0, most)


def an_id(holder: Object, key: str, path: str) -> str:
    """A name of something, "" where there is none. Raises Rejected."""
    value = holder.get(key)
    return "" if value is None else a_string(value, f"{path}.{key}" if path else key, longest=ID_MOST)


def texts(value: Json, path: str) -> dict[str, str]:
    """The parameters of a call: an object of strings and numbers. Raises Rejected."""
    if value is None:
        return {}
    given = an_object(value, path)
    if len(given) > PARAMETERS_MOST:
        raise Rejected(INVALID_VALUE, f"{path!r} has {len(given)} entries; at most {PARAMETERS_MOST} are taken", path)
    found: dict[str, str] = {}
    for name, one in given.items():
        text = str(one).lower() if isinstance(one, bool | int | float) else one
        found[name[:ID_MOST]] = a_string(text, f"{path}.{name[:ID_MOST]}", longest=PARAMETER_MOST)
    return found


def acknowledged() -> CarrierCapabilities:
    """A carrier that holds audio and says what it has played."""
    return CarrierCapabilities(acknowledged=True, own_buffer=True)


def modelled(delay: Ticks, *, paced: bool = False) -> CarrierCapabilities:
    """A carrier whose playout the server models; its reports, where it makes some, are believed before the model.

    `delay`: from sending to the ear. `paced`: a hold stops it at once."""
    return CarrierCapabilities(acknowledged=False, own_buffer=not paced, paced=paced, delay=delay)
