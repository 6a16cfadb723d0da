"""Whether a telephone call may come in: where it comes from, the vendor's signature, a token, and how many there are.

A vendor whose secret is set must show that it knows it; a server with API keys asks for a key or a secret. What the
secret is at each vendor:

==========================  =========================================================================================
twilio, signalwire          the account's auth token: `X-Twilio-Signature`, HMAC-SHA1 over the URL and what was posted
plivo                       the account's auth token: `X-Plivo-Signature-V3` and its nonce, HMAC-SHA256
vonage                      the signature secret: a JWT with HS256 in `Authorization: Bearer`
telnyx                      the public key (base64): `telnyx-signature-ed25519` over timestamp and body
genesys                     "API key:client secret": `X-API-KEY`, and HMAC-SHA256 by HTTP Message Signatures
asterisk, jambonz, fork     "user:password": `Authorization: Basic`
==========================  =========================================================================================
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import json
import re
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from .auth import Access, Denied

BAD_SIGNATURE: Final = "invalid_signature"
NOT_ALLOWED: Final = "address_not_allowed"
TOO_MANY: Final = "too_many_calls"
CLOCK_MOST: Final = 300
"""Seconds that a signed time may lie from ours."""
TOKEN: Final = "token"
"""The parameter of a call that may carry an API key."""
NUMBERS_MOST: Final = 10_000
"""Numbers whose calls are remembered."""

Params = Sequence[tuple[str, str]]
_Caller = tuple[str, str]
"""Whom somebody calls, and the number."""


class PhoneAccess:
    """Decides about every call. `secrets`: by vendor. `networks`: that calls may come from; none: any."""

    def __init__(
        self,
        access: Access,
        secrets: Mapping[str, str],
        networks: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
        tenant: str = "",
    ) -> None:
        """`tenant`: whose calls are that their vendor signed and nobody's key came with."""
        self._tenant = tenant
        self._access = access
        self._secrets = secrets
        self._networks = [ipaddress.ip_network(network) for network in networks]
        self._clock = clock

    def address(self, peer: str) -> None:
        """Raises Denied for one that is on no list."""
        if not self._networks:
            return
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            address = None
        if address is None or not any(address in network for network in self._networks):
            raise Denied(403, NOT_ALLOWED, "calls from this address are not taken; set --phone-allow")

    def signed(
        self, vendor: str, urls: Sequence[str], headers: Mapping[str, str], params: Params = (), body: bytes = b""
    ) -> bool:
        """Whether the vendor showed its secret; False where it has none. Raises Denied where it did not show it.

        `urls`: as the vendor may have called us. `headers` has lower-case names.
        """
        secret = self._secrets.get(vendor)
        if secret is None:
            return False
        check = _CHECKS.get(vendor, _basic)
        if not any(check(secret, url, headers, params, body, self._clock()) for url in urls):
            raise Denied(403, BAD_SIGNATURE, f"the request does not carry {vendor}'s signature, or not the right one")
        return True

    def call(self, headers: Mapping[str, str], parameters: Mapping[str, str], signed: bool) -> str:
        """Access of a call that has started; returns whose it is. Raises Denied."""
        if TOKEN in parameters:
            return self._access.session({"authorization": f"Bearer {parameters[TOKEN]}"}).tenant
        if signed:
            return self._tenant
        if headers.get("authorization", "").lower().startswith("basic "):
            headers = {name: value for name, value in headers.items() if name != "authorization"}
        return self._access.session(headers).tenant


# --- signatures -------------------------------------------------------------------------------------------------------


def twilio_signature(secret: str, url: str, params: Params = ()) -> str:
    """https://www.twilio.com/docs/usage/security: HMAC-SHA1 over the URL and the sorted parameters."""
    text = url + "".join(name + value for name, value in sorted(params))
    return base64.b64encode(hmac.new(secret.encode(), text.encode(), hashlib.sha1).digest()).decode()


