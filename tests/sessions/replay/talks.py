"""Recorded conversations for tests of what is done with recordings."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from sessions.core.config import SessionConfig, TurnConfig
from sessions.core.effects import StartResponse, Transcribe
from sessions.core.events import Close, EngineAudio, EngineWords, PlaybackReported, Transcript
from sessions.core.timeline import Word, from_ms
from sessions.handle import SessionHandle
from sessions.journal import Recorder
from sessions.manager import SessionManager
from sessions.ports import OutputFrame
from sessions.virtual_clock import VirtualClockLoop, run
from tests.sessions.fakes import CountingEngine, LoudnessPerception, NotebookCarrier

LOUD = b"\x00\x20" * 480
CONFIG = SessionConfig(transcribe_input=True, turns=TurnConfig())


async def microphone(handle: SessionHandle, *stretches: tuple[float, bool]) -> None:
    """Play 20 ms chunks in real time: (seconds, speaking) after each other."""
    for seconds, speaking in stretches:
        for _ in range(round(seconds * 50)):
            await asyncio.sleep(0.02)
            handle.audio(LOUD if speaking else bytes(960), 24_000)


def recorded(root: Path, scenario: Coroutine[Any, Any, None]) -> Path:
    """The folder of the one session that `scenario` records below `root`, on a virtual clock."""
    run(scenario)
    (folder,) = (path for path in root.iterdir() if path.is_dir())
    return folder


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

    return recorded(root, scenario())


def acknowledged(root: Path) -> Path:
    """The same on a carrier whose client reports what it has played, 150 ms late."""

    class Reporting(NotebookCarrier):
        handle: SessionHandle

        def admit(self, *frames: OutputFrame) -> None:
            super().admit(*frames)
            loop = asyncio.get_running_loop()
            for sent in frames:
                report = PlaybackReported(sent.response, sent.end)
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

    return recorded(root, scenario())


class StarvingEngine(CountingEngine):
    """Of its first answer it makes no more than `made` seconds, and never says that this was all."""

    made = 1.5

    def _speak(self, request: StartResponse) -> None:
        emit = self._emit[request.fence.session]
        if len(self.started) == 1:
            end = from_ms(self.made * 1000)
            emit(EngineWords(request.fence, request.response, (Word(" once", 0, end),)))
            emit(EngineAudio(request.fence, request.response, 0, end), bytes(end))
        else:
            super()._speak(request)


class SlowPerception(LoudnessPerception):
    """Its words take longer than anybody waits for them over the agent; what was cancelled it does not answer."""

    def __init__(self) -> None:
        super().__init__()
        self._cancelled: set[int] = set()

    def transcribe(self, session: str, request: Transcribe) -> None:
        answer = Transcript(request.request, request.start, request.end, self.text)
        asyncio.get_running_loop().call_later(1.2, self._answer, session, answer)

    def _answer(self, session: str, answer: Transcript) -> None:
        if answer.request not in self._cancelled:
            self._emit[session](answer)

    def cancel(self, session: str, request: int) -> None:
        self._cancelled.add(request)


def overloaded(root: Path) -> Path:
    """An interruption on a machine that has too much to do: every timer is late, words do not come in time, and the
    answer is interrupted when all that the engine had made of it has been sent long since."""

    async def busy() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualClockLoop)
        while True:
            await asyncio.sleep(0.27)
            loop.block(0.163)

    async def scenario() -> None:
        manager = SessionManager(StarvingEngine(seconds=4.0), SlowPerception(), recorder=Recorder(root))
        config = SessionConfig(transcribe_input=True, turns=TurnConfig(kind="semantic_vad"))
        handle = manager.open(NotebookCarrier(), config)
        other = asyncio.create_task(busy())
        await microphone(handle, (0.5, False), (1.0, True), (4.1, False), (1.0, True), (6.0, False))
        other.cancel()
        handle.post(Close("closed"))
        await handle.closed()
        await manager.close()

    return recorded(root, scenario())


MS = from_ms(1)
