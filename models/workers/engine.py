"""`EnginePort` over a worker elsewhere: the sessions' end."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from models import owned_turns
from sessions.core.config import SessionConfig
from sessions.core.effects import GrantCredit, StartResponse
from sessions.core.events import DuplexFrame, EngineFailed
from sessions.core.fence import Fence
from sessions.core.records import Plain
from sessions.core.timeline import Ticks, ticks_per_sample
from sessions.ports import Busy, Emit, EngineCapabilities

from ..envelope import StaleFence, TransferRefused
from ..slots.framing import FrameCutter
from ..slots.table import Lease, SlotTable
from . import borders
from .link import Launch
from .messages import Advance, Beat, Chunk, Close, Frame, Note, Open, Rewind, Told
from .supervisor import Supervisor, Vitals, Watch

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Session:
    emit: Emit
    lease: Lease
    tenant: str
    cutter: FrameCutter
    gate: borders.Gate
    expected: Ticks | None = None
    """Where the agent's next frame should begin; None before its first."""
    speaking: bool = False


class WorkerEngine:
    """An engine whose model runs in a worker: the user's audio is cut into frames here, and frames come back.

    When the worker is lost, its sessions end with `EngineFailed("worker_lost")`, and until another one is ready `open`
    raises `Busy` at once. Nothing that a lost worker still said gets through.

    `counters`: those of the worker's last sign of life, those of `Supervisor`, and "input_gap_ticks", "frames_stale",
    "frames_refused", "frames_missing", "frames_dropped", "requests_unknown", "requests_stale", "sessions_lost".
    """

    def __init__(
        self,
        launch: Launch,
        *,
        watch: Watch | None = None,
        progress: Callable[[str, float], None] | None = None,
    ) -> None:
        """Starts the worker and waits until it is ready. Raises the error that it met while loading, or WorkerError."""
        self._lock = threading.RLock()
        self._idle = threading.Condition(self._lock)
        self._sessions: dict[str, _Session] = {}
        self._counters: Counter[str] = Counter()
        self._theirs: Mapping[str, int] = {}
        self._draining = False
        self._worker = Supervisor(launch, self._hear, self._lost, self._lock, watch=watch, progress=progress)
        ready = self._worker.start()
        self.capabilities: EngineCapabilities = ready.capabilities
        self._origin = ready.origin
        self._hop = ready.hop
        self._frame: Ticks = ready.hop * ticks_per_sample(ready.capabilities.output_rate)
        self._heard = borders.heard(ready.hop, ready.versions)
        self._said = borders.said(ready.hop, ready.versions)
        self._slots = SlotTable(ready.slots, tick=ready.hop / ready.capabilities.output_rate)

    # --- how it does -------------------------------------------------------------------------------------------------

    @property
    def counters(self) -> Mapping[str, int]:
        with self._lock:
            return Counter(self._theirs) + Counter(self._worker.counters) + self._counters

    @property
    def active(self) -> int:
        """Sessions that are open."""
        with self._lock:
            return len(self._sessions)

    @property
    def room(self) -> int:
        """Sessions that could be opened now."""
        with self._lock:
            return self._slots.capacity - len(self._sessions) if self._worker.ready and not self._draining else 0

    @property
    def vitals(self) -> Vitals:
        return self._worker.vitals

    # --- the port ----------------------------------------------------------------------------------------------------

    def open(self, fence: Fence, config: SessionConfig, emit: Emit) -> None:
        with self._lock:
            known = self._sessions.get(fence.session)
            if known is not None:
                if fence.order < known.gate.fence.order:
                    self._counters["requests_stale"] += 1
                    return
                known.emit = emit
                known.gate.advance(fence)
                self._worker.send(Open(fence, config))
                return
            if self._draining:
                raise Busy("this engine takes no more sessions; connect to another server", self._worker.retry_after)
            if not self._worker.ready:
                raise Busy("the model's process is being started again; try again soon", self._worker.retry_after)
            lease = self._slots.admit(time.monotonic())
            rate = self.capabilities.output_rate
            self._sessions[fence.session] = _Session(
                emit,
                lease,
                config.tenant,
                FrameCutter(rate, self._hop),
                borders.Gate(self._said, config.tenant, fence),
            )
            self._worker.send(Open(fence, config))

    def append(self, session: str, start: Ticks, pcm: bytes, rate: int) -> None:
        with self._lock:
            known = self._find(session)
            if known is None:
                return
            for frame in known.cutter.take(start, pcm, rate):
                envelope = borders.envelope(
                    self._heard, known.gate.fence, known.tenant, frame.start, frame.start + self._frame
                )
                self._worker.send(Chunk(envelope, frame.samples.tobytes()))
            if known.cutter.missing:
                self._counters["input_gap_ticks"] += known.cutter.missing

    def start(self, request: StartResponse) -> None:
        with self._lock:
            known = self._find(request.fence.session)
            if known is not None:
                known.emit(owned_turns.refused(request))

    def grant(self, request: GrantCredit) -> None:
        """It speaks in real time and needs no credit."""

    def cancel(self, fence: Fence, response: str) -> None:
        """Its responses are stretches of one endless track: what ends one is the epoch."""

    def advance(self, fence: Fence) -> None:
        with self._lock:
            if self._newer(fence):
                self._worker.send(Advance(fence))

    def rewind(self, fence: Fence, heard: Ticks) -> None:
        """A new epoch holds, and of what the agent said, nothing from `heard` on its track on was heard."""
        with self._lock:
            if self._newer(fence):
                self._worker.send(Rewind(fence, heard))

    def origin(self, session: str) -> Mapping[str, Plain]:
        """See `sessions.ports.Repeats`."""
        return {} if self._origin is None else self._origin.of(session)

    def close(self, session: str) -> None:
        with self._lock:
            known = self._remove(session)
            if known is not None:
                self._worker.forget(session)
                self._worker.send(Close(known.gate.fence))

    # --- its end -----------------------------------------------------------------------------------------------------

    def drain(self, within: float) -> int:
        """Take no more sessions, let those that are there finish for so many seconds, end the rest, stop the worker.

        Returns how many had to be ended; they get `EngineFailed("worker_drained")`. Blocks.
        """
        until = time.monotonic() + within
        with self._idle:
            self._draining = True
            while self._sessions and (left := until - time.monotonic()) > 0:
                self._idle.wait(left)
            rest = self._end_all("worker_drained", "the server lets go of this engine; open another session")
        self._worker.stop()
        return rest

    def shutdown(self) -> None:
        """Close every session and end the worker. Idempotent."""
        with self._lock:
            self._draining = True
            for session in list(self._sessions):
                self.close(session)
        self._worker.stop()

    # --- from the worker, with the lock held -------------------------------------------------------------------------

    def _hear(self, note: Note) -> None:
        match note:
            case Frame():
                self._frame_came(note)
            case Told(event):
                known = self._sessions.get(event.fence.session)
                if known is None or event.fence.incarnation != known.gate.fence.incarnation:
                    self._counters["requests_unknown"] += 1
                    return
                if isinstance(event, EngineFailed) and not event.response:
                    self._remove(event.fence.session)
                known.emit(event)
            case Beat(counters):
                self._theirs = counters

    def _frame_came(self, frame: Frame) -> None:
        given = frame.envelope
        known = self._sessions.get(given.request)
        if known is None:
            self._counters["frames_stale"] += 1
            return
        try:
            known.gate.admit(given, frame.pcm)
        except StaleFence:
            self._counters["frames_stale"] += 1
            return
        except TransferRefused as refused:
            self._counters["frames_refused"] += 1
            log.error("session %s ends: %s", given.request, refused)
            self.close(given.request)
            known.emit(EngineFailed(known.gate.fence, "", "transfer_refused", str(refused)))
            return
        self._fill(known, given.start)
        known.expected, known.speaking = given.end, frame.speaking
        known.emit(DuplexFrame(given.fence, given.start, given.end, frame.speaking, frame.text), frame.pcm)

    def _fill(self, known: _Session, until: Ticks) -> None:
        """Frames that were dropped on their way are a hole in what is said, and not its end."""
        while known.expected is not None and known.expected < until:
            start, end = known.expected, min(until, known.expected + self._frame)
            known.expected = end
            self._counters["frames_missing"] += 1
            silence = bytes((end - start) // ticks_per_sample(self.capabilities.output_rate) * 2)
            known.emit(DuplexFrame(known.gate.fence, start, end, known.speaking), silence)

    def _lost(self, reason: str) -> None:
        self._counters["sessions_lost"] += self._end_all(
            "worker_lost", f"the model's process ended ({reason}); open another session"
        )

    def _end_all(self, code: str, message: str) -> int:
        gone = list(self._sessions)
        for session in gone:
            known = self._remove(session)
            if known is not None:
                known.emit(EngineFailed(known.gate.fence, "", code, message))
        return len(gone)

    # --- small things ------------------------------------------------------------------------------------------------

    def _remove(self, session: str) -> _Session | None:
        known = self._sessions.pop(session, None)
        if known is not None:
            self._slots.release(known.lease, time.monotonic())
            self._idle.notify_all()
        return known

    def _newer(self, fence: Fence) -> bool:
        known = self._find(fence.session)
        if known is None:
            return False
        if fence.order < known.gate.fence.order:
            self._counters["requests_stale"] += 1
            return False
        known.gate.advance(fence)
        return True

    def _find(self, session: str) -> _Session | None:
        known = self._sessions.get(session)
        if known is None:
            self._counters["requests_unknown"] += 1
        return known


__all__ = ["WorkerEngine"]
