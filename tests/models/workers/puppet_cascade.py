"""A cascade that needs no model: its samples say which process made them, and its transcripts how much it had heard."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

from models.workers.cascade_host import Cascade
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
from sessions.core.timeline import Ticks, Word, from_ms, ticks_per_sample
from sessions.ports import Busy, Emit, EngineCapabilities, PerceptionCapabilities
from tests.models.workers.puppet import voice

RATE = 24_000
PIECE = from_ms(100)
SLOTS = 2
SPEAKS = EngineCapabilities("core", "core", "text", RATE, "annotate", tools=False)
HEARS = PerceptionCapabilities(from_ms(20), ("en",), True, True)


class Mouth:
    """Says one piece of each response at once and the rest when it gets credit. "wait": not even that."""

    capabilities = SPEAKS

    def __init__(self) -> None:
        self._sessions: dict[str, tuple[Fence, Emit]] = {}
        self._asked: dict[str, StartResponse] = {}
        self.forgotten: list[str] = []

    def forget(self, tenant: str) -> None:
        self.forgotten.append(tenant)

    def open(self, fence: Fence, config: SessionConfig, emit: Emit) -> None:
        if fence.session not in self._sessions and len(self._sessions) >= SLOTS:
            raise Busy("no room", 1.0)
        self._sessions[fence.session] = (fence, emit)

    def append(self, session: str, start: Ticks, pcm: bytes, rate: int) -> None: ...

    def start(self, request: StartResponse) -> None:
        self._asked[request.response] = request
        if request.instructions != "wait":
            self._say(request, 0)

    def _say(self, request: StartResponse, start: Ticks) -> None:
        _, emit = self._sessions[request.fence.session]
        pcm = np.full(PIECE // ticks_per_sample(RATE), voice(os.getpid()), "<i2").tobytes()
        emit(EngineWords(request.fence, request.response, (Word(f" at{start}", start, start + PIECE),)))
        emit(EngineAudio(request.fence, request.response, start, start + PIECE), pcm)

    def grant(self, request: GrantCredit) -> None:
        asked = self._asked.pop(request.response)
        self._say(asked, 0 if asked.instructions == "wait" else PIECE)
        _, emit = self._sessions[request.fence.session]
        emit(EngineDone(request.fence, request.response))

    def cancel(self, fence: Fence, response: str) -> None:
        self._asked.pop(response, None)

    def advance(self, fence: Fence) -> None:
        if fence.session == "sess_broken":
            raise ValueError("it is broken")

    def close(self, session: str) -> None:
        self._sessions.pop(session, None)


class Ear:
    """Answers with the process and the ticks of the asked stretch that it has heard; a look at an utterance never."""

    capabilities = HEARS

    def __init__(self) -> None:
        self._emit: dict[str, Emit] = {}
        self._heard: dict[str, list[tuple[Ticks, Ticks]]] = {}

    def open(self, fence: Fence, request: OpenPerception, emit: Emit) -> None:
        self._emit[fence.session] = emit
        self._heard.setdefault(fence.session, [])

    def feed(self, session: str, start: Ticks, pcm: bytes, rate: int) -> None:
        end = start + len(pcm) // 2 * ticks_per_sample(rate)
        self._heard[session].append((start, end))
        self._emit[session](SpeechProbability(start, end, 0.9))

    def play(self, session: str, at: Ticks, pcm: bytes, rate: int) -> None: ...

    def hush(self, session: str, at: Ticks) -> None: ...

    def transcribe(self, session: str, request: Transcribe) -> None:
        heard = sum(end - start for start, end in self._heard[session] if request.start <= start and end <= request.end)
        if request.final:
            text = f"{os.getpid()} {heard}"
            self._emit[session](Transcript(request.request, request.start, request.end, text))

    def assess(self, session: str, request: AssessTurn) -> None:
        self._emit[session](EndOfTurnProbability(request.request, request.at, 0.9))

    def cancel(self, session: str, request: int) -> None: ...

    def forget(self, session: str, before: Ticks) -> None: ...

    def close(self, session: str) -> None:
        self._emit.pop(session, None)
        self._heard.pop(session, None)


def build(progress: Callable[[str, float], None]) -> Cascade:
    progress("painting its face", 1.0)
    return Cascade(Mouth(), Ear(), SLOTS, lambda: None, version="puppets")


def build_for(settings: object, slots: int, progress: Callable[[str, float], None]) -> Cascade:
    """As `server.cascade_loading.build`, for any settings."""
    return Cascade(Mouth(), Ear(), slots, lambda: None, version="puppets")
