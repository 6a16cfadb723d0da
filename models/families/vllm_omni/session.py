"""One session at a remote engine: its connection, and what is kept while there is none.

Input is taken and frames are given on the caller's thread, under a lock; the connection lives on the engine's own loop.
A connection that is lost, silent or talks nonsense is replaced: by `session.resume` where the server offers it, else by
a new session of the server's. Frames go on meanwhile, silent, on the input clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NoReturn

from codec.pcm import to_bytes, to_samples
from codec.resample import Resampler
from sessions.core.context import ContextEntry
from sessions.core.events import DuplexFrame, EngineFailed, EngineForgot, EngineStage, EngineToolCall, Event
from sessions.core.fence import Fence
from sessions.core.timeline import Ticks, from_ms, ticks_per_sample
from sessions.ports import Emit

from ...remote.backoff import Backoff
from ...remote.errors import RemoteError
from ...remote.loop import RemoteLoop
from ...remote.websocket import Socket, connected
from . import protocol
from .protocol import Fault, Garbage, Json, Object, Opened, Over, RemoteCapabilities, ResyncRequired, ToolCall
from .speech import FRAME, RemoteSpeech

log = logging.getLogger(__name__)

SETTING = "engine-url"

_INPUT_MS = 100
"""Input is sent in pieces of this length: longer ones add delay, shorter ones cost a message each."""
_REPORT: Ticks = from_ms(500)
"""Playback is reported this often."""

_LOST_SESSION = frozenset(
    {
        "invalid_session_resume",
        "session_resume_expired",
        "unsupported_session_resume",
        "invalid_resume_token",
        "session_resume_conflict",
    }
)
"""Answers to `session.resume` after which only a new session helps."""
_TRY_AGAIN = frozenset({"resource_exhausted", "server_busy", "internal_error", "engine_error", "runtime_resume_failed"})
"""Refusals that may be over in a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteOptions:
    """How a remote engine is reached. Durations in seconds.

    `session`: further fields of the server's session object, for what one model wants (`ref_audio`, `extra_body`).
    """

    url: str
    model: str
    key: str = field(default="", repr=False)
    session: Object = field(default_factory=dict)
    open_timeout: float = 10.0
    heartbeat: float = 5.0
    """How often a silent server is asked whether it is there."""
    silence: float = 15.0
    """A server that says nothing at all for so long is given up."""
    settled: float = 10.0
    """A connection that lived so long was a good one: attempts are counted anew."""
    backoff: Backoff = field(default_factory=Backoff)
    garbage: int = 16
    """Messages of one session that may be nonsense."""
    waiting_input: float = 5.0
    """Input that may wait to be sent; the oldest beyond goes."""
    waiting_output: float = 30.0
    """Output that may wait to be heard; beyond it nothing more is read, so that the server has to wait."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits at one session: input to be sent and output to be heard (ticks), other messages, and whether there is
    a connection that they could go through."""

    input: Ticks
    output: Ticks
    letters: int
    connected: bool


def authorization(key: str) -> dict[str, str]:
    """The headers that show `key`, if there is one."""
    return {"Authorization": f"Bearer {key}"} if key else {}


