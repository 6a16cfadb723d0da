"""Vonage Voice over a WebSocket: PCM in binary messages, everything else in JSON.

https://developer.vonage.com/voice/voice-api/concepts/websockets. The first message names the audio's format and carries
the headers of the connect document. `notify` comes back when what was sent before it was played.
"""

from __future__ import annotations

import json
import re
from typing import ClassVar, Final

from sessions.core.timeline import from_ms

from ..checks import Object, Rejected, a_string, an_object, parse, required
from .base import Call, Message, PhoneDialect, PhoneReceived, a_count, modelled, texts
from .media import MediaFormat

DELAY: Final = from_ms(60)
_CONTENT = re.compile(r"audio/l16;\s*rate=(\d{1,6})", re.IGNORECASE)
_RATES: Final = (8000, 16_000, 24_000)


class VonageDialect(PhoneDialect):
    """One call from Vonage."""

    vendor: ClassVar[str] = "vonage"

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = modelled(DELAY)

    def _received(self, message: Message) -> list[PhoneReceived]:
        if isinstance(message, bytes):
            self._listening()
            return self._audio(message)
        event = parse(message)
        # Older calls begin without a name of the event.
        name = a_string(event.get("event", "websocket:connected"), "event", longest=64)
        match name:
            case "websocket:connected":
                return [self._connected(event)]
            case "websocket:dtmf":
                self._listening()
                if "digit" in event:
                    return [self._digit(event["digit"], "digit")]
                dtmf = an_object(required(event, "dtmf", "dtmf"), "dtmf")
                return [self._digit(required(dtmf, "digit", "dtmf.digit"), "dtmf.digit")]
            case "websocket:notify":
                payload = an_object(required(event, "payload", "payload"), "payload")
                return self._marked(a_string(required(payload, "mark", "payload.mark"), "payload.mark", longest=256))
            case "websocket:cleared":
                return []
            case "websocket:disconnected" | "websocket:failed":
                return [self._stop("stopped")]
        raise Rejected("invalid_value", f"{name!r} is not an event of this protocol", "event")

    def _connected(self, event: Object) -> PhoneReceived:
        path = "content-type"
        content = a_string(required(event, path, path), path, longest=128)
        found = _CONTENT.fullmatch(content.strip())
        if found is None or int(found[1]) not in _RATES:
            raise Rejected("unsupported", f"{path!r} is {content!r}; choose audio/l16;rate=8000, 16000 or 24000", path)
        headers = texts({name: value for name, value in event.items() if name not in ("event", path)}, "headers")
        call = Call(
            self.vendor,
            headers.get("call") or headers.get("uuid", ""),
            "",
            headers.get("from", ""),
            headers.get("to", ""),
            headers,
        )
        return self._start(call, MediaFormat("l16", a_count(found[1], path)))

    def _media(self, payload: bytes) -> Message:
        return payload

    def _mark(self, name: str) -> list[Message]:
        return [json.dumps({"action": "notify", "payload": {"mark": name}}, separators=(",", ":"))]

    def _clear(self) -> list[Message]:
        return ['{"action":"clear"}']
