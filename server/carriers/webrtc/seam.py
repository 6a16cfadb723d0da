"""All that is used of aiortc and aioice beyond their documented interfaces, in one place.

`tests/server/carriers/webrtc/test_seam.py` fails, name by name, when another version changes any of it.

* Media. `RTCRtpSender.send` and `RTCRtpReceiver.receive`, which the connection calls once it is there, are replaced on
  the instance: neither a sender task nor a decoder thread begins. `Media` stands in their place at the transport, for
  RTCP and for the state of the connection.
* Packets. What goes out is handed to `RTCDtlsTransport._send_rtp`. What comes in is taken where the datagram arrives,
  at `aioice.ice.Connection.data_received`, and its protection removed there: by way of aiortc it would pass a queue and
  a task first, which costs more than all the rest. Anything but RTP goes that way still.
* Addresses. ICE asks `aioice.ice.get_host_addresses` for the local addresses; it leaves 127.0.0.1 out and takes all
  others. It is replaced by one that looks at a context variable.
* Signs of life. Connectivity checks of the peer arrive at `aioice.ice.Connection.request_received`.
* The longest message that the peer takes stands in the SCTP transport.
* The end of a connection that cannot end itself: its ICE transports, by name.
* What a connection that is over still holds itself by, so that it is freed at once: `take_apart` says what.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol

import aioice.ice
from aiortc import RTCPeerConnection, RTCRtpTransceiver, clock
from aiortc.rtcrtpparameters import RTCRtpReceiveParameters, RTCRtpSendParameters
from aiortc.rtp import (
    RtcpReceiverInfo,
    RtcpRrPacket,
    RtcpSdesPacket,
    RtcpSenderInfo,
    RtcpSourceInfo,
    RtcpSrPacket,
    RtpPacket,
)
from pylibsrtp import Error as SrtpError

from . import rtp

log = logging.getLogger(__name__)

ABORT_WITHIN: Final = 5.0
CLOCK: Final = 48_000
SOURCES_MOST: Final = 8
"""Sources of one section that are counted; a peer has one, and another one after each change of its microphone."""

_addresses: ContextVar[tuple[str, ...] | None] = ContextVar("ice_addresses", default=None)
_every_address = aioice.ice.get_host_addresses


def _host_addresses(use_ipv4: bool, use_ipv6: bool) -> list[str]:
    chosen = _addresses.get()
    return _every_address(use_ipv4, use_ipv6) if chosen is None else list(chosen)


aioice.ice.get_host_addresses = _host_addresses


@contextmanager
def local_addresses(addresses: Sequence[str] | None) -> Iterator[None]:
    """Gathering begun inside uses only `addresses` of this machine; None: all but loopback."""
    token = _addresses.set(None if addresses is None else tuple(addresses))
    try:
        yield
    finally:
        _addresses.reset(token)


class MediaSink(Protocol):
    """Who gets what the peer sends. Nothing of it may raise: aiortc would end the connection."""

    def packet(self, sequence: int, timestamp: int, payload: bytes) -> None:
        """One RTP packet of Opus, authenticated; in the order of arrival."""

    def started(self) -> None:
        """Packets can be sent from now on."""

    def alive(self) -> None:
        """Something else came from the peer: RTCP or a connectivity check."""

    def loss(self, fraction: float, round_trip: float | None) -> None:
        """What the peer reports of our packets: the part that was lost, 0..1, and the round trip in seconds."""


class _Nobody:
    """A sink for what still comes when nobody is there any more."""

    def packet(self, sequence: int, timestamp: int, payload: bytes) -> None: ...

    def started(self) -> None: ...

    def alive(self) -> None: ...

    def loss(self, fraction: float, round_trip: float | None) -> None: ...


class Media:
    """Both directions of one audio section, in the place of aiortc's sender and receiver. Opus alone is known here."""

    def __init__(self, transceiver: RTCRtpTransceiver, sink: MediaSink) -> None:
        """Takes over `transceiver`, before the descriptions are set."""
        self._transceiver = transceiver
        self._sink: MediaSink = sink
        self._ssrc: int = transceiver.sender._ssrc
        self._cname = b"talkover"
        self._payload_type = 0
        self._transport: Any = None
        self._hears: dict[int, rtp.Reception] = {}
        self._clock = asyncio.get_running_loop().time
        self._last_report: tuple[int, int, float] | None = None
        self._sent_report: dict[int, float] = {}
        self._packets = 0
        self._octets = 0
        vars(transceiver.sender)["send"] = self._sender_starts
        vars(transceiver.receiver)["receive"] = self._receiver_starts

    @property
    def open(self) -> bool:
        """Whether packets can be sent."""
        return self._transport is not None and self._transport.state == "connected"

    async def _sender_starts(self, parameters: RTCRtpSendParameters) -> None:
        if self._transport is not None:
            return
        transport = self._transceiver.sender.transport
        transport._register_rtp_sender(self, parameters)
        self._payload_type = parameters.codecs[0].payloadType or 0
        self._transport = transport
        self._sink.started()

    async def _receiver_starts(self, parameters: RTCRtpReceiveParameters) -> None:
        transport = self._transceiver.receiver.transport
        transport._register_rtp_receiver(self, parameters)
        self._payload_type = parameters.codecs[0].payloadType or 0
        self._tap(transport)

    # --- out ---------------------------------------------------------------------------------------------------------

    def send(self, sequence: int, timestamp: int, payload: bytes) -> bool:
        """Protect and write one packet, at once; False where the connection is gone."""
        self._packets += 1
        self._octets += len(payload)
        return self._write(rtp.write(self._payload_type, sequence, timestamp, self._ssrc, payload))

    def report(self, timestamp: int) -> None:
        """Send RTCP: our sender report for `timestamp`, which is being sent now, and what we received of the peer."""
        now = clock.current_ntp_time()
        reports = [self._received(ssrc, heard) for ssrc, heard in self._hears.items()]
        packets = bytes(
            RtcpSrPacket(
                ssrc=self._ssrc,
                sender_info=RtcpSenderInfo(
                    ntp_timestamp=now,
                    rtp_timestamp=timestamp,
                    packet_count=self._packets & 0xFFFFFFFF,
                    octet_count=self._octets & 0xFFFFFFFF,
                ),
                reports=reports,
            )
        ) + bytes(RtcpSdesPacket(chunks=[RtcpSourceInfo(ssrc=self._ssrc, items=[(1, self._cname)])]))
        self._sent_report = {(now >> 16) & 0xFFFFFFFF: time.monotonic(), **dict(list(self._sent_report.items())[:7])}
        self._write(packets)

    def _received(self, ssrc: int, heard: rtp.Reception) -> RtcpReceiverInfo:
        last, delay = 0, 0
        if self._last_report is not None and self._last_report[0] == ssrc:
            last = self._last_report[1]
            delay = min(0xFFFFFFFF, int((time.monotonic() - self._last_report[2]) * 65536))
        return RtcpReceiverInfo(
            ssrc=ssrc,
            fraction_lost=heard.fraction(),
            packets_lost=heard.lost,
            highest_sequence=heard.highest,
            jitter=heard.jitter,
            lsr=last,
            dlsr=delay,
        )

    def _write(self, packet: bytes) -> bool:
        if self._transport is None:
            return False
        # A coroutine by name only: nothing in it waits, down to the datagram's `sendto`. So it is stepped here, and the
        # packet is on its way when this returns; a task of its own would come after the gate.
        writing = self._transport._send_rtp(packet)
        try:
            writing.send(None)
        except StopIteration:
            return True
        except ConnectionError:
            return False
        writing.close()
        raise RuntimeError("aiortc waits while it sends a packet; this version cannot be used")

    # --- in ----------------------------------------------------------------------------------------------------------

    def _tap(self, transport: Any) -> None:
        """Take RTP of `transport`, which is connected, as it arrives."""
        connection = transport.transport._connection
        onward = connection.data_received

        def received(data: bytes, component: int) -> None:
            # RFC 7983 tells RTP and RTCP from the rest by the first byte, RFC 5761 one from the other by the second.
            if len(data) > 1 and 127 < data[0] < 192 and not 192 <= data[1] <= 208 and self._transport is not None:
                self._datagram(transport, data)
            else:
                onward(data, component)

        connection.data_received = received

    def _datagram(self, transport: Any, data: bytes) -> None:
        try:
            packet: bytes = transport._rx_srtp.unprotect(data)
        except (SrtpError, ValueError):
            return
        header = rtp.read(packet)
        if header is not None and header.payload_type == self._payload_type:
            self._take(header.ssrc, header.sequence, header.timestamp, packet[header.start : header.end])

    def _take(self, ssrc: int, sequence: int, timestamp: int, payload: bytes) -> None:
        heard = self._hears.get(ssrc)
        if heard is None:
            if len(self._hears) >= SOURCES_MOST:
                self._hears.clear()
            heard = self._hears[ssrc] = rtp.Reception(CLOCK)
        heard.add(sequence, timestamp, self._clock())
        self._sink.packet(sequence, timestamp, payload)

    async def _handle_rtp_packet(self, packet: RtpPacket, arrival_time_ms: int) -> None:
        """One that was on its way to aiortc's task before its datagrams were taken here."""
        self._take(packet.ssrc, packet.sequence_number, packet.timestamp, packet.payload)

    async def _handle_rtcp_packet(self, packet: object) -> None:
        self._sink.alive()
        if isinstance(packet, RtcpSrPacket):
            middle = (packet.sender_info.ntp_timestamp >> 16) & 0xFFFFFFFF
            self._last_report = (packet.ssrc, middle, time.monotonic())
        if isinstance(packet, RtcpSrPacket | RtcpRrPacket):
            for report in packet.reports:
                if report.ssrc == self._ssrc:
                    self._sink.loss(report.fraction_lost / 256, self._round_trip(report))

    def _round_trip(self, report: RtcpReceiverInfo) -> float | None:
        """RFC 3550 section 6.4.1, by our own clock alone."""
        sent = self._sent_report.get(report.lsr)
        if sent is None:
            return None
        return max(0.0, time.monotonic() - sent - report.dlsr / 65536)

    def _handle_disconnect(self) -> None:
        """The transport is gone; the connection's state says so as well."""

    # --- end ---------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of the transport and of the sink. Idempotent."""
        self._sink = _Nobody()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport._unregister_rtp_sender(self)
            transport._unregister_rtp_receiver(self)


