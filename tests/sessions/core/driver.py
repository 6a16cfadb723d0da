"""A session on a virtual clock, and model peers that answer its effects.

`Driver` alone is a session with its timers: time stands still until a test moves it. `World` adds perception, an engine
and a carrier whose behaviour is set by plain attributes, so that a test (or a state machine) can make each of them
slow, silent, wrong, late or talkative. Nothing here draws random numbers: the same calls give the same events.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeVar

from sessions.core.config import SessionConfig
from sessions.core.effects import (
    AdmitFrame,
    AdvanceEpoch,
    AppendInput,
    AssessTurn,
    CancelPerception,
    CancelResponse,
    ClearTimer,
    CloseEngine,
    Count,
    Effect,
    EndSession,
    FlushCarrier,
    GrantCredit,
    Notify,
    OpenEngine,
    SetTimer,
    StartResponse,
    Transcribe,
)
from sessions.core.events import (
    AudioArrived,
    CarrierAttached,
    CarrierLost,
    DuplexFrame,
    EndOfTurnProbability,
    EngineAudio,
    EngineDone,
    EngineFailed,
    EngineText,
    EngineToolCall,
    EngineWords,
    Event,
    OwnershipTaken,
    PerceptionFailed,
    PlaybackReported,
    SpeechProbability,
    TimerDue,
    Transcript,
)
from sessions.core.fence import Fence
from sessions.core.records import Plain
from sessions.core.session import Session
from sessions.core.state import Abilities
from sessions.core.timeline import Ticks, Token, Word, from_ms

from .violations import Violation

WINDOW: Ticks = from_ms(32)
"""Hop of the speech probabilities."""
HOP: Ticks = from_ms(80)
"""Frame of the duplex engine."""
SPINS = 500
INSTANT: Ticks = from_ms(20)
"""More events than `SPINS` in so short a time mean that the core asks for a timer that is due already, or in the next
tick, over and over."""

E = TypeVar("E")


class Spinning(AssertionError):
    """The session keeps asking for timers that are due at once: time cannot go on."""


@dataclass(frozen=True, slots=True)
class Step:
    """One event, when it was handled, and what it made the session do."""

    now: Ticks
    event: Event
    effects: list[Effect]


class Observer(Protocol):
    """Sees every step; `before` is called ahead of the core."""

    def before(self, session: Session, event: Event, now: Ticks) -> None: ...

    def after(self, session: Session, step: Step) -> None: ...


class Peer(Protocol):
    """Someone whom effects are addressed to."""

    def receive(self, effect: Effect) -> None: ...


class Driver:
    """A session, a clock, its timers and whatever else is planned to happen."""

    def __init__(
        self,
        config: SessionConfig | None = None,
        abilities: Abilities | None = None,
        *,
        window: Ticks = WINDOW,
        session: str = "sess_t",
        incarnation: int = 1,
    ) -> None:
        self.config = config or SessionConfig()
        self.abilities = abilities or Abilities()
        self.session = Session(session, incarnation, self.config, self.abilities)
        self.window = window
        self.now: Ticks = 0
        self.position: Ticks = 0
        """End of the input track that was fed so far."""
        self.slip: Ticks = 0
        """How late timers are raised."""
        self.lag: Ticks = 0
        """How late speech probabilities come."""
        self.log: list[Step] = []
        self.peers: list[Peer] = []
        self.observers: list[Observer] = []
        self._timers: dict[str, Ticks] = {}
        self._queue: list[tuple[Ticks, int, Callable[[], None]]] = []
        self._planned = 0
        self._busy = False
        self.failed = False
        """Whether the last event was not taken, or was found to be taken wrongly."""
        self.former: Session | None = None
        """The session as its former owner, which may not know that it is one, still has it."""
        self._owners = incarnation
        self._asleep: list[Event] | None = None
        """What waits for a former owner that is stopped."""
        self._saved: tuple[Plain, int] = self.session.snapshot(), 0

    # --- events ----------------------------------------------------------------------------------------------------

    def post(self, event: Event) -> list[Effect]:
        """Hand `event` to the session now; returns its effects, after the peers have seen them."""
        if self._busy:
            raise RuntimeError("a peer must answer by `later`, never while an effect is being delivered")
        self.failed = True
        for observer in self.observers:
            observer.before(self.session, event, self.now)
        effects = self.session.handle(event, self.now)
        step = Step(self.now, event, effects)
        self.log.append(step)
        for observer in self.observers:
            observer.after(self.session, step)
        self.failed = False
        self._post_to_former(event)
        self._busy = True
        for effect in effects:
            if isinstance(effect, SetTimer):
                self._set_timer(effect)
            elif isinstance(effect, ClearTimer):
                self._timers.pop(effect.name, None)
            else:
                for peer in self.peers:
                    peer.receive(effect)
        self._busy = False
        return effects

    def _post_to_former(self, event: Event) -> None:
        """A former owner that lives on sees what happens too; nothing that it wants may be let through."""
        if self.former is None or isinstance(event, OwnershipTaken):
            return
        if self._asleep is not None:
            self._asleep.append(event)
            return
        fence = self.session.fence
        for effect in self.former.handle(event, self.now):
            stamp = getattr(effect, "fence", None)
            if isinstance(stamp, Fence) and fence.admits(stamp):
                raise Violation("7", f"{effect} of a former owner would pass")

    def later(self, delay: Ticks, event: Event | Callable[[], None]) -> None:
        """Plan an event, or a call, for `delay` ticks from now."""
        action = event if callable(event) else lambda: self._post(event)
        self._planned += 1
        heapq.heappush(self._queue, (self.now + max(0, delay), self._planned, action))

    def _post(self, event: Event) -> None:
        self.post(event)

    def _set_timer(self, effect: SetTimer) -> None:
        self._timers[effect.name] = effect.due
        due, name = effect.due, effect.name
        self._planned += 1
        heapq.heappush(self._queue, (max(self.now, due + self.slip), self._planned, lambda: self._timer_due(name, due)))

    def _timer_due(self, name: str, due: Ticks) -> None:
        if self._timers.get(name) == due:
            del self._timers[name]
            self.post(TimerDue(name))

    @property
    def timers(self) -> dict[str, Ticks]:
        """Timers that are set, and when they are due."""
        return dict(self._timers)

    # --- time ------------------------------------------------------------------------------------------------------

    def until(self, time: Ticks) -> None:
        """Let everything happen that is due up to `time`."""
        spins, since = 0, self.now
        while self._queue and self._queue[0][0] <= time:
            due, _, action = heapq.heappop(self._queue)
            self.now = max(self.now, due)
            if self.now - since > INSTANT:
                spins, since = 0, self.now
            spins += 1
            if spins > SPINS:
                raise Spinning(f"more than {SPINS} events from tick {since} to {self.now}; timers: {self._timers}")
            action()
        self.now = max(self.now, time)

    def wait(self, ms: float) -> None:
        """Time goes by without input."""
        self.until(self.now + from_ms(ms))

    # --- the user's side -------------------------------------------------------------------------------------------

    def feed(
        self,
        windows: int,
        probability: float = 0.9,
        *,
        concealed: bool = False,
        level: float = -120.0,
        echo: float = 0.0,
        hiss: float = -120.0,
    ) -> None:
        """`windows` windows of input, in real time, each with its speech probability."""
        window = self.window
        for _ in range(windows):
            self.until(self.now + window)
            start = self.position
            self.position = start + window
            self.post(AudioArrived(start, start + window, concealed))
            self.hear(start, start + window, probability, level, echo, hiss)

    def hear(
        self,
        start: Ticks,
        end: Ticks,
        probability: float,
        level: float = -120.0,
        echo: float = 0.0,
        hiss: float = -120.0,
    ) -> None:
        event = SpeechProbability(start, end, probability, level, echo, hiss)
        if self.lag:
            self.later(self.lag, event)
        else:
            self.post(event)

    def talk(self, ms: float) -> None:
        """The user speaks for at least `ms`."""
        self.feed(-(-from_ms(ms) // self.window), 0.9)

    def quiet(self, ms: float) -> None:
        """The user is silent, and the microphone open, for at least `ms`."""
        self.feed(-(-from_ms(ms) // self.window), 0.02)

    # --- reading the log -------------------------------------------------------------------------------------------

    def effects(self, kind: type[E]) -> list[E]:
        """All effects of a type so far, in order."""
        return [effect for step in self.log for effect in step.effects if isinstance(effect, kind)]

    def notices(self, kind: type[E]) -> list[E]:
        """All notices of a type so far, in order."""
        return [
            e.notice for step in self.log for e in step.effects if isinstance(e, Notify) and isinstance(e.notice, kind)
        ]

    def count(self, name: str) -> int:
        """A counter's value."""
        return sum(effect.by for effect in self.effects(Count) if effect.name == name)

    # --- restore ---------------------------------------------------------------------------------------------------

    def restore(self) -> None:
        """Go on with a session that is rebuilt from a snapshot; timers and peers live on."""
        self.session = Session.restore(self.session.snapshot())

    def save(self) -> None:
        """Keep a snapshot outside; later events are appended to it."""
        self._saved = self.session.snapshot(), len(self.log)

    def take_over(self) -> list[Effect]:
        """Another owner goes on: from what was saved, the events since, and nothing else."""
        self.succeed()
        return self.claim()

    def succeed(self, lost: int = 0) -> None:
        """Build the session that another owner goes on with. The newest `lost` events were never written: nothing that
        comes of them, or was planned, reaches the successor."""
        snapshot, since = self._saved
        kept = max(since, len(self.log) - lost)
        session = Session.restore(snapshot)
        for step in self.log[since:kept]:
            if session.handle(step.event, step.now) != step.effects:
                raise Violation("6", f"{step.event} had other effects after a restore")
        if kept < len(self.log):
            del self.log[kept:]
            self._queue.clear()
            self.position = session.state.input.watermark
        self.former, self.session = self.session, session
        self._asleep = None
        self._timers.clear()

    def claim(self) -> list[Effect]:
        """The successor becomes the owner, as the directory of sessions counts owners."""
        self._owners += 1
        return self.post(OwnershipTaken(self._owners))

    def stop_former(self) -> None:
        """The former owner is stopped: it takes in nothing until it wakes up."""
        if self.former is not None and self._asleep is None:
            self._asleep = []

    def wake_former(self) -> None:
        """It takes in at once all that has come meanwhile."""
        slept, self._asleep = self._asleep, None
        for event in slept or ():
            self._post_to_former(event)


