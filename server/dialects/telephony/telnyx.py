"""Telnyx Media Streaming, bidirectional RTP mode.

https://developers.telnyx.com/docs/voice/programmable-voice/media-streaming. The order of media is not guaranteed, so
chunks are put in order by their number. The start names the codec of what comes; what goes back may be another one
(`stream_bidirectional_codec`), which the start does not say: then the stream's address must, as in
`/telephony/telnyx?codec=L16&rate=16000`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import ClassVar, Final

from ..checks import Json, Object, Rejected
from .base import Call, Counted, Message, PhoneReceived, Started, a_count
from .media import MediaFormat, media_format
from .twilio import TwilioDialect

VENDOR_ERROR: Final = "vendor_errors"
"""Counter: errors that a vendor reported."""


class TelnyxDialect(TwilioDialect):
    """One call from Telnyx."""

    vendor: ClassVar[str] = "telnyx"
    depth: ClassVar[int] = 5
    stream_key: ClassVar[str] = "stream_id"
    call_key: ClassVar[str] = "call_control_id"
    parameters_key: ClassVar[str] = "custom_parameters"
    format_key: ClassVar[str] = "media_format"
    rate_key: ClassVar[str] = "sample_rate"

    def __init__(self) -> None:
        super().__init__()
        self._back: tuple[str, str] = ("", "8000")

    def addressed(self, query: Mapping[str, str]) -> None:
        """`codec` and `rate` of what goes back."""
        self._back = (query.get("codec", ""), query.get("rate", "8000"))

    def _start(self, call: Call, heard: MediaFormat, spoken: MediaFormat | None = None) -> Started:
        codec, rate = self._back
        if codec:
            spoken = media_format(codec, a_count(rate, "rate"), "codec")
        return super()._start(call, heard, spoken)

    def _other(self, name: str, event: Object) -> list[PhoneReceived]:
        if name == "error":
            return [Counted(VENDOR_ERROR)]
        raise Rejected("invalid_value", f"{name!r} is not an event of this protocol", "event")

    def _media_head(self, stream: str) -> str:
        return '{"event":"media","media":{"payload":"'

    def _say(self, event: dict[str, Json]) -> Message:
        return json.dumps(event, separators=(",", ":"))


class ExotelDialect(TwilioDialect):
    """One call from Exotel's Voicebot: Twilio's events in other letters, with PCM.

    https://developer.exotel.com/docs/agentstream/websocket-protocol.
    """

    vendor: ClassVar[str] = "exotel"
    packet_ms: ClassVar[int] = 100
    stream_key: ClassVar[str] = "stream_sid"
    call_key: ClassVar[str] = "call_sid"
    parameters_key: ClassVar[str] = "custom_parameters"
    format_key: ClassVar[str] = "media_format"
    rate_key: ClassVar[str] = "sample_rate"
