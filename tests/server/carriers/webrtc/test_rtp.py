"""RTP headers against aiortc's, and the counts of a receiver."""

from __future__ import annotations

import pytest
from aiortc.rtp import RtpPacket

from server.carriers.webrtc import rtp
from server.carriers.webrtc.rtp import Reception


def test_what_is_written_is_read_by_others() -> None:
    packet = RtpPacket.parse(rtp.write(111, 65_535, 0xFFFFFFFF, 0xDEADBEEF, b"opus"))
    assert (packet.payload_type, packet.sequence_number, packet.timestamp, packet.ssrc) == (
        111,
        65_535,
        0xFFFFFFFF,
        0xDEADBEEF,
    )
    assert packet.payload == b"opus"


@pytest.mark.parametrize("sources", [0, 3])
@pytest.mark.parametrize("extension", [b"", b"\xbe\xde\x00\x02" + bytes(8)])
@pytest.mark.parametrize("padding", [b"", b"\x00\x00\x03"])
def test_sources_extensions_and_padding_are_passed_over(sources: int, extension: bytes, padding: bytes) -> None:
    first = 0x80 | (0x20 if padding else 0) | (0x10 if extension else 0) | sources
    packet = bytes((first, 0x80 | 96)) + b"\x00\x07" + b"\x00\x00\x00\x09" + bytes(4) + bytes(4 * sources)
    packet += extension + b"opus" + padding
    header = rtp.read(packet)
    assert header is not None
    assert (header.payload_type, header.sequence, header.timestamp) == (96, 7, 9)
    assert packet[header.start : header.end] == b"opus"
    assert RtpPacket.parse(packet).payload == b"opus"


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        bytes(11),
        bytes(12),
        b"\x8f\x60" + bytes(10),
        b"\x90\x60" + bytes(10),
        b"\x90\x60" + bytes(10) + b"\xbe\xde\xff\xff",
        b"\xa0\x60" + bytes(10),
        b"\xa0\x60" + bytes(10) + b"\x05",
    ],
)
def test_what_is_no_packet_is_not_read(packet: bytes) -> None:
    assert rtp.read(packet) is None


def test_loss_is_counted_over_all_and_since_the_last_report() -> None:
    heard = Reception(48_000)
    for number in range(65_530, 65_630):
        if number % 4:
            heard.add(number & 0xFFFF, number * 960 & 0xFFFFFFFF, number * 0.02)
    assert heard.highest == 65_629
    assert heard.lost == 25
    assert heard.fraction() == 25 * 256 // 100
    assert heard.fraction() == 0
    heard.add(65_532, 0, 0.0)
    assert heard.fraction() == 0
    assert heard.lost == 24


def test_what_comes_late_or_twice_makes_loss_no_larger() -> None:
    heard = Reception(48_000)
    for number in (10, 12, 11, 11, 11, 11):
        heard.add(number, number * 960, number * 0.02)
    assert heard.highest == 12
    assert heard.lost == -3
    assert heard.fraction() == 0


def test_jitter_is_the_mean_deviation_whatever_the_timestamp_does_at_its_end() -> None:
    heard = Reception(48_000)
    for number in range(2000):
        late = 0.005 if number % 2 else 0.0
        heard.add(number & 0xFFFF, ((1 << 32) - 960_000 + number * 960) & 0xFFFFFFFF, number * 0.02 + late)
    assert heard.jitter == pytest.approx(240, abs=2)


def test_before_anything_came_there_is_nothing_to_report() -> None:
    heard = Reception(48_000)
    assert (heard.highest, heard.lost, heard.fraction(), heard.jitter) == (0, 0, 0, 0)
