"""The same over TLS: what browsers are told, what is spoken, and who is not waited for."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from server.carriers import tls as carrier
from server.carriers import uvicorn_http
from server.settings import Settings
from server.tls import self_signed, server_context
from tests.server.serving import API_KEY, served

from .outside import answer, code, raw

pytest.importorskip("cryptography")


async def test_browsers_are_told_to_stay_with_tls_unless_the_certificate_is_for_development(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    trust = ssl.create_default_context(cafile=str(certificate))
    async with served(tls_cert=certificate, tls_key=key) as place, place.http(verify=trust) as http:
        assert "max-age=31536000" in (await http.get("/")).headers["Strict-Transport-Security"]
    async with served(tls_self_signed=True, cache=tmp_path) as place, place.http(verify=trust) as http:
        assert "Strict-Transport-Security" not in (await http.get("/")).headers


def test_nothing_older_than_tls_1_2_is_spoken(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    context = server_context(Settings(tls_cert=certificate, tls_key=key), tmp_path)
    assert context is not None
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


async def test_a_slow_head_and_a_slow_handshake_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = self_signed(tmp_path)
    trust = ssl.create_default_context(cafile=str(certificate))
    async with served(tls_cert=certificate, tls_key=key, api_keys=(API_KEY,)) as place, asyncio.timeout(20):
        monkeypatch.setattr(uvicorn_http, "HEAD_WITHIN", 0.3)
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port, ssl=trust, server_hostname="localhost")
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nX: ")
        status, _, body = await answer(reader)
        assert (status, code(body)) == (408, "request_timeout")
        writer.close()
        monkeypatch.setattr(carrier, "HANDSHAKE_TIMEOUT", 0.3)
        status, _, _ = await raw(place, b"\x16\x03\x01")
        assert status == 0
