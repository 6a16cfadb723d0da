"""One simulated session: a person, the real core, and who carries out what the core decides."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loadtest.person import BREAK
from loadtest.simulation.coalesce import Coalescer, Done
from loadtest.simulation.frames import FrameRun
from loadtest.simulation.places import Node, Worker
from loadtest.simulation.speech import NOTHING, SPEAKING, WINDOW, Speech, Trace, Window, plain
from sessions.core.config import SessionConfig, TurnConfig
from sessions.core.effects import (
    AdmitFrame,
    AdvanceEpoch,
    CancelResponse,
    ClearTimer,
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
from sessions.core.fence import Fence
from sessions.core.notices import PlaybackStopped
from sessions.core.session import Session
from sessions.core.state import Abilities
from sessions.core.timeline import TICK_RATE, Ticks, from_ms
from sessions.core.turns import CLOSING

if TYPE_CHECKING:
    from loadtest.simulation.cluster import Cluster

FRAME: Ticks = from_ms(20)
NEVER: Ticks = 1 << 62
UNTIMED = frozenset({"pump", "stall"})
"""Timers that nobody has to set: frames are caught up with, and the input of those who are attached never stops."""
PATIENCE: Ticks = from_ms(8000)
SOON: Ticks = from_ms(400)
"""Playback this long from its end is let end before anybody cuts in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """Of people. Seconds. `barge_in`: share of the replies that are interrupted."""

    questions: tuple[Speech, ...] = tuple(plain(seconds) for seconds in (1.5, 1.67, 1.82, 2.69))
    commands: tuple[Speech, ...] = tuple(plain(seconds) for seconds in (0.42, 0.76, 0.62, 1.32))
    room: Window = NOTHING
    """As it is heard while nobody speaks."""
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
    """From the true onset of an interruption until nothing is sent any more."""
    stop: list[float] = field(default_factory=list)
    """… to the arrival of the last sound of what was interrupted."""
    commit: list[float] = field(default_factory=list)
    """… to the word that what was not played yet is to be thrown away."""
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
        "_begin",
        "_chance",
        "_clock",
        "_cluster",
        "_core",
        "_end",
        "_fed",
        "_gate",
        "_heard",
        "_hushed",
        "_last_sound",
        "_onset",
        "_over",
        "_plan",
        "_replies",
        "_said",
        "_serial",
        "_speaking",
        "_state",
        "_timers",
        "_trace",
        "_woken_at",
        "node",
        "number",
        "worker",
    )

    def __init__(self, cluster: Cluster, number: int, node: Node, worker: Worker) -> None:
        self._cluster = cluster
        self._clock = cluster.clock
        self.number = number
        self.node = node
        self.worker = worker
        self._chance = random.Random(cluster.seed * 1_000_003 + number)
        self._takes(Session(f"s{number}", 1, cluster.config, ABILITIES))
        self._gate = self._core.session.fence
        """What may pass the last gate; moved by the core alone."""
        self._timers: dict[str, Ticks] = {}
        self._replies: dict[str, list[Ticks]] = {}
        """By response: what was made of it, what it may be, and how long it is."""
        self._heard: Ticks = 0
        """End of the input in which speech was looked for."""
        self._fed: Ticks = 0
        """End of the input that the core knows of."""
        self._trace: Trace | None = None
        """What the person says next, or is saying, as it is heard."""
        self._begin: Ticks = 0
        """Where its first window begins."""
        self._onset: Ticks = NEVER
        self._end: Ticks = NEVER
        """Of its sound, on the session's timeline."""
        self._over = False
        """Whether that is said over the agent."""
        self._said: Ticks | None = None
        """End of the last thing said, while its answer is waited for."""
        self._hushed: Ticks = 0
        """When the last hold began."""
        self._last_sound: Ticks = 0
        """When the last frame before it left."""
        self._speaking = False
        self._serial = 0
        """Plans of an earlier one are void."""
        self._plan = 0
        self._woken_at = NEVER
        """When frames are looked after next."""
        self._attached = True

    def _takes(self, session: Session) -> None:
        self._state = session.state
        self._core = Coalescer(session, paces=True)

    # --- time: the session's timeline is the cluster's ----------------------------------------------------------------

    @property
    def now(self) -> Ticks:
        return self._clock.now

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
        self._cluster.figures.unbalanced += not self._state.ledger.balanced
        self._quiet()
        self._timers.clear()

    def lost(self) -> None:
        """The node is gone, and everything that it was doing."""
        self.settle()
        self._serial += 1
        self._plan += 1
        self._timers.clear()
        self._replies.clear()
        self._attached = False
        self._woken_at = NEVER
        self._quiet()

    def taken_over(self, since: Ticks) -> None:
        """Another node, which is `node` by now, goes on with the session, from its snapshot, with a new incarnation."""
        core = Session.restore(self._core.session.snapshot())
        self._cluster.figures.events += self._core.handled
        # No timer of the former owner is due any more.
        effects = core.handle(OwnershipTaken(core.state.incarnation + 1), self.now)
        self._takes(core)
        self._core.handled = 1
        self._carry_out([*effects])
        self._attached = True
        self._give(CarrierAttached(acknowledged=False, paced=True, delay=0))
        self._heard = self._fed = max(self._fed, self.now // WINDOW * WINDOW)
        self._cluster.figures.dark.append((self.now - since) / TICK_RATE)
        self._said = None
        self._spoken()
        self._will_say(self._cluster.behaviour.questions, self._chance.uniform(0.5, 1.5), over=False)

    def hand_over(self) -> None:
        """The node lets go, in order: what is being said is cut there."""
        self._give(CarrierLost("drained"))
        self.lost()

    def settle(self) -> None:
        """Let everything happen that needed no waking until now."""
        if self._attached:
            self._feed(self.now // FRAME * FRAME)
            self._carry_out(self._core.catch_up(self.now))

    @property
    def handled(self) -> int:
        """Events that its core was given."""
        return self._core.handled

    @property
    def incarnation(self) -> int:
        """Which owner the session has by now."""
        return self._state.incarnation

    # --- the person --------------------------------------------------------------------------------------------------

    def _will_say(self, choices: Sequence[Speech], wait: float, over: bool) -> None:
        """The microphone sends frames: what is said begins with one."""
        speech = self._chance.choice(choices)
        begin = -(-(self.now + round(wait * TICK_RATE)) // FRAME) * FRAME
        self._onset, self._end = begin + speech.onset, begin + speech.end
        self._trace, self._begin = speech.at(begin), begin // WINDOW * WINDOW
        self._over = over
        self._hear_at(max(self._begin, self._heard) + WINDOW)

    def _hear_at(self, end: Ticks) -> None:
        """Give the core all windows up to the one that ends `end`, when that has been heard."""
        self._plan += 1
        arrived = -(-end // FRAME) * FRAME
        takes = self.node.hearing(self._chance)
        if self._over:
            takes += from_ms(self._cluster.times.echo)
        self._clock.at(arrived + takes, self._windows, end, self._plan)

    def _windows(self, end: Ticks, plan: int) -> None:
        if plan != self._plan:
            return
        frames = self._clock.now // FRAME * FRAME
        if frames > self._fed:
            self._feed(frames)
        while self._heard < end:
            self._run(min(end, self._alike_until()))
            if plan != self._plan:
                return  # it has become something to answer, and the person has other plans already
        self._listen()

    def _alike_until(self) -> Ticks:
        """Where a window comes that counts otherwise than the next one."""
        trace, number = self._trace, (self._heard - self._begin) // WINDOW
        if trace is None or number >= len(trace.windows):
            return NEVER
        return self._begin if number < 0 else self._begin + trace.runs[number] * WINDOW

    def _run(self, end: Ticks) -> None:
        """Windows of one kind from where the core is up to `end`."""
        start, self._heard = self._heard, end
        trace, number = self._trace, (end - self._begin) // WINDOW - 1
        if trace is None or not 0 <= number < len(trace.windows):
            chance, level, hiss = self._cluster.behaviour.room
            self._give(SpeechProbability(start, end, chance, level, 0.0, hiss))
            return
        if self._said != self._end:
            self._said = self._end
            self._cluster.figures.turns += 1
            self._clock.at(self._end + PATIENCE, self._asks_again, self._end, self._serial)
        chance, level, hiss = trace.windows[number]
        self._give(SpeechProbability(start, end, chance, level, 0.0, hiss))

    def _feed(self, end: Ticks) -> None:
        """The microphone is open all the time; nothing is lost."""
        start, self._fed = self._fed, end
        self._give(AudioArrived(start, end))

    def _listen(self) -> None:
        """When is the next window that may decide something?"""
        trace, policy = self._trace, self._state.policy
        number = (self._heard - self._begin) // WINDOW  # of the next one
        windows = 0 if trace is None else len(trace.windows)
        if number >= windows and policy.phase == "idle":
            self._spoken()
            return
        until = self._heard + WINDOW
        # Nothing is decided inside of a run but by its length.
        if policy.phase == "speech":
            run = number
            if trace is not None and number < windows:
                run = trace.runs[number] if trace.windows[number][0] >= SPEAKING else number
                gap = trace.runs[run] - run if run < windows else CLOSING // WINDOW
                until = self._begin + (run + min(gap, CLOSING // WINDOW)) * WINDOW
        elif policy.phase == "closing":
            until = -(-(policy.voiced_until + self._cluster.silence) // WINDOW) * WINDOW
            if trace is not None and number < windows:
                until = min(until, self._begin + (trace.runs[number] + 1) * WINDOW)
        self._hear_at(max(until, self._heard + WINDOW))

    def _spoken(self) -> None:
        """What was said has become a turn, or nothing."""
        self._trace = None
        self._onset = self._end = NEVER

    def _asks_again(self, said: Ticks, serial: int) -> None:
        if serial == self._serial and self._said == said:
            self._said = None
            self._cluster.figures.unanswered += 1
            self._will_say(self._cluster.behaviour.questions, 0.1, over=False)

    # --- the core ----------------------------------------------------------------------------------------------------

    def _give(self, event: Event) -> None:
        done = self._core.handle(event, self._clock.now)
        if done:
            self._carry_out(done)
            if self._state.active is not None:
                self._plan_frames()

    def _catch_up(self, due: Ticks) -> None:
        if due == self._woken_at:
            self._woken_at = NEVER
            self._carry_out(self._core.catch_up(due))
            self._plan_frames()

    def _plan_frames(self) -> None:
        """Wake when the last frame has left, or the engine is to make more; until then the core needs no waking."""
        due = self._core.paced_until()
        if due is not None and due != self._woken_at and self._attached:
            self._woken_at = due
            self._clock.at(due, self._catch_up, due)

    def _carry_out(self, done: Done) -> None:
        for effect in done:
            kind = type(effect)
            if kind is Notify:
                if type(effect.notice) is PlaybackStopped:  # type: ignore[union-attr]
                    self._fell_silent()
            elif kind in _HANDS:
                _HANDS[kind](self, effect)

    def _ran(self, run: FrameRun) -> None:
        """Frames that were stamped in one step."""
        self._cluster.figures.frames += run.count
        self._cluster.figures.stale += run.count * (not self._gate.admits(run.first.fence))

    def _admit(self, effect: AdmitFrame) -> None:
        figures = self._cluster.figures
        figures.frames += 1
        figures.stale += not self._gate.admits(effect.fence)
        if effect.start == 0:
            self._answers()

    def _answers(self) -> None:
        """The first frame of a reply."""
        figures = self._cluster.figures
        figures.replies += 1
        if not self._speaking:
            self._speaking = True
            self.node.changed(speaking=1)
        times = self._cluster.times
        if self._said is not None:
            done = self.node.work(times.first_step, times.turn)
            if self.now < self._said:
                return  # an answer to half of what is being said
            figures.first_audio.append((done - self._said) / TICK_RATE + (times.answer + times.network) / 1000)
            self._said = None
            self._spoken()
            self._plan += 1
        behaviour = self._cluster.behaviour
        if self._chance.random() < behaviour.barge_in:
            wait = behaviour.over_after * self._chance.uniform(0.8, 1.6)
            if wait < behaviour.reply - SOON / TICK_RATE:
                self._will_say(behaviour.commands, wait, over=True)

    def _advanced(self, effect: AdvanceEpoch) -> None:
        self._gate = effect.fence

    def _held(self, effect: HoldCarrier) -> None:
        now, frame = self.now, self._cluster.config.frame
        self._hushed, self._last_sound = now, now - (now - self._state.ledger.clock) % frame

    def _flushed(self, effect: FlushCarrier) -> None:
        self._quiet()
        if self._over:
            self._over = False
            figures = self._cluster.figures
            figures.interruptions += 1
            times = self._cluster.times
            self.node.work(times.interruption)
            figures.hold.append((self._hushed - self._onset) / TICK_RATE)
            figures.stop.append((self._last_sound - self._onset) / TICK_RATE + times.network / 1000)
            figures.commit.append((self.now - self._onset) / TICK_RATE + times.network / 1000)

    def _quiet(self) -> None:
        if self._speaking:
            self._speaking = False
            self.node.changed(speaking=-1)

    def _fell_silent(self) -> None:
        if self._state.active is None:
            self._quiet()
            if self._trace is None and self._said is None:
                pause = BREAK + self._cluster.behaviour.pause * self._chance.uniform(0.5, 1.5)
                self._will_say(self._cluster.behaviour.questions, pause, over=False)

    def _timer(self, effect: SetTimer) -> None:
        name, due = effect.name, effect.due
        if name not in UNTIMED:
            self._timers[name] = due
            self._clock.at(due, self._due, name, due, self._serial)

    def _due(self, name: str, due: Ticks, serial: int) -> None:
        if serial == self._serial and self._timers.get(name) == due:
            del self._timers[name]
            self._give(TimerDue(name))

    def _cleared(self, effect: ClearTimer) -> None:
        self._timers.pop(effect.name, None)

    # --- the models --------------------------------------------------------------------------------------------------

    def _transcribe(self, effect: Transcribe) -> None:
        answer = Transcript(effect.request, effect.start, effect.end, "please go on")
        clock = self._clock
        clock.at(clock.now + from_ms(self._cluster.times.words), self._take, answer, self._serial)

    def _take(self, answer: Event, serial: int) -> None:
        if serial == self._serial:
            self._give(answer)

    def _start(self, effect: StartResponse) -> None:
        frame = self._cluster.config.frame
        length = round(self._cluster.behaviour.reply * TICK_RATE / frame) * frame
        self._replies[effect.response] = [0, effect.credit, length]
        took = self.worker.engine_ms(self._cluster.times)
        self.worker.beginning += 1
        clock = self._clock
        clock.at(clock.now + from_ms(took), self._begun, self.worker, effect.fence, effect.response, self._serial)

    def _begun(self, worker: Worker, fence: Fence, response: str, serial: int) -> None:
        worker.beginning -= 1
        self._make(fence, response, serial)

    def _grant(self, effect: GrantCredit) -> None:
        reply = self._replies.get(effect.response)
        if reply is not None:
            reply[1] = effect.until
            clock = self._clock
            clock.at(clock.now, self._make, effect.fence, effect.response, self._serial)

    def _make(self, fence: Fence, response: str, serial: int) -> None:
        reply = self._replies.get(response)
        if reply is None or serial != self._serial:
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
    FrameRun: Call._ran,
    AdmitFrame: Call._admit,
    AdvanceEpoch: Call._advanced,
    HoldCarrier: Call._held,
    FlushCarrier: Call._flushed,
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