def plivo_signature(secret: str, url: str, nonce: str, params: Params = ()) -> str:
    """Version 3: HMAC-SHA256 over the URL, the sorted parameters and the nonce."""
    posted = "".join(name + value for name, value in sorted(params))
    text = f"{url}.{posted}.{nonce}" if posted else f"{url}.{nonce}"
    return base64.b64encode(hmac.new(secret.encode(), text.encode(), hashlib.sha256).digest()).decode()


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


def _twilio(secret: str, url: str, headers: Mapping[str, str], params: Params, body: bytes, now: float) -> bool:
    given = headers.get("x-twilio-signature") or headers.get("x-signalwire-signature", "")
    # Of a WebSocket's handshake the vendor signs the address with or without a slash at its end.
    return any(_same(given, twilio_signature(secret, one, params)) for one in (url, url + "/"))


def _plivo(secret: str, url: str, headers: Mapping[str, str], params: Params, body: bytes, now: float) -> bool:
    given, nonce = headers.get("x-plivo-signature-v3", ""), headers.get("x-plivo-signature-v3-nonce", "")
    wanted = plivo_signature(secret, url, nonce, params)
    return bool(nonce) and any(_same(one.strip(), wanted) for one in given.split(","))


def _basic(secret: str, url: str, headers: Mapping[str, str], params: Params, body: bytes, now: float) -> bool:
    wanted = "Basic " + base64.b64encode(secret.encode()).decode()
    return _same(headers.get("authorization", ""), wanted)


def _vonage(secret: str, url: str, headers: Mapping[str, str], params: Params, body: bytes, now: float) -> bool:
    """RFC 7519, HS256 alone: what is signed otherwise, or not at all, is not signed with our secret."""
    token = headers.get("authorization", "").removeprefix("Bearer ")
    parts = token.split(".")
    if len(parts) != 3:
        return False
    try:
        head, claims = (json.loads(_base64url(part)) for part in parts[:2])
        signature = _base64url(parts[2])
    except (ValueError, binascii.Error, RecursionError):
        return False
    if not isinstance(head, dict) or head.get("alg") != "HS256" or not isinstance(claims, dict):
        return False
    wanted = hmac.new(secret.encode(), f"{parts[0]}.{parts[1]}".encode(), hashlib.sha256).digest()
    if not hmac.compare_digest(signature, wanted):
        return False
    issued, expires = claims.get("iat"), claims.get("exp")
    if isinstance(expires, int | float) and not isinstance(expires, bool):
        return now <= expires
    return isinstance(issued, int | float) and abs(now - issued) <= CLOCK_MOST


def _base64url(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def _telnyx(secret: str, url: str, headers: Mapping[str, str], params: Params, body: bytes, now: float) -> bool:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        raise Denied(
            503, "not_available", "Telnyx's signatures need the package cryptography; pip install 'talkover[tls]'"
        ) from None
    stamp = headers.get("telnyx-timestamp", "")
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) < 12) or abs(now - int(stamp)) > CLOCK_MOST:
        return False
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(secret, validate=True))
        signature = base64.b64decode(headers.get("telnyx-signature-ed25519", ""), validate=True)
        key.verify(signature, stamp.encode() + b"|" + body)
    except (InvalidSignature, ValueError):
        return False
    return True


_INPUT = re.compile(r"(?P<label>\w+)=(?P<params>\((?P<names>[^()]*)\)[^,]*)")


