"""Several workers as one engine: one per device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from sessions.core.config import SessionConfig
from sessions.core.effects import GrantCredit, StartResponse
from sessions.core.fence import Fence
from sessions.core.records import Plain
from sessions.core.timeline import Ticks
from sessions.ports import Busy, Emit, EngineCapabilities

from .engine import WorkerEngine
from .errors import WorkerChanged
from .supervisor import Vitals


class WorkerPool:
    """`EnginePort` over `workers`; a session stays where it began. A new one goes where most room is.

    All workers must run the same model: raises WorkerChanged otherwise. It owns them and ends them.
    """

    def __init__(self, workers: Sequence[WorkerEngine]) -> None:
        if not workers:
            raise ValueError("a pool needs at least one worker")
        self._workers = tuple(workers)
        self.capabilities: EngineCapabilities = workers[0].capabilities
        if any(worker.capabilities != self.capabilities for worker in workers):
            self.shutdown()
            raise WorkerChanged("the workers run different models; give all devices the same one")
        self._where: dict[str, WorkerEngine] = {}

    @property
    def counters(self) -> Mapping[str, int]:
        total: Counter[str] = Counter()
        for worker in self._workers:
            total.update(worker.counters)
        return total

    @property
    def active(self) -> int:
        return sum(worker.active for worker in self._workers)

    @property
    def vitals(self) -> tuple[Vitals, ...]:
        return tuple(worker.vitals for worker in self._workers)

    def open(self, fence: Fence, config: SessionConfig, emit: Emit) -> None:
        if (known := self._where.get(fence.session)) is not None:
            known.open(fence, config, emit)
            return
        soonest: Busy | None = None
        for worker in sorted(self._workers, key=lambda one: -one.room):
            try:
                worker.open(fence, config, emit)
            except Busy as busy:
                soonest = min((busy, soonest or busy), key=lambda one: one.retry_after)
                continue
            self._where[fence.session] = worker
            return
        raise soonest or Busy("there is no worker", 1.0)

    def append(self, session: str, start: Ticks, pcm: bytes, rate: int) -> None:
        if (worker := self._where.get(session)) is not None:
            worker.append(session, start, pcm, rate)

    def start(self, request: StartResponse) -> None:
        if (worker := self._where.get(request.fence.session)) is not None:
            worker.start(request)

    def grant(self, request: GrantCredit) -> None:
        """They speak in real time and need no credit."""

    def cancel(self, fence: Fence, response: str) -> None:
        """What ends a stretch of speech is the epoch."""

    def advance(self, fence: Fence) -> None:
        if (worker := self._where.get(fence.session)) is not None:
            worker.advance(fence)

    def rewind(self, fence: Fence, heard: Ticks) -> None:
        if (worker := self._where.get(fence.session)) is not None:
            worker.rewind(fence, heard)

    def origin(self, session: str) -> Mapping[str, Plain]:
        """See `sessions.ports.Repeats`; all workers draw alike."""
        return self._workers[0].origin(session)

    def close(self, session: str) -> None:
        if (worker := self._where.pop(session, None)) is not None:
            worker.close(session)

    def shutdown(self) -> None:
        """Close every session and end all workers. Idempotent."""
        for worker in self._workers:
            worker.shutdown()
