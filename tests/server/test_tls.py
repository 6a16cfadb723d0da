"""Certificates: the user's own and the one made here; a server with it, and what is wrong with others."""

from __future__ import annotations

import builtins
import json
import os
import ssl
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from server import tls
from server.settings import Settings, SettingsError
from server.tls import self_signed, server_context
from tests.server.serving import API_KEY, refusal, served

pytest.importorskip("cryptography")


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return self_signed(tmp_path)


def settings(cert: Path, key: Path) -> Settings:
    return Settings(tls_cert=cert, tls_key=key)


def test_without_tls_there_is_no_context(tmp_path: Path) -> None:
    assert server_context(Settings(), tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_certificate_is_made_once_and_its_key_is_for_us_alone(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    before = certificate.read_bytes(), key.read_bytes()
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert self_signed(tmp_path) == (certificate, key)
    assert (certificate.read_bytes(), key.read_bytes()) == before


def test_it_names_this_machine_and_can_be_trusted_strictly(pair: tuple[Path, Path]) -> None:
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(pair[0].read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]


def test_one_that_is_about_to_expire_or_is_damaged_is_made_again(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    first = certificate.read_bytes()
    long_ago = certificate.stat().st_mtime - (tls.DAYS - 10) * 86400
    os.utime(certificate, (long_ago, long_ago))
    self_signed(tmp_path)
    second = certificate.read_bytes()
    assert second != first
    key.write_text("nonsense")
    self_signed(tmp_path)
    assert certificate.read_bytes() != second
    assert server_context(settings(certificate, key), tmp_path) is not None


def test_without_the_package_it_says_what_to_install_or_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(
        name: str, globals_: Mapping[str, Any] | None = None, locals_: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        if name.partition(".")[0] == "cryptography":
            raise ImportError(name)
        return real(name, globals_, locals_, fromlist, level)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SettingsError) as refused:
        server_context(Settings(tls_self_signed=True), tmp_path)
    assert "pip install 'talkover[tls]'" in str(refused.value)
    assert "openssl req" in str(refused.value)
    assert "--tls-cert" in str(refused.value)


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "tls").write_text("a file where the folder should be")
    with pytest.raises(SettingsError, match="cannot write"):
        self_signed(tmp_path)


def test_what_is_wrong_with_a_pair_is_told_by_file(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    certificate, key = pair
    other = self_signed(tmp_path / "other")[1]
    text = tmp_path / "text"
    text.write_text("hello")
    nowhere = tmp_path / "nowhere"
    damaged = tmp_path / "damaged"
    damaged.write_text(certificate.read_text().replace("MI", "!!", 1))
    for cert, its_key, said in (
        (nowhere, key, f"--tls-cert {nowhere} cannot be read: No such file"),
        (certificate, nowhere, f"--tls-key {nowhere} cannot be read: No such file"),
        (tmp_path, key, "Is a directory"),
        (text, key, f"--tls-cert {text} holds no certificate"),
        (certificate, text, f"--tls-key {text} holds no private key"),
        (key, certificate, "holds no certificate"),
        (certificate, other, f"--tls-key {other} is not the key of --tls-cert {certificate}"),
        (damaged, key, f"--tls-cert {damaged} and"),
    ):
        with pytest.raises(SettingsError) as refused:
            server_context(settings(cert, its_key), tmp_path)
        assert said in str(refused.value)


def test_an_encrypted_key_is_refused_without_asking_for_its_password(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    from cryptography.hazmat.primitives import serialization

    certificate, key = pair
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        loaded.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(SettingsError, match="is encrypted"):
        server_context(settings(certificate, locked), tmp_path)


async def test_sessions_keys_and_pages_work_over_tls(tmp_path: Path) -> None:
    async with served(tls_self_signed=True, cache=tmp_path, api_keys=(API_KEY,)) as place:
        assert place.scheme == "https"
        trust = ssl.create_default_context(cafile=str(tmp_path / "tls" / "localhost.pem"))
        trust.verify_flags |= ssl.VERIFY_X509_STRICT
        async with place.http(API_KEY, verify=trust) as client:
            assert (await client.get("/healthz")).json()["status"] == "ready"
            minted = (await client.post("/v1/realtime/client_secrets", json={})).json()
        status, error = await refusal(place.socket(ssl=trust))
        assert (status, error["code"]) == (401, "invalid_api_key")
        async with place.socket(minted["value"], ssl=trust) as connection:
            assert json.loads(await connection.recv())["type"] == "session.created"
            await connection.send(json.dumps({"type": "response.create"}))
            kinds: set[str] = set()
            while "response.done" not in kinds:
                kinds.add(json.loads(await connection.recv())["type"])
        assert "response.output_audio.delta" in kinds
        assert place.app.counters.snapshot().get("stale_at_gate", 0) == 0


async def test_a_client_that_does_not_trust_it_does_not_connect(tmp_path: Path) -> None:
    async with served(tls_self_signed=True, cache=tmp_path) as place:
        with pytest.raises(ssl.SSLCertVerificationError):
            await place.socket(ssl=ssl.create_default_context())
        assert "sessions_opened" not in place.app.counters.snapshot()
