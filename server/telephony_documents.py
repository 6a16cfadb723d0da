"""Connect documents: what a vendor asks for when a call comes in, and what makes it open its media stream here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape, quoteattr

NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "twilio": {"from": "From", "to": "To"},
    "signalwire": {"from": "From", "to": "To"},
    "telnyx": {"from": "From", "to": "To"},
    "plivo": {"from": "From", "to": "To", "call": "CallUUID"},
    "vonage": {"from": "from", "to": "to", "call": "uuid"},
    "jambonz": {"from": "from", "to": "to", "call": "call_sid"},
}
"""Parameters that a call gets from what the vendor's request says, and their names there."""

VONAGE_RATE: Final = 16_000
PLIVO_HEADERS_MOST: Final = 512


@dataclass(frozen=True, slots=True)
class Document:
    """A connect document. `body` is text, or JSON where `media_type` says so."""

    body: str | list[object]
    media_type: str


def connect_document(vendor: str, url: str, parameters: Mapping[str, str]) -> Document | None:
    """The document that has `vendor` connect a call to the WebSocket at `url`; None where the vendor has none.

    `parameters` reach the start of the call.
    """
    match vendor:
        case "twilio" | "signalwire":
            return _xml(f"<Connect><Stream url={quoteattr(url)}>{_parameters(parameters)}</Stream></Connect>")
        case "telnyx":
            stream = f'<Stream url={quoteattr(url)} bidirectionalMode="rtp" bidirectionalCodec="PCMU" codec="PCMU">'
            return _xml(f"<Connect>{stream}{_parameters(parameters)}</Stream></Connect>")
        case "plivo":
            # Letters and digits alone are taken there, and few of them.
            plain = ";".join(f"{name}={value}" for name, value in parameters.items() if (name + value).isalnum())
            headers = f" extraHeaders={quoteattr(plain)}" if plain and len(plain) <= PLIVO_HEADERS_MOST else ""
            attributes = 'bidirectional="true" keepCallAlive="true" contentType="audio/x-mulaw;rate=8000"'
            return _xml(f"<Stream {attributes}{headers}>{escape(url)}</Stream>")
        case "vonage":
            endpoint: dict[str, object] = {
                "type": "websocket",
                "uri": url,
                "content-type": f"audio/l16;rate={VONAGE_RATE}",
                "headers": dict(parameters),
            }
            return Document([{"action": "connect", "endpoint": [endpoint]}], "application/json")
        case "jambonz":
            verb: dict[str, object] = {
                "verb": "listen",
                "url": url,
                "mixType": "mono",
                "sampleRate": VONAGE_RATE,
                "passDtmf": True,
                "bidirectionalAudio": {"enabled": True, "streaming": True, "sampleRate": VONAGE_RATE},
                "metadata": dict(parameters),
            }
            return Document([verb, {"verb": "hangup"}], "application/json")
    return None


def _xml(inside: str) -> Document:
    return Document(f'<?xml version="1.0" encoding="UTF-8"?><Response>{inside}</Response>', "application/xml")


def _parameters(parameters: Mapping[str, str]) -> str:
    return "".join(
        f"<Parameter name={quoteattr(name)} value={quoteattr(value)}/>" for name, value in parameters.items()
    )
