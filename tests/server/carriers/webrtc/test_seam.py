"""Everything that `seam` uses of aiortc and aioice beyond their documented interfaces is still what it was.

When one of these fails after an update, `server/carriers/webrtc/seam.py` is the one place to look at.
"""

from __future__ import annotations

import asyncio
import inspect

import aioice.ice
import pytest
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.rtcdtlstransport import RTCDtlsTransport
from aiortc.rtcrtpreceiver import RTCRtpReceiver
from aiortc.rtcrtpsender import RTCRtpSender
from aiortc.rtp import RtcpReceiverInfo, RtcpSenderInfo, RtpPacket

from server.carriers.webrtc import seam
from tests.freed import Freed, no_collector


def parameters(function: object) -> list[str]:
    assert callable(function)
    return [name for name in inspect.signature(function).parameters if name != "self"]


def test_the_connection_starts_sender_and_receiver_by_calls_that_can_be_replaced() -> None:
    source = inspect.getsource(RTCPeerConnection)
    assert "transceiver.sender.send(" in source
    assert "transceiver.receiver.receive(" in source
    assert parameters(RTCRtpSender.send) == ["parameters"]
    assert parameters(RTCRtpReceiver.receive) == ["parameters"]


def test_a_sender_and_a_receiver_that_never_started_stop_without_waiting() -> None:
    for kind in (RTCRtpSender, RTCRtpReceiver):
        assert "if self.__started:" in inspect.getsource(kind.stop)


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("_register_rtp_sender", ["sender", "parameters"]),
        ("_register_rtp_receiver", ["receiver", "parameters"]),
        ("_unregister_rtp_sender", ["sender"]),
        ("_unregister_rtp_receiver", ["receiver"]),
        ("_send_rtp", ["data"]),
    ],
)
def test_the_transport_takes_our_ends(name: str, takes: list[str]) -> None:
    assert parameters(getattr(RTCDtlsTransport, name)) == takes


def test_the_transport_calls_our_ends_as_it_calls_its_own() -> None:
    for name in ("_handle_rtp_packet", "_handle_rtcp_packet", "_handle_disconnect"):
        assert parameters(getattr(seam.Media, name)) == parameters(getattr(RTCRtpReceiver, name)), name
        assert inspect.iscoroutinefunction(getattr(seam.Media, name)) == inspect.iscoroutinefunction(
            getattr(RTCRtpReceiver, name)
        ), name
    source = inspect.getsource(RTCDtlsTransport)
    for called in ("receiver._handle_rtp_packet(", "recipient._handle_rtcp_packet(", "receiver._handle_disconnect("):
        assert called in source, called


def test_packets_and_reports_have_the_fields_that_are_read_and_written() -> None:
    packet = RtpPacket.parse(b"\x80\x6f" + (7).to_bytes(2, "big") + (9).to_bytes(4, "big") + bytes(4) + b"opus")
    assert (packet.sequence_number, packet.timestamp, packet.payload, packet.ssrc) == (7, 9, b"opus", 0)
    assert [*RtcpReceiverInfo.__dataclass_fields__] == [
        "ssrc",
        "fraction_lost",
        "packets_lost",
        "highest_sequence",
        "jitter",
        "lsr",
        "dlsr",
    ]
    assert [*RtcpSenderInfo.__dataclass_fields__] == ["ntp_timestamp", "rtp_timestamp", "packet_count", "octet_count"]


def test_ice_asks_for_addresses_by_a_function_that_can_be_replaced() -> None:
    assert "get_host_addresses(" in inspect.getsource(aioice.ice.Connection.gather_candidates)
    assert parameters(aioice.ice.get_host_addresses) == ["use_ipv4", "use_ipv6"]
    with seam.local_addresses(["192.0.2.1"]):
        assert aioice.ice.get_host_addresses(use_ipv4=True, use_ipv6=True) == ["192.0.2.1"]
    assert "192.0.2.1" not in aioice.ice.get_host_addresses(use_ipv4=True, use_ipv6=True)


def test_checks_of_the_peer_arrive_at_a_method_that_can_be_replaced() -> None:
    assert parameters(aioice.ice.Connection.request_received) == ["message", "addr", "protocol"]
    assert "self.receiver.request_received(message, addr, self)" in inspect.getsource(aioice.ice.StunProtocol)


def test_datagrams_arrive_at_a_method_that_can_be_replaced_and_their_protection_can_be_removed_there() -> None:
    assert parameters(aioice.ice.Connection.data_received) == ["data", "component"]
    assert "self.receiver.data_received(data, self.local_candidate.component)" in inspect.getsource(
        aioice.ice.StunProtocol
    )
    source = inspect.getsource(RTCDtlsTransport)
    assert "self._rx_srtp.unprotect(data)" in source
    assert "except pylibsrtp.Error" in source


