"""Perception and an engine that answers requests, in workers elsewhere: the sessions' end of both ports.

Of such an engine nothing counts but the history, and of perception nothing but the audio that may still be asked about;
both are here. So a session outlives its worker: it is placed on another one, which gets the audio that was not
forgotten, the questions that were not answered and the responses of which nothing was said yet. A response that was
being said ends with `EngineFailed("worker_lost")`; the next one is said by the other worker.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Final

from sessions.core.config import SessionConfig
from sessions.core.effects import AssessTurn, GrantCredit, OpenPerception, StartResponse, Transcribe
from sessions.core.events import (
    EndOfTurnProbability,
    EngineAudio,
    EngineDone,
    EngineDraft,
    EngineFailed,
    EngineText,
    EngineToolCall,
    EngineWords,
    Event,
    PerceptionFailed,
    SpeechProbability,
    Transcript,
)
from sessions.core.fence import Fence
from sessions.core.timeline import TICK_RATE, Ticks, ticks_per_sample
from sessions.ports import Busy, Emit, EngineCapabilities, PerceptionCapabilities

from .errors import WorkerChanged, WorkerError
from .link import Launch
from .messages import Beat, Call, Note, Ready, Said, Side
from .supervisor import Supervisor, Vitals, Watch

log = logging.getLogger(__name__)

HEARD_MOST: Final[Ticks] = 60 * TICK_RATE
"""Of each session, audio that is kept for another worker."""
WAITING_MOST: Final = 2_000
"""Calls that wait for a worker before it takes no new session: it does not keep up with those that it has."""

_AUDIBLE: Final = (EngineAudio, EngineWords, EngineText, EngineToolCall, EngineDraft)
_ANSWERS: Final = (Transcript, EndOfTurnProbability, PerceptionFailed)


@dataclass(slots=True)
class _Running:
    """A response that is being made. `said`: something of it was told, so it cannot be begun anew."""

    request: StartResponse
    credit: GrantCredit | None = None
    said: bool = False


@dataclass(slots=True)
class _Mouth:
    """What a session needs of an engine."""

    fence: Fence
    config: SessionConfig
    emit: Emit
    running: dict[str, _Running] = field(default_factory=dict)


@dataclass(slots=True)
class _Ear:
    """What a session needs of perception: its own audio that may be asked about, and what was asked."""

    fence: Fence
    request: OpenPerception
    emit: Emit
    heard: deque[tuple[Ticks, bytes, int]] = field(default_factory=deque)
    held: Ticks = 0
    asked: dict[int, Transcribe | AssessTurn] = field(default_factory=dict)
    told: Ticks = 0
    """Where the newest speech probability ended: those of audio that is heard again are not told again."""


@dataclass(slots=True)
class _Session:
    where: int | None
    """Its worker; None while it waits for one."""
    placing: int
    mouth: _Mouth | None = None
    ear: _Ear | None = None


class CascadeWorkers:
    """Several workers with both ports, as `engine` and `perception`. It owns the workers and ends them.

    A session is placed where most room is, and stays there while that worker lives. `counters`: those of the workers'
    last signs of life, those of `Supervisor`, and "sessions_moved", "responses_lost", "responses_begun_again",
    "answers_stale", "requests_unknown", "requests_stale".
    """

    def __init__(
        self,
        launches: Sequence[Launch],
        *,
        watch: Watch | None = None,
        progress: Callable[[str, float], None] | None = None,
    ) -> None:
        """Starts all workers, side by side, and waits until they are ready.

        Raises the error that one met while loading, WorkerError, or WorkerChanged where they are not alike or hold
        more of a session than its history.
        """
        if not launches:
            raise ValueError("there must be at least one worker")
        self._lock = threading.RLock()
        self._idle = threading.Condition(self._lock)
        self._sessions: dict[str, _Session] = {}
        self._placings = count(1)
        self._counters: Counter[str] = Counter()
        self._theirs: dict[int, Mapping[str, int]] = {}
        self._draining = False
        self._workers = [
            Supervisor(
                launch,
                partial(self._hear, number),
                partial(self._lost, number),
                self._lock,
                watch=watch,
                progress=progress if number == 0 else None,
            )
            for number, launch in enumerate(launches)
        ]
        try:
            with ThreadPoolExecutor(len(launches)) as pool:
                first, *others = list(pool.map(Supervisor.start, self._workers))
            self._slots, hears, speaks = first.slots, first.perception, first.capabilities
            _check(first, others)
        except BaseException:
            self._stop_all()
            raise
        if hears is None:
            self._stop_all()
            raise WorkerError("this worker has no perception; it cannot serve a cascade")
        self.engine = CascadeEngine(self, speaks)
        self.perception = CascadePerception(self, hears)

    # --- how it does -------------------------------------------------------------------------------------------------

    @property
    def counters(self) -> Mapping[str, int]:
        with self._lock:
            total = Counter(self._counters)
            for number, worker in enumerate(self._workers):
                total += Counter(self._theirs.get(number, {})) + Counter(worker.counters)
            return total

    @property
    def active(self) -> int:
        """Sessions that are open."""
        with self._lock:
            return len(self._sessions)

    @property
    def vitals(self) -> tuple[Vitals, ...]:
        return tuple(worker.vitals for worker in self._workers)

    # --- placement, with the lock held -------------------------------------------------------------------------------

    def _room(self, number: int) -> int:
        worker = self._workers[number]
        if not worker.ready or worker.waiting > WAITING_MOST:
            return 0
        return self._slots - sum(session.where == number for session in self._sessions.values())

    def _best(self) -> int | None:
        number = max(range(len(self._workers)), key=self._room)
        return number if self._room(number) > 0 else None

    def known(self, session: str) -> _Session:
        """The session, placed where most room is if it is new. Raises Busy."""
        found = self._sessions.get(session)
        if found is not None:
            return found
        if self._draining:
            raise Busy("this engine takes no more sessions; connect to another server", 5.0)
        number = self._best()
        if number is None:
            again = min(worker.retry_after for worker in self._workers)
            raise Busy("no worker has room for another session; try again soon", again)
        found = self._sessions[session] = _Session(number, next(self._placings))
        return found

    def find(self, session: str) -> _Session | None:
        found = self._sessions.get(session)
        if found is None:
            self._counters["requests_unknown"] += 1
        return found

    def gone(self, session: str) -> None:
        """Forget the session once nobody needs anything of it."""
        found = self._sessions.get(session)
        if found is not None and found.mouth is None and found.ear is None:
            del self._sessions[session]
            self._idle.notify_all()
            self._settle()

    def call(self, found: _Session, side: Side, method: str, *arguments: object) -> None:
        if found.where is not None:
            self._workers[found.where].send(Call(side, method, arguments, found.placing))

    def tell_all(self, call: Call) -> None:
        for worker in self._workers:
            worker.send(call)

    def stale(self, newest: Fence, given: Fence) -> bool:
        if given.order < newest.order:
            self._counters["requests_stale"] += 1
            return True
        return False

    @property
    def lock(self) -> threading.RLock:
        return self._lock

    def _settle(self) -> None:
        """Place those that wait for a worker."""
        for found in self._sessions.values():
            if found.where is None and (number := self._best()) is not None:
                self._place(found, number)

    def _place(self, found: _Session, number: int) -> None:
        found.where, found.placing = number, next(self._placings)
        self._counters["sessions_moved"] += 1
        mouth, ear = found.mouth, found.ear
        if mouth is not None:
            self.call(found, "engine", "open", mouth.fence, mouth.config)
            for running in mouth.running.values():
                self._counters["responses_begun_again"] += 1
                self.call(found, "engine", "start", running.request)
                if running.credit is not None:
                    self.call(found, "engine", "grant", running.credit)
        if ear is not None:
            session = ear.fence.session
            self.call(found, "perception", "open", ear.fence, ear.request)
            for start, pcm, rate in ear.heard:
                self.call(found, "perception", "feed", session, start, pcm, rate)
            for asked in ear.asked.values():
                method = "transcribe" if isinstance(asked, Transcribe) else "assess"
                self.call(found, "perception", method, session, asked)

    # --- from the workers, with the lock held ------------------------------------------------------------------------

    def _lost(self, number: int, reason: str) -> None:
        self._theirs.pop(number, None)
        for found in list(self._sessions.values()):
            if found.where != number:
                continue
            found.where, found.placing = None, 0
            mouth = found.mouth
            if mouth is not None:
                self._end_said(mouth, f"the model's process ended ({reason}); ask again, another one goes on")
        self._settle()

    def _end_said(self, mouth: _Mouth, message: str) -> None:
        for response, running in list(mouth.running.items()):
            if running.said:
                del mouth.running[response]
                self._counters["responses_lost"] += 1
                mouth.emit(EngineFailed(running.request.fence, response, "worker_lost", message))

    def _hear(self, number: int, note: Note) -> None:
        if isinstance(note, Beat):
            self._theirs[number] = note.counters
            self._settle()
        elif isinstance(note, Said):
            found = self._sessions.get(note.session)
            if found is None or found.placing != note.placing:
                self._counters["answers_stale"] += 1
            elif note.side == "engine":
                self._spoken(found, note)
            else:
                self._perceived(found, note.event)

    def _spoken(self, found: _Session, said: Said) -> None:
        mouth, event = found.mouth, said.event
        if mouth is None:
            return
        response = getattr(event, "response", "")
        running = mouth.running.get(response)
        if running is not None and isinstance(event, _AUDIBLE):
            running.said = True
        elif isinstance(event, EngineDone | EngineFailed):
            mouth.running.pop(response, None)
            if not response:
                found.mouth = None
        mouth.emit(event, said.pcm)
        self.gone(said.session)

    def _perceived(self, found: _Session, event: Event) -> None:
        ear = found.ear
        if ear is None:
            return
        if isinstance(event, SpeechProbability):
            if event.start < ear.told:
                return
            ear.told = event.end
        elif isinstance(event, _ANSWERS) and ear.asked.pop(event.request, None) is None:
            self._counters["answers_stale"] += 1
            return
        ear.emit(event)

    # --- its end -----------------------------------------------------------------------------------------------------

    def drain(self, within: float) -> int:
        """Take no more sessions, let those that are there finish for so many seconds, end the rest, stop the workers.

        Returns how many had to be ended; they get `EngineFailed("worker_drained")`. Blocks.
        """
        until = time.monotonic() + within
        with self._idle:
            self._draining = True
            while self._sessions and (left := until - time.monotonic()) > 0:
                self._idle.wait(left)
            rest = list(self._sessions.items())
            self._sessions.clear()
            for _, found in rest:
                if found.mouth is not None:
                    message = "the server lets go of this engine; open another session"
                    found.mouth.emit(EngineFailed(found.mouth.fence, "", "worker_drained", message))
        self._stop_all()
        return len(rest)

    def shutdown(self) -> None:
        """Forget every session and end the workers. Idempotent."""
        with self._lock:
            self._draining = True
            self._sessions.clear()
            self._idle.notify_all()
        self._stop_all()

    def _stop_all(self) -> None:
        with ThreadPoolExecutor(len(self._workers)) as pool:
            list(pool.map(Supervisor.stop, self._workers))


def _check(first: Ready, others: Sequence[Ready]) -> None:
    can = first.capabilities
    if (can.turns, can.context, can.listens) != ("core", "core", "text"):
        raise WorkerChanged("this engine holds more of a session than its history, which would be lost with a worker")
    if any(other != first for other in others):
        raise WorkerChanged("the workers run different models; give all of them the same one")


class CascadeEngine:
    """`EnginePort` over the workers. A response of which nothing was said survives its worker."""

    def __init__(self, workers: CascadeWorkers, capabilities: EngineCapabilities) -> None:
        self._workers = workers
        self.capabilities = capabilities

    @property
    def counters(self) -> Mapping[str, int]:
        return self._workers.counters

    @property
    def active(self) -> int:
        return self._workers.active

    @property
    def vitals(self) -> tuple[Vitals, ...]:
        return self._workers.vitals

    def open(self, fence: Fence, config: SessionConfig, emit: Emit) -> None:
        workers = self._workers
        with workers.lock:
            found = workers.known(fence.session)
            if found.mouth is None:
                found.mouth = _Mouth(fence, config, emit)
            elif workers.stale(found.mouth.fence, fence):
                return
            else:
                found.mouth.config, found.mouth.emit = config, emit
                self._newer(found.mouth, fence)
            workers.call(found, "engine", "open", fence, config)

    def append(self, session: str, start: Ticks, pcm: bytes, rate: int) -> None:
        """It reads transcripts; audio is not for it."""

    def start(self, request: StartResponse) -> None:
        with self._workers.lock:
            found, mouth = self._find(request.fence.session)
            if found is not None and mouth is not None and not self._workers.stale(mouth.fence, request.fence):
                mouth.running[request.response] = _Running(request)
                self._workers.call(found, "engine", "start", request)

    def grant(self, request: GrantCredit) -> None:
        with self._workers.lock:
            found, mouth = self._find(request.fence.session)
            if found is not None and mouth is not None and (running := mouth.running.get(request.response)) is not None:
                running.credit = request
                self._workers.call(found, "engine", "grant", request)

    def cancel(self, fence: Fence, response: str) -> None:
        with self._workers.lock:
            found, mouth = self._find(fence.session)
            if found is not None and mouth is not None and mouth.running.pop(response, None) is not None:
                self._workers.call(found, "engine", "cancel", fence, response)

    def advance(self, fence: Fence) -> None:
        with self._workers.lock:
            found, mouth = self._find(fence.session)
            if found is not None and mouth is not None and not self._workers.stale(mouth.fence, fence):
                self._newer(mouth, fence)
                self._workers.call(found, "engine", "advance", fence)

    def close(self, session: str) -> None:
        with self._workers.lock:
            found = self._workers.find(session)
            if found is not None and found.mouth is not None:
                found.mouth = None
                self._workers.call(found, "engine", "close", session)
                self._workers.gone(session)

    def held(self, tenant: str) -> Mapping[str, int]:
        """See `Retains.held`. Only the workers know how many states there are; none are told."""
        return {}

    def forget(self, tenant: str) -> None:
        """See `Retains.forget`. Every worker is told, and does not answer; one that starts anew has nothing."""
        self._workers.tell_all(Call("engine", "forget", (tenant,)))

    def shutdown(self) -> None:
        """End the workers, and with them perception. Idempotent."""
        self._workers.shutdown()

    def _find(self, session: str) -> tuple[_Session | None, _Mouth | None]:
        found = self._workers.find(session)
        return found, None if found is None else found.mouth

    @staticmethod
    def _newer(mouth: _Mouth, fence: Fence) -> None:
        mouth.fence = fence
        for response in [name for name, one in mouth.running.items() if one.request.fence.order < fence.order]:
            del mouth.running[response]


class CascadePerception:
    """`PerceptionPort` over the workers. What was heard and asked survives the worker that heard it."""

    def __init__(self, workers: CascadeWorkers, capabilities: PerceptionCapabilities) -> None:
        self._workers = workers
        self.capabilities = capabilities

    def open(self, fence: Fence, request: OpenPerception, emit: Emit) -> None:
        """See `PerceptionPort.open`. Raises Busy for a new session where no worker has room."""
        workers = self._workers
        with workers.lock:
            found = workers.known(fence.session)
            ear = found.ear
            if ear is not None and fence.incarnation < ear.fence.incarnation:
                workers.stale(ear.fence, fence)
                return
            if ear is None or fence.incarnation > ear.fence.incarnation:
                found.ear = _Ear(fence, request, emit)
            else:
                ear.fence, ear.request, ear.emit = fence, request, emit
            workers.call(found, "perception", "open", fence, request)

    def feed(self, session: str, start: Ticks, pcm: bytes, rate: int) -> None:
        with self._workers.lock:
            found, ear = self._find(session)
            if found is None or ear is None:
                return
            ear.heard.append((start, pcm, rate))
            ear.held += _length(pcm, rate)
            while ear.held > HEARD_MOST and len(ear.heard) > 1:
                _, oldest, its_rate = ear.heard.popleft()
                ear.held -= _length(oldest, its_rate)
            self._workers.call(found, "perception", "feed", session, start, pcm, rate)

    def play(self, session: str, at: Ticks, pcm: bytes, rate: int) -> None:
        self._pass(session, "play", at, pcm, rate)

    def hush(self, session: str, at: Ticks) -> None:
        self._pass(session, "hush", at)

    def transcribe(self, session: str, request: Transcribe) -> None:
        self._ask(session, "transcribe", request)

    def assess(self, session: str, request: AssessTurn) -> None:
        self._ask(session, "assess", request)

    def cancel(self, session: str, request: int) -> None:
        with self._workers.lock:
            _, ear = self._find(session)
            if ear is not None:
                ear.asked.pop(request, None)
            self._pass(session, "cancel", request)

    def forget(self, session: str, before: Ticks) -> None:
        with self._workers.lock:
            _, ear = self._find(session)
            while ear is not None and ear.heard:
                start, pcm, rate = ear.heard[0]
                if start + _length(pcm, rate) > before:
                    break
                ear.heard.popleft()
                ear.held -= _length(pcm, rate)
            self._pass(session, "forget", before)

    def close(self, session: str) -> None:
        with self._workers.lock:
            found = self._workers.find(session)
            if found is not None and found.ear is not None:
                found.ear = None
                self._workers.call(found, "perception", "close", session)
                self._workers.gone(session)

    def _find(self, session: str) -> tuple[_Session | None, _Ear | None]:
        found = self._workers.find(session)
        return found, None if found is None else found.ear

    def _pass(self, session: str, method: str, *arguments: object) -> None:
        with self._workers.lock:
            found, ear = self._find(session)
            if found is not None and ear is not None:
                self._workers.call(found, "perception", method, session, *arguments)

    def _ask(self, session: str, method: str, request: Transcribe | AssessTurn) -> None:
        with self._workers.lock:
            _, ear = self._find(session)
            if ear is not None:
                ear.asked[request.request] = request
                self._pass(session, method, request)


def _length(pcm: bytes, rate: int) -> Ticks:
    return len(pcm) // 2 * ticks_per_sample(rate)


__all__ = ["CascadeEngine", "CascadePerception", "CascadeWorkers"]
