"""Recorded conversations of any length, made on a virtual clock: the user asks, is answered, and cuts in."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sessions.core.config import SessionConfig
from sessions.core.events import Close
from sessions.handle import SessionHandle
from sessions.journal import Recorder
from sessions.manager import SessionManager
from sessions.virtual_clock import run
from tests.sessions.fakes import CountingEngine, LoudnessPerception, NotebookCarrier

LOUD = b"\x00\x20" * 480
QUIET = bytes(960)
ROUND = ((0.5, False), (1.0, True), (2.5, False), (0.5, True), (2.0, False), (1.0, True), (5.5, False))
"""Seconds, and whether the user speaks: a question, an interruption, another question that is answered whole."""
SECONDS = sum(seconds for seconds, _ in ROUND)


async def microphone(handle: SessionHandle, *stretches: tuple[float, bool]) -> None:
    """20 ms chunks in real time."""
    for seconds, speaking in stretches:
        for _ in range(round(seconds * 50)):
            await asyncio.sleep(0.02)
            handle.audio(LOUD if speaking else QUIET, 24_000)


def converse(root: Path, rounds: int = 1, tenant: str = "") -> Path:
    """Record `rounds` of `ROUND`; returns the folder of the session, which is below `root`."""
    before = set(root.iterdir()) if root.exists() else set()

    async def scenario() -> None:
        manager = SessionManager(CountingEngine(seconds=4.0), LoudnessPerception(), recorder=Recorder(root))
        handle = manager.open(NotebookCarrier(), SessionConfig(transcribe_input=True, tenant=tenant))
        for _ in range(rounds):
            await microphone(handle, *ROUND)
        handle.post(Close("gone"))
        await handle.closed()
        await manager.close()

    run(scenario())
    (folder,) = set(root.iterdir()) - before
    return folder