def watch_checks(connection: RTCPeerConnection, alive: Callable[[], None]) -> None:
    """Call `alive` for every connectivity check of the peer, which go on for as long as it is there (RFC 7675)."""
    for transport in _transports(connection):
        ice = transport.transport._connection
        answer = ice.request_received

        def received(message: Any, addr: tuple[str, int], protocol: Any, answer: Any = answer) -> None:
            alive()
            answer(message, addr, protocol)

        ice.request_received = received


def _transports(connection: RTCPeerConnection) -> list[Any]:
    """The DTLS transports, each once: sections share them."""
    found = [transceiver.receiver.transport for transceiver in connection.getTransceivers()]
    if connection.sctp is not None:
        found.append(connection.sctp.transport)
    return list(dict.fromkeys(found))


def longest_message(connection: RTCPeerConnection) -> int:
    """Bytes of the longest data channel message that the peer takes (RFC 8841 section 6); 0: any."""
    return int(connection.sctp._remote_max_message_size) if connection.sctp is not None else 0


async def abort(connection: RTCPeerConnection) -> None:
    """Close the sockets of a connection that cannot be closed in order."""
    transports: set[Any] = vars(connection)["_RTCPeerConnection__iceTransports"]
    for transport in list(transports):
        try:
            await asyncio.wait_for(transport.stop(), ABORT_WITHIN)
        except Exception as error:
            log.warning("the sockets of a peer connection stay open: %r", error)


def take_apart(connection: RTCPeerConnection) -> None:
    """Undo what a closed connection holds itself by, or it stays until the garbage collector comes: hundreds of calls
    later, each with its keys, buffers and codecs.

    These are what was put here in the place of its methods, the listeners to its transports' states, the pairs of
    addresses that ICE has tried, the messages that SCTP has not sent, and the callback by which OpenSSL asks for the
    peer's certificate.
    """
    for transceiver in connection.getTransceivers():
        vars(transceiver.sender).pop("send", None)
        vars(transceiver.receiver).pop("receive", None)
    if connection.sctp is not None:
        connection.sctp._data_channel_queue.clear()
    for transport in _transports(connection):
        transport.remove_all_listeners()
        ice = transport.transport._connection
        vars(ice).pop("data_received", None)
        vars(ice).pop("request_received", None)
        ice._check_list.clear()
        ice._early_checks.clear()
        if transport._ssl is not None and (helper := transport._ssl.get_context()._verify_helper) is not None:
            helper.callback = None
