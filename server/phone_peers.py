"""The other side of the telephone dialects: what each vendor sends and does, played for debugging, tests and load.

A peer is sans-I/O. It makes the vendor's messages from PCM, and of what the server sends it makes sound, marks and
clears. `Playout` is the vendor's buffer: it plays 20 ms at a time, returns the marks that it reaches, and returns those
that it throws away at once, as vendors do.
"""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from codec import g711
from codec.g722 import G722Decoder, G722Encoder
from codec.pcm import Samples, to_bytes, to_samples

from .dialects.telephony.audiosocket import DTMF, ERROR, HANGUP, RATES, UUID, packet
from .dialects.telephony.base import Message, base64_text

FRAME_MS: Final = 20
CALLER: Final = "+15550100123"
CALLEE: Final = "+15550100987"


@dataclass(frozen=True, slots=True)
class Sound:
    """Audio that the server sent: PCM at the peer's rate."""

    pcm: Samples


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark behind what was sent before it; `reply` is what is sent when it is reached."""

    name: str
    reply: Message


@dataclass(frozen=True, slots=True)
class Clear:
    """The server wants the buffer thrown away. `replies`: what the vendor says to it."""

    replies: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class Pause:
    """The server wants playing paused, or to go on."""

    on: bool


@dataclass(frozen=True, slots=True)
class Said:
    """Anything else, as it was; `replies` where the vendor answers it."""

    message: Message
    replies: tuple[Message, ...] = ()


Happened = Sound | Mark | Clear | Pause | Said


class VendorPeer(ABC):
    """One call, from the vendor's side."""

    vendor: ClassVar[str]
    rate: int = 8000
    """Hz of the PCM that it takes and gives."""

    def __init__(self, call: str = "CA0001", parameters: Mapping[str, str] | None = None) -> None:
        self.call = call
        self.parameters = dict(parameters or {})
        self.sequence = 0
        self.sent_ms = 0

    @property
    def path(self) -> str:
        """Of the address to connect to."""
        return f"/telephony/{self.vendor}"

    @property
    def subprotocols(self) -> list[str]:
        return []

    @abstractmethod
    def begin(self) -> list[Message]:
        """What starts the call."""

    @abstractmethod
    def speak(self, pcm: Samples) -> Message:
        """The caller's next audio."""

    @abstractmethod
    def press(self, digit: str) -> Message:
        """A pressed key."""

    def end(self) -> list[Message]:
        """What ends the call politely."""
        return []

    @abstractmethod
    def take(self, message: Message) -> list[Happened]:
        """A message of the server."""

    def _number(self) -> str:
        self.sequence += 1
        return str(self.sequence)

    def _time(self, pcm: Samples) -> int:
        at = self.sent_ms
        self.sent_ms += round(1000 * len(pcm) / self.rate)
        return at


def _text(event: Mapping[str, object]) -> str:
    return json.dumps(event, separators=(",", ":"))


def _read(message: Message) -> dict[str, object]:
    found = json.loads(message)
    if not isinstance(found, dict):
        raise ValueError(f"the server sent {message!r}, which is no object")
    return found


def _field(event: Mapping[str, object], *path: str) -> str:
    value: object = event
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else ""


