"""Who may do what: API keys, ephemeral keys, and what holds without any key.

=====================  ===============================  =============================
server                 keys configured                  none configured
=====================  ===============================  =============================
on loopback            a key is always required         any key or none is accepted
elsewhere              a key is always required         does not start, unless told to
=====================  ===============================  =============================

An API key may do everything. An ephemeral key opens sessions and nothing else. `/` and `/healthz` need no key;
`/healthz` then says only whether the server is ready.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from .client_secrets import ClientSecret, ClientSecrets, looks_ephemeral
from .keys import EPHEMERAL_PREFIX, KeyRing

SUBPROTOCOL: Final = "realtime"
KEY_SUBPROTOCOL: Final = "openai-insecure-api-key."
"""A browser cannot set headers on a WebSocket; it offers this and its key as a subprotocol."""

INVALID_KEY: Final = "invalid_api_key"
SCOPE: Final = "insufficient_scope"
ORIGIN: Final = "origin_not_allowed"


class Denied(Exception):
    """Access is refused. The message says what to do and never repeats a key."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message

    @property
    def headers(self) -> dict[str, str]:
        """RFC 6750 section 3."""
        return {"WWW-Authenticate": 'Bearer realm="talkover"'} if self.status == 401 else {}


@dataclass(frozen=True, slots=True)
class Grant:
    """Access that was given: `secret` where an ephemeral key gave it. `tenant`: the name of the API key that it goes
    back to, "" where none was needed."""

    secret: ClientSecret | None = None
    tenant: str = ""


class Access:
    """Decides about every request. It reads headers and nothing else."""

    def __init__(
        self, keys: KeyRing, secrets: ClientSecrets, *, open_to_all: bool = False, origins: Sequence[str] = ()
    ) -> None:
        """`open_to_all`: nothing is asked for although the server is not on loopback (`--insecure-no-auth`).
        `origins`: of pages elsewhere that are let in as those of this machine are."""
        self._origins = frozenset(origins)
        self._keys = keys
        self.secrets = secrets
        self._open_to_all = open_to_all

    @property
    def needs_key(self) -> bool:
        """Whether something is behind a key at all."""
        return len(self._keys) > 0

    def session(self, headers: Mapping[str, str], subprotocols: Sequence[str] = ()) -> Grant:
        """Access to a session. `headers` has lower-case names. Raises Denied."""
        key = bearer(headers.get("authorization"))
        if key is None:
            key = key_of(subprotocols)
        return self._grant(key, headers)

    def administration(self, headers: Mapping[str, str]) -> Grant:
        """Access to all else that is not public: minting keys, metrics. Raises Denied."""
        grant = self._grant(bearer(headers.get("authorization")), headers)
        if grant.secret is not None:
            raise Denied(403, SCOPE, "an ephemeral key opens sessions and nothing else; use an API key")
        return grant

    def knows(self, headers: Mapping[str, str]) -> bool:
        """Whether `administration` is granted."""
        try:
            self.administration(headers)
        except Denied:
            return False
        return True

    def _grant(self, key: str | None, headers: Mapping[str, str]) -> Grant:
        if key is not None and (secret := self.secrets.find(key)) is not None:
            return Grant(secret, secret.tenant)
        if not self.needs_key:
            if key is not None and looks_ephemeral(key):
                # Its session configuration is gone, so a session would not be what whoever minted it wanted.
                raise _no_longer_valid()
            self._check_origin(headers.get("origin"))
            return Grant()
        if key is None:
            raise Denied(
                401,
                INVALID_KEY,
                f"no API key was given; send 'Authorization: Bearer KEY', or from a browser offer the subprotocols "
                f"'{SUBPROTOCOL}' and '{KEY_SUBPROTOCOL}KEY'",
            )
        if (name := self._keys.name_of(key)) is not None:
            return Grant(tenant=name)
        if key.startswith(EPHEMERAL_PREFIX):
            raise _no_longer_valid()
        raise Denied(401, INVALID_KEY, "the API key is not one of this server's; check it with whoever runs the server")

    def _check_origin(self, origin: str | None) -> None:
        """Without keys, being on this machine is what lets a client in; pages from elsewhere are not on it.

        Browsers let any page connect to a WebSocket on loopback, and always say which page it is (RFC 6455 section
        10.2).
        """
        if origin is not None and not self._open_to_all and origin not in self._origins and not is_local(origin):
            raise Denied(
                403, ORIGIN, "pages from other hosts may not connect to a server without API keys; set --api-key"
            )


def _no_longer_valid() -> Denied:
    return Denied(
        401,
        INVALID_KEY,
        "the ephemeral key is not valid here: it expired, was used up or comes from another server; mint a new one "
        "with POST /v1/realtime/client_secrets",
    )


def bearer(header: str | None) -> str | None:
    """The key in an Authorization header; None where there is none. Raises Denied for another scheme."""
    if header is None:
        return None
    scheme, _, key = header.strip().partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise Denied(401, INVALID_KEY, "the Authorization header is not understood; send 'Authorization: Bearer KEY'")
    return key.strip()


def key_of(subprotocols: Iterable[str]) -> str | None:
    """The key among the subprotocols that a browser offers."""
    for name in subprotocols:
        if name.startswith(KEY_SUBPROTOCOL) and name != KEY_SUBPROTOCOL:
            return name.removeprefix(KEY_SUBPROTOCOL)
    return None


def is_local(origin: str) -> bool:
    """Whether a page's origin is this machine."""
    try:
        host = urlsplit(origin).hostname or ""
    except ValueError:
        return False
    if host == "localhost" or host.endswith(".localhost"):  # RFC 6761 section 6.3
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
