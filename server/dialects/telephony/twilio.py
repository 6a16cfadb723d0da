"""Twilio Media Streams, bidirectional (`<Connect><Stream>`); SignalWire's cXML and Fonoster speak the same.

https://www.twilio.com/docs/voice/media-streams/websocket-messages. Numbers in it are strings, except in `mediaFormat`.
Twilio buffers what is sent and plays it in order; `clear` empties that buffer, `mark` comes back when it is reached.
"""

from __future__ import annotations

import json
from typing import ClassVar

from ..checks import INVALID_VALUE, Json, Object, Rejected, a_string, an_object, required
from .base import (
    Answer,
    Call,
    Counted,
    Message,
    PhoneDialect,
    PhoneReceived,
    a_count,
    acknowledged,
    an_id,
    base64_text,
    json_object,
    payload_of,
    texts,
)
from .media import MediaFormat, media_format
from .media_form import MediaForm

OTHER_TRACK = "other_track_media"
"""Counter: media of a track that is not the caller's."""


class TwilioDialect(PhoneDialect):
    """One call from Twilio."""

    vendor: ClassVar[str] = "twilio"

    # Names of fields, for protocols that are the same but for their spelling.
    stream_key: ClassVar[str] = "streamSid"
    call_key: ClassVar[str] = "callSid"
    parameters_key: ClassVar[str] = "customParameters"
    format_key: ClassVar[str] = "mediaFormat"
    rate_key: ClassVar[str] = "sampleRate"

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = acknowledged()
        self._head = ""
        self._stream = ""
        self._form = MediaForm(("chunk", "timestamp"), ("sequenceNumber", "sequence_number"))

    # --- in -----------------------------------------------------------------------------------------------------------

    def _received(self, message: Message) -> list[PhoneReceived]:
        if isinstance(message, str) and (found := self._form.read(message)) is not None:
            audio, (chunk, timestamp) = found
            return self._audio(payload_of(audio, "media.payload"), chunk, timestamp)
        event = json_object(message)
        name = a_string(required(event, "event", "event"), "event", longest=64)
        match name:
            case "media":
                return self._heard(str(message), an_object(required(event, "media", "media"), "media"))
            case "mark":
                mark = an_object(required(event, "mark", "mark"), "mark")
                return self._marked(a_string(required(mark, "name", "mark.name"), "mark.name", longest=256))
            case "dtmf":
                dtmf = an_object(required(event, "dtmf", "dtmf"), "dtmf")
                self._listening()
                return [self._digit(required(dtmf, "digit", "dtmf.digit"), "dtmf.digit")]
            case "start":
                return self._started(event, an_object(required(event, "start", "start"), "start"))
            case "stop":
                self._listening()
                return [self._stop("stopped")]
            case "connected":
                return []
        return self._other(name, event)

    def _other(self, name: str, event: Object) -> list[PhoneReceived]:
        raise Rejected(INVALID_VALUE, f"{name!r} is not an event of this protocol", "event")

    def _started(self, event: Object, start: Object) -> list[PhoneReceived]:
        stream = an_id(event, self.stream_key, "") or an_id(start, self.stream_key, "start")
        if not stream:
            raise Rejected("missing_required_parameter", f"the start has no {self.stream_key!r}", self.stream_key)
        call = Call(
            self.vendor,
            an_id(start, self.call_key, "start") or stream,
            stream,
            an_id(start, "from", "start"),
            an_id(start, "to", "start"),
            texts(start.get(self.parameters_key), f"start.{self.parameters_key}"),
        )
        self._stream = stream
        self._head = self._media_head(stream)
        return [self._start(call, self._format(start)), *self._greeting()]

    def _greeting(self) -> list[Answer]:
        return []

    def _format(self, start: Object) -> MediaFormat:
        """The declared format. Raises Rejected."""
        path = f"start.{self.format_key}"
        given = an_object(required(start, self.format_key, path), path)
        encoding = a_string(required(given, "encoding", f"{path}.encoding"), f"{path}.encoding", longest=64)
        rate = a_count(required(given, self.rate_key, f"{path}.{self.rate_key}"), f"{path}.{self.rate_key}")
        if given.get("channels", 1) not in (1, "1"):
            raise Rejected("unsupported", f"'{path}.channels' is not 1; send the caller's channel alone", path)
        return media_format(encoding, rate, path)

    def _heard(self, message: str, media: Object) -> list[PhoneReceived]:
        self._listening()
        track = media.get("track", "inbound")
        if track not in ("inbound", "inbound_track"):
            return [Counted(OTHER_TRACK)]
        text = required(media, "payload", "media.payload")
        payload = payload_of(text, "media.payload")
        heard = self._audio(payload, _number(media, "chunk"), _number(media, "timestamp"))
        self._form.learn(message, str(text))
        return heard

    # --- out ----------------------------------------------------------------------------------------------------------

    def _media_head(self, stream: str) -> str:
        # 50 times a second and call: only the payload changes.
        return f'{{"event":"media","{self.stream_key}":{json.dumps(stream)},"media":{{"payload":"'

    def _media(self, payload: bytes) -> Message:
        return f'{self._head}{base64_text(payload)}"}}}}'

    def _say(self, event: dict[str, Json]) -> Message:
        return json.dumps({**event, self.stream_key: self._stream}, separators=(",", ":"))

    def _mark(self, name: str) -> list[Message]:
        return [self._say({"event": "mark", "mark": {"name": name}})]

    def _clear(self) -> list[Message]:
        return [self._say({"event": "clear"})]


def _number(media: Object, key: str) -> int | None:
    value = media.get(key)
    return None if value is None else a_count(value, f"media.{key}")


class SignalWireDialect(TwilioDialect):
    """One call from SignalWire's compatibility API."""

    vendor: ClassVar[str] = "signalwire"
