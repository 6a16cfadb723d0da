"""One simulated session: a person, the real core, and who carries out what the core decides."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loadtest.person import BREAK
from loadtest.simulation.coalesce import Coalescer
from loadtest.simulation.places import Node, Worker
from sessions.core.config import SessionConfig, TurnConfig
from sessions.core.effects import (
    AdmitFrame,
    AdvanceEpoch,
    CancelResponse,
    ClearTimer,
    Effect,
    FlushCarrier,
    GrantCredit,
    HoldCarrier,
    Notify,
    SetTimer,
    StartResponse,
    Transcribe,
)
from sessions.core.events import (
    AudioArrived,
    CarrierAttached,
    CarrierLost,
    Close,
    EngineAudio,
    EngineDone,
    Event,
    OwnershipTaken,
    SpeechProbability,
    TimerDue,
    Transcript,
)
from sessions.core.notices import PlaybackStopped
from sessions.core.session import Session
from sessions.core.state import Abilities
from sessions.core.timeline import TICK_RATE, Ticks, from_ms

if TYPE_CHECKING:
    from loadtest.simulation.cluster import Cluster

WINDOW: Ticks = from_ms(32)
FRAME: Ticks = from_ms(20)
FORGET: Ticks = from_ms(10_000)
NEVER: Ticks = 1 << 62
PATIENCE: Ticks = from_ms(8000)
SOON: Ticks = from_ms(400)
"""Playback this long from its end is let end before anybody cuts in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """Seconds. `barge_in`: share of the replies that are interrupted."""

    questions: tuple[float, ...] = (1.5, 1.67, 1.82, 2.69)
    commands: tuple[float, ...] = (0.42, 0.76, 0.62, 1.32)
    reply: float = 3.0
    pause: float = 0.6
    begin: tuple[float, float] = (0.2, 2.0)
    barge_in: float = 0.0
    over_after: float = 0.9


@dataclass(slots=True)
class Figures:
    """What all calls saw; seconds."""

    first_audio: list[float] = field(default_factory=list)
    hold: list[float] = field(default_factory=list)
    stop: list[float] = field(default_factory=list)
    dark: list[float] = field(default_factory=list)
    """From the loss of a node until the session went on elsewhere."""
    turns: int = 0
    replies: int = 0
    interruptions: int = 0
    unanswered: int = 0
    stale: int = 0
    """Frames of an older fence that the core let out; must be 0."""
    unbalanced: int = 0
    """Sessions whose ledger did not balance at their end; must be 0."""
    events: int = 0
    """That the cores were given."""
    frames: int = 0


