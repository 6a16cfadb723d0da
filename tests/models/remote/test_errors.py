"""`models.remote.errors`: what went wrong elsewhere, with the setting, the remedy, and never the key."""

from __future__ import annotations

import httpx
import pytest

from models.remote.errors import RemoteError, shown, status_error, transport_error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (httpx.ReadTimeout("slow"), "remote_timeout"),
        (TimeoutError(), "remote_timeout"),
        (httpx.ConnectError("no"), "remote_unreachable"),
        (ConnectionRefusedError("no"), "remote_unreachable"),
        (httpx.RemoteProtocolError("cut"), "remote_lost"),
        (httpx.InvalidURL("odd"), "remote_unreachable"),
    ],
)
def test_every_fault_of_the_way_has_a_code_and_names_the_setting(error: Exception, code: str) -> None:
    typed = transport_error("tts-url", "http://h", error)
    assert isinstance(typed, RemoteError)
    assert typed.code == code
    assert str(typed).startswith("tts-url: http://h")


def test_an_error_that_is_typed_already_or_is_ours_is_left_alone() -> None:
    for error in (RemoteError("remote_lost", "x"), KeyError("ours")):
        assert transport_error("tts-url", "http://h", error) is error


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (401, b'{"error":{"message":"wrong key sk-1"}}', "wrong key ***; check the key"),
        (429, b"", "answered 429; that server is busy"),
        (418, b"\x1b[31mteapot", "answered 418:  [31mteapot; see that server's log"),
    ],
)
def test_a_status_is_told_with_its_reason_and_a_remedy(status: int, body: bytes, told: str) -> None:
    error = status_error("asr-url", "http://h", status, body, "sk-1")
    assert (error.code, error.status) == ("remote_http_status", status)
    assert told.replace(":  ", ": ") in str(error)


def test_what_a_peer_says_is_shown_short_and_without_the_key() -> None:
    assert shown("a\nb key" + "x" * 500, "key") == "a b ***" + "x" * (200 - 7)
