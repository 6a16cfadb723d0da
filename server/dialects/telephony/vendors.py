"""All vendors whose calls are taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from .asterisk import AsteriskDialect
from .audiosocket import AudioSocketDialect
from .base import PhoneDialect
from .genesys import GenesysDialect
from .jambonz import SUBPROTOCOL, FreeSwitchDialect, JambonzDialect
from .plivo import PlivoDialect
from .telnyx import ExotelDialect, TelnyxDialect
from .twilio import SignalWireDialect, TwilioDialect
from .vonage import VonageDialect

VENDORS: Final[Mapping[str, Callable[[], PhoneDialect]]] = {
    "twilio": TwilioDialect,
    "signalwire": SignalWireDialect,
    "telnyx": TelnyxDialect,
    "exotel": ExotelDialect,
    "vonage": VonageDialect,
    "plivo": PlivoDialect,
    "asterisk": AsteriskDialect,
    "audiosocket": AudioSocketDialect,
    "jambonz": JambonzDialect,
    "freeswitch": FreeSwitchDialect,
    "genesys": GenesysDialect,
}
"""By the name in the path."""

SUBPROTOCOLS: Final = (SUBPROTOCOL, "media")
"""What vendors offer as the subprotocol of their WebSocket; Asterisk's is "media"."""
