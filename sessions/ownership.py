"""Who owns a session: leases with fencing tokens, and what another process needs to go on with it.

Every session has one owner, known by its incarnation. The owner renews its lease and keeps the session's state outside:
a snapshot of the core now and then, and every event since. When it dies, or the client comes back somewhere else,
another process takes the session over: its incarnation is higher, so whatever the former owner still does is refused.

What is kept outside is written in the order in which it happened and only by the owner: a write under an older
incarnation changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .ports import Busy, NotResumable

HAND_OVER_WITHIN = 0.5
"""Seconds that an owner has to write what it knows when another process wants a session of its."""
ALREADY_OPEN = 60.0
"""`Busy.retry_after` of a tenant that has as many sessions as it may have: nobody knows when one ends."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to speak for `session` as `incarnation`."""

    session: str
    incarnation: int


class DirectoryDown(Exception):
    """The directory of sessions cannot be reached: nobody can be given a lease, and nobody can take one away."""


@dataclass(frozen=True, slots=True)
class Write:
    """What the owner keeps outside. `snapshot` replaces everything kept before it; `entries` are appended."""

    lease: Lease
    entries: Sequence[bytes] = ()
    snapshot: bytes | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """What became of leases. `lost`: another owner has the session. `missing`: the directory had forgotten the session,
    so it is kept under the same incarnation again and needs a snapshot."""

    lost: tuple[Lease, ...] = ()
    missing: tuple[Lease, ...] = ()


@dataclass(frozen=True, slots=True)
class Taken:
    """A session that was taken over: the newest snapshot, and every entry that was appended to it."""

    lease: Lease
    snapshot: bytes
    entries: tuple[bytes, ...]


class OwnershipPort(Protocol):
    """The directory of sessions. All methods raise DirectoryDown where it cannot be reached."""

    @property
    def shared(self) -> bool:
        """Whether anybody else could take a session over, so that its state is worth keeping outside."""

    @property
    def ttl(self) -> float:
        """Seconds that a lease holds without renewal."""

    async def claim(self, session: str, tenant: str, token: str, limit: int | None) -> Lease:
        """A new session, at incarnation 1. `token`: who has it may take the session over.

        `limit`: sessions that the tenant may have, over all processes. Raises Busy.
        """

    async def tokens(self, lease: Lease, good: Sequence[str]) -> None:
        """From here on exactly the tokens `good` let somebody take the session over."""

    async def take_over(self, session: str, tenant: str, token: str, next_token: str) -> Taken:
        """Become the owner. `token` must be good, and stays so besides `next_token` until `tokens` says otherwise.

        An owner that lives is asked to hand over first, and is not waited for long. Raises NotResumable.
        """

    async def write(self, writes: Sequence[Write]) -> Written:
        """Keep what is given, and renew every lease in it; one without anything to keep is only renewed."""

    async def release(self, lease: Lease) -> None:
        """The session is over: nothing of it is kept."""

    async def hand_over(self, lease: Lease) -> None:
        """Everything is written; whoever has a good token may have the session at once."""

    def on_wanted(self, wanted: Callable[[str], None]) -> None:
        """`wanted(session)` is called on the event loop when another process wants a session that we own."""

    async def close(self) -> None: ...


def digest(token: str) -> str:
    """How a token is kept: not as itself."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def unknown(session: str) -> NotResumable:
    return NotResumable("unknown_session", f"there is no session {session!r} any more; begin a new one")


def wrong_token() -> NotResumable:
    return NotResumable("invalid_token", "the resume token is not the newest one of this session")


def too_many(limit: int) -> Busy:
    return Busy(f"all {limit} sessions of this tenant are in use; end one first", ALREADY_OPEN, "too_many_sessions")


@dataclass(slots=True)
class _Entry:
    tenant: str
    incarnation: int
    owner: OwnershipInMemory | None
    tokens: set[str]
    until: float
    snapshot: bytes = b""
    entries: list[bytes] = field(default_factory=list)
    handed_over: asyncio.Event = field(default_factory=asyncio.Event)


class MemoryDirectory:
    """What the owners of one process share; see `OwnershipInMemory`."""

    def __init__(self, ttl: float = 6.0, kept: float = 120.0, clock: Callable[[], float] = time.monotonic) -> None:
        """`kept`: seconds that a session stays after its lease ran out."""
        self.ttl = ttl
        self.kept = kept
        self.clock = clock
        self.sessions: dict[str, _Entry] = {}

    def sweep(self) -> None:
        """Forget what nobody has renewed for long."""
        now = self.clock()
        for session in [name for name, entry in self.sessions.items() if entry.until + self.kept < now]:
            del self.sessions[session]


class OwnershipInMemory:
    """The directory of a server that is alone, and of several servers in one process (tests)."""

    def __init__(self, directory: MemoryDirectory | None = None) -> None:
        self.shared = directory is not None
        self._directory = directory or MemoryDirectory()
        self._wanted: Callable[[str], None] = lambda session: None

    @property
    def ttl(self) -> float:
        return self._directory.ttl

    async def claim(self, session: str, tenant: str, token: str, limit: int | None) -> Lease:
        directory = self._directory
        directory.sweep()
        if limit is not None:
            open_now = sum(entry.tenant == tenant for entry in directory.sessions.values())
            if open_now >= limit:
                raise too_many(limit)
        until = directory.clock() + directory.ttl
        directory.sessions[session] = _Entry(tenant, 1, self, {digest(token)}, until)
        return Lease(session, 1)

    async def tokens(self, lease: Lease, good: Sequence[str]) -> None:
        entry = self._owned(lease)
        if entry is not None:
            entry.tokens = {digest(token) for token in good}

    async def take_over(self, session: str, tenant: str, token: str, next_token: str) -> Taken:
        directory = self._directory
        directory.sweep()
        entry = directory.sessions.get(session)
        if entry is None or entry.tenant != tenant:
            raise unknown(session)
        given = digest(token)
        if not any(secrets.compare_digest(given, good) for good in entry.tokens):
            raise wrong_token()
        if entry.owner is not None and entry.owner is not self and entry.until > directory.clock():
            entry.owner._wanted(session)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HAND_OVER_WITHIN):
                    await entry.handed_over.wait()
        entry.incarnation += 1
        entry.owner = self
        entry.handed_over.clear()
        entry.until = directory.clock() + directory.ttl
        entry.tokens = {given, digest(next_token)}
        return Taken(Lease(session, entry.incarnation), entry.snapshot, tuple(entry.entries))

    def _owned(self, lease: Lease) -> _Entry | None:
        entry = self._directory.sessions.get(lease.session)
        return entry if entry is not None and entry.incarnation == lease.incarnation else None

    async def write(self, writes: Sequence[Write]) -> Written:
        lost: list[Lease] = []
        until = self._directory.clock() + self._directory.ttl
        for write in writes:
            entry = self._owned(write.lease)
            if entry is None:
                lost.append(write.lease)
                continue
            entry.until = until
            if write.snapshot is not None:
                entry.snapshot = write.snapshot
                entry.entries.clear()
            entry.entries.extend(write.entries)
        return Written(tuple(lost))

    async def release(self, lease: Lease) -> None:
        if self._owned(lease) is not None:
            del self._directory.sessions[lease.session]

    async def hand_over(self, lease: Lease) -> None:
        entry = self._owned(lease)
        if entry is not None:
            entry.owner = None
            entry.handed_over.set()

    def on_wanted(self, wanted: Callable[[str], None]) -> None:
        self._wanted = wanted

    async def close(self) -> None:
        """Nothing to let go of."""
