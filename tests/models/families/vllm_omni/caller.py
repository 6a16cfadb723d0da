"""A session at a remote engine whose user is a script: input at the pace of the test, frames kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from models.families.vllm_omni.engine import VllmOmniEngine
from models.families.vllm_omni.session import RemoteOptions
from models.remote.backoff import Backoff
from sessions.core.config import SessionConfig
from sessions.core.events import DuplexFrame, EngineFailed, EngineStage
from sessions.core.timeline import from_ms
from tests.models.families.hearing import PATIENCE, Ear, fence
from tests.peers.process import PeerProcess

RATE = 16_000
LOUD = (8000).to_bytes(2, "little")
QUIET = bytes(2)
STEP_MS = 80
QUICKLY = Backoff(first=0.01, longest=0.05, attempts=4)


def options(peer: PeerProcess, **changes: Any) -> RemoteOptions:
    # A peer that waits for a busy processor is not one that has fallen silent; whoever tests that says so.
    fields: dict[str, Any] = {"url": peer.ws, "model": "tone", "backoff": QUICKLY, "heartbeat": 0.1, "silence": 600.0}
    return RemoteOptions(**(fields | changes))


class Caller:
    """Feeds input faster than real time, in 80 ms steps. Each step lets the server's answer come."""

    def __init__(self, engine: VllmOmniEngine, session: str = "s") -> None:
        self.engine = engine
        self.session = session
        self.ear = Ear()
        self.at = 0
        self.fence = fence(session)
        engine.open(self.fence, SessionConfig(instructions="Be brief."), self.ear)

    def feed(self, sample: bytes, steps: int = 1) -> None:
        for _ in range(steps):
            self.engine.append(self.session, self.at, sample * (RATE * STEP_MS // 1000), RATE)
            self.at += from_ms(STEP_MS)

    def ask(self) -> None:
        """A second of speech, and the silence that ends it."""
        self.feed(LOUD, 13)
        self.feed(QUIET, 5)

    def until(self, reached: Callable[[], bool], what: str, pace: float = 0.01) -> None:
        """Go on in silence until `reached`."""
        deadline = time.monotonic() + PATIENCE
        while not reached():
            assert time.monotonic() < deadline, f"{what}: only {self.stages}, {self.engine.counters}"
            self.feed(QUIET)
            time.sleep(pace)

    def ready(self) -> None:
        self.ear.wait(lambda ear: "remote_ready" in self.stages)

    @property
    def frames(self) -> list[tuple[DuplexFrame, bytes]]:
        return [(event, pcm or b"") for event, pcm in list(self.ear.heard) if isinstance(event, DuplexFrame)]

    @property
    def said(self) -> list[tuple[DuplexFrame, bytes]]:
        return [(frame, pcm) for frame, pcm in self.frames if frame.speaking]

    @property
    def voiced(self) -> list[bytes]:
        """Frames that sound; where the server is late, silent ones lie in between."""
        return [pcm for _, pcm in self.said if any(pcm)]

    @property
    def text(self) -> str:
        return "".join(frame.text for frame, _ in self.frames)

    @property
    def stages(self) -> list[str]:
        return [stage.stage for stage in self.ear.events(EngineStage)]

    @property
    def failures(self) -> list[EngineFailed]:
        return self.ear.events(EngineFailed)

    @property
    def yielded(self) -> bool:
        """It has spoken, and is silent again."""
        frames = self.frames
        return bool(self.said) and not frames[-1][0].speaking
