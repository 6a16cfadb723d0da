"""Who may do what: API keys, ephemeral keys, and what holds without any key.

=====================  ===============================  =============================
server                 keys configured                  none configured
=====================  ===============================  =============================
on loopback            a key is always required         any key or none is accepted
elsewhere              a key is always required         does not start, unless told to
=====================  ===============================  =============================

What a key may do is its `Scope`s. Keys of options may do everything; those of the tenants file all that concerns their
tenant, and the server only as operator's keys; tokens (JWT) what they say; ephemeral keys open sessions. `/` and
`/healthz` need no key; `/healthz` then says only whether the server is ready.
"""

from __future__ import annotations

import enum
import ipaddress
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from .client_secrets import ClientSecret, ClientSecrets, UsedUp, looks_ephemeral
from .keys import EPHEMERAL_PREFIX, HOUSE, KeyRing
from .security.tenants import Tenants
from .security.tokens import InvalidToken, Tokens, looks_like_token

SUBPROTOCOL: Final = "realtime"
KEY_SUBPROTOCOL: Final = "openai-insecure-api-key."
"""A browser cannot set headers on a WebSocket; it offers this and its key as a subprotocol."""

INVALID_KEY: Final = "invalid_api_key"
SCOPE: Final = "insufficient_scope"
ORIGIN: Final = "origin_not_allowed"
RATE: Final = "rate_limit_exceeded"


class Scope(enum.Enum):
    """What somebody may do. The values stand, after `talkover:`, in the scopes of tokens."""

    SESSIONS = "sessions"
    """Open sessions, and make calls."""
    RECORDINGS = "recordings"
    """See, run otherwise and delete the recordings of the tenant."""
    MANAGE = "manage"
    """Mint ephemeral keys; see and delete what is kept of the tenant; watch and end its calls."""
    OPERATE = "operate"
    """Look after the server: metrics, health in full, what is kept of every tenant."""


OF_TENANT: Final = frozenset((Scope.SESSIONS, Scope.RECORDINGS, Scope.MANAGE))
ALL: Final = frozenset(Scope)


class Denied(Exception):
    """Access is refused. The message says what to do and never repeats a key."""

    def __init__(self, status: int, code: str, message: str, retry_after: float | None = None) -> None:
        """`retry_after` in seconds, where waiting helps."""
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retry_after = retry_after

    @property
    def headers(self) -> dict[str, str]:
        """RFC 6750 section 3, RFC 9110 section 10.2.3."""
        if self.retry_after is not None:
            return {"Retry-After": str(math.ceil(self.retry_after))}
        return {"WWW-Authenticate": 'Bearer realm="talkover"'} if self.status == 401 else {}


@dataclass(frozen=True, slots=True)
class Grant:
    """Access that was given: `secret` where an ephemeral key gave it. `tenant`: whom the key goes back to, "" where
    none was needed."""

    secret: ClientSecret | None = None
    tenant: str = ""
    scopes: frozenset[Scope] = ALL

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes

    def owns(self, tenant: str) -> bool:
        """Whether what belongs to `tenant` concerns whoever has this."""
        return tenant == self.tenant or Scope.OPERATE in self.scopes


