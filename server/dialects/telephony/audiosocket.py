"""Asterisk's AudioSocket: PCM in packets of three bytes of header, over TCP.

https://docs.asterisk.org/Configuration/Channel-Drivers/AudioSocket/. Nothing is buffered there on purpose and nothing
can be thrown away: what is sent is played as it comes, so it is sent when its time has come.
"""

from __future__ import annotations

import uuid
from typing import ClassVar, Final

from sessions.core.timeline import from_ms

from ..checks import Rejected
from .base import Call, Counted, Message, PhoneDialect, PhoneReceived, modelled
from .media import MediaFormat
from .telnyx import VENDOR_ERROR

DELAY: Final = from_ms(40)
"""About what Asterisk and the line behind it hold back."""
HANGUP: Final = 0x00
UUID: Final = 0x01
DTMF: Final = 0x03
ERROR: Final = 0xFF
RATES: Final = {0x10: 8000, 0x11: 12_000, 0x12: 16_000, 0x13: 24_000, 0x14: 32_000, 0x15: 44_100, 0x16: 48_000}
"""Hz by type of packet: signed 16-bit little-endian mono."""
UNKNOWN: Final = "audiosocket_unknown_packets"
"""Counter: packets of a type that is not known, skipped."""


def packet(kind: int, payload: bytes = b"") -> bytes:
    """One packet: type, length (big-endian), payload of at most 65535 bytes."""
    return bytes((kind,)) + len(payload).to_bytes(2, "big") + payload


class AudioSocketDialect(PhoneDialect):
    """One call from Asterisk by AudioSocket; `receive` takes bytes as they come, cut anywhere."""

    vendor: ClassVar[str] = "audiosocket"
    has_marks: ClassVar[bool] = False
    needs_pacing: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = modelled(DELAY, paced=True)
        self._buffer = bytearray()
        self._uuid = ""
        self._kind = 0

    def receive(self, message: Message) -> list[PhoneReceived]:
        """The next bytes of the stream. Each packet is taken or refused by itself."""
        if isinstance(message, str):
            return super().receive(message)
        self._buffer += message
        received: list[PhoneReceived] = []
        while len(self._buffer) >= 3:
            length = int.from_bytes(self._buffer[1:3], "big")
            if len(self._buffer) < 3 + length:
                break
            one = bytes(self._buffer[: 3 + length])
            del self._buffer[: 3 + length]
            received += super().receive(one)
        return received

    def _received(self, message: Message) -> list[PhoneReceived]:
        if isinstance(message, str):
            raise Rejected("invalid_message", "AudioSocket is a stream of bytes")
        kind, payload = message[0], message[3:]
        if kind in RATES:
            return self._sound(kind, payload)
        match kind:
            case 0x01:
                if len(payload) != 16:
                    raise Rejected("invalid_value", f"the UUID has {len(payload)} bytes, not 16", "uuid")
                if self._uuid:
                    raise Rejected("already_started", "the call has its UUID already; one connection carries one call")
                self._uuid = str(uuid.UUID(bytes=payload))
                return []
            case 0x00:
                return [self._stop("stopped")] if self.call is not None else []
            case 0x03:
                self._listening()
                return [self._digit(payload.decode("latin-1"), "dtmf")]
            case 0xFF:
                return [Counted(VENDOR_ERROR)]
        return [Counted(UNKNOWN)]

    def _sound(self, kind: int, payload: bytes) -> list[PhoneReceived]:
        if not self._uuid:
            raise Rejected("not_started", "audio came before the UUID of the call; send the UUID first")
        if self.call is not None:
            if kind != self._kind:
                raise Rejected("unsupported", f"audio of type {kind:#x} follows type {self._kind:#x}; keep to one")
            return self._audio(payload)
        # Only the first audio says at which rate the call is.
        self._kind = kind
        started = self._start(Call(self.vendor, self._uuid), MediaFormat("l16", RATES[kind]))
        return [started, *self._audio(payload)]

    def _media(self, payload: bytes) -> Message:
        return packet(self._kind, payload)

    def _clear(self) -> list[Message]:
        return []

    def hang_up(self, reason: str) -> list[Message]:
        return [packet(HANGUP)] if not self.over else []
