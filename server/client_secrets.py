"""Ephemeral keys: what a server gives to a browser, so that it can open a session and nothing else.

https://platform.openai.com/docs/api-reference/realtime-sessions/create-realtime-client-secret (GA).
"""

from __future__ import annotations

import heapq
import json
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from .dialects.checks import Object, a_bool, an_integer, an_object, one_of, parse
from .keys import EPHEMERAL_PREFIX, digest

SECONDS_DEFAULT: Final = 600
SECONDS_RANGE: Final = (10, 7200)

MOST: Final = 10_000
"""Ephemeral keys that may be valid at a time."""
MOST_BYTES: Final = 64 * 1024 * 1024
"""What their session configurations may take together, as JSON."""
MAX_BODY: Final = 256 * 1024
"""Bytes of one request."""

_OURS: Final = re.compile(r"ek_[0-9a-f]{32}")


class NoRoom(Exception):
    """As many ephemeral keys are valid as the server keeps. `retry_after` in seconds."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request for a key: the configuration of its sessions (None: the server's defaults), its life in seconds, and
    whether it opens one session only."""

    session: Object | None
    seconds: int
    single_use: bool = False


@dataclass(frozen=True, slots=True)
class ClientSecret:
    """A valid ephemeral key, without the key. `expires_at` in seconds since 1970. `tenant`: whose it is."""

    id: bytes
    expires_at: int
    session: Object | None
    size: int
    tenant: str = ""
    single_use: bool = False


class UsedUp(Exception):
    """The key has opened the one session that it was good for, or is not good any more."""


class ClientSecrets:
    """All valid ephemeral keys, by digest. What has expired is swept whenever somebody mints or looks: no timers."""

    def __init__(
        self,
        *,
        most: int = MOST,
        most_bytes: int = MOST_BYTES,
        single_use: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`single_use`: every key opens one session. `clock` gives seconds since 1970."""
        self._single_use = single_use
        self._most = most
        self._most_bytes = most_bytes
        self._clock = clock
        self._valid: dict[bytes, ClientSecret] = {}
        self._by_expiry: list[tuple[int, bytes]] = []
        self._bytes = 0

    def __len__(self) -> int:
        self._sweep()
        return len(self._valid)

    def mint(self, wanted: Wanted, tenant: str = "") -> tuple[str, ClientSecret]:
        """A new key of `tenant` and what is kept of it. Raises NoRoom."""
        self._sweep()
        size = 0 if wanted.session is None else len(json.dumps(wanted.session))
        if len(self._valid) >= self._most or self._bytes + size > self._most_bytes:
            first = min(key.expires_at for key in self._valid.values()) if self._valid else self._clock()
            raise NoRoom(
                f"{len(self._valid)} client secrets are valid and no more are kept; give them a shorter life "
                "with expires_after.seconds",
                max(1.0, first - self._clock()),
            )
        value = EPHEMERAL_PREFIX + secrets.token_hex(16)
        until = int(self._clock()) + wanted.seconds
        once = wanted.single_use or self._single_use
        secret = ClientSecret(digest(value), until, wanted.session, size, tenant, once)
        self._keep(secret)
        return value, secret

    def find(self, value: str) -> ClientSecret | None:
        """What is kept of a valid key. The look-up is by digest, so its time tells nothing about the key."""
        self._sweep()
        return self._valid.get(digest(value))

    @contextmanager
    def opening(self, secret: ClientSecret | None) -> Iterator[None]:
        """Around the opening of a session with it. Where it is good for one session it is gone from the beginning on,
        so that of two that come at once only one gets in; and is good again where the block fails. Raises UsedUp."""
        if secret is None or not secret.single_use:
            yield
            return
        if self._valid.get(secret.id) is not secret:
            raise UsedUp("the ephemeral key has opened its session; mint another one for the next")
        self._remove(secret.id)
        try:
            yield
        except BaseException:
            self._keep(secret)
            raise

    def of(self, tenant: str) -> int:
        """How many valid keys a tenant has."""
        self._sweep()
        return sum(secret.tenant == tenant for secret in self._valid.values())

    def forget(self, tenant: str) -> int:
        """Make all keys of a tenant invalid; how many there were."""
        gone = [secret.id for secret in self._valid.values() if secret.tenant == tenant]
        for identity in gone:
            self._remove(identity)
        return len(gone)

    def _keep(self, secret: ClientSecret) -> None:
        self._valid[secret.id] = secret
        self._bytes += secret.size
        heapq.heappush(self._by_expiry, (secret.expires_at, secret.id))

    def _remove(self, identity: bytes) -> None:
        secret = self._valid.pop(identity, None)
        if secret is None:
            return
        self._bytes -= secret.size
        if len(self._by_expiry) > 2 * len(self._valid) + 64:
            # Keys that were used up still stand in the heap; it must not outgrow what is valid.
            self._by_expiry = [(key.expires_at, key.id) for key in self._valid.values()]
            heapq.heapify(self._by_expiry)

    def _sweep(self) -> None:
        now = self._clock()
        while self._by_expiry and self._by_expiry[0][0] <= now:
            self._remove(heapq.heappop(self._by_expiry)[1])


def looks_ephemeral(key: str) -> bool:
    """Whether `key` has the form of those that `ClientSecrets` mints, here or elsewhere."""
    return _OURS.fullmatch(key) is not None


def parse_wanted(body: str) -> Wanted:
    """The body of POST /v1/realtime/client_secrets; may be empty. Raises Rejected.

    The session is taken as it is: `RealtimeDialect` checks it, with the code that checks session.update.
    """
    request: Object = parse(body) if body.strip() else {}
    session = request.get("session")
    ours = request.get("x_talkover")
    single_use = an_object(ours, "x_talkover").get("single_use", False) if ours is not None else False
    return Wanted(
        None if session is None else an_object(session, "session"),
        _seconds(request),
        a_bool(single_use, "x_talkover.single_use"),
    )


def _seconds(request: Object) -> int:
    if request.get("expires_after") is None:
        return SECONDS_DEFAULT
    after = an_object(request["expires_after"], "expires_after")
    if after.get("anchor") is not None:
        one_of(after["anchor"], "expires_after.anchor", ("created_at",))
    if after.get("seconds") is None:
        return SECONDS_DEFAULT
    return an_integer(after["seconds"], "expires_after.seconds", *SECONDS_RANGE)
