"""The worker's end: an engine of frames, served to whoever sends it commands."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from sessions.core.events import DuplexFrame, EngineFailed, EngineStage, Event
from sessions.core.fence import Fence
from sessions.core.timeline import Ticks
from sessions.ports import Busy, Emit, EnginePort, Rewinds

from ..envelope import StaleFence, TransferRefused, Versions
from ..slots.origin import Origin
from . import borders
from .messages import Advance, Beat, Chunk, Close, Command, Frame, Note, Open, Ready, Rewind, Stop, Told

Tell = Callable[[Note], None]
"""Says something to the other end; never waits."""


class FramedEngine(EnginePort, Protocol):
    """An engine that answers each frame of the user with one of its own."""

    @property
    def counters(self) -> Mapping[str, int]: ...

    @property
    def slots(self) -> int:
        """Sessions that it can hold."""

    @property
    def hop(self) -> int:
        """Samples of a frame at its output rate."""

    @property
    def last_tick(self) -> float | None:
        """When it last ticked, by `time.monotonic`; None while nobody is there."""

    def shutdown(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Built:
    """An engine, by which versions it goes, and what it draws from where its sessions can be run again."""

    engine: FramedEngine
    versions: Versions
    origin: Origin | None = None

    def host(self) -> Host:
        return Host(self)

    def close(self) -> None:
        self.engine.shutdown()


@dataclass(slots=True)
class _Guest:
    gate: borders.Gate
    tell: Tell
    tenant: str


class Host:
    """Sessions of one engine. Commands come from one thread at a time and are checked before anything is done.

    `tell` of a session's newest `Open` is where its frames go. `counters`: those of the engine, and "frames_refused",
    "requests_stale", "requests_unknown".
    """

    def __init__(self, built: Built) -> None:
        self._engine = built.engine
        rate, hop = built.engine.capabilities.output_rate, built.engine.hop
        self.ready = Ready(built.engine.capabilities, built.engine.slots, hop, built.versions, origin=built.origin)
        self._heard = borders.heard(hop, built.versions)
        self._said = borders.said(hop, built.versions)
        self._rate = rate
        self._guests: dict[str, _Guest] = {}
        self._counters: Counter[str] = Counter()

    @property
    def sessions(self) -> int:
        return len(self._guests)

    def beat(self) -> Beat:
        """How it does."""
        ticked = self._engine.last_tick
        counters = Counter(self._engine.counters) + self._counters
        return Beat(dict(counters), None if ticked is None else time.monotonic() - ticked)

    def receive(self, command: Command, tell: Tell) -> None:
        """Do what is asked; what comes of it is told."""
        match command:
            case Open():
                self._open(command, tell)
            case Chunk():
                self._chunk(command.envelope.request, command)
            case Advance(fence):
                if self._newer(fence):
                    self._engine.advance(fence)
            case Rewind(fence, heard):
                if self._newer(fence):
                    self._rewind(fence, heard)
            case Close(fence):
                guest = self._guests.get(fence.session)
                if guest is not None and fence.incarnation >= guest.gate.fence.incarnation:
                    self._close(fence.session)
                elif guest is not None:
                    self._counters["requests_stale"] += 1
            case Stop():
                for session in list(self._guests):
                    self._close(session)

    def _open(self, command: Open, tell: Tell) -> None:
        fence, config = command.fence, command.config
        guest = self._guests.get(fence.session)
        if guest is not None:
            if fence.order < guest.gate.fence.order:
                self._counters["requests_stale"] += 1
                return
            if config.tenant != guest.tenant:
                self._counters["frames_refused"] += 1
                return
            guest.tell = tell
            guest.gate.advance(fence)
        else:
            guest = _Guest(borders.Gate(self._heard, config.tenant, fence), tell, config.tenant)
            self._guests[fence.session] = guest
        try:
            self._engine.open(fence, config, self._emit(guest))
        except Busy as busy:
            self._guests.pop(fence.session, None)
            tell(Told(EngineFailed(fence, "", "engine_busy", str(busy))))

    def _chunk(self, session: str, chunk: Chunk) -> None:
        guest = self._guests.get(session)
        if guest is None:
            self._counters["requests_unknown"] += 1
            return
        try:
            guest.gate.admit(chunk.envelope, chunk.pcm)
        except StaleFence:
            # Of a former owner, or an epoch too late: nobody's fault.
            self._counters["frames_refused"] += 1
            return
        except TransferRefused as refused:
            self._counters["frames_refused"] += 1
            self._close(session)
            guest.tell(Told(EngineFailed(guest.gate.fence, "", "transfer_refused", str(refused))))
            return
        self._engine.append(session, chunk.envelope.start, chunk.pcm, self._rate)

    def _rewind(self, fence: Fence, heard: Ticks) -> None:
        if isinstance(self._engine, Rewinds):
            self._engine.rewind(fence, heard)
        else:
            self._engine.advance(fence)

    def _newer(self, fence: Fence) -> bool:
        guest = self._guests.get(fence.session)
        if guest is None:
            self._counters["requests_unknown"] += 1
            return False
        if fence.order < guest.gate.fence.order:
            self._counters["requests_stale"] += 1
            return False
        guest.gate.advance(fence)
        return True

    def _close(self, session: str) -> None:
        self._guests.pop(session, None)
        self._engine.close(session)

    def _emit(self, guest: _Guest) -> Emit:
        def emit(event: Event, pcm: bytes | None = None) -> None:
            # From the engine's thread.
            if isinstance(event, DuplexFrame):
                envelope = borders.envelope(self._said, event.fence, guest.tenant, event.start, event.end)
                guest.tell(Frame(envelope, pcm or b"", event.speaking, event.text))
            elif isinstance(event, EngineFailed | EngineStage):
                guest.tell(Told(event))
                session = event.fence.session
                if isinstance(event, EngineFailed) and not event.response and self._guests.get(session) is guest:
                    # The engine has ended it: what still comes for it belongs to nobody.
                    del self._guests[session]

        return emit


__all__ = ["Built", "FramedEngine", "Host", "Tell"]
