"""How workers do, for whoever asks the server."""

from __future__ import annotations

from dataclasses import asdict

from sessions.ports import EnginePort

from .cascade import CascadeEngine
from .engine import WorkerEngine
from .pool import WorkerPool


def reports(engine: EnginePort) -> list[dict[str, object]]:
    """One report for each worker of `engine`, as `Vitals`; none for an engine in this process."""
    if isinstance(engine, WorkerEngine):
        return [asdict(engine.vitals)]
    return [asdict(vitals) for vitals in engine.vitals] if isinstance(engine, WorkerPool | CascadeEngine) else []
