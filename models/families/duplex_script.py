"""The scripted duplex engine: owns its turns and answers every 80 ms of input with 80 ms of output.

It has the shape of a native duplex model (one output track on the input clock, silence or speech in every frame, the
model itself deciding when to speak and when to yield) and needs no model.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from models import owned_turns
from sessions.core.config import SessionConfig
from sessions.core.effects import GrantCredit, StartResponse
from sessions.core.events import DuplexFrame
from sessions.core.fence import Fence
from sessions.core.timeline import Ticks, from_ms, ticks_per_sample
from sessions.ports import Busy, Emit, EngineCapabilities

from .script import RATE, PreparedReply

FRAME: Ticks = from_ms(80)
_FRAME_BYTES = FRAME // ticks_per_sample(RATE) * 2
_SILENCE = bytes(_FRAME_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplexManners:
    """When the script speaks and yields. Frames are 80 ms; `loud` is an RMS amplitude as a fraction of full scale."""

    loud: float = 0.01
    speech_frames: int = 2
    """Loud frames that make an utterance worth an answer."""
    silence_frames: int = 6
    """Quiet frames after it, before the answer begins."""
    yield_frames: int = 3
    """Loud frames in a row, over its own speech, at which it falls silent."""


class _Session:
    """One conversation, stepped frame by frame."""

    def __init__(self, fence: Fence, emit: Emit, replies: Sequence[PreparedReply], manners: DuplexManners) -> None:
        self.fence = fence
        self.emit = emit
        self.lock = threading.Lock()
        self._replies = replies
        self._manners = manners
        self._buffer = bytearray()
        self._rate = 0
        self._at: Ticks | None = None
        self._next = 0
        self._loud = 0
        self._in_a_row = 0
        self._quiet = 0
        self._speaking: PreparedReply | None = None
        self._said = 0
        self._delay = 0

    def append(self, start: Ticks, pcm: bytes, rate: int) -> int:
        """Take input and emit a frame for every 80 ms; returns the ticks that were missing before it."""
        tick = ticks_per_sample(rate)
        missing = 0
        if self._at is None:
            self._at = start
        elif rate != self._rate:
            # What is left of a frame is heard at its new rate as silence of the same length.
            self._buffer = bytearray(len(self._buffer) // 2 * ticks_per_sample(self._rate) // tick * 2)
        self._rate = rate
        expected = self._at + len(self._buffer) // 2 * tick
        if start > expected:
            missing = start - expected
            self._buffer += bytes(missing // tick * 2)
        self._buffer += pcm[max(0, expected - start) // tick * 2 :]
        size = FRAME // tick * 2
        while len(self._buffer) >= size:
            frame = bytes(self._buffer[:size])
            del self._buffer[:size]
            self._step(frame)
        return missing

    def hush(self) -> None:
        """Yield at the next frame."""
        self._speaking = None

    def _step(self, heard: bytes) -> None:
        at = self._at or 0
        self._at = at + FRAME
        self._listen(heard)
        speaking, pcm, text = self._speak()
        self.emit(DuplexFrame(self.fence, at, at + FRAME, speaking, text), pcm)

    def _listen(self, heard: bytes) -> None:
        samples = np.frombuffer(heard, "<i2").astype(np.float32)
        if float(np.sqrt(np.mean(samples * samples))) >= self._manners.loud * 32768:
            self._loud += 1
            self._in_a_row += 1
            self._quiet = 0
        else:
            self._in_a_row = 0
            self._quiet += 1
        if self._speaking is not None:
            if self._in_a_row >= self._manners.yield_frames:
                self._speaking = None
        elif self._loud >= self._manners.speech_frames and self._quiet >= self._manners.silence_frames:
            self._speaking = self._replies[self._next % len(self._replies)]
            self._delay = -(-from_ms(self._speaking.delay_ms) // FRAME)
            self._next += 1
            self._said = 0
            self._loud = 0

    def _speak(self) -> tuple[bool, bytes, str]:
        reply = self._speaking
        if reply is None:
            return False, _SILENCE, ""
        if self._delay:
            self._delay -= 1
            return False, _SILENCE, ""
        begin, end = self._said, self._said + _FRAME_BYTES
        self._said = end
        if end >= len(reply.pcm):
            self._speaking = None
            # What was loud while it spoke was no utterance of its own.
            self._loud = self._in_a_row
        first, last = (place // 2 * ticks_per_sample(RATE) for place in (begin, end))
        text = "".join(word.text for word in reply.words if first <= word.start < last)
        return True, reply.pcm[begin:end].ljust(_FRAME_BYTES, b"\0"), text


class ScriptedDuplexEngine:
    """`EnginePort` that speaks by itself: `StartResponse` is answered with `EngineFailed`.

    It is clocked by `append` alone and keeps no thread. After `advance` frames carry the new fence, and it goes on
    speaking until it yields, as a model would. `counters`: as `EmbeddedEngine`, and "input_gap_ticks".
    """

    def __init__(
        self, replies: Sequence[PreparedReply], *, max_sessions: int = 1000, manners: DuplexManners | None = None
    ) -> None:
        if not replies:
            raise ValueError("replies must not be empty; a script has at least one [[reply]]")
        if any(not reply.pcm for reply in replies):
            raise ValueError("replies: a duplex engine calls no tools; use text, wav or tone_hz")
        self._replies = tuple(replies)
        self._max_sessions = max_sessions
        self._manners = manners or DuplexManners()
        self._lock = threading.Lock()
        self._sessions: dict[str, _Session] = {}
        self._counters: Counter[str] = Counter()

    @property
    def capabilities(self) -> EngineCapabilities:
        return EngineCapabilities(
            turns="engine",
            context="engine",
            listens="audio",
            output_rate=RATE,
            interruption="keep",
            tools=False,
        )

    @property
    def counters(self) -> Mapping[str, int]:
        with self._lock:
            return dict(self._counters)

    def open(self, fence: Fence, config: SessionConfig, emit: Emit) -> None:
        with self._lock:
            known = self._sessions.get(fence.session)
            if known is None:
                if len(self._sessions) >= self._max_sessions:
                    self._counters["sessions_refused"] += 1
                    raise Busy(f"all {self._max_sessions} sessions of this engine are taken", retry_after=5.0)
                self._sessions[fence.session] = _Session(fence, emit, self._replies, self._manners)
                return
            known.emit = emit
        self.advance(fence)

    def append(self, session: str, start: Ticks, pcm: bytes, rate: int) -> None:
        known = self._find(session)
        if known is None:
            return
        with known.lock:
            missing = known.append(start, pcm, rate)
        if missing:
            with self._lock:
                self._counters["input_gap_ticks"] += missing

    def start(self, request: StartResponse) -> None:
        known = self._find(request.fence.session)
        if known is not None:
            known.emit(owned_turns.refused(request))

    def grant(self, request: GrantCredit) -> None:
        """It speaks in real time and needs no credit."""

    def cancel(self, fence: Fence, response: str) -> None:
        known = self._find(fence.session)
        if known is not None:
            with known.lock:
                known.hush()

    def advance(self, fence: Fence) -> None:
        known = self._find(fence.session)
        if known is None:
            return
        with known.lock:
            if fence.order >= known.fence.order:
                known.fence = fence
                return
        with self._lock:
            self._counters["requests_stale"] += 1

    def close(self, session: str) -> None:
        with self._lock:
            self._sessions.pop(session, None)

    def shutdown(self) -> None:
        with self._lock:
            self._sessions.clear()

    def _find(self, session: str) -> _Session | None:
        with self._lock:
            known = self._sessions.get(session)
            if known is None:
                self._counters["requests_unknown"] += 1
            return known
