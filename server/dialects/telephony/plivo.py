"""Plivo audio streams, bidirectional.

https://www.plivo.com/docs/voice/concepts/audio-streaming. `playAudio` is buffered and played in order, `clearAudio`
empties the buffer, `checkpoint` comes back as `playedStream` when it is reached.
"""

from __future__ import annotations

import json
from typing import ClassVar

from sessions.core.timeline import from_ms

from ..checks import Object, Rejected, a_string, an_object, required
from .base import Message, PhoneReceived, base64_text, modelled, texts
from .media import MediaFormat
from .twilio import TwilioDialect

DELAY = from_ms(60)


class PlivoDialect(TwilioDialect):
    """One call from Plivo."""

    vendor: ClassVar[str] = "plivo"
    stream_key: ClassVar[str] = "streamId"
    call_key: ClassVar[str] = "callId"

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = modelled(DELAY)

    def _started(self, event: Object, start: Object) -> list[PhoneReceived]:
        given = event.get("extra_headers", start.get("extra_headers"))
        parameters = _headers(given) if isinstance(given, str) else texts(given, "extra_headers")
        return super()._started(event, {**start, self.parameters_key: parameters})

    def _format(self, start: Object) -> MediaFormat:
        found = super()._format(start)
        what = {"ulaw": "audio/x-mulaw", "l16": "audio/x-l16"}.get(found.encoding)
        if what is None:
            raise Rejected(
                "unsupported", "'start.mediaFormat' names a codec that cannot be sent back", "start.mediaFormat"
            )
        self._head = (
            f'{{"event":"playAudio","streamId":{json.dumps(self._stream)},"media":{{"contentType":"{what}",'
            f'"sampleRate":{found.rate},"payload":"'
        )
        return found

    def _other(self, name: str, event: Object) -> list[PhoneReceived]:
        if name == "playedStream":
            return self._marked(a_string(required(event, "name", "name"), "name", longest=256))
        if name == "clearedAudio":
            return []
        return super()._other(name, event)

    def _media(self, payload: bytes) -> Message:
        return f'{self._head}{base64_text(payload)}"}}}}'

    def _mark(self, name: str) -> list[Message]:
        return [self._say({"event": "checkpoint", "name": name})]

    def _clear(self) -> list[Message]:
        return [self._say({"event": "clearAudio"})]


def _headers(text: str) -> dict[str, str]:
    """Extra headers: an object as JSON, or names and values as the XML had them. Raises Rejected."""
    try:
        return texts(an_object(json.loads(text), "extra_headers"), "extra_headers")
    except (ValueError, RecursionError):
        pairs = [part.partition("=" if "=" in part else ":") for part in text.strip("{} ").replace(";", ",").split(",")]
        return texts(
            {name.strip().removeprefix("X-PH-"): value.strip() for name, _, value in pairs if name.strip()},
            "extra_headers",
        )
