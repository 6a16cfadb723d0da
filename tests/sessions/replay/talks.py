"""Recorded conversations for tests of what is done with recordings."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sessions.core.config import SessionConfig, TurnConfig
from sessions.core.events import Close, PlaybackReported
from sessions.core.timeline import from_ms
from sessions.handle import SessionHandle
from sessions.journal import Recorder
from sessions.manager import SessionManager
from sessions.virtual_clock import run
from tests.sessions.fakes import CountingEngine, LoudnessPerception, NotebookCarrier

LOUD = b"\x00\x20" * 480
CONFIG = SessionConfig(transcribe_input=True, turns=TurnConfig())


async def microphone(handle: SessionHandle, *stretches: tuple[float, bool]) -> None:
    """Play 20 ms chunks in real time: (seconds, speaking) after each other."""
    for seconds, speaking in stretches:
        for _ in range(round(seconds * 50)):
            await asyncio.sleep(0.02)
            handle.audio(LOUD if speaking else bytes(960), 24_000)


def interrupted(root: Path, config: SessionConfig = CONFIG, delay: float = 0.3, *, cough: bool = False) -> Path:
    """A question, an answer of 4 s that is interrupted (after a cough), the answer to that; returns its folder."""

    async def scenario() -> None:
        recorder = Recorder(root)
        manager = SessionManager(CountingEngine(seconds=4.0, delay=delay), LoudnessPerception(), recorder=recorder)
        handle = manager.open(NotebookCarrier(), config)
        await microphone(handle, (0.5, False), (1.0, True), (1.5, False))
        if cough:
            await microphone(handle, (0.1, True), (0.4, False))
        await microphone(handle, (0.5, True), (6.0, False))
        handle.post(Close("closed"))
        await handle.closed()
        await manager.close()

    run(scenario())
    (folder,) = (path for path in root.iterdir() if path.is_dir())
    return folder


def acknowledged(root: Path) -> Path:
    """The same on a carrier whose client reports what it has played, 150 ms late."""

    class Reporting(NotebookCarrier):
        handle: SessionHandle

        def admit(self, frame: object) -> None:
            super().admit(frame)  # type: ignore[arg-type]
            _, sent = self.frames[-1]
            report = PlaybackReported(sent.response, sent.end)
            loop = asyncio.get_running_loop()
            placed = sent.placed_at / 48_000 + (sent.end - sent.start) / 48_000
            loop.call_at(max(loop.time(), placed + 0.15), self.handle.post, report)

    async def scenario() -> None:
        manager = SessionManager(CountingEngine(seconds=4.0), LoudnessPerception(), recorder=Recorder(root))
        carrier = Reporting(acknowledged=True)
        carrier.handle = handle = manager.open(carrier, CONFIG)
        await microphone(handle, (0.5, False), (1.0, True), (1.5, False), (0.5, True), (6.0, False))
        handle.post(Close("closed"))
        await handle.closed()
        await manager.close()

    run(scenario())
    (folder,) = (path for path in root.iterdir() if path.is_dir())
    return folder


MS = from_ms(1)
