"""What files and samples become, and what they may be."""

from __future__ import annotations

from fractions import Fraction

import av
import pytest

from models.families.qwen3_omni.errors import MediaError
from models.families.qwen3_omni.media import MOST_PIXELS, Patches, image
from server.dialects.images import sniff

PATCHES = Patches(side=16, merge=2, most=64)


def picture(codec: str, width: int, height: int, pixels: str) -> bytes:
    """A black picture as a file."""
    frame = av.VideoFrame(width, height, pixels)
    for plane in frame.planes:
        plane.update(bytes(plane.buffer_size))
    encoder = av.CodecContext.create(codec, "w")
    encoder.width, encoder.height, encoder.pix_fmt, encoder.time_base = width, height, pixels, Fraction(1, 25)
    return b"".join(bytes(packet) for packet in (*encoder.encode(frame), *encoder.encode(None)))


@pytest.mark.parametrize(
    ("codec", "pixels"),
    [("png", "rgb24"), ("png", "rgba"), ("png", "gray"), ("mjpeg", "yuvj420p"), ("libwebp", "yuv420p")],
)
def test_every_format_that_is_taken_is_cut_into_patches(codec: str, pixels: str) -> None:
    medium = image("a", picture(codec, 96, 64, pixels), PATCHES)
    assert medium.grid == (4, 6)
    assert medium.tensor.shape == (24, 3 * 2 * 16 * 16)


def test_a_file_that_holds_more_than_its_header_says_is_refused_before_it_is_decoded() -> None:
    side = 4160
    assert side * side > MOST_PIXELS
    frame = picture("libwebp", side, side, "yuv420p")[12:]
    # The canvas of an extended file (RFC 9649, section 2.7): flags, three bytes that are reserved, width and height.
    canvas = b"VP8X" + (10).to_bytes(4, "little") + bytes(4) + 2 * (15).to_bytes(3, "little")
    body = b"WEBP" + canvas + frame
    data = b"RIFF" + len(body).to_bytes(4, "little") + body
    assert sniff(data) == ("image/webp", 16, 16)
    with pytest.raises(MediaError, match="at most") as refused:
        image("a", data, PATCHES)
    assert refused.value.code == "image_not_decodable"


@pytest.mark.parametrize("data", [b"", b"\x89PNG", b"\xff\xd8\xff", b"GIF89a" + bytes(20), b"RIFF" + bytes(40)])
def test_what_is_no_picture_is_refused(data: bytes) -> None:
    with pytest.raises(MediaError):
        image("a", data, PATCHES)
