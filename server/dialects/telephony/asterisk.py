"""Asterisk's WebSocket channel (`chan_websocket`): media in binary messages, control in JSON or as plain text.

https://docs.asterisk.org/Configuration/Channel-Drivers/WebSocket/. Asterisk times the playout of what it holds, can
pause and go on, and throws it away when told to. Marks exist where control is JSON; with plain text only a drained
queue is reported, which is asked for behind the last audio of an output.
"""

from __future__ import annotations

import json
from typing import ClassVar, Final

from sessions.core.notices import Notice
from sessions.core.timeline import from_ms

from ..checks import Json, Object, Rejected, a_string, parse, required
from .base import Answer, Call, Counted, Flow, Message, PhoneDialect, PhoneReceived, a_count, an_id, modelled, texts
from .media import MediaFormat
from .telnyx import VENDOR_ERROR

DELAY: Final = from_ms(40)
EARLY_MEDIA: Final = "media_before_start"
"""Counter: media that came before the start, which Asterisk may send; there is nothing to do with it."""
_FORMATS: Final = {
    "ulaw": MediaFormat("ulaw", 8000),
    "alaw": MediaFormat("alaw", 8000),
    "g722": MediaFormat("g722", 16_000),
    "slin": MediaFormat("l16", 8000),
    "slin12": MediaFormat("l16", 12_000),
    "slin16": MediaFormat("l16", 16_000),
    "slin24": MediaFormat("l16", 24_000),
    "slin32": MediaFormat("l16", 32_000),
    "slin44": MediaFormat("l16", 44_100),
    "slin48": MediaFormat("l16", 48_000),
}
_NOTHING: Final = ("STATUS", "MEDIA_BUFFERING_COMPLETED")


class AsteriskDialect(PhoneDialect):
    """One call from Asterisk."""

    vendor: ClassVar[str] = "asterisk"

    def __init__(self) -> None:
        super().__init__()
        # It pauses at once when told to, so a hold stops all that it has not played: that is what pacing means.
        self.capabilities = modelled(DELAY, paced=True)
        self._plain = False
        self._owed = ""
        """The mark that a drained queue stands for."""

    # --- in -----------------------------------------------------------------------------------------------------------

    def _received(self, message: Message) -> list[PhoneReceived]:
        if isinstance(message, bytes):
            return self._audio(message) if self.input is not None else [Counted(EARLY_MEDIA)]
        event = self._parsed(message)
        name = a_string(required(event, "event", "event"), "event", longest=64)
        match name:
            case "MEDIA_START":
                return self._started(event)
            case "DTMF_END":
                self._listening()
                return [self._digit(required(event, "digit", "digit"), "digit")]
            case "MEDIA_XOFF" | "MEDIA_XON":
                self._listening()
                return [Flow(name == "MEDIA_XON")]
            case "MEDIA_MARK_PROCESSED":
                return self._marked(an_id(event, "correlation_id", ""))
            case "QUEUE_DRAINED":
                owed, self._owed = self._owed, ""
                return self._marked(owed) if owed else []
            case "ERROR":
                return [Counted(VENDOR_ERROR)]
        if name in _NOTHING:
            return []
        raise Rejected("invalid_value", f"{name!r} is not an event of this protocol", "event")

    def _parsed(self, message: str) -> Object:
        if message.lstrip().startswith("{"):
            return parse(message)
        name, *parts = message.split()[:64] or [""]
        pairs: dict[str, Json] = {key: value for key, _, value in (part.partition(":") for part in parts)}
        return {**pairs, "event": name, "_plain": True}

    def _started(self, event: Object) -> list[PhoneReceived]:
        name = a_string(required(event, "format", "format"), "format", longest=32)
        media = _FORMATS.get(name)
        if media is None or event.get("optimal_frame_size") in (0, "0"):
            known = ", ".join(_FORMATS)
            raise Rejected(
                "unsupported", f"'format' is {name!r}, which Asterisk does not time; choose {known}", "format"
            )
        if "ptime" in event:
            a_count(event["ptime"], "ptime", 1000)
        variables = texts(event.get("channel_variables"), "channel_variables")
        # A dialplan variable that is handed on keeps the underscores that it was set with.
        parameters = {key.lstrip("_").lower(): value for key, value in variables.items()}
        call = Call(
            self.vendor,
            an_id(event, "channel_id", "") or an_id(event, "channel", "") or an_id(event, "connection_id", ""),
            an_id(event, "connection_id", ""),
            parameters.get("from", ""),
            parameters.get("to", ""),
            parameters,
        )
        self._plain = "_plain" in event
        return [self._start(call, media), Answer((self._command("ANSWER"),))]

    # --- out ----------------------------------------------------------------------------------------------------------

    def _command(self, name: str, **values: str) -> Message:
        if self._plain:
            return name
        return json.dumps({"command": name, **values}, separators=(",", ":"))

    def _media(self, payload: bytes) -> Message:
        return payload

    def _mark(self, name: str) -> list[Message]:
        if not self._plain:
            return [self._command("MARK_MEDIA", correlation_id=name)]
        self._owed = name
        return []

    def send(self, notice: Notice) -> list[Message]:
        messages = super().send(notice)
        if messages and self._plain and self._owed:
            messages.append(self._command("REPORT_QUEUE_DRAINED"))
        return messages

    def _clear(self) -> list[Message]:
        self._owed = ""
        return [self._command("FLUSH_MEDIA")]

    def hold(self) -> list[Message]:
        return [self._command("PAUSE_MEDIA")] if self.output is not None else []

    def resume(self) -> list[Message]:
        return [self._command("CONTINUE_MEDIA")] if self.output is not None else []

    def hang_up(self, reason: str) -> list[Message]:
        # Closing the connection alone lets the dialplan go on, which is what passing a call on needs.
        return [self._command("HANGUP")] if self.output is not None and not self.over and reason != "transfer" else []