class _Codec:
    """One of the codecs in both directions."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._g722 = (G722Encoder(), G722Decoder()) if name == "g722" else None

    def encode(self, pcm: Samples) -> bytes:
        if self.name == "ulaw" or self.name == "alaw":
            return g711.compress(pcm, "ulaw" if self.name == "ulaw" else "alaw")
        return self._g722[0].encode(pcm) if self._g722 is not None else to_bytes(pcm)

    def decode(self, payload: bytes) -> Samples:
        if self.name == "ulaw" or self.name == "alaw":
            return to_samples(g711.decode(payload, "ulaw" if self.name == "ulaw" else "alaw"))
        return self._g722[1].decode(payload) if self._g722 is not None else to_samples(payload)


class TwilioPeer(VendorPeer):
    """Twilio, and by other spellings those who speak like it."""

    vendor: ClassVar[str] = "twilio"
    stream_key: ClassVar[str] = "streamSid"
    codec: str = "ulaw"

    def __init__(self, call: str = "CA0001", parameters: Mapping[str, str] | None = None) -> None:
        super().__init__(call, parameters)
        self._codec = _Codec(self.codec)
        self._chunk = 0

    def begin(self) -> list[Message]:
        start = {
            "accountSid": "AC0001",
            "streamSid": f"MZ{self.call}",
            "callSid": self.call,
            "tracks": ["inbound"],
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
            "customParameters": {"from": CALLER, "to": CALLEE, **self.parameters},
        }
        connected: Message = _text({"event": "connected", "protocol": "Call", "version": "1.0.0"})
        return [connected, self._event("start", start)]

    def _event(self, name: str, inner: object) -> str:
        return _text({"event": name, "sequenceNumber": self._number(), name: inner, self.stream_key: f"MZ{self.call}"})

    def speak(self, pcm: Samples) -> Message:
        return self._event("media", self._media(pcm))

    def _media(self, pcm: Samples) -> Mapping[str, object]:
        self._chunk += 1
        return {
            "track": "inbound",
            "chunk": str(self._chunk),
            "timestamp": str(self._time(pcm)),
            "payload": base64_text(self._codec.encode(pcm)),
        }

    def press(self, digit: str) -> Message:
        return self._event("dtmf", {"track": "inbound_track", "digit": digit})

    def end(self) -> list[Message]:
        return [self._event("stop", {"accountSid": "AC0001", "callSid": self.call})]

    def take(self, message: Message) -> list[Happened]:
        event = _read(message)
        match event.get("event"):
            case "media" | "playAudio":
                return [Sound(self._codec.decode(base64.b64decode(_field(event, "media", "payload"))))]
            case "mark":
                return [self._marked(_field(event, "mark", "name"))]
            case "clear":
                return [Clear()]
        return [Said(message)]

    def _marked(self, name: str) -> Mark:
        return Mark(name, self._event("mark", {"name": name}))


class SignalWirePeer(TwilioPeer):
    vendor: ClassVar[str] = "signalwire"


class TelnyxPeer(TwilioPeer):
    vendor: ClassVar[str] = "telnyx"
    stream_key: ClassVar[str] = "stream_id"

    def __init__(
        self, call: str = "v3:0001", parameters: Mapping[str, str] | None = None, codec: str = "ulaw", rate: int = 8000
    ) -> None:
        self.codec = codec
        self.rate = rate
        super().__init__(call, parameters)

    @property
    def path(self) -> str:
        named = {"ulaw": "PCMU", "alaw": "PCMA", "l16": "L16", "g722": "G722"}[self.codec]
        return f"/telephony/telnyx?codec={named}&rate={self.rate}"

    def begin(self) -> list[Message]:
        named = {"ulaw": "PCMU", "alaw": "PCMA", "l16": "L16", "g722": "G722"}[self.codec]
        start = {
            "user_id": "u",
            "call_control_id": self.call,
            "call_session_id": "s",
            "from": CALLER,
            "to": CALLEE,
            "custom_parameters": self.parameters,
            "media_format": {"encoding": named, "sample_rate": self.rate, "channels": 1},
        }
        connected: Message = _text({"event": "connected", "version": "1.0.0"})
        return [connected, self._event("start", start)]

    def _event(self, name: str, inner: object) -> str:
        return _text({"event": name, "sequence_number": self._number(), name: inner, "stream_id": "st"})


class ExotelPeer(TwilioPeer):
    vendor: ClassVar[str] = "exotel"
    stream_key: ClassVar[str] = "stream_sid"
    codec = "l16"

    def begin(self) -> list[Message]:
        start = {
            "stream_sid": f"MZ{self.call}",
            "call_sid": self.call,
            "account_sid": "AC",
            "from": CALLER,
            "to": CALLEE,
            "custom_parameters": self.parameters,
            "media_format": {"encoding": "audio/x-raw", "sample_rate": "8000", "bit_rate": "16"},
        }
        return [_text({"event": "connected"}), self._event("start", start)]


class PlivoPeer(TwilioPeer):
    vendor: ClassVar[str] = "plivo"
    stream_key: ClassVar[str] = "streamId"

    def begin(self) -> list[Message]:
        start = {
            "callId": self.call,
            "streamId": f"MZ{self.call}",
            "accountId": "1",
            "tracks": ["inbound"],
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000},
        }
        return [
            _text(
                {
                    "sequenceNumber": 0,
                    "event": "start",
                    "start": start,
                    "extra_headers": json.dumps({"from": CALLER, "to": CALLEE, **self.parameters}),
                }
            )
        ]

    def take(self, message: Message) -> list[Happened]:
        event = _read(message)
        if event.get("event") == "checkpoint":
            name = _field(event, "name")
            reply = {"event": "playedStream", "sequenceNumber": 0, "streamId": f"MZ{self.call}", "name": name}
            return [Mark(name, _text(reply))]
        if event.get("event") == "clearAudio":
            return [Clear((_text({"event": "clearedAudio", "streamId": f"MZ{self.call}"}),))]
        return super().take(message)


class VonagePeer(VendorPeer):
    vendor: ClassVar[str] = "vonage"
    rate = 16_000

    def begin(self) -> list[Message]:
        headers = {"call": self.call, "from": CALLER, "to": CALLEE, **self.parameters}
        return [_text({"event": "websocket:connected", "content-type": f"audio/l16;rate={self.rate}", **headers})]

    def speak(self, pcm: Samples) -> Message:
        return to_bytes(pcm)

    def press(self, digit: str) -> Message:
        return _text({"event": "websocket:dtmf", "digit": digit, "duration": 260})

    def take(self, message: Message) -> list[Happened]:
        if isinstance(message, bytes):
            return [Sound(to_samples(message))]
        event = _read(message)
        if event.get("action") == "notify":
            reply = {"event": "websocket:notify", "payload": event.get("payload")}
            return [Mark(_field(event, "payload", "mark"), _text(reply))]
        return [Clear(('{"event":"websocket:cleared"}',))] if event.get("action") == "clear" else [Said(message)]


class AsteriskPeer(VendorPeer):
    """chan_websocket. `plain`: control as plain text."""

    vendor: ClassVar[str] = "asterisk"

    def __init__(
        self,
        call: str = "1700000000.1",
        parameters: Mapping[str, str] | None = None,
        media: str = "ulaw",
        plain: bool = False,
    ) -> None:
        super().__init__(call, parameters)
        self.media = media
        self.plain = plain
        self.rate = {"ulaw": 8000, "alaw": 8000, "g722": 16_000}.get(
            media, 1000 * int(media[4:] or 8) if "slin" in media else 0
        )
        self._codec = _Codec(media if media in ("ulaw", "alaw", "g722") else "l16")

    @property
    def subprotocols(self) -> list[str]:
        return ["media"]

    def begin(self) -> list[Message]:
        size = {"ulaw": 160, "alaw": 160, "g722": 160}.get(self.media, self.rate // 25)
        values: dict[str, object] = {
            "connection_id": "c1",
            "channel": "WebSocket/c1/0x1",
            "channel_id": self.call,
            "format": self.media,
            "optimal_frame_size": size,
            "ptime": 20,
        }
        if self.plain:
            return ["MEDIA_START " + " ".join(f"{name}:{value}" for name, value in values.items())]
        variables = {"FROM": CALLER, "TO": CALLEE, **{name.upper(): value for name, value in self.parameters.items()}}
        return [_text({"event": "MEDIA_START", **values, "channel_variables": variables})]

    def speak(self, pcm: Samples) -> Message:
        return self._codec.encode(pcm)

    def press(self, digit: str) -> Message:
        return f"DTMF_END digit:{digit}" if self.plain else _text({"event": "DTMF_END", "digit": digit})

    def take(self, message: Message) -> list[Happened]:
        if isinstance(message, bytes):
            return [Sound(self._codec.decode(message))]
        event: dict[str, object] = {"command": message} if self.plain else _read(message)
        match event.get("command"):
            case "MARK_MEDIA":
                name = _field(event, "correlation_id")
                return [Mark(name, _text({"event": "MEDIA_MARK_PROCESSED", "correlation_id": name}))]
            case "REPORT_QUEUE_DRAINED":
                return [Mark("", "QUEUE_DRAINED" if self.plain else _text({"event": "QUEUE_DRAINED"}))]
            case "FLUSH_MEDIA":
                return [Clear()]
            case "PAUSE_MEDIA" | "CONTINUE_MEDIA":
                return [Pause(event["command"] == "PAUSE_MEDIA")]
        return [Said(message)]


class JambonzPeer(VendorPeer):
    vendor: ClassVar[str] = "jambonz"
    rate = 16_000

    @property
    def subprotocols(self) -> list[str]:
        return ["audio.jambonz.org"]

    def begin(self) -> list[Message]:
        return [
            _text(
                {
                    "callSid": self.call,
                    "from": CALLER,
                    "to": CALLEE,
                    "sampleRate": self.rate,
                    "mixType": "mono",
                    "metadata": self.parameters,
                }
            )
        ]

    def speak(self, pcm: Samples) -> Message:
        return to_bytes(pcm)

    def press(self, digit: str) -> Message:
        return _text({"event": "dtmf", "dtmf": digit, "duration": "1600"})

    def take(self, message: Message) -> list[Happened]:
        if isinstance(message, bytes):
            return [Sound(to_samples(message))]
        event = _read(message)
        match event.get("type"):
            case "mark":
                name = _field(event, "data", "name")
                return [Mark(name, _text({"event": "mark", "data": {"name": name, "event": "playout"}}))]
            case "killAudio":
                return [Clear()]
        return [Said(message)]


class FreeSwitchPeer(JambonzPeer):
    vendor: ClassVar[str] = "freeswitch"

    @property
    def path(self) -> str:
        return f"/telephony/freeswitch?rate={self.rate}"


class GenesysPeer(VendorPeer):
    vendor: ClassVar[str] = "genesys"

    def __init__(self, call: str = "e160e428-53b2-487c-977d-96989bf5c99d", parameters: Mapping[str, str] | None = None):
        super().__init__(call, parameters)
        self.theirs = 0
        self.opened: object = None

    def _message(self, kind: str, parameters: object) -> str:
        return _text(
            {
                "version": "2",
                "id": f"s-{self.call}",
                "type": kind,
                "seq": int(self._number()),
                "serverseq": self.theirs,
                "position": f"PT{self.sent_ms / 1000}S",
                "parameters": parameters,
            }
        )

    def begin(self) -> list[Message]:
        offered = [
            {"type": "audio", "format": "PCMU", "channels": channels, "rate": 8000}
            for channels in (["external", "internal"], ["external"], ["internal"])
        ]
        parameters = {
            "organizationId": "d7934305-0972-4844-938e-9060eef73d05",
            "conversationId": self.call,
            "participant": {"id": "p", "ani": CALLER, "aniName": "", "dnis": CALLEE},
            "media": offered,
            "language": "en-US",
            "inputVariables": self.parameters,
        }
        return [self._message("open", parameters)]

    def speak(self, pcm: Samples) -> Message:
        self._time(pcm)
        return g711.compress(pcm, "ulaw")

    def press(self, digit: str) -> Message:
        return self._message("dtmf", {"digit": digit})

    def ping(self) -> Message:
        """A ping; the next message of the server answers it."""
        return self._message("ping", {})

    def end(self) -> list[Message]:
        return [self._message("close", {"reason": "end"})]

    def take(self, message: Message) -> list[Happened]:
        if isinstance(message, bytes):
            return [Sound(to_samples(g711.decode(message, "ulaw")))]
        event = _read(message)
        self.theirs = int(str(event.get("seq", 0)))
        if event.get("type") == "event" and "barge_in" in str(message):
            return [Clear()]
        if event.get("type") == "disconnect":
            return [Said(message, (self._message("close", {"reason": "disconnect"}),))]
        return [Said(message)]


class AudioSocketPeer(VendorPeer):
    """Over TCP: what it gives is bytes, what it takes may be cut anywhere."""

    vendor: ClassVar[str] = "audiosocket"

    def __init__(self, call: str = "0" * 32, parameters: Mapping[str, str] | None = None, rate: int = 8000) -> None:
        super().__init__(call, parameters)
        self.rate = rate
        self._kind = next(kind for kind, one in RATES.items() if one == rate)
        self._buffer = b""

    def begin(self) -> list[Message]:
        return [packet(UUID, bytes.fromhex(self.call))]

    def speak(self, pcm: Samples) -> Message:
        return packet(self._kind, to_bytes(pcm))

    def press(self, digit: str) -> Message:
        return packet(DTMF, digit.encode())

    def end(self) -> list[Message]:
        return [packet(HANGUP)]

    def take(self, message: Message) -> list[Happened]:
        self._buffer += message if isinstance(message, bytes) else message.encode()
        found: list[Happened] = []
        while len(self._buffer) >= 3 and len(self._buffer) >= 3 + int.from_bytes(self._buffer[1:3], "big"):
            length = int.from_bytes(self._buffer[1:3], "big")
            kind, payload = self._buffer[0], self._buffer[3 : 3 + length]
            self._buffer = self._buffer[3 + length :]
            found.append(Sound(to_samples(payload)) if kind == self._kind else Said(packet(kind, payload)))
            if kind == ERROR:
                raise ValueError(f"the server reports error {payload!r}")
        return found


PEERS: Final[Mapping[str, Callable[[str, Mapping[str, str]], VendorPeer]]] = {
    "twilio": TwilioPeer,
    "signalwire": SignalWirePeer,
    "telnyx": TelnyxPeer,
    "exotel": ExotelPeer,
    "plivo": PlivoPeer,
    "vonage": VonagePeer,
    "asterisk": AsteriskPeer,
    "jambonz": JambonzPeer,
    "freeswitch": FreeSwitchPeer,
    "genesys": GenesysPeer,
    "audiosocket": AudioSocketPeer,
}
"""By vendor; each is made with the id of the call and its parameters."""


class Playout:
    """The vendor's buffer: what the callee's ear gets, 20 ms at a time."""

    def __init__(self, rate: int) -> None:
        self._frame = rate * FRAME_MS // 1000
        self._rate = rate
        self._queue: deque[Samples | Mark] = deque()
        self._paused = False
        self.deepest_ms = 0.0
        """The most that ever waited."""
        self.played: list[Samples] = []
        """What was heard, silence included, 20 ms each."""

    @property
    def waiting(self) -> int:
        """Samples that wait."""
        return sum(len(one) for one in self._queue if not isinstance(one, Mark))

    def take(self, happened: Happened) -> list[Message]:
        """Something of the server; what the vendor says to it at once."""
        if isinstance(happened, Sound):
            self._queue.append(happened.pcm)
            self.deepest_ms = max(self.deepest_ms, 1000 * self.waiting / self._rate)
        elif isinstance(happened, Mark):
            if not self._queue:
                return [happened.reply]
            self._queue.append(happened)
        elif isinstance(happened, Clear):
            marks = [one.reply for one in self._queue if isinstance(one, Mark)]
            self._queue.clear()
            self._paused = False
            return [*marks, *happened.replies]
        elif isinstance(happened, Pause):
            self._paused = happened.on
        else:
            return list(happened.replies)
        return []

    def tick(self) -> tuple[Samples, list[Message]]:
        """20 ms pass: what is heard in them, and the marks that were reached."""
        heard = np.zeros(self._frame, np.int16)
        at, replies = 0, []
        while self._queue and not self._paused:
            head = self._queue[0]
            if isinstance(head, Mark):
                replies.append(head.reply)
                self._queue.popleft()
                continue
            if at == self._frame:
                break
            piece = head[: self._frame - at]
            heard[at : at + len(piece)] = piece
            at += len(piece)
            if len(piece) == len(head):
                self._queue.popleft()
            else:
                self._queue[0] = head[len(piece) :]
        self.played.append(heard)
        return heard, replies
