"""One peer connection: an offer in, an answer out, a media path, and data channels that the client opened."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from aiortc import (
    RTCConfiguration,
    RTCDataChannel,
    RTCIceServer,
    RTCPeerConnection,
    RTCRtpSender,
    RTCSessionDescription,
)
from aiortc.rtcconfiguration import RTCIceTransportPolicy

from . import sdp, seam

log = logging.getLogger(__name__)

GATHER_WITHIN: Final = 10.0
"""Seconds for the server's own candidates; relays and reflexive addresses are asked for over the network."""
CLOSE_WITHIN: Final = 5.0


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """How connections are made. `addresses`: of this machine, for ICE; None: all but loopback."""

    addresses: tuple[str, ...] | None = ("127.0.0.1",)
    public_address: str | None = None
    ice_servers: tuple[RTCIceServer, ...] = field(default=())
    relay_only: bool = False
    bitrate: int = 32_000
    """Bit/s of either direction."""
    dtx: bool = False
    """Whether the client's encoder may send nothing in silence."""


class NoAddress(Exception):
    """This server has no address that a call could use; the message says where to look."""


class PeerEvents(seam.MediaSink, Protocol):
    """Who a connection serves. Nothing of it may raise."""

    def channel(self, channel: RTCDataChannel) -> None:
        """The client's data channel is open."""

    def connected(self) -> None:
        """The connection is there."""

    def ended(self, reason: str) -> None:
        """The connection is closed, or could never be made."""


class Peer:
    """A connection that a client asked for."""

    def __init__(self, settings: PeerSettings, events: PeerEvents) -> None:
        policy = RTCIceTransportPolicy.RELAY if settings.relay_only else RTCIceTransportPolicy.ALL
        self._settings = settings
        self._events: PeerEvents | None = events
        """None once nobody is served any more."""
        self._connection = RTCPeerConnection(
            # An empty list, or aiortc asks a public server of its own choice.
            RTCConfiguration(iceServers=list(settings.ice_servers), iceTransportPolicy=policy)
        )
        transceiver = self._connection.addTransceiver("audio", direction="sendrecv")
        opus = [codec for codec in RTCRtpSender.getCapabilities("audio").codecs if codec.mimeType == "audio/opus"]
        transceiver.setCodecPreferences(opus)
        self.media = seam.Media(transceiver, events)
        self._connection.on("datachannel", self._channel)
        self._connection.on("connectionstatechange", self._state)

    async def answer(self, offer: sdp.Offer) -> str:
        """The SDP answer, with all candidates. Raises OfferRefused for what only aiortc finds wrong with the offer, and
        NoAddress."""
        settings = self._settings
        try:
            await self._connection.setRemoteDescription(RTCSessionDescription(offer.text, "offer"))
            with seam.local_addresses(settings.addresses):
                await asyncio.wait_for(self._connection.setLocalDescription(), GATHER_WITHIN)
            answer = self._connection.localDescription.sdp
        except Exception as error:
            # It tells what it dislikes by whatever goes wrong in it: assertions, look-ups, conversions.
            log.info("an offer could not be used: %r", error)
            told = str(error) or type(error).__name__
            raise sdp.OfferRefused(sdp.INVALID, f"the offer cannot be used: {told[:200]}") from error
        if "a=candidate:" not in answer:
            raise NoAddress(
                "the server has no address that calls could use; whoever runs it finds more in its --rtc-address, "
                "--ice-server and --ice-relay-only"
            )
        if self._events is not None:
            seam.watch_checks(self._connection, self._events.alive)
        return sdp.write_answer(
            answer,
            offer,
            bitrate=settings.bitrate,
            dtx=settings.dtx,
            public_address=settings.public_address,
        )

    @property
    def longest_message(self) -> int:
        """Bytes of the longest message that the client takes; 0: any."""
        return seam.longest_message(self._connection)

    def _channel(self, channel: RTCDataChannel) -> None:
        if self._events is not None:
            self._events.channel(channel)

    def _state(self) -> None:
        state, events = self._connection.connectionState, self._events
        if events is None:
            return
        if state == "connected":
            events.connected()
        if state in ("failed", "closed"):
            events.ended("client_closed" if state == "closed" else "connection_failed")

    async def close(self) -> None:
        """Let go of everything. Idempotent; never hangs."""
        if self._events is None:
            return
        self._events = None
        self.media.close()
        try:
            await asyncio.wait_for(self._connection.close(), CLOSE_WITHIN)
        except Exception as error:
            # A description that was applied in part leaves a connection that cannot end itself.
            log.info("a peer connection could not be closed in order: %r", error)
            await seam.abort(self._connection)
        seam.take_apart(self._connection)


def ice_servers(
    urls: Sequence[str], username: str | None = None, credential: str | None = None
) -> tuple[RTCIceServer, ...]:
    """STUN and TURN servers as aiortc takes them; the credentials are for the TURN ones."""
    return tuple(
        RTCIceServer(url, username, credential) if url.startswith("turn") else RTCIceServer(url) for url in urls
    )
