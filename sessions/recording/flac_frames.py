"""Frames of FLAC (RFC 9639, section 9): taken apart and put together, so that what is encoded once may stand anywhere.

A frame is a header, which says where its samples lie, a subframe, which says what they are, and two checksums. The
checksum over all of it is linear, so that of a subframe behind another header follows from the two headers.
"""

from __future__ import annotations

import functools
from array import array
from typing import Final, NamedTuple

SMALLEST: Final = 16
"""Samples that a block holds at least; only the last one may be shorter (section 8.2)."""
LARGEST: Final = 4096
"""Samples that a block of ours holds at most, which every decoder takes (section 7)."""
_RATES: Final = {8000: 4, 16_000: 5, 24_000: 7, 48_000: 10}
"""Codes of sample rates (section 9.1.2); 0 stands for what STREAMINFO says."""
_SIZES: Final = {1: 192} | {code: 576 << code - 2 for code in range(2, 6)} | {code: 1 << code for code in range(8, 16)}
"""Block sizes by their codes (section 9.1.1); 6 and 7 stand for one that follows in one or two bytes."""
_MONO_16: Final = 0x08
"""One channel, 16 bits a sample."""


class Block(NamedTuple):
    """One encoded block, wherever it lies: mono, 16 bits. `crc`: CRC-16 of `body`, its subframe."""

    samples: int
    body: bytes
    crc: int


class Header(NamedTuple):
    """What the header of a frame says: its first sample, how many there are, and how many bytes it is itself."""

    first: int
    samples: int
    size: int


def silent(samples: int) -> Block:
    """A block of nothing but zeros: a constant subframe (section 9.2.2)."""
    return _SILENT._replace(samples=samples)


def stream_info(rate: int) -> bytes:
    """How a file begins whose blocks are of many sizes, its length and its MD5 not known (section 8.2)."""
    sizes = SMALLEST.to_bytes(2, "big") + LARGEST.to_bytes(2, "big") + bytes(6)
    return b"fLaC\x80\0\0\x22" + sizes + (rate << 44 | 15 << 36).to_bytes(8, "big") + bytes(16)


def framed(block: Block, rate: int, first: int) -> bytes:
    """`block` as a frame whose first sample is number `first` of its track."""
    head = bytearray(b"\xff\xf9\x70\x08")
    head[2] |= _RATES.get(rate, 0)
    head += _coded(first)
    head += (block.samples - 1).to_bytes(2, "big")
    head.append(crc8(head))
    crc = _behind(crc16(head), len(block.body)) ^ block.crc
    return b"".join((head, block.body, crc.to_bytes(2, "big")))


def taken(frame: bytes) -> Block:
    """The block in a frame that an encoder made. Raises ValueError where it is none of mono samples of 16 bits."""
    head = read_header(frame, 0, LARGEST)
    if head is None or frame[3] != _MONO_16:
        raise ValueError("no frame of one channel with 16 bits a sample")
    body = frame[head.size : -2]
    crc = int.from_bytes(frame[-2:], "big") ^ _behind(crc16(frame[: head.size]), len(body))
    return Block(head.samples, body, crc)


def read_header(data: bytes, at: int, block: int) -> Header | None:
    """The header that begins at `at`; None where it is none (section 9.1).

    `block`: samples of each block but the last, in a stream that counts its blocks and not its samples.
    """
    head = data[at : at + 16]
    if len(head) < 6 or head[0] != 0xFF or head[1] & 0xFE != 0xF8 or head[2] >> 4 == 0 or head[3] & 1:
        return None
    first = head[4]
    extra = 0 if first < 0x80 else 8 - (first ^ 0xFF).bit_length() - 1
    if first >= 0x80 and not 1 <= extra <= 6:
        return None
    number = first if first < 0x80 else first & (1 << 6 - extra) - 1
    for byte in head[5 : 5 + extra]:
        number = number << 6 | byte & 0x3F
    place = 5 + extra
    code = head[2] >> 4
    told = {6: 1, 7: 2}.get(code, 0)
    samples = int.from_bytes(head[place : place + told], "big") + 1 if told else _SIZES[code]
    end = place + told + {12: 1, 13: 2, 14: 2}.get(head[2] & 15, 0)
    if end >= len(head) or crc8(head[:end]) != head[end]:
        return None
    return Header(number if head[1] & 1 else number * block, samples, end + 1)


def _coded(number: int) -> bytes:
    """A number of up to 36 bits, in the way of UTF-8 (section 9.1.5)."""
    if number < 0x80:
        return bytes((number,))
    tail = []
    room = 0x3F
    while number > room:
        tail.append(0x80 | number & 0x3F)
        number >>= 6
        room >>= 1
    return bytes(((~room << 1 & 0xFF) | number, *reversed(tail)))


# --- checksums -----------------------------------------------------------------------------------------------------


def _table(polynomial: int, bits: int) -> list[int]:
    table = []
    for byte in range(256):
        crc = byte << bits - 8
        for _ in range(8):
            crc = crc << 1 ^ polynomial if crc >> bits - 1 else crc << 1
        table.append(crc)
    return table


_CRC8: Final = _table(0x107, 8)
_CRC16: Final = _table(0x18005, 16)


def crc8(data: bytes | bytearray) -> int:
    """Of a header."""
    crc = 0
    for byte in data:
        crc = _CRC8[crc ^ byte]
    return crc


def crc16(data: bytes | bytearray) -> int:
    """Of a frame; 0 with its own checksum behind it."""
    crc = 0
    for byte in data:
        crc = (crc & 0xFF) << 8 ^ _CRC16[crc >> 8 ^ byte]
    return crc


@functools.cache
def _powers() -> array[int]:
    """What the checksum of a byte 1 becomes when so many zeros follow: as many as the longest subframe has bytes."""
    powers = array("H", [1])
    for _ in range(2 * LARGEST + 16):
        crc = powers[-1]
        powers.append((crc & 0xFF) << 8 ^ _CRC16[crc >> 8])
    return powers


def _behind(crc: int, size: int) -> int:
    """What `crc` becomes when `size` zeros follow: their product, modulo the polynomial."""
    power = _powers()[size]
    product = 0
    while crc:
        if crc & 1:
            product ^= power
        crc >>= 1
        power = power << 1 ^ 0x18005 if power & 0x8000 else power << 1
    return product


_SILENT: Final = Block(0, b"\0\0\0", crc16(b"\0\0\0"))
