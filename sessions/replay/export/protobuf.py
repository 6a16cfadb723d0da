"""The little of the protobuf wire format that a trace needs (https://protobuf.dev/programming-guides/encoding/)."""

from __future__ import annotations

import struct


def varint(number: int) -> bytes:
    """A number of 64 bits; negative ones in two's complement."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def whole(field: int, number: int) -> bytes:
    """A field with a varint."""
    return varint(field << 3) + varint(number)


def double(field: int, number: float) -> bytes:
    """A field with a double."""
    return varint(field << 3 | 1) + struct.pack("<d", number)


def fixed64(field: int, number: int) -> bytes:
    """A field with a fixed number of 64 bits."""
    return varint(field << 3 | 1) + struct.pack("<Q", number)


def block(field: int, content: bytes | str) -> bytes:
    """A field with a message, bytes or text."""
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(data)) + data
