"""Certificates: the user's own, or one for localhost made here."""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
from pathlib import Path
from typing import Final

from .settings import Settings, SettingsError

OPENSSL: Final = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -keyout key.pem -out cert.pem "
    "-subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1"
)
DAYS: Final = 365
_RENEW_DAYS: Final = 30


def server_context(settings: Settings, cache: Path) -> ssl.SSLContext | None:
    """What `settings` ask for; None where they ask for no TLS. Raises SettingsError, which names the file."""
    if settings.tls_self_signed:
        return _load(*self_signed(cache))
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return _load(settings.tls_cert, settings.tls_key)


def self_signed(cache: Path) -> tuple[Path, Path]:
    """Certificate and key for localhost below `cache`, made where there is none or it is about to expire.

    Raises SettingsError where it cannot be made.
    """
    certificate, key = cache / "tls" / "localhost.pem", cache / "tls" / "localhost.key"
    if _still_good(certificate, key):
        return certificate, key
    try:
        made = _make()
    except ImportError:
        raise SettingsError(
            f"--tls-self-signed needs the package cryptography (pip install 'talkover[tls]'). Or make one with "
            f"`{OPENSSL}` and give --tls-cert cert.pem --tls-key key.pem"
        ) from None
    try:
        certificate.parent.mkdir(parents=True, exist_ok=True)
        for path, data in ((key, made[1]), (certificate, made[0])):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as out:
                out.write(data)
    except OSError as error:
        raise SettingsError(f"--tls-self-signed cannot write to {certificate.parent}: {error.strerror}") from None
    return certificate, key


def _still_good(certificate: Path, key: Path) -> bool:
    if not certificate.is_file() or not key.is_file():
        return False
    age = datetime.datetime.now().timestamp() - certificate.stat().st_mtime
    if age > (DAYS - _RENEW_DAYS) * 86400:
        return False
    try:
        _load(certificate, key)
    except SettingsError:
        return False
    return True


def _make() -> tuple[bytes, bytes]:
    """Certificate and key in PEM. It is its own authority, so a client that trusts the file trusts the server."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    hosts = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        x509.IPAddress(ipaddress.ip_address("::1")),
    ]
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM), private


class _Encrypted(Exception):
    """The key asks for a password."""


def _load(certificate: Path, key: Path) -> ssl.SSLContext:
    cert_text = _read(certificate, "--tls-cert")
    key_text = _read(key, "--tls-key")
    if b"-----BEGIN CERTIFICATE-----" not in cert_text:
        raise SettingsError(f"--tls-cert {certificate} holds no certificate in PEM form")
    if b"PRIVATE KEY-----" not in key_text:
        raise SettingsError(f"--tls-key {key} holds no private key in PEM form")

    def password() -> str:
        raise _Encrypted

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, password=password)
    except _Encrypted:
        raise SettingsError(
            f"--tls-key {key} is encrypted and nobody is there to type its password; decrypt it with "
            f"`openssl pkey -in {key} -out plain.pem` and keep that readable for the server alone"
        ) from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise SettingsError(f"--tls-key {key} is not the key of --tls-cert {certificate}") from None
        raise SettingsError(
            f"--tls-cert {certificate} and --tls-key {key} cannot be used: {error.reason or error}"
        ) from None
    return context


def _read(path: Path, option: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{option} {path} cannot be read: {error.strerror}") from None
