"""In-process peers for tests of the manager: they answer through `emit`, on the loop, after a delay."""

from __future__ import annotations

import asyncio

from sessions.core.config import SessionConfig
from sessions.core.effects import AssessTurn, GrantCredit, OpenPerception, StartResponse, Transcribe
from sessions.core.events import (
    EndOfTurnProbability,
    EngineAudio,
    EngineDone,
    EngineWords,
    SpeechProbability,
    Transcript,
)
from sessions.core.fence import Fence
from sessions.core.notices import Notice
from sessions.core.timeline import Ticks, Word, from_ms
from sessions.ports import (
    Busy,
    CarrierCapabilities,
    Emit,
    EngineCapabilities,
    OutputFrame,
    PerceptionCapabilities,
)
from sessions.tracks import ticks_of


class LoudnessPerception:
    """Speech is what is not silent; its words are always `text`."""

    capabilities = PerceptionCapabilities(from_ms(20), ("en",), True, True)

    def __init__(self, text: str = "what is the time") -> None:
        self.text = text
        self.fed: dict[str, list[tuple[Ticks, bytes, int]]] = {}
        self.closed: list[str] = []
        self.played: list[tuple[Ticks, int]] = []
        self._emit: dict[str, Emit] = {}

    def open(self, fence: Fence, request: OpenPerception, emit: Emit) -> None:
        self._emit[fence.session] = emit
        self.fed.setdefault(fence.session, [])

    def feed(self, session: str, start: Ticks, pcm: bytes, rate: int) -> None:
        self.fed[session].append((start, pcm, rate))
        self._emit[session](SpeechProbability(start, start + ticks_of(pcm, rate), 0.9 if any(pcm) else 0.02))

    def transcribe(self, session: str, request: Transcribe) -> None:
        answer = Transcript(request.request, request.start, request.end, self.text)
        asyncio.get_running_loop().call_later(0.2, self._emit[session], answer)

    def assess(self, session: str, request: AssessTurn) -> None:
        answer = EndOfTurnProbability(request.request, request.at, 0.9)
        asyncio.get_running_loop().call_later(0.1, self._emit[session], answer)

    def cancel(self, session: str, request: int) -> None: ...

    def play(self, session: str, at: Ticks, pcm: bytes, rate: int) -> None:
        self.played.append((at, len(pcm)))

    def hush(self, session: str, at: Ticks) -> None:
        self.played.append((at, 0))

    def forget(self, session: str, before: Ticks) -> None: ...

    def close(self, session: str) -> None:
        self.closed.append(session)


class CountingEngine:
    """Speaks `seconds` of audio whose samples count up, in pieces of 100 ms, after `delay`."""

    capabilities = EngineCapabilities("core", "core", "text", 24_000, "annotate", False)

    def __init__(self, seconds: float = 2.0, delay: float = 0.3, room: int = 100) -> None:
        self.seconds = seconds
        self.delay = delay
        self.room = room
        self.opened: list[str] = []
        self.started: list[StartResponse] = []
        self.cancelled: list[str] = []
        self.closed: list[str] = []
        self._emit: dict[str, Emit] = {}

    def open(self, fence: Fence, config: SessionConfig, emit: Emit) -> None:
        if len(self._emit) >= self.room:
            raise Busy("no room", 1.0)
        self.opened.append(fence.session)
        self._emit[fence.session] = emit

    def append(self, session: str, start: Ticks, pcm: bytes, rate: int) -> None: ...

    def start(self, request: StartResponse) -> None:
        self.started.append(request)
        asyncio.get_running_loop().call_later(self.delay, self._speak, request)

    def _speak(self, request: StartResponse) -> None:
        emit = self._emit.get(request.fence.session)
        if emit is None:
            return
        end = from_ms(self.seconds * 1000)
        words = tuple(Word(f" w{i}", i * 9600, (i + 1) * 9600) for i in range(end // 9600))
        emit(EngineWords(request.fence, request.response, words))
        for start in range(0, end, from_ms(100)):
            stop = min(end, start + from_ms(100))
            pcm = b"".join((i // 2 % 32768).to_bytes(2, "little") for i in range(start, stop, 2))
            emit(EngineAudio(request.fence, request.response, start, stop), pcm)
        emit(EngineDone(request.fence, request.response))

    def grant(self, request: GrantCredit) -> None: ...

    def cancel(self, fence: Fence, response: str) -> None:
        self.cancelled.append(response)

    def advance(self, fence: Fence) -> None: ...

    def close(self, session: str) -> None:
        self.closed.append(session)
        self._emit.pop(session, None)


class NotebookCarrier:
    """Writes down what it is given, with the loop's time."""

    def __init__(self, acknowledged: bool = False, paced: bool = False) -> None:
        self.capabilities = CarrierCapabilities(acknowledged, False, paced)
        self.frames: list[tuple[float, OutputFrame]] = []
        self.notices: list[Notice] = []
        self.calls: list[str] = []
        self.ended: str | None = None

    def admit(self, *frames: OutputFrame) -> None:
        self.frames += ((asyncio.get_running_loop().time(), frame) for frame in frames)

    def hold(self) -> None:
        self.calls.append("hold")

    def resume(self) -> None:
        self.calls.append("resume")

    def flush(self, fence: Fence) -> None:
        self.calls.append(f"flush {fence.epoch}")

    def notify(self, notice: Notice) -> None:
        self.notices.append(notice)

    def end(self, reason: str) -> None:
        self.ended = reason
