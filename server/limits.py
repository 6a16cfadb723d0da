"""Limits per tenant: responses and tokens a minute, and what is told of them.

They are token buckets: full at first, refilled evenly, so that a burst may use a minute's worth at once. A request is a
response that a client was told of; tokens are those that its `response.done` counts. A response that begins when a
bucket is empty fails with `rate_limit_exceeded`, as the vendor's do. One that runs is never stopped: it may use more
than was left, which is then missing for longer.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sessions.core.config import SessionConfig
from sessions.core.context import ContextEntry, ImageRef
from sessions.core.effects import GrantCredit, StartResponse
from sessions.core.events import EngineFailed
from sessions.core.fence import Fence
from sessions.core.notices import ResponseView
from sessions.core.records import Plain
from sessions.core.timeline import Ticks
from sessions.counters import Counters
from sessions.ports import Emit, EngineCapabilities, EnginePort, Repeats, Retains, Rewinds, Sees, Told

from .dialects.base import Allowance
from .security.quotas import Quota, QuotaOf

EXCEEDED: Final = "rate_limit_exceeded"
REFUSED: Final = "responses_refused"
"""Counter: responses that a limit did not let begin."""
TENANTS_MOST: Final = 10_000
"""Tenants whose use is remembered; beyond that the one that was seen the longest time ago is forgotten."""
_MINUTE: Final = 60.0


class Bucket:
    """`limit` a minute. The level may go below nothing, by what a response used that had begun before."""

    def __init__(self, name: str, limit: int, clock: Callable[[], float]) -> None:
        self.name = name
        self.limit = limit
        self._clock = clock
        self._level = float(limit)
        self._at = clock()

    def level(self) -> float:
        now = self._clock()
        self._level = min(self.limit, self._level + (now - self._at) * self.limit / _MINUTE)
        self._at = now
        return self._level

    def take(self, amount: float) -> None:
        self._level = min(self.limit, self.level() - amount)

    def wait(self) -> float:
        """Seconds until something is in it again; 0 where something is."""
        return max(0.0, (1 - self.level()) * _MINUTE / self.limit)

    def allowance(self) -> Allowance:
        level = self.level()
        resets = (self.limit - level) * _MINUTE / self.limit
        return Allowance(self.name, self.limit, max(0, math.floor(level)), round(resets, 3))


@dataclass(frozen=True, slots=True)
class Refusal:
    """A response may not begin. `retry_after` in seconds."""

    name: str
    limit: int
    retry_after: float


class Budget:
    """What one tenant may still use; see `server.dialects.base.Meter`. On the event loop only."""

    def __init__(self, requests: int | None, tokens: int | None, clock: Callable[[], float]) -> None:
        self._requests = None if requests is None else Bucket("requests", requests, clock)
        self._tokens = None if tokens is None else Bucket("tokens", tokens, clock)

    @property
    def _buckets(self) -> list[Bucket]:
        return [bucket for bucket in (self._requests, self._tokens) if bucket is not None]

    def refusal(self) -> Refusal | None:
        """Why no response may begin now; None where one may."""
        for bucket in self._buckets:
            if (wait := bucket.wait()) > 0:
                return Refusal(bucket.name, bucket.limit, wait)
        return None

    def opened(self) -> None:
        """A client was told of a response."""
        if self._requests is not None:
            self._requests.take(1)

    def closed(self, response: ResponseView) -> None:
        """It ended, and used what it says. One that was not let begin used nothing."""
        if response.status == "failed" and response.detail == EXCEEDED:
            if self._requests is not None:
                self._requests.take(-1)
        elif self._tokens is not None:
            self._tokens.take(response.input_tokens + response.output_tokens)

    def allowances(self) -> Sequence[Allowance]:
        return [bucket.allowance() for bucket in self._buckets]


class Limits:
    """The budgets of all tenants, made when first asked for, and anew where a tenant's limits have changed."""

    def __init__(
        self,
        requests: int | None = None,
        tokens: int | None = None,
        *,
        quota_of: QuotaOf | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`requests` and `tokens` a minute and tenant, each at least 1; None: any number. `quota_of`: what single
        tenants have instead, where there may be such."""
        everybody = Quota(requests=requests, tokens=tokens)
        self._quota_of = quota_of or (lambda tenant: everybody)
        self.any = quota_of is not None or bool(everybody.plain())
        """Whether there may be a limit at all."""
        self._clock = clock
        self._budgets: OrderedDict[str, tuple[tuple[int | None, int | None], Budget]] = OrderedDict()

    def __contains__(self, tenant: object) -> bool:
        return tenant in self._budgets

    def of(self, tenant: str) -> Budget:
        """The budget of a tenant, and of all that come without a key ("")."""
        quota = self._quota_of(tenant)
        wanted = (quota.requests, quota.tokens)
        limits, budget = self._budgets.get(tenant, (None, None))
        if budget is None or limits != wanted:
            budget = Budget(*wanted, self._clock)
            self._budgets[tenant] = (wanted, budget)
            if len(self._budgets) > TENANTS_MOST:
                self._budgets.popitem(last=False)
        self._budgets.move_to_end(tenant)
        return budget

    def forget(self, tenant: str) -> None:
        self._budgets.pop(tenant, None)


class LimitedEngine:
    """`EnginePort` that lets a response begin only where the session's tenant has something left.

    An engine that owns its turns begins its responses itself, and is not asked here.
    """

    def __init__(self, engine: EnginePort, limits: Limits, counters: Counters) -> None:
        self._engine = engine
        self._limits = limits
        self._counters = counters
        self._sessions: dict[str, tuple[Budget, Emit]] = {}

    @property
    def capabilities(self) -> EngineCapabilities:
        return self._engine.capabilities

    def open(self, fence: Fence, config: SessionConfig, emit: Emit) -> None:
        self._engine.open(fence, config, emit)
        self._sessions[fence.session] = (self._limits.of(config.tenant), emit)

    def append(self, session: str, start: Ticks, pcm: bytes, rate: int) -> None:
        self._engine.append(session, start, pcm, rate)

    def start(self, request: StartResponse) -> None:
        budget, emit = self._sessions[request.fence.session]
        refusal = budget.refusal()
        if refusal is None:
            self._engine.start(request)
            return
        self._counters.add(REFUSED)
        message = (
            f"the limit of {refusal.limit} {refusal.name} a minute is reached for this tenant; try again in "
            f"{refusal.retry_after:.1f} s"
        )
        emit(EngineFailed(request.fence, request.response, EXCEEDED, message))

    def grant(self, request: GrantCredit) -> None:
        self._engine.grant(request)

    def cancel(self, fence: Fence, response: str) -> None:
        self._engine.cancel(fence, response)

    def advance(self, fence: Fence) -> None:
        self._engine.advance(fence)

    def see(self, session: str, image: ImageRef, data: bytes) -> None:
        if isinstance(self._engine, Sees):
            self._engine.see(session, image, data)

    def rewind(self, fence: Fence, heard: Ticks) -> None:
        if isinstance(self._engine, Rewinds):
            self._engine.rewind(fence, heard)
        else:
            self._engine.advance(fence)

    def tell(self, fence: Fence, entries: tuple[ContextEntry, ...], anew: bool) -> None:
        if isinstance(self._engine, Told):
            self._engine.tell(fence, entries, anew)

    def origin(self, session: str) -> Mapping[str, Plain]:
        return self._engine.origin(session) if isinstance(self._engine, Repeats) else {}

    def held(self, tenant: str) -> Mapping[str, int]:
        return self._engine.held(tenant) if isinstance(self._engine, Retains) else {}

    def forget(self, tenant: str) -> None:
        if isinstance(self._engine, Retains):
            self._engine.forget(tenant)

    def close(self, session: str) -> None:
        self._sessions.pop(session, None)
        self._engine.close(session)