def notices_in(effects: Iterable[Effect], kind: type[E]) -> list[E]:
    """The notices of a type among `effects`."""
    return [effect.notice for effect in effects if isinstance(effect, Notify) and isinstance(effect.notice, kind)]


def effects_in(effects: Iterable[Effect], kind: type[E]) -> list[E]:
    """The effects of a type among `effects`."""
    return [effect for effect in effects if isinstance(effect, kind)]


# --- perception ----------------------------------------------------------------------------------------------------


@dataclass
class PerceptionModel:
    """Answers questions about the input after `delay` ticks.

    `silent`: never answers. `failing`: answers with a failure. `stubborn`: answers even what was cancelled.
    `words` answers for whole turns, `look` for looks over the agent and captions. `complete` is the end-of-turn
    probability. A "#" in `words` becomes the request's number, so that no two turns say the same.
    """

    driver: Driver
    delay: Ticks = from_ms(60)
    silent: bool = False
    failing: bool = False
    stubborn: bool = False
    words: str = "question #"
    tokens: tuple[Token, ...] = ()
    look: str = "stop"
    complete: float = 0.9
    cancelled: set[int] = field(default_factory=set)

    def receive(self, effect: Effect) -> None:
        if isinstance(effect, CancelPerception):
            self.cancelled.add(effect.request)
        elif isinstance(effect, Transcribe | AssessTurn):
            self._asked(effect)

    def _asked(self, asked: Transcribe | AssessTurn) -> None:
        failing = self.failing
        if not self.silent:
            self.driver.later(self.delay, lambda: self._answer(asked, failing))

    def _answer(self, asked: Transcribe | AssessTurn, failing: bool) -> None:
        if asked.request in self.cancelled and not self.stubborn:
            return
        if failing:
            self.driver.post(PerceptionFailed(asked.request, "model_error", "the recogniser failed"))
        elif isinstance(asked, AssessTurn):
            self.driver.post(EndOfTurnProbability(asked.request, asked.at, self.complete))
        else:
            text = (self.words if asked.final else self.look).replace("#", str(asked.request))
            tokens = self.tokens if asked.final else ()
            self.driver.post(Transcript(asked.request, asked.start, asked.end, text, tokens=tokens))


