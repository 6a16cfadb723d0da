"""Tokens that another party signs (JWT, RFC 7519), checked with the keys that it publishes (JWKS, RFC 7517).

What RFC 8725 asks for is pinned, never taken from the token: who issued it, whom it is for, and how it may be signed.
Only public-key algorithms are taken, each key for the one algorithm that it is for; so neither `alg: none` nor a
signature made with a public key as if it were a secret passes. Keys are kept and renewed in the background; one that is
not known is asked for once, and not again soon, so that tokens with made-up keys bring no load upon the issuer.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import httpx

from .tenants import NAME

if TYPE_CHECKING:
    from jwt import PyJWK

log = logging.getLogger(__name__)

DEFAULT_ALGORITHMS: Final = ("RS256", "ES256", "EdDSA")
SKEW: Final = 30.0
"""Seconds that two clocks may differ."""
RENEW_EVERY: Final = 300.0
ASK_AGAIN_AFTER: Final = 10.0
"""Seconds between two questions for keys that are not known."""
KEEP_MOST: Final = 24 * 3600.0
"""Seconds that keys hold without having been renewed: an issuer that is away for longer is not trusted blindly."""
KEYS_MOST: Final = 64
DOCUMENT_MOST: Final = 256 * 1024
LONGEST: Final = 8192
"""Characters of a token."""
ANSWER_WITHIN: Final = 5.0

_FORM: Final = re.compile(r"eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")

Fetch = Callable[[], Awaitable[bytes]]


class InvalidToken(Exception):
    """A token opens nothing. Says why and what to do, and never repeats the token."""


@dataclass(frozen=True, slots=True)
class Bearer:
    """Whom a token speaks for, and what it may do."""

    tenant: str
    scopes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What is pinned. `jwks`: URL of the issuer's keys; `claim`: names the tenant, with dots for what lies deeper."""

    jwks: str
    issuer: str
    audience: str
    algorithms: tuple[str, ...] = DEFAULT_ALGORITHMS
    claim: str = "tenant"
    skew: float = SKEW


def looks_like_token(key: str) -> bool:
    """Whether `key` has the form of a signed token."""
    return _FORM.fullmatch(key) is not None


