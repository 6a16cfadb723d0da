"""Keeps the leases of a process's sessions, and outside of it what another one needs to go on with them.

Events are kept in batches, a snapshot now and then, all sessions in one exchange with the directory. A directory that
cannot be reached stops nothing that runs: nobody can take a session over meanwhile, and when it is back each session is
kept anew from a snapshot. A process that was stopped for longer than its leases held may have been taken for dead; it
asks before it says another word (`Keeper.fresh`).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Final, Protocol, get_args

from .core.events import Event
from .core.records import Plain, Reader, to_plain
from .core.session import Session
from .core.timeline import Ticks
from .counters import Counters
from .ownership import DirectoryDown, Lease, OwnershipInMemory, OwnershipPort, Taken, Write, Written, too_many, unknown
from .ports import Busy

log = logging.getLogger(__name__)

FLUSH_EVERY: Final = 0.2
"""Seconds between two batches: what a process that is killed may lose of its sessions' last moments."""
SNAPSHOT_AFTER: Final = 1500
"""Entries after which a snapshot is cheaper to go on from (about ten seconds of talk)."""


class Kept(Protocol):
    """A session as the keeper sees it."""

    session: str

    def plain(self) -> Plain:
        """The snapshot of its core, now."""

    def owned_by_another(self, incarnation: int) -> None:
        """Another process has it, as `incarnation` at least: nothing more may be said here."""

    def refused(self, why: Busy) -> None:
        """The directory has no room for it."""


class Keeping:
    """One session's share: what waits to be written."""

    def __init__(
        self, kept: Kept, tenant: str, token: str, limit: int | None, lease: Lease | None, outside: bool
    ) -> None:
        """`outside`: whether anything of it is kept besides the lease."""
        self.kept = kept
        self.outside = outside
        self.tenant = tenant
        self.tokens = [token]
        self.limit = limit
        self.lease = lease
        self.waiting: list[bytes] = []
        self.full = outside
        """The next write begins with a snapshot."""
        self.since = 0
        self.tokens_due = False
        self.over = False
        self._note: Callable[[], Plain] = lambda: None

    def note(self, note: Callable[[], Plain]) -> None:
        """`note` gives what the carrier's side wants to find again, and is asked with each snapshot; one is due."""
        self._note = note
        self.full = self.outside

    def event(self, event: Event, now: Ticks) -> None:
        """`event` was handled at `now`."""
        if self.outside and not self.full:
            self.waiting.append(json.dumps([now, to_plain(event)], separators=(",", ":")).encode())

    def settled(self) -> None:
        """A good moment for a snapshot: the carrier has gone, and whoever comes back may come somewhere else."""
        self.full = self.outside

    def offer(self, *tokens: str) -> None:
        """Exactly these tokens are good from here on."""
        self.tokens = list(tokens)
        self.tokens_due = True

    def write(self, lease: Lease) -> Write | None:
        """What is to be written now, if there is anything; it is then no longer waiting."""
        if self.since + len(self.waiting) > SNAPSHOT_AFTER:
            self.full = True
        if self.full:
            self.full = False
            self.since = 0
            self.waiting.clear()
            whole = {"core": self.kept.plain(), "note": self._note()}
            return Write(lease, (), json.dumps(whole, separators=(",", ":")).encode())
        if not self.waiting:
            return None
        entries, self.waiting = self.waiting, []
        self.since += len(entries)
        return Write(lease, entries)


