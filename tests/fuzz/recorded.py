"""A short recording made by the product itself, to be damaged."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sessions.core.config import SessionConfig
from sessions.core.events import Close, ResponseCreate
from sessions.journal import Recorder
from sessions.manager import SessionManager
from sessions.virtual_clock import run
from tests.sessions.fakes import CountingEngine, LoudnessPerception, NotebookCarrier


def record(folder: Path) -> None:
    """Record a session of two seconds as `folder`."""

    async def scene() -> str:
        recorder = Recorder(folder.parent)
        manager = SessionManager(CountingEngine(seconds=0.5), LoudnessPerception(), recorder=recorder)
        handle = manager.open(NotebookCarrier(), SessionConfig())
        for _ in range(20):
            handle.audio(b"\x00\x20" * 480, 24_000)
            await asyncio.sleep(0.02)
        handle.post(ResponseCreate())
        await asyncio.sleep(1.5)
        handle.post(Close())
        await handle.closed()
        await manager.close()
        return handle.session

    (folder.parent / run(scene())).rename(folder)