class Tokens:
    """Checks tokens. `verify` never waits; `prepare`, called before it, gets keys that are not known yet."""

    def __init__(
        self, rules: TokenRules, fetch: Fetch | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`fetch` gives the issuer's document."""
        self.rules = rules
        self._fetch = fetch or self._ask_issuer
        self._clock = clock
        self._keys: dict[str, PyJWK] = {}
        self._renewed = float("-inf")
        self._asked = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None

    # --- keys --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Get the keys, and renew them from now on."""
        self._renewing = asyncio.get_running_loop().create_task(self._renew_always(), name="jwks")

    async def close(self) -> None:
        tasks = [task for task in (self._renewing, self._asking) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def prepare(self, token: str) -> None:
        """Ask for the keys, where the token's is not known and they were not asked for just now."""
        if not looks_like_token(token) or len(token) > LONGEST or self._key_of(token) is not None:
            return
        if self._asking is None or self._asking.done():
            if self._clock() - self._asked < ASK_AGAIN_AFTER:
                return
            self._asked = self._clock()
            self._asking = asyncio.get_running_loop().create_task(self._renew(), name="jwks-asked")
        # Whoever leaves must not take the question from the others that wait for its answer.
        await asyncio.shield(self._asking)

    async def _renew_always(self) -> None:
        while True:
            await self._renew()
            await asyncio.sleep(RENEW_EVERY)

    async def _renew(self) -> None:
        try:
            self._keys = usable(await self._fetch(), self.rules.algorithms)
            self._renewed = self._clock()
        except (httpx.HTTPError, OSError, ValueError) as error:
            log.warning("the keys at %s cannot be renewed: %s", self.rules.jwks, error or type(error).__name__)

    async def _ask_issuer(self) -> bytes:
        # No redirects: where the keys lie is pinned like all else.
        async with (
            httpx.AsyncClient(timeout=ANSWER_WITHIN, follow_redirects=False) as client,
            client.stream("GET", self.rules.jwks) as answer,
        ):
            answer.raise_for_status()
            body = bytearray()
            async for piece in answer.aiter_bytes():
                body += piece
                if len(body) > DOCUMENT_MOST:
                    raise ValueError(f"the document is longer than {DOCUMENT_MOST} bytes")
            return bytes(body)

    def _key_of(self, token: str) -> PyJWK | None:
        import jwt

        try:
            name = jwt.get_unverified_header(token).get("kid")
        except jwt.PyJWTError:
            return None
        if self._clock() - self._renewed > KEEP_MOST:
            return None
        if name is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(name) if isinstance(name, str) else None

    # --- tokens ------------------------------------------------------------------------------------------------------

    def verify(self, token: str) -> Bearer:
        """Whom it speaks for. Raises InvalidToken."""
        import jwt

        rules = self.rules
        if len(token) > LONGEST:
            raise InvalidToken(f"the token has {len(token)} characters; at most {LONGEST} are taken")
        key = self._key_of(token)
        if key is None:
            raise InvalidToken("the token is signed with a key that its issuer does not publish; get a new token")
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key=key,
                algorithms=list(rules.algorithms),
                issuer=rules.issuer,
                audience=rules.audience,
                leeway=rules.skew,
                options={"require": ["exp", "iss", "aud"], "enforce_minimum_key_length": True},
            )
        except jwt.PyJWTError as error:
            raise InvalidToken(f"the token is not good here: {_reason(error)}; get a new one") from None
        return Bearer(self._tenant(claims), _scopes(claims))

    def _tenant(self, claims: dict[str, Any]) -> str:
        found: Any = claims
        for step in self.rules.claim.split("."):
            found = found.get(step) if isinstance(found, dict) else None
        if not isinstance(found, str) or not NAME.fullmatch(found):
            raise InvalidToken(f"the token's claim {self.rules.claim!r} does not name a tenant; ask its issuer for it")
        return found


def usable(document: bytes, algorithms: Sequence[str]) -> dict[str, PyJWK]:
    """The keys of a JWKS that are for signatures with one of `algorithms`, by name. Raises ValueError where it is
    none. Keys of other kinds are passed over, as RFC 7517 section 5 has it."""
    import jwt

    whole = json.loads(document)
    listed = whole.get("keys") if isinstance(whole, dict) else None
    if not isinstance(listed, list):
        raise ValueError('it is no JWKS: an object with "keys"')
    found: dict[str, PyJWK] = {}
    for number, one in enumerate(listed[:KEYS_MOST]):
        if not isinstance(one, dict) or one.get("use", "sig") != "sig" or one.get("kty") == "oct":
            continue
        try:
            key = jwt.PyJWK(one)
        except (jwt.PyJWTError, NotImplementedError, ValueError, TypeError):
            continue
        if key.algorithm_name in algorithms:
            name = one.get("kid")
            found[name if isinstance(name, str) else f"#{number}"] = key
    return found


def _reason(error: Exception) -> str:
    import jwt

    for kind, words in (
        (jwt.ExpiredSignatureError, "it has expired"),
        (jwt.ImmatureSignatureError, "it is not good yet"),
        (jwt.InvalidIssuerError, "another issuer made it"),
        (jwt.InvalidAudienceError, "it is meant for somebody else"),
        (jwt.MissingRequiredClaimError, "it lacks exp, iss or aud"),
        (jwt.InvalidSignatureError, "its signature is wrong"),
        (jwt.InvalidAlgorithmError, "it is signed in a way that is not taken here"),
    ):
        if isinstance(error, kind):
            return words
    return "it is not well-formed"


def _scopes(claims: dict[str, Any]) -> frozenset[str]:
    """RFC 8693 section 4.2 (`scope`, words in one text), and `scp` as a list, as others have it."""
    given = claims.get("scope", claims.get("scp", ""))
    if isinstance(given, str):
        return frozenset(given.split())
    return frozenset(one for one in given if isinstance(one, str)) if isinstance(given, list) else frozenset()
