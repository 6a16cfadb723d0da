"""A worker's engine that needs no model: it answers each frame at once, and its samples say which process made them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

import numpy as np

from codec.identity import CodecIdentity
from codec.mimi.errors import CheckpointTruncated
from models.envelope import Versions
from models.families.moshi.errors import OutOfMemory
from models.workers.host import Built
from sessions.core.config import SessionConfig
from sessions.core.effects import GrantCredit, StartResponse
from sessions.core.events import DuplexFrame, EngineFailed
from sessions.core.fence import Fence
from sessions.core.timeline import Ticks, from_ms
from sessions.ports import Busy, Emit, EngineCapabilities

RATE = 24_000
HOP = 1920
FRAME = from_ms(80)
VERSIONS = Versions("puppet-1", "", CodecIdentity("mimi", "1", RATE, HOP, 8, 2048))
CAPABILITIES = EngineCapabilities("engine", "engine", "audio", RATE, "rewind", tools=False)


def voice(pid: int) -> int:
    """The sample that a process of that number says."""
    return 1000 + pid % 30_000


class Puppet:
    """`FramedEngine`. Loudness is what makes it do something: a frame that begins with one of these samples."""

    FAIL = 11
    """The engine ends this session."""
    HANG = 12
    """Its ticks stand still from now on."""

    def __init__(self, slots: int = 2) -> None:
        self.capabilities = CAPABILITIES
        self.counters: Mapping[str, int] = {"steps": 0}
        self.slots = slots
        self.hop = HOP
        self.last_tick: float | None = None
        self.log: list[tuple[object, ...]] = []
        self._sessions: dict[str, tuple[Fence, Emit]] = {}

    def open(self, fence: Fence, config: SessionConfig, emit: Emit) -> None:
        if fence.session not in self._sessions and len(self._sessions) >= self.slots:
            raise Busy("no room", 1.0)
        self._sessions[fence.session] = (fence, emit)
        self.log.append(("open", fence))

    def append(self, session: str, start: Ticks, pcm: bytes, rate: int) -> None:
        fence, emit = self._sessions[session]
        samples = np.frombuffer(pcm, "<i2")
        self.log.append(("append", start, len(samples)))
        self.counters = {"steps": self.counters["steps"] + 1}
        if samples[0] == self.FAIL:
            del self._sessions[session]
            emit(EngineFailed(fence, "", "not_finite", "as asked"))
            return
        self.last_tick = time.monotonic() - (1000 if samples[0] == self.HANG else 0)
        answer = np.full(HOP, voice(os.getpid()), "<i2").tobytes()
        emit(DuplexFrame(fence, start, start + FRAME, True, " word"), answer)

    def start(self, request: StartResponse) -> None: ...

    def grant(self, request: GrantCredit) -> None: ...

    def cancel(self, fence: Fence, response: str) -> None: ...

    def advance(self, fence: Fence) -> None:
        self._sessions[fence.session] = (fence, self._sessions[fence.session][1])
        self.log.append(("advance", fence))

    def rewind(self, fence: Fence, heard: Ticks) -> None:
        self.advance(fence)
        self.log.append(("rewind", heard))

    def close(self, session: str) -> None:
        self._sessions.pop(session, None)
        self.last_tick = self.last_tick if self._sessions else None
        self.log.append(("close", session))

    def shutdown(self) -> None:
        self.log.append(("shutdown",))


Progress = Callable[[str, float], None]


def build(progress: Progress) -> Built:
    progress("painting its face", 0.5)
    return Built(Puppet(), VERSIONS)


def truncated(progress: Progress) -> Built:
    raise CheckpointTruncated("model.safetensors", "is cut off; download it again")


def too_large(progress: Progress) -> Built:
    raise OutOfMemory("model.safetensors", 16_000_000_000, 4, "cuda:0")


def foreign(progress: Progress) -> Built:
    raise KeyError("dim")


def dies(progress: Progress) -> Built:
    os._exit(3)


def never(progress: Progress) -> Built:
    progress("waiting for ever", 0.1)
    time.sleep(3600)
    raise AssertionError
