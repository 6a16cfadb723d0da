"""jambonz' `listen` verb, and FreeSWITCH's audio fork: PCM in binary messages both ways, everything else in JSON.

https://docs.jambonz.org/verbs/verbs/listen, with `bidirectionalAudio.streaming` on and `mixType` mono. The first
message describes the call. A mark comes back as "playout" when it is reached, or as "cleared".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import ClassVar, Final

from sessions.core.timeline import from_ms

from ..checks import Object, Rejected, a_string, an_object, parse, required
from .base import Call, Counted, Message, PhoneDialect, PhoneReceived, Started, a_count, an_id, modelled, texts
from .marks import AFTER_CLEAR
from .media import media_format

DELAY: Final = from_ms(60)
SUBPROTOCOL: Final = "audio.jambonz.org"


class JambonzDialect(PhoneDialect):
    """One call from jambonz."""

    vendor: ClassVar[str] = "jambonz"

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = modelled(DELAY)
        self._back = ""

    def addressed(self, query: Mapping[str, str]) -> None:
        """`rate`: of what goes back, where it is another one (`bidirectionalAudio.sampleRate`)."""
        self._back = query.get("rate", "")

    def _received(self, message: Message) -> list[PhoneReceived]:
        if isinstance(message, bytes):
            self._listening()
            return self._audio(message)
        event = parse(message)
        name = event.get("event")
        if name is None and self.call is None:
            return [self._described(event)]
        match a_string(required(event, "event", "event"), "event", longest=64):
            case "dtmf":
                self._listening()
                return [self._digit(required(event, "dtmf", "dtmf"), "dtmf")]
            case "mark":
                data = an_object(event.get("data", event), "data")
                if data.get("event") == "cleared":
                    return [Counted(AFTER_CLEAR)]
                return self._marked(a_string(required(data, "name", "data.name"), "data.name", longest=256))
            case "playDone" | "connect" | "clearedMarks":
                return []
        raise Rejected("invalid_value", f"{str(name)[:40]!r} is not an event of this protocol", "event")

    def _described(self, event: Object) -> Started:
        if event.get("mixType", "mono") != "mono":
            raise Rejected("unsupported", "'mixType' is not mono; send the caller alone", "mixType")
        call = Call(
            self.vendor,
            an_id(event, "callSid", "") or an_id(event, "callId", ""),
            "",
            an_id(event, "from", ""),
            an_id(event, "to", ""),
            texts(event.get("metadata"), "metadata"),
        )
        return self._begin(call, a_count(event.get("sampleRate", 8000), "sampleRate"))

    def _begin(self, call: Call, rate: int) -> Started:
        heard = media_format("l16", rate, "sampleRate")
        spoken = media_format("l16", a_count(self._back, "rate"), "rate") if self._back else heard
        return self._start(call, heard, spoken)

    def _media(self, payload: bytes) -> Message:
        return payload

    def _mark(self, name: str) -> list[Message]:
        return [json.dumps({"type": "mark", "data": {"name": name}}, separators=(",", ":"))]

    def _clear(self) -> list[Message]:
        return ['{"type":"killAudio"}', '{"type":"clearMarks"}']

    def hang_up(self, reason: str) -> list[Message]:
        if self.transfer_to:
            verbs = [{"verb": "dial", "target": [{"type": "phone", "number": self.transfer_to}]}]
            return [json.dumps({"type": "command", "command": "redirect", "data": verbs}, separators=(",", ":"))]
        return ['{"type":"disconnect"}']


class FreeSwitchDialect(JambonzDialect):
    """One call from FreeSWITCH by an audio fork; it begins with its first message, described or not."""

    vendor: ClassVar[str] = "freeswitch"

    def __init__(self) -> None:
        super().__init__()
        self._rate = "8000"
        self._parameters: dict[str, str] = {}

    def addressed(self, query: Mapping[str, str]) -> None:
        """`rate` of both directions; `call`, `from`, `to` and parameters, which no message carries."""
        self._rate = query.get("rate", "8000")
        self._parameters = dict(query)

    def _received(self, message: Message) -> list[PhoneReceived]:
        if self.call is None:
            described: Object = {}
            if isinstance(message, str):
                described = parse(message)
            found = {**self._parameters, **texts(described.get("metadata", {}), "metadata")}
            call = Call(
                self.vendor,
                an_id(described, "callSid", "") or an_id(described, "uuid", "") or found.get("call", ""),
                "",
                found.get("from", ""),
                found.get("to", ""),
                found,
            )
            started = self._begin(call, a_count(described.get("sampleRate", self._rate), "sampleRate"))
            return [started, *(self._audio(message) if isinstance(message, bytes) else [])]
        return super()._received(message)

    def hang_up(self, reason: str) -> list[Message]:
        return []
