"""Everything that is kept of a tenant or a session, wherever it lies: found, and removed.

=============  ==========================================================================================
place          what
=============  ==========================================================================================
memory         sessions, calls, sessions that a client may come back to, ephemeral keys, what of limits was used,
               telephone numbers that called
disk           recordings
directory      what several servers share of a session (Redis), of servers that died too
engine         keys and values of prompts, features of media, that wait for the tenant's next session
=============  ==========================================================================================

Session state in workers goes with its session: slots and guests are closed by it. What is deleted is looked for again
afterwards, and what is left is said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, runtime_checkable

from sessions.core.events import Close
from sessions.ports import Retains
from sessions.recording.format import session_of
from sessions.runner import Runner

Place = Literal["memory", "disk", "directory", "engine"]

DELETED: Final = "deleted"
"""Why a session ended."""
END_WITHIN: Final = 15.0
"""Seconds that sessions and their connections have to end: a peer that does not read is waited for a while."""
_LOOK_EVERY: Final = 0.02


@dataclass(frozen=True, slots=True)
class Held:
    """One piece of state. `name`: which, where there are several of its kind; `count`: how many it stands for."""

    kind: str
    place: Place
    name: str = ""
    count: int = 1

    def plain(self) -> dict[str, object]:
        return {"kind": self.kind, "place": self.place, "name": self.name, "count": self.count}


@runtime_checkable
class Directory(Protocol):
    """What several servers share of their sessions."""

    async def sessions_of(self, tenant: str) -> list[str]: ...

    async def erase(self, session: str, tenant: str) -> None: ...

    async def erase_tenant(self, tenant: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Registry:
    """A place in memory where things stand that go with their session. `find`: those of a tenant by name, and their
    sessions."""

    kind: str
    find: Callable[[str], dict[str, str]]


@dataclass(frozen=True, slots=True)
class Tally:
    """A place in memory where things of a tenant stand that no session takes along. `count`: how many."""

    kind: str
    count: Callable[[str], int]
    forget: Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Shelf:
    """The recordings. `of`: ids of a tenant's; `delete` takes ids. Both wait for the disk; `settled` until what has
    ended is written."""

    of: Callable[[str], Awaitable[list[str]]]
    delete: Callable[[Sequence[str]], Awaitable[None]]
    settled: Callable[[], Awaitable[None]]


class Holdings:
    """Of one server. Methods are called on the event loop."""

    def __init__(
        self,
        sessions: Callable[[], list[Runner]],
        registries: Sequence[Registry],
        tallies: Sequence[Tally],
        shelf: Shelf,
        directory: Directory | None,
        engine: Callable[[], object],
    ) -> None:
        """`sessions`: all that there are. `engine`: None while it is prepared."""
        self._sessions = sessions
        self._registries = registries
        self._tallies = tallies
        self._shelf = shelf
        self._directory = directory
        self._engine = engine

    async def held(self, tenant: str, session: str | None = None) -> list[Held]:
        """What there is of a tenant, or of one of its sessions. Raises DirectoryDown, OSError."""
        found = [Held("session", "memory", one.session) for one in self._its(tenant, session)]
        found += self._in_memory(tenant, session)
        recordings = await self._shelf.of(tenant)
        found += [Held("recording", "disk", name) for name in recordings if session in (None, session_of(name))]
        if self._directory is not None:
            shared = await self._directory.sessions_of(tenant)
            found += [Held("session", "directory", name) for name in shared if session in (None, name)]
        engine = self._engine()
        if session is None and isinstance(engine, Retains):
            found += [Held(kind, "engine", count=count) for kind, count in engine.held(tenant).items() if count]
        return found

    async def delete(self, tenant: str, session: str | None = None) -> list[Held]:
        """Remove it all; returns what is left of it, which is nothing unless somebody does not let go in time, or
        begins anew meanwhile. Raises DirectoryDown, OSError."""
        its = self._its(tenant, session)
        for one in its:
            one.post(Close(DELETED))
        if its:
            await asyncio.wait([asyncio.ensure_future(one.done.wait()) for one in its], timeout=END_WITHIN)
        await self._parted(tenant, session)
        if session is None:
            for tally in self._tallies:
                tally.forget(tenant)
        if self._directory is not None:
            if session is None:
                await self._directory.erase_tenant(tenant)
            elif session in await self._directory.sessions_of(tenant):
                await self._directory.erase(session, tenant)
        await self._shelf.settled()
        its_recordings = [name for name in await self._shelf.of(tenant) if session in (None, session_of(name))]
        await self._shelf.delete(its_recordings)
        engine = self._engine()
        if session is None and isinstance(engine, Retains):
            await asyncio.to_thread(engine.forget, tenant)
        return await self.held(tenant, session)

    def _its(self, tenant: str, session: str | None) -> list[Runner]:
        return [one for one in self._sessions() if one.tenant == tenant and session in (None, one.session)]

    def _in_memory(self, tenant: str, session: str | None) -> list[Held]:
        found = [
            Held(registry.kind, "memory", name)
            for registry in self._registries
            for name, its in registry.find(tenant).items()
            if session in (None, its)
        ]
        if session is None:
            counted = [(tally.kind, tally.count(tenant)) for tally in self._tallies]
            found += [Held(kind, "memory", count=count) for kind, count in counted if count]
        return found

    async def _parted(self, tenant: str, session: str | None) -> None:
        """Until the connections of what has ended are gone as well."""
        loop = asyncio.get_running_loop()
        until = loop.time() + END_WITHIN
        while loop.time() < until:
            found = (its for registry in self._registries for its in registry.find(tenant).values())
            if not any(session in (None, its) for its in found):
                return
            await asyncio.sleep(_LOOK_EVERY)
