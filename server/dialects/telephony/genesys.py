"""Genesys AudioHook, version 2: µ-law in binary messages, everything else in JSON with sequence numbers.

https://developer.genesys.cloud/devapps/audiohook. The client opens, pings, pauses and closes, and each wants its
answer. What is sent back is played by a bot connector; `barge_in` empties its buffer. Messages are rationed there, so
audio goes in pieces of 100 ms.
"""

from __future__ import annotations

import json
from typing import ClassVar, Final

from sessions.core.timeline import from_ms

from ..checks import Json, Object, Rejected, a_list, a_string, an_object, parse, required
from .base import Answer, Call, Counted, Message, PhoneDialect, PhoneReceived, a_count, an_id, modelled, texts
from .media import ULAW_8K, MediaFormat
from .telnyx import VENDOR_ERROR

DELAY: Final = from_ms(100)
VERSION: Final = "2"
CALLER: Final = "external"
_FORMATS: Final = {"PCMU": ULAW_8K, "L16": MediaFormat("l16", 8000)}
_NOTHING: Final = ("update", "discarded", "playback_started", "playback_completed", "paused", "resumed")


class GenesysDialect(PhoneDialect):
    """One conversation from Genesys Cloud."""

    vendor: ClassVar[str] = "genesys"
    packet_ms: ClassVar[int] = 100
    has_marks: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = modelled(DELAY)
        self._id = ""
        self._theirs = 0
        self._ours = 0
        self._both = False
        self._width = 1
        self._bytes = 0

    # --- in -----------------------------------------------------------------------------------------------------------

    def _received(self, message: Message) -> list[PhoneReceived]:
        if isinstance(message, bytes):
            self._listening()
            caller = self._caller(message)
            self._bytes += len(caller)
            return self._audio(caller)
        event = parse(message)
        if event.get("version") != VERSION:
            raise Rejected("unsupported", f"'version' is not {VERSION!r}", "version")
        name = a_string(required(event, "type", "type"), "type", longest=64)
        number = a_count(required(event, "seq", "seq"), "seq")
        if number <= self._theirs:
            raise Rejected("duplicate_message", f"'seq' is {number}, and {self._theirs} came before it", "seq")
        self._theirs = number
        parameters = an_object(event.get("parameters", {}), "parameters")
        match name:
            case "open":
                return self._opened(event, parameters)
            case "ping":
                return [Answer((self._say("pong"),))]
            case "pause":
                return [Answer((self._say("paused"),))]
            case "resume":
                return [Answer((self._say("resumed"),))]
            case "dtmf":
                self._listening()
                return [self._digit(required(parameters, "digit", "parameters.digit"), "parameters.digit")]
            case "close":
                return [Answer((self._say("closed"),)), self._stop("stopped")]
            case "error":
                return [Counted(VENDOR_ERROR)]
        if name in _NOTHING:
            return []
        raise Rejected("invalid_value", f"{name!r} is not a message of this protocol", "type")

    def _caller(self, audio: bytes) -> bytes:
        """The caller's channel of what may be both in turn."""
        if not self._both:
            return audio
        if self._width == 1:
            return audio[::2]
        if len(audio) % 4:
            raise Rejected("invalid_value", f"the audio has {len(audio)} bytes; samples of two channels need 4")
        return b"".join(audio[at : at + 2] for at in range(0, len(audio), 4))

    def _opened(self, event: Object, parameters: Object) -> list[PhoneReceived]:
        identity = a_string(required(event, "id", "id"), "id", longest=256)
        media, format_name, channels = self._chosen(a_list(required(parameters, "media", "parameters.media"), "media"))
        participant = an_object(parameters.get("participant", {}), "parameters.participant")
        given = texts(parameters.get("inputVariables"), "parameters.inputVariables")
        call = Call(
            self.vendor,
            an_id(parameters, "conversationId", "parameters") or identity,
            identity,
            an_id(participant, "ani", "parameters.participant"),
            an_id(participant, "dnis", "parameters.participant"),
            given,
        )
        started = self._start(call, media)
        self._id = identity
        self._both = len(channels) == 2
        self._width = media.sample_bits // 8
        chosen: Json = [{"type": "audio", "format": format_name, "channels": channels, "rate": 8000}]
        return [started, Answer((self._say("opened", {"startPaused": False, "media": chosen}, position=False),))]

    @staticmethod
    def _chosen(offered: Json) -> tuple[MediaFormat, str, list[str]]:
        """The offered medium that holds the caller, alone where there is a choice. Raises Rejected."""
        found: list[tuple[int, int, str, list[str]]] = []
        for index, one in enumerate(offered if isinstance(offered, list | tuple) else ()):
            medium = an_object(one, f"parameters.media[{index}]")
            name = str(medium.get("format"))
            channels = [str(each) for each in a_list(medium.get("channels", []), "channels")]
            if name in _FORMATS and medium.get("rate") == 8000 and channels[:1] == [CALLER] and len(channels) <= 2:
                found.append((len(channels), index, name, channels))
        if not found:
            raise Rejected(
                "unsupported", "no offered medium is PCMU or L16 at 8000 Hz with the external channel", "media"
            )
        _, _, name, channels = min(found)
        return _FORMATS[name], name, channels

    # --- out ----------------------------------------------------------------------------------------------------------

    def _say(self, kind: str, parameters: Object | None = None, *, position: bool = True) -> Message:
        self._ours += 1
        message: dict[str, Json] = {
            "version": VERSION,
            "id": self._id,
            "type": kind,
            "seq": self._ours,
            "clientseq": self._theirs,
            "parameters": parameters or {},
        }
        if position:
            message["position"] = f"PT{self._bytes / self._width / 8000:.3f}S"
        return json.dumps(message, separators=(",", ":"))

    def _media(self, payload: bytes) -> Message:
        return payload

    def _clear(self) -> list[Message]:
        return [self._say("event", {"entities": [{"type": "barge_in", "data": {}}]})]

    def hang_up(self, reason: str) -> list[Message]:
        if self.over or not self._id:
            return []
        on = "transfer" if self.transfer_to else "finished"
        to: dict[str, Json] = {"transfer_to": self.transfer_to} if self.transfer_to else {}
        return [self._say("disconnect", {"reason": "completed", "outputVariables": {"action": on, **to}})]