def _genesys(secret: str, url: str, headers: Mapping[str, str], params: Params, body: bytes, now: float) -> bool:
    """RFC 9421 as AudioHook uses it; the components that identify a session must be signed."""
    key, _, shared = secret.partition(":")
    if not _same(headers.get("x-api-key", ""), key):
        return False
    if not shared:
        return True
    found = _INPUT.match(headers.get("signature-input", ""))
    if found is None:
        return False
    names = re.findall(r'"([^"]+)"', found["names"])
    needed = {"@request-target", "audiohook-session-id", "audiohook-organization-id", "x-api-key"}
    if not needed <= set(names):
        return False
    host, _, target = url.partition("://")[2].partition("/")
    derived = {"@request-target": f"/{target}", "@authority": host}
    lines = [f'"{name}": {derived.get(name, headers.get(name, ""))}' for name in names]
    lines.append(f'"@signature-params": {found["params"]}')
    expires = re.search(r";expires=(\d{1,12})(?:;|$)", found["params"])
    if expires is not None and now > int(expires[1]):
        return False
    given = re.match(rf"{found['label']}=:(?P<value>[A-Za-z0-9+/=]+):", headers.get("signature", ""))
    try:
        wanted = hmac.new(base64.b64decode(shared, validate=True), "\n".join(lines).encode(), hashlib.sha256).digest()
    except (ValueError, binascii.Error):
        return False
    return given is not None and _same(given["value"], base64.b64encode(wanted).decode())


_CHECKS: Final = {
    "twilio": _twilio,
    "signalwire": _twilio,
    "plivo": _plivo,
    "vonage": _vonage,
    "telnyx": _telnyx,
    "genesys": _genesys,
}


# --- how many calls ---------------------------------------------------------------------------------------------------


class NumberLimits:
    """Calls of one number to one tenant: `together` at a time, `minute` in a minute; None: any number. On the event
    loop only. A number is not remembered for longer than its limits need it."""

    def __init__(self, together: int | None, minute: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._together = together
        self._minute = minute
        self._clock = clock
        self._live: dict[_Caller, int] = {}
        self._recent: OrderedDict[_Caller, deque[float]] = OrderedDict()

    def enter(self, number: str, tenant: str = "") -> None:
        """A call of `number` begins. Raises Denied where it may not; a call without a number always may."""
        if not number:
            return
        caller = (tenant, number)
        if self._together is not None and self._live.get(caller, 0) >= self._together:
            raise Denied(429, TOO_MANY, f"there are {self._together} calls from this number; end one first")
        if self._minute is not None:
            self._check_minute(caller, self._minute)
        self._live[caller] = self._live.get(caller, 0) + 1

    def _check_minute(self, caller: _Caller, most: int) -> None:
        now = self._clock()
        while self._recent and next(iter(self._recent.values()))[-1] <= now - 60:
            self._recent.popitem(last=False)
        recent = self._recent.setdefault(caller, deque())
        while recent and recent[0] <= now - 60:
            recent.popleft()
        if len(recent) >= most:
            raise Denied(429, TOO_MANY, f"{most} calls came from this number within a minute; wait")
        recent.append(now)
        self._recent.move_to_end(caller)
        if len(self._recent) > NUMBERS_MOST:
            self._recent.popitem(last=False)

    def leave(self, number: str, tenant: str = "") -> None:
        """It ended."""
        caller = (tenant, number)
        left = self._live.get(caller, 0) - 1
        if left > 0:
            self._live[caller] = left
        else:
            self._live.pop(caller, None)

    def of(self, tenant: str) -> int:
        """How many numbers are remembered for a tenant."""
        return len({caller for caller in (*self._live, *self._recent) if caller[0] == tenant})

    def forget(self, tenant: str) -> None:
        """Remember none of the numbers that have called a tenant, but those whose calls go on."""
        for caller in [one for one in self._recent if one[0] == tenant]:
            del self._recent[caller]


def redacted(number: str) -> str:
    """A telephone number as it may be written down: its last two digits."""
    digits = sum(character.isdigit() for character in number)
    if digits < 5:
        return "*" * len(number)
    kept = 0
    out: list[str] = []
    for character in reversed(number[:64]):
        if character.isdigit() and kept < 2:
            kept += 1
            out.append(character)
        else:
            out.append("+" if character == "+" else "*")
    return "".join(reversed(out))
