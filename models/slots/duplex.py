"""A model in slots behind the engine port: it owns its turns and answers every frame of the user with one of its own.

User audio is taken on the session's thread, cut into frames and left for the next tick. Ticks come from one worker
thread, off the event loop, which alone touches the model; a test calls `tick` itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from models import owned_turns
from sessions.codes_track import CodedPcm, CodesFormat, CodeSpan
from sessions.core.config import SessionConfig
from sessions.core.effects import GrantCredit, StartResponse
from sessions.core.events import DuplexFrame, EngineFailed, EngineStage
from sessions.core.fence import Fence
from sessions.core.records import Plain
from sessions.core.timeline import Ticks, ticks_per_sample
from sessions.ports import Emit, EngineCapabilities

from .engine import Forced, PromptRefused, SlotEngine, SlotOptions, SlotOutput
from .framing import FrameCutter
from .model import SlotModel
from .origin import Origin, session_seed
from .priority import prefer_this_thread
from .speech import SpeechGate
from .table import Lease
from .ticker import Ticker

log = logging.getLogger(__name__)


class TextDecoder(Protocol):
    """One session's inner text; keeps what is not yet a whole character."""

    def feed(self, token: int) -> str:
        """What `token` adds; empty for padding."""


class Clock(Protocol):
    """Seconds that only grow, and waiting until then."""

    def now(self) -> float: ...

    def wait(self, until: float, wake: threading.Event) -> None:
        """Return at `until`, or sooner when `wake` is set."""


class MonotonicClock:
    """The clock of this machine."""

    def now(self) -> float:
        return time.monotonic()

    def wait(self, until: float, wake: threading.Event) -> None:
        wake.wait(max(0.0, until - time.monotonic()))


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplexOptions:
    """How sessions are treated, beside `slots`."""

    slots: SlotOptions = field(default_factory=SlotOptions)
    seed: int = 0
    """With the session's id it makes the seed that the session draws from."""
    longest: float | None = None
    """Seconds after which a session ends, for a model that loses its way; None: its window slides without end."""
    warning: float = 60.0
    """Seconds before the end at which it is warned of ("ends_soon")."""
    voices: tuple[str, ...] = ()
    prompt: Callable[[SessionConfig], Sequence[Forced]] = lambda config: ()
    """What the model is given before a session with that configuration. Raises PromptRefused."""
    codes: CodesFormat | None = None
    """Whose codes the agent's are, where they are handed on with the samples."""