# --- engine --------------------------------------------------------------------------------------------------------


@dataclass
class Job:
    """One response that the engine works on."""

    asked: StartResponse
    length: Ticks
    calls: int
    fails_at: Ticks | None
    credit: Ticks
    made: Ticks = 0
    said: int = 0
    cancelled_at: Ticks | None = None
    waiting: bool = False
    over: bool = False


@dataclass
class EngineModel:
    """Speaks `length` ticks in pieces, `word` ticks a word, within its credit, one piece every `pace` ticks.

    `late`: how long it goes on after a cancel. `repeat`: each piece is sent twice. `fails_at`: content position at
    which it gives up. `calls`: tool calls at the end. `silent`: never answers. Words are unique in a session (" w<n>"),
    so that a checker can tell whose they are.
    """

    driver: Driver
    latency: Ticks = from_ms(120)
    pace: Ticks = from_ms(20)
    piece: Ticks = from_ms(200)
    length: Ticks = from_ms(1600)
    word: Ticks = from_ms(250)
    late: Ticks = 0
    calls: int = 0
    fails_at: Ticks | None = None
    reason: Literal["completed", "max_output_tokens", "content_filter"] = "completed"
    repeat: bool = False
    silent: bool = False
    jobs: dict[str, Job] = field(default_factory=dict)
    spoken: int = 0
    called: list[str] = field(default_factory=list)

    def receive(self, effect: Effect) -> None:
        if isinstance(effect, StartResponse):
            job = Job(effect, self.length, self.calls, self.fails_at, effect.credit)
            self.jobs[effect.response] = job
            if not self.silent:
                self.driver.later(self.latency, lambda: self._work(job))
        elif isinstance(effect, GrantCredit):
            granted = self.jobs.get(effect.response)
            if granted is not None:
                granted.credit = effect.until
                if granted.waiting:
                    granted.waiting = False
                    self.driver.later(0, lambda: self._work(granted))
        elif isinstance(effect, CancelResponse):
            cancelled = self.jobs.get(effect.response)
            if cancelled is not None:
                cancelled.cancelled_at = self.driver.now
        elif isinstance(effect, CloseEngine | EndSession):
            for job in self.jobs.values():
                job.cancelled_at = self.driver.now if job.cancelled_at is None else job.cancelled_at

    def _work(self, job: Job) -> None:
        driver = self.driver
        if job.over or (job.cancelled_at is not None and driver.now > job.cancelled_at + self.late):
            return
        if job.cancelled_at is not None and self.late == 0:
            return
        fence, response = job.asked.fence, job.asked.response
        if job.fails_at is not None and job.made >= job.fails_at:
            job.over = True
            driver.post(EngineFailed(fence, response, "engine_error", "the model failed"))
            return
        end = min(job.length, job.made + self.piece)
        if job.made < job.length:
            if end > job.credit:
                job.waiting = True
                return
            words = self._words(job, end)
            if job.asked.modality == "text":
                driver.post(EngineText(fence, response, "".join(word.text for word in words)))
            else:
                driver.post(EngineWords(fence, response, words))
                piece = EngineAudio(fence, response, job.made, end)
                driver.post(piece)
                if self.repeat:
                    driver.post(piece)
            job.made = end
            driver.later(self.pace, lambda: self._work(job))
            return
        job.over = True
        for _ in range(job.calls):
            call = f"call_{len(self.called)}"
            self.called.append(call)
            driver.post(EngineToolCall(fence, response, call, "look_up", '{"of": 1}'))
        driver.post(EngineDone(fence, response, self.reason, 3, 4))

    def _words(self, job: Job, end: Ticks) -> tuple[Word, ...]:
        words: list[Word] = []
        while job.said * self.word < end:
            start = job.said * self.word
            words.append(Word(f" w{self.spoken}", start, min(job.length, start + self.word)))
            self.spoken += 1
            job.said += 1
        return tuple(words)


