"""The worker's end of a cascade: perception and an engine that answers requests, served to whoever calls them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sessions.core.events import EngineFailed, Event
from sessions.core.fence import Fence
from sessions.ports import Busy, Emit, EnginePort, PerceptionPort

from ..envelope import Versions
from .messages import Beat, Call, Command, Note, Ready, Said, Side, Stop

log = logging.getLogger(__name__)

METHODS: Final[Mapping[Side, frozenset[str]]] = {
    "engine": frozenset({"start", "grant", "cancel", "advance", "close", "forget"}),
    "perception": frozenset({"feed", "play", "hush", "transcribe", "assess", "cancel", "forget", "close"}),
}
"""What may be called besides `open`."""


def _nothing() -> Mapping[str, int]:
    return {}


@dataclass(frozen=True, slots=True)
class Cascade:
    """Both ports of a worker, loaded. `slots`: sessions that it can hold; `stop` ends their threads."""

    engine: EnginePort
    perception: PerceptionPort
    slots: int
    stop: Callable[[], None]
    version: str = ""
    counters: Callable[[], Mapping[str, int]] = field(default=_nothing)

    def host(self) -> CascadeHost:
        return CascadeHost(self)

    def close(self) -> None:
        self.stop()


class CascadeHost:
    """Calls come from one thread at a time; what the ports emit comes from any. `counters`: "calls_failed",
    "calls_unknown"."""

    def __init__(self, cascade: Cascade) -> None:
        self._engine, self._perception = cascade.engine, cascade.perception
        self._ports: Mapping[Side, object] = {"engine": cascade.engine, "perception": cascade.perception}
        self._theirs = cascade.counters
        self._open: dict[Side, set[str]] = {"engine": set(), "perception": set()}
        self._counters: Counter[str] = Counter()
        versions = Versions(model=cascade.version)
        self.ready = Ready(
            cascade.engine.capabilities, cascade.slots, 0, versions, perception=cascade.perception.capabilities
        )

    def beat(self) -> Beat:
        """How it does. Nothing ticks here: each port sees for itself that a request is answered."""
        return Beat(dict(Counter(self._theirs()) + self._counters), None)

    def receive(self, command: Command, tell: Callable[[Note], None]) -> None:
        """Do what is called for. What is wrong with one call harms no other."""
        if isinstance(command, Stop):
            for side, sessions in self._open.items():
                for session in list(sessions):
                    self._call(Call(side, "close", (session,)))
        elif not isinstance(command, Call):
            self._counters["calls_unknown"] += 1
        elif command.method == "open":
            self._begin(command, tell)
        else:
            self._call(command)

    def _begin(self, call: Call, tell: Callable[[Note], None]) -> None:
        fence = call.arguments[0]
        if not isinstance(fence, Fence):
            self._counters["calls_unknown"] += 1
            return
        side, session, placing = call.side, fence.session, call.placing

        def emit(event: Event, pcm: bytes | None = None) -> None:
            # Samples that know their codes are samples from here on: what they refer to stays in this process.
            tell(Said(side, session, placing, event, None if pcm is None else bytes(pcm)))

        try:
            self._port_open(call, emit)
        except Busy as busy:
            emit(EngineFailed(fence, "", "engine_busy", str(busy)))
        else:
            self._open[side].add(session)

    def _port_open(self, call: Call, emit: Emit) -> None:
        open_port = getattr(self._ports[call.side], "open")  # noqa: B009 - of either port
        open_port(*call.arguments, emit)

    def _call(self, call: Call) -> None:
        if call.method not in METHODS[call.side]:
            self._counters["calls_unknown"] += 1
            return
        try:
            getattr(self._ports[call.side], call.method)(*call.arguments)
        except Exception:
            log.exception("%s.%s failed", call.side, call.method)
            self._counters["calls_failed"] += 1
        if call.method == "close":
            self._open[call.side].discard(str(call.arguments[0]))


__all__ = ["METHODS", "Cascade", "CascadeHost"]
