"""RTP headers and what a receiver counts (RFC 3550), as far as a stream of Opus needs it a hundred times a second."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

_HEADER: Final = struct.Struct("!BBHII")
_EXTENSION: Final = struct.Struct("!HH")


class RtpHeader(NamedTuple):
    """What is read of a packet (section 5.1). The payload is `packet[start:end]`."""

    payload_type: int
    sequence: int
    timestamp: int
    ssrc: int
    start: int
    end: int


def read(packet: bytes) -> RtpHeader | None:
    """The header of a packet; None where it is none, or is longer than the packet."""
    if len(packet) < 12:
        return None
    first, second, sequence, timestamp, ssrc = _HEADER.unpack_from(packet)
    if first >> 6 != 2:
        return None
    start, end = 12 + 4 * (first & 0x0F), len(packet)
    if first & 0x10:
        if end < start + 4:
            return None
        start += 4 + 4 * int(_EXTENSION.unpack_from(packet, start)[1])
    if first & 0x20:
        padding = packet[-1]
        if not padding:
            return None
        end -= padding
    if start > end:
        return None
    return RtpHeader(second & 0x7F, sequence, timestamp, ssrc, start, end)


def write(payload_type: int, sequence: int, timestamp: int, ssrc: int, payload: bytes) -> bytes:
    """A packet without marker, sources and extensions."""
    return _HEADER.pack(0x80, payload_type, sequence, timestamp, ssrc) + payload


class Reception:
    """What is counted of one source, for reports to it (section 6.4.1, appendix A.3 and A.8)."""

    def __init__(self, clock: int) -> None:
        """`clock`: of its timestamps, in Hz."""
        self._clock = clock
        self._first: int | None = None
        self._highest = 0
        self._received = 0
        self._transit: float | None = None
        self._jitter = 0.0
        self._expected_before = 0
        self._received_before = 0

    def add(self, sequence: int, timestamp: int, now: float) -> None:
        """A packet. `now`: seconds of any steady clock."""
        self._received += 1
        if self._first is None:
            self._first = self._highest = sequence
        ahead = (sequence - self._highest) & 0xFFFF
        if ahead < 0x8000:
            self._highest += ahead
        transit = now * self._clock - timestamp
        if self._transit is not None:
            # The timestamp may have wrapped in between.
            difference = abs(transit - self._transit)
            self._jitter += (min(difference, abs(difference - (1 << 32))) - self._jitter) / 16
        self._transit = transit

    @property
    def highest(self) -> int:
        """Extended highest sequence number."""
        return self._highest & 0xFFFFFFFF

    @property
    def jitter(self) -> int:
        """In ticks of the clock."""
        return min(int(self._jitter), 0xFFFFFFFF)

    @property
    def lost(self) -> int:
        """Packets that did not come, over all; below 0 where some came twice. As wide as its field of 24 bits."""
        return max(-0x800000, min(self._expected - self._received, 0x7FFFFF))

    @property
    def _expected(self) -> int:
        return 0 if self._first is None else self._highest - self._first + 1

    def fraction(self) -> int:
        """Of 256, how many did not come since this was asked last."""
        expected, received = self._expected - self._expected_before, self._received - self._received_before
        self._expected_before, self._received_before = self._expected, self._received
        lost = expected - received
        return min(255, (lost << 8) // expected) if expected > 0 and lost > 0 else 0