@dataclass
class DuplexModel:
    """An engine that owns its turns: one frame per hop of input, on its own clock.

    `speaking`: whether its frames are speech. `lag`: how late it learns of a new epoch (its frames keep the old fence).
    """

    driver: Driver
    speaking: bool = False
    lag: Ticks = 0
    fence: Fence | None = None
    appended: Ticks = 0
    made: Ticks = 0
    spoken: int = 0
    closed: bool = False

    def receive(self, effect: Effect) -> None:
        if isinstance(effect, OpenEngine):
            self.fence = effect.fence
        elif isinstance(effect, AdvanceEpoch):
            self.driver.later(self.lag, lambda: self._advance(effect.fence))
        elif isinstance(effect, AppendInput):
            self.appended = effect.end
            self.driver.later(from_ms(10), self._work)
        elif isinstance(effect, CloseEngine):
            self.closed = True

    def _advance(self, fence: Fence) -> None:
        self.fence = fence

    def _work(self) -> None:
        while self.fence is not None and not self.closed and self.made + HOP <= self.appended:
            start = self.made
            self.made += HOP
            text = ""
            if self.speaking:
                text = f" w{self.spoken}"
                self.spoken += 1
            self.driver.post(DuplexFrame(self.fence, start, self.made, self.speaking, text))


