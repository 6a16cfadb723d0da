"""`EnginePort` at a vLLM-Omni server: the model owns its turns there, the session's fence is kept here."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from typing import cast

from models import owned_turns
from sessions.core.config import SessionConfig
from sessions.core.context import ContextEntry
from sessions.core.effects import GrantCredit, StartResponse
from sessions.core.fence import Fence
from sessions.core.timeline import Ticks
from sessions.ports import Busy, Emit, EngineCapabilities

from ...occupancy import Occupancy
from ...remote.errors import RemoteError
from ...remote.loop import RemoteLoop
from ...remote.websocket import connected
from . import protocol
from .protocol import INPUT_FORMATS, RATES, InputFormat, Json, Object, RemoteCapabilities
from .session import SETTING, RemoteOptions, RemoteSession, authorization
from .speech import RATE

_DOWN = 5.0
"""Seconds for which no session is begun after one could not reach the server."""
_GOODBYE = 2.0
"""Seconds that sessions have to say goodbye when everything ends."""


class VllmOmniEngine:
    """`EnginePort` over `/v1/realtime?duplex=1`. `probe` finds out what the model there can do and must come first.

    A session that loses its connection goes on in silence until it is back; one that cannot get it back ends with
    `EngineFailed`. `counters`: those of `RemoteSession`, and "sessions_refused", "requests_unknown", "requests_stale".
    `now`: seconds on any clock that only grows.
    """

    def __init__(
        self, options: RemoteOptions, *, max_sessions: int = 64, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises RemoteError for an address that cannot be, ValueError for a session object that cannot be."""
        protocol.address(options.url, options.model)
        self._input = _input_of(options.session)
        self._options = options
        self._max_sessions = max_sessions
        self._now = now
        self._lock = threading.Lock()
        self._sessions: dict[str, RemoteSession] = {}
        self._counters: Counter[str] = Counter()
        self._down_until = 0.0
        self._closing = False
        self.remote = RemoteCapabilities(input_format=self._input[0], input_rate=self._input[1])
        """What the server said of the model."""
        self._loop = RemoteLoop("talkover-vllm-omni")

    @property
    def capabilities(self) -> EngineCapabilities:
        return EngineCapabilities(
            turns="engine",
            context="engine",
            listens="audio",
            output_rate=RATE,
            # It is told how much was heard, and what it does with that is its own matter.
            interruption="annotate" if self.remote.playback_ack else "keep",
            tools=True,
            told=True,
        )

    @property
    def counters(self) -> Mapping[str, int]:
        with self._lock:
            sessions = list(self._sessions.values())
            total = self._counters.copy()
        for session in sessions:
            total.update(session.counters)
        return total

    @property
    def occupancy(self) -> Occupancy:
        """See `Occupied`. Slots are those that are let here; what the server has is its own matter."""
        with self._lock:
            sessions = list(self._sessions.values())
        backlogs = [session.backlog for session in sessions]
        return Occupancy(
            slots=self._max_sessions,
            busy=len(sessions),
            queues={
                "input_ticks": sum(backlog.input for backlog in backlogs),
                "output_ticks": sum(backlog.output for backlog in backlogs),
                "letters": sum(backlog.letters for backlog in backlogs),
                "disconnected_sessions": sum(not backlog.connected for backlog in backlogs),
            },
        )

    def probe(self) -> RemoteCapabilities:
        """Open a session at the server, read what it can do, close it. Blocks; raises RemoteError."""
        self.remote = self._loop.call(self._ask())
        return self.remote

    async def _ask(self) -> RemoteCapabilities:
        options = self._options
        try:
            async with (
                asyncio.timeout(options.open_timeout * 3),
                connected(
                    SETTING,
                    protocol.address(options.url, options.model),
                    key=options.key,
                    headers=authorization(options.key),
                    longest=protocol.LONGEST_MESSAGE,
                    open_timeout=options.open_timeout,
                ) as socket,
            ):
                await socket.send(protocol.update(self._session_object(SessionConfig())))
                async for message in socket:
                    match protocol.read(message).event:
                        case protocol.Opened(capabilities=capabilities):
                            with contextlib.suppress(Exception):
                                await socket.send(protocol.close())
                            return capabilities
                        case protocol.Fault(code, text):
                            raise RemoteError(
                                "remote_refused", f"{SETTING}: the remote engine refuses a session: {text} ({code})"
                            )
        except protocol.Garbage as garbage:
            raise RemoteError(
                "remote_bad_response",
                f"{SETTING}: {options.url} does not speak vLLM-Omni's protocol: {garbage}; check the path",
            ) from None
        except TimeoutError:
            raise RemoteError(
                "remote_timeout", f"{SETTING}: {options.url} does not begin a session; is it still loading its model?"
            ) from None
        raise RemoteError("remote_lost", f"{SETTING}: {options.url} closed the connection before it began a session")

    # --- the port ----------------------------------------------------------------------------------------------------

    def open(self, fence: Fence, config: SessionConfig, emit: Emit) -> None:
        with self._lock:
            known = self._sessions.get(fence.session)
            if known is None:
                self._admit()
                self._sessions[fence.session] = RemoteSession(
                    fence,
                    emit,
                    self._session_object(config),
                    self._options,
                    self.remote,
                    self._loop,
                    lead=config.lead,
                    failed=self._unreachable,
                )
                return
        known.emit = emit
        known.configure(self._session_object(config))
        known.move(fence)

    def append(self, session: str, start: Ticks, pcm: bytes, rate: int) -> None:
        known = self._find(session)
        if known is not None:
            known.append(start, pcm, rate)

    def start(self, request: StartResponse) -> None:
        known = self._find(request.fence.session)
        if known is not None:
            known.emit(owned_turns.refused(request))

    def grant(self, request: GrantCredit) -> None:
        """It speaks in real time and needs no credit."""

    def cancel(self, fence: Fence, response: str) -> None:
        known = self._find(fence.session)
        if known is not None:
            known.hush()

    def advance(self, fence: Fence) -> None:
        self._checked(fence, lambda known: known.move(fence))

    def rewind(self, fence: Fence, heard: Ticks) -> None:
        """See `Rewinds`: the server is told how much of its response was heard."""
        self._checked(fence, lambda known: known.cut(fence, heard))

    def tell(self, fence: Fence, entries: tuple[ContextEntry, ...], anew: bool) -> None:
        """See `Told`."""
        self._checked(fence, lambda known: known.tell(fence, entries, anew=anew))

    def close(self, session: str) -> None:
        with self._lock:
            gone = self._sessions.pop(session, None)
        if gone is not None:
            gone.close()
            with self._lock:
                self._counters.update(gone.counters)

    def shutdown(self) -> None:
        """End all sessions and the connections. Idempotent."""
        with self._lock:
            self._closing = True
            sessions = dict(self._sessions)
        for name in sessions:
            self.close(name)
        # Else the server keeps their places for clients that might come back.
        wait([session.ended for session in sessions.values()], timeout=_GOODBYE)
        self._loop.close()

    # --- the rest ----------------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Raises Busy."""
        if self._closing or len(self._sessions) >= self._max_sessions:
            self._counters["sessions_refused"] += 1
            raise Busy(f"all {self._max_sessions} sessions of this engine are taken", retry_after=5.0)
        if (left := self._down_until - self._now()) > 0:
            self._counters["sessions_refused"] += 1
            raise Busy("the remote engine cannot be reached right now; see the server's log", retry_after=left)

    def _unreachable(self, error: RemoteError) -> None:
        with self._lock:
            self._down_until = self._now() + _DOWN

    def _checked(self, fence: Fence, act: Callable[[RemoteSession], bool]) -> None:
        known = self._find(fence.session)
        if known is not None and not act(known):
            with self._lock:
                self._counters["requests_stale"] += 1

    def _find(self, session: str) -> RemoteSession | None:
        with self._lock:
            known = self._sessions.get(session)
            if known is None:
                self._counters["requests_unknown"] += 1
            return known

    def _session_object(self, config: SessionConfig) -> Object:
        """The server's session object. A model without turns of its own gets the server's turn detection."""
        encoding, rate = self._input
        ours: dict[str, Json] = {
            "model": self._options.model,
            "modalities": ["audio", "text"],
            "input_audio_format": encoding,
            "output_audio_format": "pcm16",
            "sample_rate_hz": rate,
            "audio": {"input": {"sample_rate_hz": rate}, "output": {"sample_rate_hz": RATE}},
            "turn_detection": None if self.remote.turns_of_its_own else {"type": "server_vad"},
            "overlap_policy": "barge_in_on_speech" if self.remote.barge_in else "listen_only",
            "playback_commit_policy": "ack_only",
        }
        if config.instructions:
            ours["instructions"] = config.instructions
        if config.voice != "default":
            ours["voice"] = config.voice
        if config.tools:
            ours["tools"] = protocol.tools(config.tools)
            ours["tool_choice"] = config.tool_choice
        theirs = dict(self._options.session)
        body = theirs.pop("extra_body", None)
        extra: dict[str, Json] = {"auto_response": True, **(body if isinstance(body, dict) else {})}
        return {**ours, **theirs, "extra_body": extra}


def _input_of(session: Object) -> tuple[InputFormat, int]:
    """Encoding and rate of the input, as `session` has them. Raises ValueError."""
    encoding, rate = session.get("input_audio_format", "pcm16"), session.get("sample_rate_hz", 16_000)
    if encoding not in INPUT_FORMATS:
        raise ValueError(f"engine-session: input_audio_format {encoding!r} must be one of {', '.join(INPUT_FORMATS)}")
    if rate not in RATES:
        raise ValueError(f"engine-session: sample_rate_hz {rate!r} must be one of {', '.join(map(str, RATES))}")
    return encoding, cast(int, rate)
