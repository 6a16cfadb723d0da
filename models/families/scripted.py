"""The scripted engine: deterministic replies, in turn, over and over; for tests, demos and load.

Turn taking and interruption are the real ones; only the thinking is replaced. With tones alone it needs no model.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence

from sessions.core.config import SessionConfig
from sessions.core.effects import GrantCredit, StartResponse
from sessions.core.events import EngineDone, EngineStage, EngineText, EngineToolCall
from sessions.core.fence import Fence
from sessions.ports import Busy, Emit, EngineCapabilities

from .fenced import advanced
from .lane import ResponseLane
from .scheduler import Cancellable, Scheduler, TimerThread
from .script import RATE, PreparedReply, Script, ScriptError

__all__ = ["Script", "ScriptError", "ScriptedEngine"]


class _Session:
    def __init__(self, fence: Fence, emit: Emit) -> None:
        self.fence = fence
        self.emit = emit
        self.next = 0
        self.lanes: dict[str, ResponseLane] = {}
        self.timers: dict[str, Cancellable] = {}


class ScriptedEngine:
    """`EnginePort` over prepared replies; each session begins with the first one.

    A response in text modality gets the reply's text. No thread per session: delays run on `scheduler` (default: one
    timer thread), audio goes out on the caller's thread, chunk by chunk within the credit. `counters` are named as in
    `EmbeddedEngine`.
    """

    def __init__(
        self, replies: Sequence[PreparedReply], *, max_sessions: int = 1000, scheduler: Scheduler | None = None
    ) -> None:
        if not replies:
            raise ValueError("replies must not be empty; a script has at least one [[reply]]")
        if max_sessions < 1:
            raise ValueError(f"max_sessions {max_sessions} must be at least 1")
        self._replies = tuple(replies)
        self._max_sessions = max_sessions
        self._own_timers = TimerThread() if scheduler is None else None
        self._scheduler: Scheduler = scheduler or self._own_timers or TimerThread()
        self._lock = threading.Lock()
        self._sessions: dict[str, _Session] = {}
        self._counters: Counter[str] = Counter()

    @property
    def capabilities(self) -> EngineCapabilities:
        return EngineCapabilities(
            turns="core",
            context="core",
            listens="text",
            output_rate=RATE,
            interruption="rewind",
            tools=True,
        )

    @property
    def counters(self) -> Mapping[str, int]:
        with self._lock:
            return dict(self._counters)

    @property
    def active(self) -> int:
        """Responses that wait for their delay or for credit."""
        with self._lock:
            return sum(len(session.lanes) for session in self._sessions.values())

    def open(self, fence: Fence, config: SessionConfig, emit: Emit) -> None:
        with self._lock:
            known = self._sessions.get(fence.session)
            if known is None:
                if len(self._sessions) >= self._max_sessions:
                    self._counters["sessions_refused"] += 1
                    raise Busy(f"all {self._max_sessions} sessions of this engine are taken", retry_after=5.0)
                self._sessions[fence.session] = _Session(fence, emit)
                return
            known.emit = emit
        self.advance(fence)

    def append(self, session: str, start: int, pcm: bytes, rate: int) -> None:
        """A script does not listen."""

    def start(self, request: StartResponse) -> None:
        fence, response = request.fence, request.response
        with self._lock:
            session = self._sessions.get(fence.session)
            if session is None or response in session.lanes:
                self._counters["requests_unknown"] += 1
                return
            if fence.order < session.fence.order:
                self._counters["requests_stale"] += 1
                return
            reply = self._replies[session.next % len(self._replies)]
            session.next += 1
            lane = ResponseLane(fence, response, request.credit, RATE, session.emit)
            session.lanes[response] = lane
            if reply.delay_ms:
                session.timers[response] = self._scheduler.call_later(
                    reply.delay_ms / 1000, lambda: self._give(lane, reply, request.modality == "text")
                )
                return
        self._give(lane, reply, request.modality == "text")

    def grant(self, request: GrantCredit) -> None:
        with self._lock:
            session = self._sessions.get(request.fence.session)
            lane = session.lanes.get(request.response) if session else None
        if lane is not None:
            lane.grant(request.until)
            self._retire_if_done(lane)

    def cancel(self, fence: Fence, response: str) -> None:
        with self._lock:
            session = self._sessions.get(fence.session)
            if session is None or response not in session.lanes:
                self._counters["requests_unknown"] += 1
                return
            self._stop(session, response)

    def advance(self, fence: Fence) -> None:
        with self._lock:
            session = advanced(self._sessions, fence, self._counters)
            if session is None:
                return
            for response in [name for name, lane in session.lanes.items() if lane.fence.order < fence.order]:
                self._stop(session, response)

    def close(self, session: str) -> None:
        with self._lock:
            gone = self._sessions.pop(session, None)
            if gone is not None:
                for response in list(gone.lanes):
                    self._stop(gone, response)

    def shutdown(self) -> None:
        """Close every session and end the timer thread. Idempotent."""
        with self._lock:
            sessions = list(self._sessions)
        for session in sessions:
            self.close(session)
        if self._own_timers is not None:
            self._own_timers.close()

    def _stop(self, session: _Session, response: str) -> None:
        session.lanes.pop(response).stop()
        if timer := session.timers.pop(response, None):
            timer.cancel()
        self._counters["responses_stopped"] += 1

    def _give(self, lane: ResponseLane, reply: PreparedReply, as_text: bool) -> None:
        fence, response = lane.fence, lane.response
        if reply.tool is not None:
            call = f"call_{response}"
            lane.post(EngineToolCall(fence, response, call, reply.tool.name, reply.tool.arguments))
        elif as_text:
            lane.post(EngineText(fence, response, reply.text))
        else:
            lane.post(EngineStage(fence, response, "first_audio"))
            lane.say(reply.pcm, reply.words)
        lane.post(EngineDone(fence, response), last=True)
        self._retire_if_done(lane)

    def _retire_if_done(self, lane: ResponseLane) -> None:
        if not lane.finished:
            return
        with self._lock:
            session = self._sessions.get(lane.fence.session)
            if session is not None and session.lanes.get(lane.response) is lane:
                del session.lanes[lane.response]
                session.timers.pop(lane.response, None)
