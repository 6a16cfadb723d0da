"""Images inside an item: data URLs to files, looked at as far as their headers.

https://platform.openai.com/docs/api-reference/realtime-client-events (content part `input_image`). Format and size are
read from the file itself: PNG (RFC 2083, IHDR), JPEG (ITU-T T.81, start of frame), WebP (RFC 9649).
"""

from __future__ import annotations

import binascii
import hashlib
from typing import Final

from sessions.core.context import ImageRef

from .base import InputImage
from .checks import UNSUPPORTED, Object, Rejected, a_string, one_of, required

MOST: Final = 8
"""Images in one item."""
LARGEST: Final = 8 << 20
"""Bytes of a file."""
LONGEST_SIDE: Final = 8192
SMALLEST_SIDE: Final = 8
MOST_PIXELS: Final = 16 << 20
"""A small file can hold a large picture, and all sessions wait while it is decoded."""
_TYPES: Final = ("image/png", "image/jpeg", "image/webp")
_REMEDY: Final = "send the image itself as a data URL: data:image/png;base64,… (png, jpeg or webp)"


def image(part: Object, path: str) -> InputImage:
    """The image of a content part. Raises Rejected naming the field and the remedy."""
    where = f"{path}.image_url"
    if part.get("detail") is not None:
        one_of(part["detail"], f"{path}.detail", ("auto", "low", "high"))
    url = a_string(required(part, "image_url", where), where, longest=2 * LARGEST, shortest=1)
    if not url.startswith("data:"):
        scheme = url.partition(":")[0][:16]
        raise Rejected(UNSUPPORTED, f"{where!r}: nothing is fetched from {scheme} addresses here; {_REMEDY}", where)
    header, comma, body = url.removeprefix("data:").partition(",")
    declared, *options = header.lower().split(";")
    if not comma or "base64" not in options or declared not in _TYPES:
        raise Rejected("invalid_image", f"{where!r} is {header[:60]!r}; {_REMEDY}", where)
    try:
        data = binascii.a2b_base64(body, strict_mode=True)
    except ValueError as error:
        raise Rejected("invalid_image", f"{where!r} is not base64 ({error})", where) from None
    if len(data) > LARGEST:
        raise Rejected("image_too_large", f"{where!r} has {len(data)} bytes; at most {LARGEST} are taken", where)
    found = sniff(data)
    if found is None or found[0] != declared:
        what = "no image that is known here" if found is None else found[0]
        raise Rejected("invalid_image", f"{where!r} says {declared}, but its data is {what}; {_REMEDY}", where)
    kind, width, height = found
    if not (min(width, height) >= SMALLEST_SIDE and max(width, height) <= LONGEST_SIDE):
        message = f"{where!r} is {width} x {height}; sides of {SMALLEST_SIDE} to {LONGEST_SIDE} pixels are taken"
        raise Rejected("image_too_large" if max(width, height) > LONGEST_SIDE else "invalid_image", message, where)
    if width * height > MOST_PIXELS:
        message = f"{where!r} is {width} x {height}; at most {MOST_PIXELS} pixels are taken, so scale it down"
        raise Rejected("image_too_large", message, where)
    return InputImage(ImageRef(hashlib.sha256(data).hexdigest(), kind, width, height), data)


def sniff(data: bytes) -> tuple[str, int, int] | None:
    """Media type, width and height of an image file, from its header; None where it is none of the three."""
    if data[:8] == b"\x89PNG\r\n\x1a\n" and data[12:16] == b"IHDR" and len(data) >= 24:
        return "image/png", int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    if data[:2] == b"\xff\xd8":
        size = _jpeg(data)
        return None if size is None else ("image/jpeg", *size)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP" and len(data) >= 30:
        size = _webp(data)
        return None if size is None else ("image/webp", *size)
    return None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    """Width and height in the first start-of-frame segment."""
    place = 2
    while place + 9 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if marker == 0xFF:  # fill byte
            place += 1
            continue
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(data[place + 7 : place + 9], "big"), int.from_bytes(
                data[place + 5 : place + 7], "big"
            )
        place += 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    return None


def _webp(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8L" and data[20] == 0x2F:
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF
    return None