class Access:
    """Decides about every request. It reads headers and nothing else."""

    def __init__(
        self,
        keys: KeyRing,
        secrets: ClientSecrets,
        *,
        open_to_all: bool = False,
        origins: Sequence[str] = (),
        tenants: Tenants | None = None,
        tokens: Tokens | None = None,
        wait: Callable[[str], float] = lambda tenant: 0.0,
    ) -> None:
        """`open_to_all`: nothing is asked for although the server is not on loopback (`--insecure-no-auth`).
        `origins`: of pages elsewhere that are let in as those of this machine are. `wait`: counts a request of a
        tenant; how many seconds it comes too early."""
        self._origins = frozenset(origins)
        self._keys = keys
        self.secrets = secrets
        self._open_to_all = open_to_all
        self.tenants = tenants
        self.tokens = tokens
        self._wait = wait

    @property
    def needs_key(self) -> bool:
        """Whether something is behind a key at all."""
        return len(self._keys) > 0 or self.tenants is not None or self.tokens is not None

    @property
    def house(self) -> str:
        """The tenant of what comes without a key of a tenant's, such as calls that their vendor signed."""
        return HOUSE if self.needs_key else ""

    def session(self, headers: Mapping[str, str], subprotocols: Sequence[str] = ()) -> Grant:
        """Access to a session. `headers` has lower-case names. Raises Denied."""
        key = bearer(headers.get("authorization"))
        if key is None:
            key = key_of(subprotocols)
        return self._scoped(self._paced(self._grant(key, headers)), Scope.SESSIONS)

    def administration(self, headers: Mapping[str, str], scope: Scope) -> Grant:
        """Access to something else that is not public. Raises Denied."""
        return self._scoped(self._paced(self._grant(bearer(headers.get("authorization")), headers)), scope)

    def knows(self, headers: Mapping[str, str]) -> bool:
        """Whether they are those of somebody who looks after the server."""
        try:
            return self._grant(bearer(headers.get("authorization")), headers).may(Scope.OPERATE)
        except Denied:
            return False

    def _paced(self, grant: Grant) -> Grant:
        wait = self._wait(grant.tenant)
        if wait > 0:
            message = f"this tenant sent as many requests as it may in a minute; try again in {wait:.1f} s"
            raise Denied(429, RATE, message, wait)
        return grant

    @staticmethod
    def _scoped(grant: Grant, scope: Scope) -> Grant:
        if grant.may(scope):
            return grant
        if grant.secret is not None:
            raise Denied(403, SCOPE, "an ephemeral key opens sessions and nothing else; use an API key")
        if scope is Scope.OPERATE:
            raise Denied(
                403, SCOPE, "this concerns the whole server; use a key made with `talkover tenant key --operator`"
            )
        raise Denied(403, SCOPE, f"the token has not the scope talkover:{scope.value}; ask its issuer for it")

    def _grant(self, key: str | None, headers: Mapping[str, str]) -> Grant:
        self._check_page(headers)
        if key is not None and (secret := self.secrets.find(key)) is not None:
            if self.tenants is not None and not self.tenants.allows(secret.tenant):
                raise _no_longer_valid()
            return Grant(secret, secret.tenant, frozenset((Scope.SESSIONS,)))
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
        if key in self._keys:
            return Grant(tenant=HOUSE)
        if self.tenants is not None and (found := self.tenants.find(key)) is not None:
            if found.refusal:
                raise Denied(401, INVALID_KEY, f"the API key {found.key} is {found.refusal}; get a new one")
            return Grant(tenant=found.tenant, scopes=ALL if found.operator else OF_TENANT)
        if self.tokens is not None and looks_like_token(key):
            return self._of_token(self.tokens, key)
        if key.startswith(EPHEMERAL_PREFIX):
            raise _no_longer_valid()
        raise Denied(401, INVALID_KEY, "the API key is not one of this server's; check it with whoever runs the server")

    def _of_token(self, tokens: Tokens, token: str) -> Grant:
        try:
            bearer_of = tokens.verify(token)
        except InvalidToken as error:
            raise Denied(401, INVALID_KEY, str(error)) from None
        if self.tenants is not None and not self.tenants.allows(bearer_of.tenant):
            raise Denied(401, INVALID_KEY, "the tenant of the token is disabled here; ask whoever runs the server")
        scopes = {one for one in OF_TENANT if f"talkover:{one.value}" in bearer_of.scopes}
        return Grant(tenant=bearer_of.tenant, scopes=frozenset(scopes | {Scope.SESSIONS}))

    def _check_page(self, headers: Mapping[str, str]) -> None:
        """Where origins are named, pages of others are kept out, whatever key they have."""
        origin = headers.get("origin")
        if origin is None or not self._origins or self._open_to_all:
            return
        ours = origin in self._origins or is_same(origin, headers.get("host", ""))
        if not ours and (self.needs_key or not is_local(origin)):
            raise Denied(403, ORIGIN, "pages of this origin may not connect here; set --allow-origin")

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


def used_up(why: UsedUp) -> Denied:
    """The refusal of an ephemeral key that has opened its session while this request was on its way."""
    return Denied(401, INVALID_KEY, str(why))


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


def is_same(origin: str, host: str) -> bool:
    """Whether a page of `origin` was served under the name that this request goes to."""
    return origin.partition("://")[2].lower() == host.lower() != ""


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