# --- carrier -------------------------------------------------------------------------------------------------------


@dataclass
class CarrierModel:
    """Plays each frame where it was placed and, if `acknowledged`, says so `delay` ticks later.

    `lie` is added to every reported position. `repeat`: each report comes twice. `stubborn`: reports come even for
    frames that a flush threw away.
    """

    driver: Driver
    acknowledged: bool = False
    paced: bool = False
    ear: Ticks = 0
    """From a frame's placement to the ear, as it says when it is attached."""
    delay: Ticks = from_ms(40)
    lie: Ticks = 0
    repeat: bool = False
    stubborn: bool = False
    silent: bool = False
    flushes: int = 0

    @property
    def attached(self) -> CarrierAttached:
        return CarrierAttached(self.acknowledged, self.paced, self.ear)

    def receive(self, effect: Effect) -> None:
        if isinstance(effect, AdmitFrame):
            if self.acknowledged and not self.silent:
                frame = effect
                flushes = self.flushes
                ends = frame.placed_at + frame.end - frame.start
                self.driver.later(ends + self.delay - self.driver.now, lambda: self._report(frame, flushes))
        elif isinstance(effect, FlushCarrier):
            self.flushes += 1

    def _report(self, frame: AdmitFrame, flushes: int) -> None:
        if flushes != self.flushes and not self.stubborn:
            return
        report = PlaybackReported(frame.response, frame.end + self.lie)
        self.driver.post(report)
        if self.repeat:
            self.driver.post(report)


class World(Driver):
    """A driver with all three peers, attached."""

    def __init__(
        self,
        config: SessionConfig | None = None,
        abilities: Abilities | None = None,
        *,
        window: Ticks = WINDOW,
        acknowledged: bool = False,
        paced: bool = False,
        ear: Ticks = 0,
        observers: Iterable[Observer] = (),
        attach: bool = True,
    ) -> None:
        super().__init__(config, abilities, window=window)
        self.observers.extend(observers)
        self.perception = PerceptionModel(self)
        self.engine = EngineModel(self)
        self.duplex = DuplexModel(self)
        self.carrier = CarrierModel(self, acknowledged, paced, ear)
        self.peers += [self.perception, self.carrier]
        self.peers.append(self.duplex if self.abilities.engine_turns else self.engine)
        if attach:
            self.attach()

    def succeed(self, lost: int = 0) -> None:
        super().succeed(lost)
        if lost:
            # The successor's requests and responses may have the numbers of those that nobody knows of any more.
            self.perception.cancelled.clear()
            self.engine.jobs.clear()

    def attach(self) -> list[Effect]:
        return self.post(self.carrier.attached)

    def detach(self) -> list[Effect]:
        return self.post(CarrierLost("gone"))

    def ask(self, ms: float = 800) -> None:
        """The user says something and waits until the turn has ended."""
        self.talk(ms)
        turns = self.session.state.config.turns
        self.quiet((turns.silence_ms if turns is not None else 500) + 64)

    def converse(self, ms: float = 600) -> None:
        """A question, and so much of the time after it that the agent speaks."""
        self.ask()
        self.quiet(ms)


def without_turns(config: SessionConfig | None = None) -> SessionConfig:
    """The same configuration for push to talk."""
    return replace(config or SessionConfig(), turns=None)