class RemoteSession:
    """See the module. `emit` gets `DuplexFrame`s, stages and at most one `EngineFailed`.

    Stages of the session: "remote_ready", "remote_lost", "remote_resumed", "remote_restarted" (what the model knew of
    the conversation is gone; `EngineForgot` asks for it), "remote_stalled" (it was silent in the middle of a response),
    "remote_error". `counters`: those of `RemoteSpeech`, and "events_duplicate", "events_garbage", "events_unknown",
    "input_gap_ticks", "input_dropped_ticks", "items_told", "tool_calls_stale", "connections_lost", "sessions_resumed",
    "sessions_restarted", "remote_errors", "remote_backpressure", "sessions_failed".
    """

    def __init__(
        self,
        fence: Fence,
        emit: Emit,
        config: Object,
        options: RemoteOptions,
        remote: RemoteCapabilities,
        loop: RemoteLoop,
        *,
        lead: Ticks = 0,
        failed: Callable[[RemoteError], None] = lambda error: None,
    ) -> None:
        """Begins to connect. `config`: the server's session object; `remote`: what it is expected to be able to do.

        `lead`: how far what leaves here runs ahead of the ear. `failed` is called where the server could not be reached
        at all. Raises RemoteError where `loop` is closed.
        """
        self.fence = fence
        self.emit = emit
        self.lock = threading.RLock()
        self._options = options
        self._config = config
        self._remote = remote
        self._counters: Counter[str] = Counter()
        self._lead = lead
        self._failed = failed
        self._loop = loop
        self._speech = RemoteSpeech(self._counters, continuous=remote.continuous)
        # The track of the session: input that came, and frames that were given for it.
        self._expected: Ticks | None = None
        self._answered: Ticks = 0
        self._reported: Ticks = 0
        # What waits for the connection.
        self._rate = 0
        self._resampler: Resampler | None = None
        self._input = bytearray()
        self._sent_ms = 0
        self._letters: deque[str] = deque()
        # The connection's own, on the loop.
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._session = ""
        self._token = ""
        self._number = 0
        self._acknowledged = 0
        self._garbage = 0
        self._opened = False
        self._heard_at = 0.0
        self._held_until = 0.0
        self._closed = False
        self.ended: Future[None] = loop.start(self._run())
        """Done when the connection has ended for good."""

    @property
    def counters(self) -> Counter[str]:
        """A copy."""
        with self.lock:
            return self._counters.copy()

    @property
    def backlog(self) -> Backlog:
        """What waits here now."""
        with self.lock:
            waiting = len(self._input) // 2 * 48_000 // self._remote.input_rate
            return Backlog(waiting, self._speech.waiting, len(self._letters), self._opened)

    # --- from the session's thread -----------------------------------------------------------------------------------

    def append(self, start: Ticks, pcm: bytes, rate: int) -> None:
        """Input, and the frames that are due for it. Raises ValueError for half a sample and an impossible rate."""
        tick = ticks_per_sample(rate)
        samples = to_samples(pcm)
        with self.lock:
            if self._closed:
                return
            if self._expected is None:
                self._expected = self._answered = self._reported = start
            if rate != self._rate:
                self._flush_input()
                self._rate, self._resampler = rate, Resampler(rate, self._remote.input_rate)
            if start > self._expected:
                self._counters["input_gap_ticks"] += start - self._expected
                self._keep(bytes(min(start - self._expected, from_ms(1000)) // tick * 2))
            skipped = max(0, self._expected - start) // tick
            self._keep(to_bytes(samples[skipped:]))
            self._expected = max(self._expected, start + len(samples) * tick)
            self._answer()

    def move(self, fence: Fence) -> bool:
        """A new fence holds; nothing was interrupted that was being said. False for an older one."""
        return self._advance(fence, None, cut=self.fence.order != fence.order)

    def cut(self, fence: Fence, heard: Ticks) -> bool:
        """A new fence holds, and of what was said nothing from `heard` on was heard. False for an older one."""
        return self._advance(fence, heard, cut=True)

    def configure(self, config: Object) -> None:
        """The server's session object as it shall be from here on."""
        with self.lock:
            # The server takes a field back where it is null.
            gone: dict[str, Json] = dict.fromkeys(self._config.keys() - config.keys())
            changed = gone | {name: value for name, value in config.items() if self._config.get(name) != value}
            self._config = config
            if changed and self._opened:
                self._letters.append(protocol.update(changed))
        self._loop.soon(self._wake.set)

    def tell(self, fence: Fence, entries: Sequence[ContextEntry], *, anew: bool) -> bool:
        """What the model did not hear: see `Told`. False under an older fence."""
        with self.lock:
            if fence.order < self.fence.order:
                return False
            self._letters.extend(protocol.item(entry, anew=anew) for entry in entries)
            self._counters["items_told"] += len(entries)
        self._loop.soon(self._wake.set)
        return True

    def hush(self) -> None:
        """Stop what is being said."""
        with self.lock:
            self._cut(None)

    def close(self) -> None:
        """Say goodbye and let go. Idempotent."""
        with self.lock:
            if self._closed:
                return
            self._closed = True
            self._letters.append(protocol.close())
        self._loop.soon(self._wake.set)
        self._loop.soon(self._room.set)

    def _advance(self, fence: Fence, heard: Ticks | None, *, cut: bool) -> bool:
        with self.lock:
            if fence.order < self.fence.order:
                return False
            self.fence = fence
            if cut:
                self._cut(heard)
            return True

    def _cut(self, heard: Ticks | None) -> None:
        for cut in self._speech.cut(heard):
            if self._remote.playback_ack:
                self._letters.append(protocol.acknowledge_playback(cut.response, cut.heard_ms))
            if not self._remote.continuous:
                stop = protocol.cancel if cut.making else protocol.clear_output
                self._letters.append(stop(cut.response))
        self._loop.soon(self._wake.set)
        self._loop.soon(self._room.set)

    def _keep(self, pcm: bytes) -> None:
        if self._resampler is None or not pcm:
            return
        self._input += to_bytes(self._resampler.process(to_samples(pcm)))
        most = int(self._options.waiting_input * self._remote.input_rate) * 2
        if (over := len(self._input) - most) > 0:
            del self._input[:over]
            self._counters["input_dropped_ticks"] += over // 2 * 48_000 // self._remote.input_rate
        if len(self._input) >= self._piece:
            self._loop.soon(self._wake.set)

    def _flush_input(self) -> None:
        if self._resampler is not None:
            self._input += to_bytes(self._resampler.flush())

    @property
    def _piece(self) -> int:
        return self._remote.input_rate * min(_INPUT_MS, self._remote.chunk_ms) // 1000 * 2

    def _answer(self) -> None:
        """Every 80 ms of input gets its 80 ms of output."""
        expected = self._expected or 0
        while self._answered + FRAME <= expected:
            at = self._answered
            self._answered += FRAME
            frame = self._speech.frame(at)
            self.emit(DuplexFrame(self.fence, at, at + FRAME, frame.speaking, frame.text), frame.pcm)
        for response in self._speech.stalled:
            self._letters.append(protocol.cancel(response))
            self.emit(EngineStage(self.fence, "", "remote_stalled"))
            self._loop.soon(self._wake.set)
        self._speech.stalled.clear()
        if not self._room.is_set() and self._speech.waiting <= self._most_output:
            self._loop.soon(self._room.set)
        if self._remote.playback_ack and self._answered - self._reported >= _REPORT:
            self._reported = self._answered
            for response, heard_ms in self._speech.reports(self._answered - self._lead):
                self._letters.append(protocol.acknowledge_playback(response, heard_ms))

    @property
    def _most_output(self) -> Ticks:
        return from_ms(round(self._options.waiting_output * 1000))

    # --- the connection, on the loop ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        backoff, attempt, ready = self._options.backoff, 0, False
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            self._opened = False
            try:
                await self._connection()
                return
            except RemoteError as error:
                failure = error
            except Exception:
                # A fault of ours ends this session alone.
                log.exception("session %s: the remote engine's connection failed", self.fence.session)
                failure = RemoteError("remote_bad_response", f"{SETTING}: the connection failed; see the server's log")
                attempt = backoff.attempts
            if self._closed:
                return
            ready = ready or self._opened
            if self._opened:
                self._count("connections_lost")
                self._stage("remote_lost")
                if clock() - began >= self._options.settled:
                    attempt = 0
            if _hopeless(failure) or attempt >= backoff.attempts:
                self._give_up(failure, ready)
                return
            log.warning("session %s: %s; attempt %d follows", self.fence.session, failure, attempt + 1)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._until_closed(), backoff.delay(attempt))
                return
            attempt += 1

    async def _until_closed(self) -> None:
        while not self._closed:
            self._wake.clear()
            await self._wake.wait()

    async def _connection(self) -> None:
        """One connection, from its handshake to its end. Raises RemoteError unless it was closed from here."""
        options = self._options
        async with connected(
            SETTING,
            protocol.address(options.url, options.model),
            key=options.key,
            headers=authorization(options.key),
            longest=protocol.LONGEST_MESSAGE,
            open_timeout=options.open_timeout,
        ) as socket:
            await self._converse(socket)

    async def _converse(self, socket: Socket) -> None:
        if self._token:
            await socket.send(protocol.resume(self._session, self._token, self._number))
        else:
            await socket.send(protocol.update(self._config))
        self._heard_at = asyncio.get_running_loop().time()
        jobs = [asyncio.create_task(job(socket)) for job in (self._read, self._write, self._watch)]
        try:
            done, _ = await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
            for job in done:
                job.result()
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)

    async def _read(self, socket: Socket) -> None:
        clock = asyncio.get_running_loop().time
        async for message in socket:
            self._heard_at = clock()
            self._hear(message)
            if self._closed:
                return
            while not self._room.is_set():
                await self._room.wait()
                self._heard_at = clock()
        if not self._closed:
            raise RemoteError("remote_lost", f"{SETTING}: {self._options.url} closed the connection; see its log")

    async def _write(self, socket: Socket) -> None:
        while True:
            if not self._opened:
                # Nothing belongs before the handshake's end.
                await self._next_wake()
            while self._opened and (message := self._next_message()) is not None:
                await socket.send(message)
            if self._closed:
                if not self._opened:
                    await socket.send(protocol.close())
                return
            if self._opened:
                await self._next_wake()

    async def _next_wake(self) -> None:
        await self._wake.wait()
        self._wake.clear()

    def _next_message(self) -> str | None:
        with self.lock:
            if self._letters:
                return self._letters.popleft()
            size = self._piece
            if self._closed or len(self._input) < size:
                return None
            pcm = bytes(self._input[:size])
            del self._input[:size]
            if asyncio.get_running_loop().time() < self._held_until:
                self._counters["input_dropped_ticks"] += size // 2 * 48_000 // self._remote.input_rate
                return None
            rate = self._remote.input_rate
            self._sent_ms += size // 2 * 1000 // rate
            return protocol.append(pcm, self._remote.input_format, rate, self._sent_ms)

    async def _watch(self, socket: Socket) -> None:
        clock = asyncio.get_running_loop().time
        limit = self._options.silence
        while True:
            await asyncio.sleep(self._options.heartbeat)
            if not self._opened and clock() - self._heard_at >= self._options.open_timeout:
                self._stalled("does not begin the session")
            if not self._room.is_set():
                self._heard_at = clock()
            elif clock() - self._heard_at >= limit:
                self._stalled(f"said nothing for {limit:g} s")
            if self._opened:
                with self.lock:
                    self._letters.append(protocol.heartbeat())
                self._wake.set()

    def _stalled(self, what: str) -> NoReturn:
        raise RemoteError("remote_stalled", f"{SETTING}: {self._options.url} {what}; is it overloaded?")

    # --- what the server says ----------------------------------------------------------------------------------------

    def _hear(self, message: str | bytes) -> None:
        """Raises RemoteError for what ends the connection."""
        try:
            incoming = protocol.read(message)
        except Garbage as garbage:
            self._count("events_garbage")
            self._garbage += 1
            log.warning("session %s: what the remote engine says is no event: %s", self.fence.session, garbage)
            if self._garbage > self._options.garbage:
                raise RemoteError(
                    "remote_bad_response",
                    f"{SETTING}: {self._options.url} sent {self._garbage} messages that are not the protocol, the last "
                    f"because of {garbage}; is it a vLLM-Omni of a version that this server knows?",
                ) from None
            return
        if incoming.number is not None:
            if incoming.number <= self._number:
                self._count("events_duplicate")
                return
            self._number = incoming.number
        match incoming.event:
            case Opened() as opened:
                self._open(opened)
            case Fault() as fault:
                self._fault(fault)
            case Over(reason):
                self._token = ""
                if not self._closed:
                    raise RemoteError("remote_lost", f"{SETTING}: the remote session is over ({reason})")
            case ResyncRequired():
                self._token = ""
                if not self._opened:
                    raise RemoteError("remote_lost", f"{SETTING}: the remote session cannot be taken up again")
            case protocol.Other():
                self._count("events_unknown")
            case event:
                self._say(event)
        self._acknowledge()

    def _say(self, event: protocol.ServerEvent) -> None:
        with self.lock:
            if isinstance(event, ToolCall):
                self._called(event)
                return
            self._speech.feed(event)
            if self._speech.waiting > self._most_output:
                self._room.clear()

    def _called(self, event: ToolCall) -> None:
        if self._speech.is_cut(event.response):
            self._counters["tool_calls_stale"] += 1
        else:
            self._tell(EngineToolCall(self.fence, "", event.call, event.name, event.arguments))

    def _open(self, opened: Opened) -> None:
        if self._opened:
            return
        self._opened = True
        again = bool(self._session)
        with self.lock:
            same_input = (opened.capabilities.input_format, opened.capabilities.input_rate) == (
                self._remote.input_format,
                self._remote.input_rate,
            )
            if not same_input:
                raise RemoteError(
                    "remote_refused",
                    f"{SETTING}: the remote engine listens to {opened.capabilities.input_format} at "
                    f"{opened.capabilities.input_rate} Hz and was offered {self._remote.input_format} at "
                    f"{self._remote.input_rate}; set input_audio_format and sample_rate_hz in --engine-session",
                )
            if not again:
                if opened.capabilities.continuous != self._remote.continuous:
                    self._speech = RemoteSpeech(self._counters, continuous=opened.capabilities.continuous)
                self._remote = opened.capabilities
            elif not opened.resumed:
                self._speech.lose()
                self._letters.clear()
                self._sent_ms = 0
                self._number = self._acknowledged = 0
        self._session = opened.session
        self._token = opened.token if opened.capabilities.resume else ""
        if not again:
            self._stage("remote_ready")
        elif opened.resumed:
            self._count("sessions_resumed")
            self._stage("remote_resumed")
        else:
            self._count("sessions_restarted")
            self._stage("remote_restarted")
            self._tell(EngineForgot(self.fence))
        self._wake.set()

    def _fault(self, fault: Fault) -> None:
        self._count("remote_errors")
        if not self._opened:
            if fault.code in _LOST_SESSION:
                self._token = ""
                raise RemoteError("remote_lost", f"{SETTING}: the remote session cannot be taken up ({fault.message})")
            code = "remote_unreachable" if fault.code in _TRY_AGAIN else "remote_refused"
            raise RemoteError(code, f"{SETTING}: the remote engine refuses the session: {fault.message} ({fault.code})")
        if fault.code == "input_backpressure":
            # It has more than it can take; what is sent now would be refused as well.
            self._count("remote_backpressure")
            self._held_until = asyncio.get_running_loop().time() + self._remote.chunk_ms / 1000
            return
        log.warning("session %s: the remote engine says: %s (%s)", self.fence.session, fault.message, fault.code)
        self._stage("remote_error")

    def _acknowledge(self) -> None:
        """Now and then: so much may the server forget."""
        if self._opened and self._number - self._acknowledged >= 8:
            self._acknowledged = self._number
            with self.lock:
                self._letters.append(protocol.acknowledge_events(self._number))
            self._wake.set()

    def _give_up(self, error: RemoteError, ready: bool) -> None:
        self._count("sessions_failed")
        log.warning("session %s is given up: %s", self.fence.session, error)
        if not ready:
            self._failed(error)
        self._tell(EngineFailed(self.fence, "", error.code, str(error)))

    def _stage(self, name: str) -> None:
        self._tell(EngineStage(self.fence, "", name))

    def _tell(self, event: Event) -> None:
        if not self._closed:
            self.emit(event)

    def _count(self, name: str) -> None:
        with self.lock:
            self._counters[name] += 1


def _hopeless(error: RemoteError) -> bool:
    """Whether another attempt would get the same answer."""
    if error.code == "remote_http_status":
        return error.status not in (408, 425, 429, 500, 502, 503, 504)
    return error.code in ("remote_refused", "remote_bad_response", "remote_closed")