@dataclass(slots=True)
class _Session:
    emit: Emit
    lease: Lease
    text: TextDecoder
    cutter: FrameCutter
    gate: SpeechGate = field(default_factory=SpeechGate)
    prompt: Sequence[Forced] = ()
    spoke: bool = False
    """The agent has begun to speak, so who it is stays as it is."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    warned: bool = False
    stream: int = 0
    coded: int = 0
    """Frames of `stream` that were handed on."""
    follows: int = -1
    """The number of the frame that is decoded from where the last one was left."""


class DuplexEngine:
    """`EnginePort` over a `SlotModel`. Raises `Busy` at once when every slot is let.

    After `advance` frames carry the new fence; `rewind` says besides how much of the agent was heard, and the engine's
    policy decides what the model is told of it. `counters`: those of `SlotEngine`, and "input_gap_ticks",
    "requests_unknown", "requests_stale", "prompts_late", "ticks", "ticks_late" (ended after the next was due),
    "ticks_missed" (given up), "worker_faults", "sessions_too_long".
    """

    def __init__(
        self,
        model: SlotModel,
        text: Callable[[], TextDecoder],
        options: DuplexOptions | None = None,
        *,
        clock: Clock | None = None,
        worker: bool = True,
    ) -> None:
        """`worker`: keep a thread that ticks; without it somebody calls `tick`."""
        self._options = options or DuplexOptions()
        self._clock = clock or MonotonicClock()
        self._model = model
        self._text = text
        self._frame: Ticks = model.hop * ticks_per_sample(model.sample_rate)
        self._period = model.hop / model.sample_rate
        self._slots: SlotEngine[Fence] = SlotEngine(model, self._options.slots, now=self._clock.now)
        self._lock = threading.Lock()
        self._sessions: dict[str, _Session] = {}
        self._fences: dict[str, Fence] = {}
        self._counters: Counter[str] = Counter()
        self._bound = None if self._options.longest is None else max(1, round(self._options.longest / self._period))
        self._ticked = self._clock.now()
        self._wake = threading.Event()
        self._stopped = False
        self._worker = threading.Thread(target=self._run, name="duplex-engine", daemon=True) if worker else None
        if self._worker is not None:
            self._worker.start()

    # --- the port ----------------------------------------------------------------------------------------------------

    @property
    def capabilities(self) -> EngineCapabilities:
        return EngineCapabilities(
            turns="engine",
            context="engine",
            listens="audio",
            output_rate=self._model.sample_rate,
            interruption=self._options.slots.policy,
            tools=False,
            voices=self._options.voices,
            bounded=None if self._bound is None else self._bound * self._frame,
        )

    @property
    def counters(self) -> Mapping[str, int]:
        with self._lock:
            return {**self._slots.counters, **self._counters}

    @property
    def active(self) -> int:
        """Slots that are let."""
        return self._slots.taken

    @property
    def slots(self) -> int:
        """Slots that there are."""
        return self._model.batch

    @property
    def hop(self) -> int:
        """Samples of a frame."""
        return self._model.hop

    @property
    def last_tick(self) -> float | None:
        """When the last tick ended on the engine's clock, or the first of those who wait for one came; None: nobody
        is there."""
        return self._ticked if self._slots.taken else None

    def open(self, fence: Fence, config: SessionConfig, emit: Emit) -> None:
        """See `EnginePort`. Once more with another configuration, the model is prompted anew unless it has spoken."""
        try:
            prompt = self._options.prompt(config)
        except PromptRefused as refused:
            if not self._holds(fence.session):
                emit(EngineFailed(fence, "", refused.code, str(refused)))
                return
            # What it was told before still holds.
            log.warning("session %s: %s", fence.session, refused)
            prompt = ()
        with self._lock:
            known = self._sessions.get(fence.session)
            if known is None:
                if not self._slots.taken:
                    self._ticked = self._clock.now()
                lease = self._slots.admit(fence, session_seed(self._options.seed, fence.session), prompt)
                cutter = FrameCutter(self._model.sample_rate, self._model.hop)
                self._sessions[fence.session] = _Session(emit, lease, self._text(), cutter, prompt=prompt)
                self._fences[fence.session] = fence
                self._wake.set()
                return
            if fence.order < self._fences[fence.session].order:
                # A former owner who woke up must not take the session's voice with it.
                self._counters["requests_stale"] += 1
                return
            known.emit = emit
            if prompt and prompt != known.prompt:
                if known.spoke:
                    self._counters["prompts_late"] += 1
                else:
                    known.prompt = prompt
                    self._slots.restart(known.lease, prompt)
        self.advance(fence)

    def append(self, session: str, start: Ticks, pcm: bytes, rate: int) -> None:
        known = self._find(session)
        if known is None:
            return
        with known.lock:
            frames = known.cutter.take(start, pcm, rate)
            missing = known.cutter.missing
            for frame in frames:
                self._slots.feed(known.lease, frame.samples.astype(np.float32) / np.float32(32768))
        if missing:
            self._count("input_gap_ticks", missing)

    def start(self, request: StartResponse) -> None:
        known = self._find(request.fence.session)
        if known is not None:
            known.emit(owned_turns.refused(request))

    def grant(self, request: GrantCredit) -> None:
        """It speaks in real time and needs no credit."""

    def cancel(self, fence: Fence, response: str) -> None:
        """Its responses are stretches of one endless track: what ends one is the epoch, in `advance` or `rewind`."""

    def advance(self, fence: Fence) -> None:
        known = self._newer(fence)
        if known is not None:
            self._slots.restamp(known.lease, fence)

    def rewind(self, fence: Fence, heard: Ticks) -> None:
        """A new epoch holds, and of what the agent said, nothing from `heard` on its track on was heard."""
        known = self._newer(fence)
        if known is not None:
            base = known.cutter.base
            frames = 0 if base is None else max(0, heard - base) // self._frame
            known.follows = -1
            self._slots.cut(known.lease, fence, frames)

    def origin(self, session: str) -> Mapping[str, Plain]:
        """See `sessions.ports.Repeats`."""
        return self.drawn_from.of(session)

    @property
    def drawn_from(self) -> Origin:
        return Origin(self._options.seed, self._options.slots.policy)

    def close(self, session: str) -> None:
        with self._lock:
            gone = self._sessions.pop(session, None)
            self._fences.pop(session, None)
        if gone is not None:
            self._slots.release(gone.lease)

    def shutdown(self) -> None:
        """Close every session and end the worker. Idempotent."""
        with self._lock:
            sessions = list(self._sessions)
            self._stopped = True
            self._wake.set()
        for session in sessions:
            self.close(session)
        if self._worker is not None and self._worker is not threading.current_thread():
            self._worker.join()

    # --- ticks -------------------------------------------------------------------------------------------------------

    def tick(self, until: float | None = None) -> None:
        """One tick: step who has audio, and give out what they say. From one thread only.

        `until`: on the engine's clock, when sessions that are behind are left so until the next tick.
        """
        self._count("ticks")
        try:
            outputs = self._slots.tick(until)
        except Exception:
            # What the batch holds now is not known: all its sessions end, and their slots are zeroed for others.
            log.exception("the model failed; its sessions end")
            self._count("worker_faults")
            self._end_all("engine_failed", "the model failed in the middle of a step; open another session")
            return
        if outputs:
            with self._lock:
                names = {known.lease: (name, known) for name, known in self._sessions.items()}
            for output in outputs:
                if output.lease in names:
                    self._give(*names[output.lease], output)

    def _give(self, name: str, known: _Session, output: SlotOutput[Fence]) -> None:
        if output.fault:
            self._end(name, output.stamp, "not_finite", "the model's numbers left all bounds; open another session")
            return
        if self._bound is not None and self._too_long(name, known, output, self._bound):
            return
        base = known.cutter.base or 0
        at = base + output.number * self._frame
        begun = output.said[0] >= 0
        word = known.text.feed(output.text) if begun and not output.hushed else ""
        if output.hushed:
            known.gate.close()
        # A frame that the model was too late for is a hole in what is said, and not its end.
        speaking = not output.hushed and (begun or output.lost) and known.gate.feed(output.pcm, bool(word))
        known.spoke = known.spoke or speaking
        pcm = np.clip(np.rint(output.pcm * 32767), -32768, 32767).astype("<i2").tobytes()
        if self._options.codes is not None and begun and not output.hushed and not output.lost:
            pcm = _coded(known, pcm, output, self._options.codes)
        known.emit(DuplexFrame(output.stamp, at, at + self._frame, speaking, word if speaking else ""), pcm)

    def _too_long(self, name: str, known: _Session, output: SlotOutput[Fence], bound: int) -> bool:
        if output.number >= bound:
            self._count("sessions_too_long")
            seconds = bound * self._period
            self._end(name, output.stamp, "session_too_long", f"this model holds {seconds:.0f} s; open another session")
            return True
        left = (bound - output.number) * self._period
        if not known.warned and left <= self._options.warning:
            known.warned = True
            log.warning("session %s ends in %.0f s: the model holds no longer ones", name, left)
            known.emit(EngineStage(output.stamp, "", "ends_soon"))
        return False

    def _end(self, name: str, fence: Fence, code: str, message: str) -> None:
        with self._lock:
            known = self._sessions.pop(name, None)
            self._fences.pop(name, None)
        if known is not None:
            self._slots.release(known.lease)
            known.emit(EngineFailed(fence, "", code, message))

    def _end_all(self, code: str, message: str) -> None:
        with self._lock:
            fences = dict(self._fences)
        for name, fence in fences.items():
            self._end(name, fence, code, message)

    def _run(self) -> None:
        prefer_this_thread()
        ticker = Ticker(self._clock.now(), self._period, catch_up=self._options.slots.catch_up)
        while not self._stopped:
            if not self._slots.taken:
                self._idle()
                ticker = Ticker(self._clock.now(), self._period, catch_up=self._options.slots.catch_up)
                continue
            now = self._clock.now()
            missed = ticker.missed
            if ticker.due(now):
                self.tick(until=ticker.deadline)
                self._ticked = self._clock.now()
                if self._ticked > ticker.deadline:
                    self._count("ticks_late")
                if ticker.missed != missed:
                    self._count("ticks_missed", ticker.missed - missed)
                continue
            self._wake.clear()
            if not self._stopped:
                self._clock.wait(ticker.deadline, self._wake)

    def _idle(self) -> None:
        """Nobody is there; wait for someone without ticking."""
        self._wake.clear()
        if not self._stopped and not self._slots.taken:
            self._wake.wait()

    # --- small things ------------------------------------------------------------------------------------------------

    def _newer(self, fence: Fence) -> _Session | None:
        known = self._find(fence.session)
        if known is None:
            return None
        with self._lock:
            held = self._fences.get(fence.session)
            if held is not None and fence.order >= held.order:
                self._fences[fence.session] = fence
                return known
            self._counters["requests_stale"] += 1
        return None

    def _holds(self, session: str) -> bool:
        with self._lock:
            return session in self._sessions

    def _find(self, session: str) -> _Session | None:
        with self._lock:
            known = self._sessions.get(session)
            if known is None:
                self._counters["requests_unknown"] += 1
            return known

    def _count(self, name: str, by: int = 1) -> None:
        with self._lock:
            self._counters[name] += by


def _coded(known: _Session, pcm: bytes, output: SlotOutput[Fence], codec: CodesFormat) -> CodedPcm:
    """`pcm` with the codes of its frame. A stream ends where a frame is left out or the model is taken back."""
    if output.number != known.follows:
        known.stream += 1
        known.coded = 0
    span = CodeSpan(codec, known.stream, known.coded * codec.frame_ticks, known.coded, (output.said,))
    known.coded += 1
    known.follows = output.number + 1
    return CodedPcm(pcm, span)


__all__ = ["Clock", "DuplexEngine", "DuplexOptions", "MonotonicClock", "TextDecoder"]
