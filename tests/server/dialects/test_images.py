"""Images inside an item: what is taken, what is refused and by which name."""

from __future__ import annotations

import base64
import hashlib
import json

import pytest

from server.dialects.base import InputImage
from server.dialects.images import LARGEST, MOST, sniff
from server.dialects.realtime import RealtimeDialect
from sessions.core.context import ImageRef
from sessions.core.events import CommandRejected, ItemCreate
from sessions.core.notices import ItemAdded, ItemView


def png(width: int, height: int) -> bytes:
    size = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    return b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + size + b"\x08\2\0\0\0"


JPEG = (
    b"\xff\xd8\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0"
    b"\xff\xff\xc0\0\x11\x08" + (48).to_bytes(2, "big") + (64).to_bytes(2, "big") + b"\3\1\x22\0\2\x11\1\3\x11\1"
)
VP8 = b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a" + (64).to_bytes(2, "little") + (48).to_bytes(2, "little")
VP8X = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + (63).to_bytes(3, "little") + (47).to_bytes(3, "little")
VP8L = b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + (63 | 47 << 14).to_bytes(4, "little") + bytes(8)


def url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def received(*parts: object) -> list[object]:
    item = {"type": "message", "role": "user", "content": list(parts)}
    return list(
        RealtimeDialect("m").receive(json.dumps({"type": "conversation.item.create", "item": item, "event_id": "e"}))
    )


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (png(64, 48), "image/png"),
        (JPEG, "image/jpeg"),
        (VP8 + bytes(8), "image/webp"),
        (VP8X, "image/webp"),
        (VP8L, "image/webp"),
    ],
)
def test_an_image_goes_ahead_of_its_item_which_names_it_by_content(data: bytes, kind: str) -> None:
    image, item = received(
        {"type": "input_image", "image_url": url(data, kind), "detail": "low"}, {"type": "input_text", "text": "what"}
    )
    ref = ImageRef(hashlib.sha256(data).hexdigest(), kind, 64, 48)
    assert image == InputImage(ref, data)
    assert item == ItemCreate("user", text="what", images=(ref,), command="e")


def test_what_a_client_is_shown_of_an_image_is_its_name() -> None:
    ref = ImageRef("ab" * 32, "image/png", 64, 48)
    view = ItemView("i", "user", "message", "completed", "what", images=(ref,))
    added = json.loads(RealtimeDialect("m").send(ItemAdded(view, None))[0])
    assert added["item"]["content"] == [
        {"type": "input_image", "x_sha256": ref.digest},
        {"type": "input_text", "text": "what"},
    ]


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("https://example.com/cat.png", "unsupported"),
        ("data:image/png,plain", "invalid_image"),
        ("data:image/gif;base64,R0lGODlh", "invalid_image"),
        ("data:image/png;base64,???", "invalid_image"),
        (url(b"no image at all, only text"), "invalid_image"),
        (url(JPEG), "invalid_image"),
        (url(png(4, 4)), "invalid_image"),
        (url(png(9000, 64)), "image_too_large"),
        (url(png(8000, 8000)), "image_too_large"),
        (url(png(64, 48) + bytes(LARGEST)), "image_too_large"),
        (url(JPEG[:20], "image/jpeg"), "invalid_image"),
    ],
    ids=lambda value: value[:24],
)
def test_what_is_no_image_for_us_is_refused_by_name(address: str, code: str) -> None:
    (rejected,) = received({"type": "input_image", "image_url": address})
    assert isinstance(rejected, CommandRejected)
    assert (rejected.code, rejected.param) == (code, "item.content[0].image_url")


def test_an_item_takes_so_many_images_and_an_assistant_none() -> None:
    part = {"type": "input_image", "image_url": url(png(64, 48))}
    assert len(received(*[part] * MOST)) == MOST + 1
    (rejected,) = received(*[part] * (MOST + 1))
    assert isinstance(rejected, CommandRejected)
    assert rejected.param == f"item.content[{MOST}]"
    item = {"type": "message", "role": "assistant", "content": [part]}
    (refused,) = RealtimeDialect("m").receive(json.dumps({"type": "conversation.item.create", "item": item}))
    assert isinstance(refused, CommandRejected)


@pytest.mark.parametrize("length", range(0, 40, 3))
def test_a_header_that_is_cut_off_anywhere_is_no_image(length: int) -> None:
    for data in (png(64, 48), JPEG, VP8, VP8X, VP8L):
        found = sniff(data[:length])
        assert found is None or found[1:] == (64, 48)