class Keeper:
    """All of a process. Methods are called on the event loop."""

    def __init__(self, port: OwnershipPort | None = None, counters: Counters | None = None) -> None:
        self.port: OwnershipPort = port or OwnershipInMemory()
        self.counters = counters or Counters()
        self.reachable = True
        """Whether the directory answered last time."""
        self._all: dict[str, Keeping] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._wake = asyncio.Event()
        self._asked = 0.0
        self._ending: set[asyncio.Task[None]] = set()
        self._talking = asyncio.Lock()
        """Held by whoever writes: what the directory gets is in the order in which it happened."""
        self.port.on_wanted(self._wanted)

    # --- sessions --------------------------------------------------------------------------------------------------

    def begin(
        self, kept: Kept, tenant: str, token: str, limit: int | None = None, *, resumable: bool = True
    ) -> Keeping:
        """A new session. `limit`: how many the tenant may have; `resumable`: whether somebody may come back to it.

        Raises Busy where the directory is out of reach (it could not be found again), and where this process is alone
        and the tenant has enough.
        """
        if not self.port.shared:
            return self._begin_alone(kept, tenant, token, limit)
        self.start()
        if not self.reachable:
            raise Busy("the directory of sessions cannot be reached; try again in a moment", retry_after=2.0)
        keeping = self._all[kept.session] = Keeping(kept, tenant, token, limit, None, resumable)
        self._wake.set()
        return keeping

    def _begin_alone(self, kept: Kept, tenant: str, token: str, limit: int | None) -> Keeping:
        """Nobody else could go on with it, so its lease is this entry."""
        if limit is not None and sum(other.tenant == tenant for other in self._all.values()) >= limit:
            raise too_many(limit)
        keeping = self._all[kept.session] = Keeping(kept, tenant, token, limit, None, False)
        return keeping

    async def recover(self, session: str, tenant: str, token: str, next_token: str) -> Recovered:
        """Become the owner of another process's session. Raises NotResumable, DirectoryDown."""
        taken = await self.port.take_over(session, tenant, token, next_token)
        try:
            return recovered(taken, next_token, token)
        except ValueError as why:
            log.error("session %s cannot be restored: %s", session, why)
            await self.port.release(taken.lease)
            raise unknown(session) from why

    def of(self, tenant: str) -> dict[str, str]:
        """The sessions of a tenant that are kept here, by themselves."""
        return {session: session for session, keeping in self._all.items() if keeping.tenant == tenant}

    def let_go(self, found: Recovered) -> None:
        """It was recovered and cannot go on here; another process may have it."""
        self._spawn(self._let_go(found.taken.lease))

    async def _let_go(self, lease: Lease) -> None:
        try:
            await self.port.hand_over(lease)
        except DirectoryDown:
            self.counters.add("directory_down")

    def go_on(self, kept: Kept, tenant: str, found: Recovered) -> Keeping:
        """The session that was recovered is open here."""
        self.start()
        keeping = self._all[kept.session] = Keeping(kept, tenant, found.tokens[0], None, found.taken.lease, True)
        keeping.note(lambda: found.note)
        keeping.offer(*found.tokens)
        self._wake.set()
        return keeping

    def end(self, session: str) -> None:
        """It is over here: nothing of it is kept, unless another process has it."""
        keeping = self._all.pop(session, None)
        if keeping is None:
            return
        keeping.over = True
        if keeping.lease is not None:
            self._spawn(self._release(keeping.lease))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _release(self, lease: Lease) -> None:
        try:
            await self.port.release(lease)
        except DirectoryDown:
            self.counters.add("directory_down")  # it forgets the session by itself when nobody renews it

    # --- the task --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self._task is None:
            loop = asyncio.get_running_loop()
            self._asked = loop.time()
            self._task = loop.create_task(self._run(), name="keeper")

    async def close(self) -> None:
        """After the sessions: wait until the directory knows that they are over."""
        if self._ending:
            await asyncio.wait(list(self._ending), timeout=2.0)
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.port.close()

    @property
    def fresh(self) -> bool:
        """Whether the directory was asked recently enough that nobody can have been given our sessions since."""
        if self._task is None:
            return True
        return asyncio.get_running_loop().time() - self._asked < self.port.ttl

    async def ask(self) -> None:
        """Ask the directory which sessions are still ours; to be awaited where `fresh` is false."""
        async with self._talking:
            if not self.fresh:  # else another session has asked for all of them meanwhile
                await self._exchange(renew=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        renewed = loop.time()
        # A client of a directory may lose a cancellation that comes in the moment in which its own time is up.
        while not self._closed:
            try:
                async with asyncio.timeout(FLUSH_EVERY):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            renew = loop.time() - renewed >= self.port.ttl / 3 or not self.reachable
            try:
                async with self._talking:
                    await self._exchange(renew)
            except Exception:
                # A fault of ours must not end the keeping of all sessions.
                log.exception("keeping sessions failed")
                self.counters.add("keeper_fault")
            if renew:
                renewed = loop.time()

    async def _exchange(self, renew: bool) -> None:
        """One round with the directory: claims, tokens, writes, and the renewal of what was not written. With the lock
        held."""
        asked = asyncio.get_running_loop().time()
        writes: list[Write] = []
        try:
            for keeping in list(self._all.values()):
                await self._claim(keeping)
            for keeping in list(self._all.values()):
                write = None if keeping.lease is None else keeping.write(keeping.lease)
                if write is not None:
                    writes.append(write)
            if renew:
                written = {write.lease for write in writes}
                writes += [Write(k.lease) for k in self._all.values() if k.lease is not None and k.lease not in written]
            if writes or renew:
                self._settle(await self.port.write(writes))
            self._reached()
        except DirectoryDown as down:
            if self.reachable:
                log.warning("the directory of sessions cannot be reached: %s", down)
            self.reachable = False
            self.counters.add("directory_down")
            for keeping in self._all.values():
                self._forget(keeping)
        if renew or writes:
            self._asked = asked

    def _reached(self) -> None:
        if not self.reachable:
            log.warning("the directory of sessions is there again")
        self.reachable = True

    def _forget(self, keeping: Keeping) -> None:
        """What was to be written is not known to have been: a snapshot makes good for it."""
        keeping.full = keeping.outside
        keeping.waiting.clear()

    async def _claim(self, keeping: Keeping) -> None:
        if keeping.lease is None:
            try:
                lease = await self.port.claim(keeping.kept.session, keeping.tenant, keeping.tokens[-1], keeping.limit)
            except Busy as why:
                self._all.pop(keeping.kept.session, None)
                keeping.kept.refused(why)
                return
            if keeping.over:
                await self.port.release(lease)
                return
            keeping.lease = lease
        if keeping.tokens_due:
            keeping.tokens_due = False
            await self.port.tokens(keeping.lease, keeping.tokens)

    def _settle(self, written: Written) -> None:
        for lease in written.lost:
            self._lost(lease)
        for lease in written.missing:
            keeping = self._all.get(lease.session)
            if keeping is not None:
                self._forget(keeping)
                keeping.tokens_due = True

    def _lost(self, lease: Lease) -> None:
        keeping = self._all.get(lease.session)
        if keeping is None or keeping.lease != lease:
            return
        del self._all[lease.session]
        keeping.over = True
        self.counters.add("sessions_lost")
        keeping.kept.owned_by_another(lease.incarnation + 1)

    # --- another process wants one ---------------------------------------------------------------------------------

    def _wanted(self, session: str) -> None:
        keeping = self._all.get(session)
        if keeping is not None and keeping.lease is not None:
            self._spawn(self._hand_over(keeping, keeping.lease))

    async def hand_over_all(self) -> None:
        """This process ends: whoever comes back to one of its sessions finds it, and goes on with it somewhere else."""
        if self.port.shared:
            mine = [(keeping, keeping.lease) for keeping in list(self._all.values()) if keeping.outside]
            await asyncio.gather(*(self._hand_over(keeping, lease) for keeping, lease in mine if lease is not None))

    async def _hand_over(self, keeping: Keeping, lease: Lease) -> None:
        """Write what is known, stop here, and let the other go on."""
        del self._all[lease.session]
        keeping.over = True
        keeping.full = keeping.outside
        write = keeping.write(lease)
        keeping.kept.owned_by_another(lease.incarnation + 1)
        async with self._talking:  # behind what of it is being written right now
            try:
                written = Written() if write is None else await self.port.write([write])
                self.counters.add("sessions_lost" if written.lost else "sessions_handed_over")
            except DirectoryDown:
                self.counters.add("directory_down")
            await self._let_go(lease)


_events: Final = Reader(get_args(Event))


@dataclass(frozen=True, slots=True)
class Recovered:
    """A session as its former owner last wrote it. `note`: of the carrier's side; `tokens`: that are good from here on,
    the newest first."""

    taken: Taken
    core: Session
    note: Plain
    tokens: tuple[str, ...]


def recovered(taken: Taken, *tokens: str) -> Recovered:
    """Raises ValueError where what was kept is damaged."""
    whole = json.loads(taken.snapshot)
    if not isinstance(whole, dict):
        raise ValueError("a snapshot is an object")
    core = Session.restore(whole.get("core"))
    for entry in taken.entries:
        match json.loads(entry):
            case [int(now), plain]:
                core.handle(_events.read(plain), now)
            case other:
                raise ValueError(f"an event is kept as [time, event]; here stands {str(other)[:100]}")
    return Recovered(taken, core, whole.get("note"), tokens)