async def test_the_sockets_of_a_connection_are_found_and_closed_where_it_cannot_end_itself() -> None:
    connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    connection.addTransceiver("audio")
    with seam.local_addresses(["127.0.0.1"]):
        await connection.setLocalDescription(await connection.createOffer())
    transports = list(vars(connection)["_RTCPeerConnection__iceTransports"])
    assert transports
    await seam.abort(connection)
    assert [one.state for one in transports] == ["closed"]
    assert all(not one._connection._protocols for one in transports)
    await connection.close()


class Sink:
    """Keeps what comes."""

    def __init__(self) -> None:
        self.packets: list[tuple[int, int, bytes]] = []
        self.signs = 0
        self.losses: list[tuple[float, float | None]] = []
        self.changed = asyncio.Event()

    def packet(self, sequence: int, timestamp: int, payload: bytes) -> None:
        self.packets.append((sequence, timestamp, payload))
        self.changed.set()

    def started(self) -> None:
        self.changed.set()

    def alive(self) -> None:
        self.signs += 1
        self.changed.set()

    def loss(self, fraction: float, round_trip: float | None) -> None:
        self.losses.append((fraction, round_trip))
        self.changed.set()


async def until(sinks: list[Sink], true: object) -> None:
    assert callable(true)
    async with asyncio.timeout(10):
        while not true():
            for sink in sinks:
                sink.changed.clear()
            await asyncio.wait(
                [asyncio.ensure_future(sink.changed.wait()) for sink in sinks], return_when=asyncio.FIRST_COMPLETED
            )


async def agreed() -> tuple[list[Sink], list[RTCPeerConnection], list[seam.Media]]:
    """Two connections that have taken each other's descriptions; the checks of the first are watched by the second."""
    sinks = [Sink(), Sink()]
    ends = [RTCPeerConnection(RTCConfiguration(iceServers=[])) for _ in sinks]
    media = [seam.Media(end.addTransceiver("audio"), sink) for end, sink in zip(ends, sinks, strict=True)]
    # Asked of SCTP while it is not there, and so still waiting when it never comes.
    ends[0].createDataChannel("any")
    with seam.local_addresses(["127.0.0.1"]):
        await ends[0].setLocalDescription(await ends[0].createOffer())
        assert "127.0.0.1" in ends[0].localDescription.sdp
        await ends[1].setRemoteDescription(RTCSessionDescription(ends[0].localDescription.sdp, "offer"))
        await ends[1].setLocalDescription(await ends[1].createAnswer())
    seam.watch_checks(ends[1], sinks[1].alive)
    await ends[0].setRemoteDescription(RTCSessionDescription(ends[1].localDescription.sdp, "answer"))
    return sinks, ends, media


async def test_two_connections_exchange_packets_reports_and_signs_of_life_through_it() -> None:
    sinks, ends, media = await agreed()
    try:
        await until(sinks, lambda: all(one.open for one in media))
        assert sinks[1].signs > 0, "no connectivity check was seen"
        assert media[0].send(65_535, (1 << 32) - 1, b"first")
        assert media[0].send(1, 960, b"third")
        assert media[1].send(5, 7, b"back")
        await until(sinks, lambda: len(sinks[1].packets) == 2 and sinks[0].packets)
        assert sinks[1].packets == [(65_535, (1 << 32) - 1, b"first"), (1, 960, b"third")]
        assert sinks[0].packets == [(5, 7, b"back")]
        media[0].report(1920)
        await until(sinks, lambda: media[1]._last_report is not None)
        media[1].report(960)
        await until(sinks, lambda: sinks[0].losses)
        fraction, round_trip = sinks[0].losses[-1]
        assert fraction == pytest.approx(1 / 3, abs=0.01)
        assert round_trip is not None
        assert 0 <= round_trip < 1
        assert seam.longest_message(ends[1]) == 262_144
    finally:
        for one, end in zip(media, ends, strict=True):
            one.close()
            one.close()
            await end.close()
    assert not media[0].send(2, 0, b"nobody")


async def test_a_closed_connection_that_was_taken_apart_is_freed_at_once() -> None:
    freed = Freed()

    async def meet() -> None:
        sinks, ends, media = await agreed()
        await until(sinks, lambda: all(one.open for one in media))
        for sink, one, end in zip(sinks, media, ends, strict=True):
            (transport,) = seam._transports(end)
            freed.watch(sink, one, end, end.sctp, transport, transport.transport, transport.transport._connection)
            freed.watch(transport._ssl, transport._ssl.get_context(), transport._ssl.get_context()._verify_helper)
            one.close()
            await end.close()
            seam.take_apart(end)

    with no_collector():
        await meet()
        await freed.all()
