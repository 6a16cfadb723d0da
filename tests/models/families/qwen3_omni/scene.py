"""An engine that is stepped by hand, with what it emitted; and media made on the spot."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import av
import numpy as np

from models.families.qwen3_omni import tiny
from models.families.qwen3_omni.engine import OmniEngine
from models.families.qwen3_omni.omni import Omni
from sessions.core.config import SessionConfig
from sessions.core.context import ContextEntry
from sessions.core.effects import StartResponse
from sessions.core.events import EngineAudio, EngineDraft, Event
from sessions.core.fence import Fence

PLENTY = 120 * 48_000


def cold(omni: Omni) -> Omni:
    """The same, always taking the likeliest code."""
    return replace(omni, rules=replace(omni.rules, code_temperature=0.0, residual_temperature=0.0))


def user(text: str) -> ContextEntry:
    return ContextEntry("user", "message", text)


def png(width: int, height: int, seed: int = 0) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)
    encoder = av.CodecContext.create("png", "w")
    encoder.width, encoder.height, encoder.pix_fmt, encoder.time_base = width, height, "rgb24", Fraction(1, 25)
    frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
    return b"".join(bytes(packet) for packet in (*encoder.encode(frame), *encoder.encode(None)))


class Scene:
    """`events[session]`: (event, pcm) in order."""

    def __init__(self, omni: Omni | None = None, sessions: int = 3) -> None:
        self.engine = OmniEngine(omni or tiny.random(), max_sessions=sessions, worker=False)
        self.events: dict[str, list[tuple[Event, bytes | None]]] = {}
        self.fences: dict[str, Fence] = {}

    def open(self, session: str, tenant: str = "") -> None:
        kept = self.events[session] = []
        self.fences[session] = Fence(session, 1, 0)

        def emit(event: Event, pcm: bytes | None = None) -> None:
            kept.append((event, pcm))

        self.engine.open(self.fences[session], SessionConfig(tenant=tenant), emit)

    def ask(
        self,
        session: str,
        response: str,
        *context: ContextEntry,
        modality: str = "audio",
        temperature: float = 0.8,
        credit: int = PLENTY,
        limit: int | None = None,
    ) -> None:
        self.engine.start(
            StartResponse(
                self.fences[session],
                response,
                context,
                "be brief",
                "text" if modality == "text" else "audio",
                "ember",
                1.0,
                (),
                "auto",
                limit,
                temperature,
                credit,
            )
        )

    def run(self) -> int:
        """Step until nothing is left; how many steps that took."""
        steps = 0
        while self.engine.step():
            steps += 1
        return steps

    def of(self, session: str, kind: type) -> list[Event]:
        return [event for event, _ in self.events[session] if isinstance(event, kind)]

    def text(self, session: str) -> str:
        return "".join(event.text for event in self.of(session, EngineDraft) if isinstance(event, EngineDraft))

    def pcm(self, session: str) -> bytes:
        return b"".join(pcm for event, pcm in self.events[session] if isinstance(event, EngineAudio) and pcm)
