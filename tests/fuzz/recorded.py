"""A short recording made by the product itself, to be damaged."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sessions.core.config import SessionConfig, TurnConfig
from sessions.core.events import Close
from sessions.journal import Recorder
from sessions.manager import SessionManager
from sessions.virtual_clock import run
from tests.sessions.fakes import CountingEngine, LoudnessPerception, NotebookCarrier


def record(folder: Path) -> None:
    """Record a short question and a shorter answer as `folder`: some of everything, and little to read each time."""

    async def scene() -> str:
        recorder = Recorder(folder.parent)
        manager = SessionManager(CountingEngine(seconds=0.1), LoudnessPerception(), recorder=recorder)
        handle = manager.open(NotebookCarrier(), SessionConfig(turns=TurnConfig(silence_ms=100)))
        for frame in range(14):
            handle.audio((b"\x00\x20" if 0 < frame < 6 else b"\x00\x00") * 480, 24_000)
            await asyncio.sleep(0.02)
        await asyncio.sleep(1.0)
        handle.post(Close())
        await handle.closed()
        await manager.close()
        return handle.session

    (folder.parent / run(scene())).rename(folder)
