"""How much user audio a tenant may send, in a minute and in a day.

What was heard is read from the sessions' watermarks once a second, so that no frame costs anything. A tenant that has
sent its share begins no further session, and those that it has are told why and end: a session that hears nothing would
only seem to work. The counts are those of one process, and begin anew with it.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from sessions.core.events import Close, CommandRejected
from sessions.core.timeline import TICK_RATE, Ticks
from sessions.counters import Counters
from sessions.ports import Busy

from ..limits import TENANTS_MOST, Bucket
from .quotas import Quota, QuotaOf

EXCEEDED: Final = "audio_limit_exceeded"
"""Code of the error, reason of the end, and counter of the sessions that ended so."""
EVERY: Final = 1.0
_DAY: Final = 86_400.0


class Heard(Protocol):
    """A session as it is seen from here. `heard`: user audio so far."""

    @property
    def session(self) -> str: ...

    @property
    def tenant(self) -> str: ...

    @property
    def heard(self) -> Ticks: ...

    def post(self, event: CommandRejected | Close) -> None: ...


@dataclass(slots=True)
class _Used:
    """What one tenant has used. `day`: days since 1970, and `today`: seconds of audio in it."""

    day: int = 0
    today: float = 0.0
    minute: Bucket | None = None


@dataclass(frozen=True, slots=True)
class _Over:
    limit: int
    span: str
    wait: float


class AudioQuota:
    """The use of all tenants. On the event loop only."""

    def __init__(
        self,
        quota_of: QuotaOf,
        counters: Counters,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock`: seconds since 1970."""
        self._quota_of = quota_of
        self._counters = counters
        self._clock = clock
        self._used: OrderedDict[str, _Used] = OrderedDict()
        self._seen: dict[str, Ticks] = {}
        self._ended: set[str] = set()
        """Sessions that were told, and are not gone yet."""
        self._task: asyncio.Task[None] | None = None

    def __contains__(self, tenant: object) -> bool:
        return tenant in self._used

    def start(self, sessions: Callable[[], Iterable[Heard]]) -> None:
        """Look at `sessions` once a second from now on."""
        self._task = asyncio.get_running_loop().create_task(self._look_always(sessions), name="audio-quota")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def check(self, tenant: str) -> None:
        """Raises Busy where the tenant may begin no session now."""
        quota = self._quota_of(tenant)
        over = self._over(tenant, quota) if _limits(quota) else None
        if over is not None:
            self._counters.add(EXCEEDED)
            raise Busy(_message(over), over.wait, EXCEEDED)

    def forget(self, tenant: str) -> None:
        self._used.pop(tenant, None)

    async def _look_always(self, sessions: Callable[[], Iterable[Heard]]) -> None:
        while True:
            await asyncio.sleep(EVERY)
            self.look(sessions())

    def look(self, sessions: Iterable[Heard]) -> None:
        """Count what was heard since the last look, and end what is beyond its tenant's limits."""
        there: dict[str, Ticks] = {}
        limited: dict[str, list[Heard]] = {}
        for one in sessions:
            there[one.session] = one.heard
            if not _limits(self._quota_of(one.tenant)):
                continue
            limited.setdefault(one.tenant, []).append(one)
            self._count(one.tenant, (one.heard - self._seen.get(one.session, 0)) / TICK_RATE)
        self._seen = there
        self._ended &= there.keys()
        for tenant, its in limited.items():
            over = self._over(tenant, self._quota_of(tenant))
            if over is None:
                continue
            for one in its:
                if one.session in self._ended:
                    continue
                self._ended.add(one.session)
                self._counters.add(EXCEEDED)
                one.post(CommandRejected(EXCEEDED, _message(over)))
                one.post(Close(EXCEEDED))

    def _of(self, tenant: str) -> _Used:
        used = self._used.setdefault(tenant, _Used())
        self._used.move_to_end(tenant)
        if len(self._used) > TENANTS_MOST:
            self._used.popitem(last=False)
        day = int(self._clock() // _DAY)
        if used.day != day:
            used.day, used.today = day, 0.0
        limit = self._quota_of(tenant).audio_minute
        if limit is None:
            used.minute = None
        elif used.minute is None or used.minute.limit != limit:
            used.minute = Bucket("audio", limit, self._clock)
        return used

    def _count(self, tenant: str, seconds: float) -> None:
        used = self._of(tenant)
        used.today += seconds
        if used.minute is not None:
            used.minute.take(seconds)

    def _over(self, tenant: str, quota: Quota) -> _Over | None:
        used = self._of(tenant)
        if quota.audio_day is not None and used.today >= quota.audio_day:
            return _Over(quota.audio_day, "day", (used.day + 1) * _DAY - self._clock())
        if used.minute is not None and quota.audio_minute is not None and used.minute.level() <= 0:
            return _Over(quota.audio_minute, "minute", used.minute.wait())
        return None


def _limits(quota: Quota) -> bool:
    return quota.audio_minute is not None or quota.audio_day is not None


def _message(over: _Over) -> str:
    return (
        f"the tenant has sent the {over.limit} s of audio that it may send in a {over.span}; try again in "
        f"{over.wait:.0f} s, or ask whoever runs the server for more"
    )