class Call:
    """A person on the phone."""

    __slots__ = (
        "_attached",
        "_chance",
        "_cluster",
        "_core",
        "_end",
        "_fed",
        "_gate",
        "_heard",
        "_onset",
        "_over",
        "_plan",
        "_replies",
        "_said",
        "_serial",
        "_speaking",
        "_timers",
        "node",
        "number",
        "worker",
    )

    def __init__(self, cluster: Cluster, number: int, node: Node, worker: Worker) -> None:
        self._cluster = cluster
        self.number = number
        self.node = node
        self.worker = worker
        self._chance = random.Random(cluster.seed * 1_000_003 + number)
        self._core = Coalescer(Session(f"s{number}", 1, cluster.config, ABILITIES))
        self._gate = self._core.session.fence
        """What may pass the last gate; moved by the core alone."""
        self._timers: dict[str, Ticks] = {}
        self._replies: dict[str, list[Ticks]] = {}
        """By response: what was made of it, what it may be, and how long it is."""
        self._heard: Ticks = 0
        """End of the input in which speech was looked for."""
        self._fed: Ticks = 0
        """End of the input that the core knows of."""
        self._onset: Ticks = NEVER
        self._end: Ticks = NEVER
        """Of what the person says next, or is saying, on the session's timeline."""
        self._over = False
        """Whether that is said over the agent."""
        self._said: Ticks | None = None
        """End of the last thing said, while its answer is waited for."""
        self._speaking = False
        self._serial = 0
        """Plans of an earlier one are void."""
        self._plan = 0
        self._attached = True

    # --- time: the session's timeline is the cluster's ----------------------------------------------------------------

    @property
    def now(self) -> Ticks:
        return self._cluster.clock.now

    def begin(self) -> None:
        """The call is answered."""
        self._heard = self._fed = self.now // WINDOW * WINDOW
        self._give(CarrierAttached(acknowledged=False, paced=True, delay=0))
        begin, end = self._cluster.behaviour.begin
        self._will_say(self._cluster.behaviour.questions, self._chance.uniform(begin, end), over=False)

    def end(self) -> None:
        """Hang up."""
        self._serial += 1
        self._give(Close())
        state = self._core.session.state
        self._cluster.figures.unbalanced += not state.ledger.balanced
        self._quiet()
        self._timers.clear()

    def lost(self) -> None:
        """The node is gone, and everything that it was doing."""
        self._serial += 1
        self._plan += 1
        self._timers.clear()
        self._replies.clear()
        self._attached = False
        self._quiet()

    def taken_over(self, node: Node, worker: Worker, since: Ticks) -> None:
        """Another node goes on with the session, from its snapshot, with a new incarnation."""
        core = Session.restore(self._core.session.snapshot())
        self._cluster.figures.events += self._core.handled
        self._core = Coalescer(core)
        self.node, self.worker = node, worker
        self._attached = True
        self._give(OwnershipTaken(core.state.incarnation + 1))
        self._give(CarrierAttached(acknowledged=False, paced=True, delay=0))
        self._heard = self._fed = max(self._fed, self.now // WINDOW * WINDOW)
        self._cluster.figures.dark.append((self.now - since) / TICK_RATE)
        self._said = None
        self._onset = self._end = NEVER
        self._will_say(self._cluster.behaviour.questions, self._chance.uniform(0.5, 1.5), over=False)

    def hand_over(self) -> None:
        """The node lets go, in order: what is being said is cut there."""
        self._give(CarrierLost("drained"))
        self.lost()

    @property
    def handled(self) -> int:
        """Events that its core was given."""
        return self._core.handled

    @property
    def incarnation(self) -> int:
        """Which owner the session has by now."""
        return self._core.session.state.incarnation

    # --- the person --------------------------------------------------------------------------------------------------

    def _will_say(self, lengths: tuple[float, ...], wait: float, over: bool) -> None:
        self._onset = self.now + round(wait * TICK_RATE)
        self._end = self._onset + round(self._chance.choice(lengths) * TICK_RATE)
        self._over = over
        first = self._onset // WINDOW * WINDOW
        self._hear_at(first + WINDOW)

    def _hear_at(self, end: Ticks) -> None:
        """Give the core all windows up to the one that ends `end`, when that has been heard."""
        self._plan += 1
        plan = self._plan
        self._cluster.clock.at(end + self.node.hearing(), lambda: self._windows(end, plan))

    def _windows(self, end: Ticks, plan: int) -> None:
        if plan != self._plan:
            return
        # Everything before the last window is like the one before it: a run.
        if self._heard < end - WINDOW:
            self._run(end - WINDOW)
        self._run(end)
        if plan == self._plan:  # else it has become something to answer, and the person has other plans already
            self._listen()

    def _run(self, end: Ticks) -> None:
        """Windows of one kind from where the core is up to `end`."""
        start = self._heard
        self._heard = end
        voiced = start + WINDOW // 2 >= self._onset and start + WINDOW // 2 < self._end
        if voiced and self._said != self._end:
            self._said = self._end
            self._cluster.figures.turns += 1
            self._cluster.clock.at(self._end + PATIENCE, self._asks_again(self._end))
        self._feed(end)
        self._give(SpeechProbability(start, end, 0.95 if voiced else 0.02))

    def _feed(self, end: Ticks) -> None:
        """The microphone is open all the time; nothing is lost."""
        while self._fed < end:
            upto = min(end, (self._fed // FORGET + 1) * FORGET + WINDOW)
            start, self._fed = self._fed, upto
            self._give(AudioArrived(start, upto))

    def _listen(self) -> None:
        """When is the next window that may decide something?"""
        state = self._core.session.state
        phase = state.policy.phase
        last_voiced = (self._end - WINDOW // 2 - 1) // WINDOW * WINDOW + WINDOW
        if phase == "closing" and self._heard >= last_voiced:
            turns = state.config.turns
            assert turns is not None
            silence = state.policy.voiced_until + from_ms(turns.silence_ms)
            self._hear_at(-(-silence // WINDOW) * WINDOW)
        elif phase == "speech" and self._heard < last_voiced - WINDOW:
            self._hear_at(last_voiced)
        elif phase != "idle" or self._heard < last_voiced:
            self._hear_at(self._heard + WINDOW)
        else:
            self._spoken()

    def _spoken(self) -> None:
        """What was said has become a turn, or nothing."""
        self._onset = self._end = NEVER

    def _asks_again(self, said: Ticks) -> Callable[[], None]:
        serial = self._serial

        def ask() -> None:
            if serial == self._serial and self._said == said:
                self._said = None
                self._cluster.figures.unanswered += 1
                self._will_say(self._cluster.behaviour.questions, 0.1, over=False)

        return ask

    # --- the core ----------------------------------------------------------------------------------------------------

    def _give(self, event: Event) -> None:
        now = self.now
        effects = self._core.pumped_until(now)
        self._carry_out(effects + self._core.handle(event, now))
        self._plan_pump()

    def _pump(self) -> None:
        self._carry_out(self._core.pumped_until(self.now))
        self._plan_pump()

    def _plan_pump(self) -> None:
        """Wake before the ear runs dry; the core counts as if it had been woken for every frame."""
        state = self._core.session.state
        if state.pump_due is None or not self._attached:
            return
        due = max(state.pump_due, state.ledger.clock)
        if self._timers.get("pump") == due:
            return
        self._timers["pump"] = due
        serial = self._serial

        def wake() -> None:
            if serial == self._serial and self._timers.get("pump") == due:
                del self._timers["pump"]
                self._pump()

        self._cluster.clock.at(due, wake)

    def _carry_out(self, effects: list[Effect]) -> None:
        figures, fence = self._cluster.figures, None
        for effect in effects:
            if type(effect) is AdmitFrame:
                figures.frames += 1
                # Of frames that leave together one is as good as all: they were stamped in one step.
                if effect.fence is not fence:
                    fence = effect.fence
                    figures.stale += not self._gate.admits(fence)
                if effect.start:
                    continue
            hand = _HANDS.get(type(effect))
            if hand is not None:
                hand(self, effect)

    def _admit(self, effect: AdmitFrame) -> None:
        """The first frame of a reply."""
        figures = self._cluster.figures
        figures.replies += 1
        if not self._speaking:
            self._speaking = True
            self.node.changed(speaking=1)
        times = self._cluster.times
        if self._said is not None:
            done = self.node.work(times.first_step)
            self.node.work(max(0.0, times.turn - times.first_step))
            figures.first_audio.append((done - self._said) / TICK_RATE + times.network / 1000)
            self._said = None
            self._onset = self._end = NEVER
            self._plan += 1
        behaviour = self._cluster.behaviour
        if self._chance.random() < behaviour.barge_in:
            wait = behaviour.over_after * self._chance.uniform(0.8, 1.6)
            if wait < behaviour.reply - SOON / TICK_RATE:
                self._will_say(behaviour.commands, wait, over=True)

    def _advanced(self, effect: AdvanceEpoch) -> None:
        self._gate = effect.fence

    def _held(self, effect: HoldCarrier) -> None:
        self._cluster.figures.hold.append((self.now - self._onset) / TICK_RATE)

    def _flushed(self, effect: FlushCarrier) -> None:
        self._quiet()
        if self._over:
            self._over = False
            self._cluster.figures.interruptions += 1
            self._cluster.figures.stop.append((self.now - self._onset) / TICK_RATE)

    def _quiet(self) -> None:
        if self._speaking:
            self._speaking = False
            self.node.changed(speaking=-1)

    def _noticed(self, effect: Notify) -> None:
        if isinstance(effect.notice, PlaybackStopped) and self._core.session.state.active is None:
            self._quiet()
            if self._onset == NEVER and self._said is None:
                pause = BREAK + self._cluster.behaviour.pause * self._chance.uniform(0.5, 1.5)
                self._will_say(self._cluster.behaviour.questions, pause, over=False)

    def _timer(self, effect: SetTimer) -> None:
        name, due = effect.name, effect.due
        if name == "pump":
            return
        self._timers[name] = due
        serial = self._serial

        def wake() -> None:
            if serial == self._serial and self._timers.get(name) == due:
                del self._timers[name]
                self._feed(self.now // FRAME * FRAME)
                self._give(TimerDue(name))

        self._cluster.clock.at(due, wake)

    def _cleared(self, effect: ClearTimer) -> None:
        self._timers.pop(effect.name, None)

    # --- the models --------------------------------------------------------------------------------------------------

    def _later(self, milliseconds: float, action: Callable[[], None]) -> None:
        serial = self._serial
        self._cluster.clock.at(self.now + from_ms(milliseconds), lambda: serial == self._serial and action())

    def _transcribe(self, effect: Transcribe) -> None:
        answer = Transcript(effect.request, effect.start, effect.end, "please go on")
        self._later(self._cluster.times.words, lambda: self._give(answer))

    def _start(self, effect: StartResponse) -> None:
        frame = self._cluster.config.frame
        length = round(self._cluster.behaviour.reply * TICK_RATE / frame) * frame
        self._replies[effect.response] = [0, effect.credit, length]
        worker, took = self.worker, self.worker.engine_ms(self._cluster.times)
        worker.beginning += 1

        def make() -> None:
            worker.beginning -= 1
            if serial == self._serial:
                self._make(effect.fence, effect.response)

        serial = self._serial
        self._cluster.clock.at(self.now + from_ms(took), make)

    def _grant(self, effect: GrantCredit) -> None:
        reply = self._replies.get(effect.response)
        if reply is not None:
            reply[1] = effect.until
            self._later(0, lambda: self._make(effect.fence, effect.response))

    def _make(self, fence: Any, response: str) -> None:
        reply = self._replies.get(response)
        if reply is None:
            return
        made, credit, length = reply
        upto = min(credit, length)
        if upto > made:
            reply[0] = upto
            self._give(EngineAudio(fence, response, made, upto))
        if upto == length and response in self._replies:
            del self._replies[response]
            self._give(EngineDone(fence, response))

    def _cancel(self, effect: CancelResponse) -> None:
        self._replies.pop(effect.response, None)


_HANDS: dict[type, Callable[[Call, Any], None]] = {
    AdmitFrame: Call._admit,
    AdvanceEpoch: Call._advanced,
    HoldCarrier: Call._held,
    FlushCarrier: Call._flushed,
    Notify: Call._noticed,
    SetTimer: Call._timer,
    ClearTimer: Call._cleared,
    Transcribe: Call._transcribe,
    StartResponse: Call._start,
    GrantCredit: Call._grant,
    CancelResponse: Call._cancel,
}

ABILITIES = Abilities()


def configuration(silence_ms: int, frame_ms: int) -> SessionConfig:
    """Of every simulated session. One that is lost with its node waits for another."""
    turns = TurnConfig(silence_ms=silence_ms)
    return SessionConfig(turns=turns, frame=from_ms(frame_ms), grace=from_ms(30_000))
