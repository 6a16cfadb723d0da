"""A state machine that drives a session through every interleaving it can think of, under the checker's eyes."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, cast

import hypothesis.strategies as st
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from sessions.core.config import SessionConfig, Tool, TurnConfig
from sessions.core.context import ContextEntry, ItemReference
from sessions.core.effects import Count
from sessions.core.events import (
    AudioArrived,
    CarrierBlocked,
    CarrierLost,
    CarrierReady,
    Close,
    CommandRejected,
    ConfigUpdate,
    DigitPressed,
    DuplexFrame,
    EndOfTurnProbability,
    EngineAudio,
    EngineDone,
    EngineFailed,
    EngineStage,
    EngineText,
    EngineToolCall,
    EngineWords,
    Event,
    InputClear,
    InputCommit,
    ItemCreate,
    ItemDelete,
    ItemRetrieve,
    ItemTruncate,
    OutputClear,
    OwnershipLost,
    OwnershipTaken,
    PerceptionFailed,
    PlaybackReported,
    ResponseCancel,
    ResponseCreate,
    TimerDue,
    Transcript,
)
from sessions.core.fence import Fence
from sessions.core.notices import InputCommitted, InputTimedOut, ItemAdded, ResponseClosed
from sessions.core.session import Session
from sessions.core.state import Abilities
from sessions.core.timeline import Word, from_ms

from .anew import ANEW
from .checker import Checker
from .checker_asides import Beside
from .driver import Step, World, notices_in
from .violations import Violation
from .visits import Visits

STEPS_PER_EXAMPLE = 80
EXAMPLES_PER_ROUND = 500
"""Hypothesis remembers all examples of a round, so as to try new ones: ten kilobytes for each step."""
WINDOWS = (from_ms(32), from_ms(64))

_TURNS = TurnConfig(silence_ms=256, max_silence_ms=1200)
_BASE = SessionConfig(
    turns=_TURNS,
    frame=from_ms(60),
    credit=from_ms(1500),
    tools=(Tool(name="look_up"),),
    grace=from_ms(20_000),
    acknowledge_playback=True,
)
CONFIGS: tuple[SessionConfig, ...] = (
    _BASE,
    replace(_BASE, turns=replace(_TURNS, kind="semantic_vad")),
    replace(_BASE, turns=replace(_TURNS, interrupt_response=False, idle_timeout_ms=600)),
    replace(_BASE, turns=None, lead=from_ms(120), grace=from_ms(300)),
    replace(_BASE, turns=replace(_TURNS, create_response=False), transcribe_input=True),
    replace(_BASE, turns=replace(_TURNS, kind="semantic_vad"), transcribe_input=True, frame=from_ms(20)),
    replace(_BASE, modality="text", grace=0),
    replace(_BASE, turns=replace(_TURNS, idle_timeout_ms=600), lead=from_ms(400), credit=from_ms(400)),
    replace(_BASE, turns=replace(_TURNS, idle_timeout_ms=600)),
    replace(_BASE, turns=replace(_TURNS, kind="semantic_vad", idle_timeout_ms=2500)),
    replace(_BASE, responses=False, transcribe_input=True),
    replace(_BASE, voice="another"),
    replace(_BASE, keys_pause_ms=900, keys_interrupt=True, greet_after_ms=500),
)

PERCEPTION: tuple[dict[str, Any], ...] = (
    {
        "delay": from_ms(30),
        "silent": False,
        "failing": False,
        "stubborn": False,
        "words": "question #",
        "look": "stop",
        "complete": 0.9,
    },
    {"delay": from_ms(500), "stubborn": True},
    {"silent": True},
    {"failing": True},
    {"delay": 0, "look": "mm-hmm"},
    {"words": "", "look": ""},
    {"look": "mm-hmm"},
    {"look": "stop #", "delay": from_ms(300)},
    {"complete": 0.1},
    {"complete": 0.95, "delay": from_ms(200), "words": "question # ?"},
)
ENGINE: tuple[dict[str, Any], ...] = (
    {
        "latency": from_ms(60),
        "pace": from_ms(20),
        "piece": from_ms(200),
        "length": from_ms(1400),
        "late": 0,
        "calls": 0,
        "fails_at": None,
        "reason": "completed",
        "repeat": False,
        "silent": False,
    },
    {"latency": from_ms(700), "late": from_ms(200)},
    {"length": from_ms(330), "piece": from_ms(50)},
    {"length": from_ms(3000), "piece": from_ms(500), "pace": 0},
    {"piece": from_ms(90), "pace": from_ms(90), "length": from_ms(1000)},
    {"calls": 2, "length": from_ms(500)},
    {"calls": 1, "length": 0},
    {"fails_at": from_ms(270), "piece": from_ms(90)},
    {"fails_at": 0},
    {"late": from_ms(5000), "repeat": True, "length": from_ms(2000)},
    {"silent": True},
    {"reason": "max_output_tokens", "length": from_ms(600)},
)
CARRIER: tuple[dict[str, Any], ...] = (
    {"delay": from_ms(30), "lie": 0, "repeat": False, "stubborn": False, "silent": False},
    {"delay": from_ms(900)},
    {"lie": from_ms(100)},
    {"lie": -from_ms(100), "repeat": True},
    {"stubborn": True, "delay": from_ms(300)},
    {"silent": True},
    {"acknowledged": True},
    {"acknowledged": False},
)


@dataclass
class Tally:
    """Sums over all examples of a run."""

    steps: int = 0
    examples: int = 0
    closed: int = 0
    visits: Visits = field(default_factory=Visits)
    counted: Counter[str] = field(default_factory=Counter)
    """The core's own counters, summed."""
    told: Counter[str] = field(default_factory=Counter)
    """Idle times that ended, and responses outside the conversation by how they ended."""


def step(**arguments: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Any]:
    """A rule that is counted."""

    def wrap(function: Callable[..., None]) -> Any:
        @functools.wraps(function)
        def counted(self: Conversation, **values: Any) -> None:
            self.tally.steps += 1
            self.taken += 1
            function(self, **values)

        return cast(Any, rule)(**arguments)(counted)

    return wrap


def _set(peer: object, behaviours: tuple[dict[str, Any], ...], which: int) -> None:
    """The first behaviour with what is different about another."""
    for name, value in (behaviours[0] | behaviours[which]).items():
        setattr(peer, name, value)


def _small(limit: int) -> st.SearchStrategy[int]:
    return st.integers(0, limit)


class Conversation(RuleBasedStateMachine):
    """Rules are what can happen from outside; the world answers by itself in between."""

    tally: Tally

    @initialize(
        kind=_small(7),
        config=_small(len(CONFIGS) - 2),
        window=st.sampled_from(WINDOWS),
        start=st.sampled_from((0, 0, 1, 2)),
    )
    def begin(self, kind: int, config: int, window: int, start: int) -> None:
        duplex = kind == 7
        self.window = window
        self.config = _BASE if duplex else CONFIGS[config]
        self.abilities = Abilities(duplex, duplex, kind != 6)
        self.checker = Checker(self.config, owns_turns=duplex)
        self.items: list[str] = ["item_nobody"]
        self.world = World(
            self.config,
            self.abilities,
            window=window,
            acknowledged=kind % 2 == 1,
            paced=kind in (2, 3, 4),
            ear=from_ms(60) if kind in (3, 4) else 0,
            observers=(self.tally.visits, self.checker, self),
        )
        self.world.perception.delay = from_ms(30)
        self.tally.examples += 1
        self.taken = 0
        if start:
            self.ask(7 * start)

    # --- an observer of its own world --------------------------------------------------------------------------------

    def before(self, session: Session, event: Event, now: int) -> None:
        """Nothing to note ahead of an event."""

    def after(self, session: Session, step: Step) -> None:
        for effect in step.effects:
            if type(effect) is Count:
                self.tally.counted[effect.name] += effect.by
        for added in notices_in(step.effects, ItemAdded):
            self.items.append(added.item.id)
        for closed in notices_in(step.effects, ResponseClosed):
            if closed.response.aside:
                self.tally.told[closed.response.status] += 1
        self.tally.told["timed_out"] += len(notices_in(step.effects, InputTimedOut))
        for committed in notices_in(step.effects, InputCommitted):
            self.items.append(committed.item)

    # --- the user ----------------------------------------------------------------------------------------------------

    def _feed(self, windows: int, probability: float, concealed: bool = False) -> None:
        if self.world.session.state.attached:
            self.world.feed(windows, probability, concealed=concealed)
        else:
            self.world.until(self.world.now + windows * self.window)

    @step(windows=st.integers(1, 9))
    def talk(self, windows: int) -> None:
        self._feed(windows, 0.9)

    @step(windows=st.integers(1, 9))
    def keep_quiet(self, windows: int) -> None:
        self._feed(windows, 0.02)

    def _until_busy(self, windows: int) -> bool:
        """Quiet until the agent is heard, for so many windows at most; whether it is."""
        for _ in range(windows):
            if self.world.session.state.sounding:
                return True
            self._feed(1, 0.02)
        return bool(self.world.session.state.sounding)

    @step(windows=st.sampled_from((2, 7, 14, 25)))
    def ask_something(self, windows: int) -> None:
        self.ask(windows)

    def ask(self, windows: int) -> None:
        """A short turn of the user, and some of the time in which it is answered."""
        self._feed(4, 0.9)
        self._until_busy(windows)

    @step(windows=st.integers(1, 12), words=st.sampled_from(("stop", "mm-hmm", "", "no #")), pause=st.integers(0, 8))
    def speak_over(self, windows: int, words: str, pause: int) -> None:
        """If the agent is heard: a sound over it, and a pause."""
        if self._until_busy(6):
            self.world.perception.look = words
            self._feed(windows, 0.9)
            self._feed(pause, 0.02)

    @step(windows=st.sampled_from((1, 3, 5)), pause=st.sampled_from((0, 4)))
    def interject(self, windows: int, pause: int) -> None:
        self._until_busy(14)
        self._feed(windows, 0.9)
        self._feed(pause, 0.02)

    @step(ms=st.sampled_from((600, 1500, 4000)))
    def say_nothing_more(self, ms: int) -> None:
        """A reply is heard to its end, and the silence behind it lasts (where that means something)."""
        turns = self.world.session.state.config.turns
        self._until_busy(14)
        timed = turns is not None and turns.idle_timeout_ms is not None
        self._feed(from_ms(ms if timed else 300) // self.window, 0.02)

    @step(probability=st.sampled_from((0.3, 0.45, 0.5)))
    def mumble(self, probability: float) -> None:
        self._feed(2, probability)

    @step(windows=st.integers(1, 5), level=st.sampled_from((-50.0, -30.0, -10.0)), hiss=st.sampled_from((-80.0, -50.0)))
    def make_a_noise(self, windows: int, level: float, hiss: float) -> None:
        if self.world.session.state.attached:
            self._until_busy(6)
            self.world.feed(windows, 0.02, level=level, hiss=hiss)

    @step(windows=st.integers(1, 6), echo=st.sampled_from((0.3, 0.6, 0.9)))
    def come_back(self, windows: int, echo: float) -> None:
        """The agent is heard in the user's microphone."""
        if self.world.session.state.attached:
            self._until_busy(6)
            self.world.feed(windows, 0.9, level=-25.0, echo=echo)

    @step(windows=st.integers(1, 4))
    def lose_input(self, windows: int) -> None:
        self.world.until(self.world.now + windows * self.window)
        self.world.position += windows * self.window

    @step(windows=st.integers(1, 4))
    def conceal_input(self, windows: int) -> None:
        self._feed(windows, 0.1, concealed=True)

    @step(back=_small(3))
    def repeat_input(self, back: int) -> None:
        end = max(self.window, self.world.position - back * self.window // 2)
        self.world.position = max(self.world.position, end)
        self.world.post(AudioArrived(end - self.window, end))

    @step(ms=st.sampled_from((5, 20, 60, 150, 500, 1600)))
    def let_time_pass(self, ms: int) -> None:
        self.world.wait(ms)

    @step(ms=st.sampled_from((0, 0, 40, 200)))
    def speech_lags(self, ms: int) -> None:
        self.world.lag = from_ms(ms)

    @step(ms=st.sampled_from((0, 0, 15, 130)))
    def timers_slip(self, ms: int) -> None:
        self.world.slip = from_ms(ms)

    # --- how the peers behave ----------------------------------------------------------------------------------------

    @step(which=_small(len(PERCEPTION) - 1))
    def perception_changes(self, which: int) -> None:
        _set(self.world.perception, PERCEPTION, which)

    @step(which=_small(len(ENGINE) - 1))
    def engine_changes(self, which: int) -> None:
        _set(self.world.engine, ENGINE, which)

    @step(which=_small(len(CARRIER) - 1))
    def carrier_changes(self, which: int) -> None:
        _set(self.world.carrier, CARRIER, which)

    @step(speaking=st.booleans(), lag=st.sampled_from((0, 100)))
    def duplex_changes(self, speaking: bool, lag: int) -> None:
        self.world.duplex.speaking = speaking
        self.world.duplex.lag = from_ms(lag)

    # --- what should not come ----------------------------------------------------------------------------------------

    def _some_agent(self, which: int) -> str:
        order = self.checker.order
        return order[-1 - which % min(3, len(order))].id if order else "resp_nobody"

    @step(which=_small(2), position=_small(4))
    def report(self, which: int, position: int) -> None:
        response = self._some_agent(which)
        agent = self.checker.agents.get(response)
        admitted = agent.admitted if agent is not None else 0
        reported = agent.reported if agent is not None else 0
        at = (admitted, admitted + 1, (admitted + reported) // 2, reported - 1, -1)[position]
        self.world.post(PlaybackReported(response, at))

    @step(which=st.sampled_from((0, 0, 0, 1, 2)), kind=_small(11), fence=st.sampled_from((0, 0, 1, 2, 3)))
    def stray_output(self, which: int, kind: int, fence: int) -> None:
        """Engine events of another incarnation, a past or coming epoch, a finished response, or out of order."""
        response = self._some_agent(which)
        now = self.world.session.fence
        stamp = (
            Fence(now.session, now.incarnation - 1, now.epoch),
            Fence(now.session, now.incarnation, now.epoch - 1),
            Fence(now.session, now.incarnation, now.epoch + 1),
            Fence(now.session, now.incarnation + 1, now.epoch),
        )[fence]
        event: Event
        if self.abilities.engine_turns:
            event = DuplexFrame(stamp, 0, 3840, True, "")
        elif kind == 0:
            event = EngineWords(stamp, response, (Word(" stray", 0, 960),))
        elif kind == 1:
            event = EngineText(stamp, response, " stray")
        elif kind == 2:
            event = EngineToolCall(stamp, response, "call_stray", "look_up", "{}")
        elif kind == 3:
            event = EngineDone(stamp, response)
        elif kind == 4:
            event = EngineFailed(stamp, response, "stray", "stray")
        elif kind == 5:
            event = EngineStage(stamp, response, "stray")
        else:
            agent = self.checker.agents.get(response)
            start = 0 if agent is None else agent.generated
            event = EngineAudio(stamp, response, start, start + 960)
        self.world.post(event)

    @step(which=_small(2), shift=st.sampled_from((960, -960)))
    def disordered_output(self, which: int, shift: int) -> None:
        agent = self.checker.agents.get(self._some_agent(which))
        if agent is None or agent.fence is None or self.abilities.engine_turns:
            return
        start = agent.generated + shift
        self.world.post(EngineAudio(agent.fence, agent.id, start, start + 960))

    @step()
    def stage(self) -> None:
        agent = self.checker.agents.get(self._some_agent(0))
        if agent is not None and agent.fence is not None:
            self.world.post(EngineStage(agent.fence, agent.id, "first_token"))

    @step(kind=_small(2), back=_small(6))
    def stray_answer(self, kind: int, back: int) -> None:
        """An answer that came already, or to a question that was given up."""
        request = max(0, self.checker.highest_request - back)
        if request in self.checker.asked:
            return
        position = self.world.position
        event: Event = Transcript(request, 0, position, "stray")
        if kind == 1:
            event = EndOfTurnProbability(request, position, 0.9)
        elif kind == 2:
            event = PerceptionFailed(request, "stray", "stray")
        self.world.post(event)

    @step(name=st.sampled_from(("pump", "played", "stall", "transcript", "idle", "keys", "greet", "unknown")))
    def stray_timer(self, name: str) -> None:
        self.world.post(TimerDue(name))

    # --- commands ----------------------------------------------------------------------------------------------------

    @step(which=_small(2), named=st.booleans())
    def cancel(self, which: int, named: bool) -> None:
        self.world.post(ResponseCancel(self._some_agent(which) if named else None))

    @step(digit=st.sampled_from("05#"))
    def press(self, digit: str) -> None:
        self.world.post(DigitPressed(digit))

    @step()
    def clear_output(self) -> None:
        self.world.post(OutputClear())

    def _spoken_item(self, which: int) -> str:
        agent = self.checker.agents.get(self._some_agent(which))
        return agent.item if agent is not None and agent.item else self._some_item(which)

    def _some_item(self, which: int) -> str:
        return self.items[-1 - which % min(4, len(self.items))]

    @step(which=_small(2), position=_small(5), part=st.sampled_from((0, 0, 0, 1)))
    def truncate(self, which: int, position: int, part: int) -> None:
        item = self._spoken_item(which)
        agent = self.checker.items.get(item)
        sent = agent.admitted if agent is not None else 0
        at = (0, sent // 3, sent // 2, sent, sent + from_ms(500), -1)[position]
        self.world.post(ItemTruncate(item, at, part))

    @step(which=_small(3), spoken=st.booleans())
    def delete(self, which: int, spoken: bool) -> None:
        self.world.post(ItemDelete(self._spoken_item(which) if spoken else self._some_item(which)))

    @step(which=_small(3))
    def retrieve(self, which: int) -> None:
        self.world.post(ItemRetrieve(self._some_item(which)))

    @step(kind=_small(4), which=_small(3))
    def create_item(self, kind: int, which: int) -> None:
        position = self.world.position
        if kind == 0:
            self.world.post(ItemCreate("user", text="typed"))
        elif kind == 1:
            self.world.post(ItemCreate("system", text="be brief", previous=self._some_item(which)))
        elif kind == 2:
            self.world.position = position + 2 * self.window
            self.world.post(ItemCreate("user", audio=AudioArrived(position, self.world.position)))
        elif kind == 3:
            self.world.post(ItemCreate("user", id=f"item_made_{position}", text="typed", previous="root"))
        else:
            self.world.post(ItemCreate("assistant", "function_call", call=f"call_made_{which}", name="look_up"))

    @step(which=_small(2))
    def answer_tool(self, which: int) -> None:
        calls = sorted(self.checker.calls)
        call = calls[-1 - which % len(calls)] if calls else "call_nobody"
        self.world.post(ItemCreate("user", "function_call_output", call=call, text="42"))

    @step(kind=_small(2))
    def create_response(self, kind: int) -> None:
        request = (
            ResponseCreate(),
            ResponseCreate(modality="text", metadata=(("a", "b"),)),
            ResponseCreate(instructions="be brief", tool_choice="none", max_output_tokens=9),
        )
        self.world.post(request[kind])

    # --- responses outside the conversation --------------------------------------------------------------------------

    @step(kind=_small(5), which=_small(3), mute=st.sampled_from((0, 0, 0, 400, 2000)))
    def ask_beside(self, kind: int, which: int, mute: int) -> None:
        """With or without an input of its own; `mute`: the peer stops reading for so many ms right after it."""
        judge = ContextEntry("system", "message", "judge")
        request = (
            ResponseCreate(aside=True),
            ResponseCreate(aside=True, modality="text", metadata=(("topic", "mood"),)),
            ResponseCreate(aside=True, input=(ContextEntry("user", "message", "typed"),)),
            ResponseCreate(aside=True, modality="audio", input=(ItemReference(self._some_item(which)), judge)),
            ResponseCreate(aside=True, tools=(), tool_choice="none", max_output_tokens=5),
            ResponseCreate(aside=True, input=(), instructions="say hello"),
        )[kind]
        self.world.post(request)
        if mute:
            self.world.post(CarrierBlocked(9000))
            self.world.later(from_ms(mute), CarrierReady())

    def _some_aside(self, which: int) -> Beside | None:
        books = list(self.checker.beside.books.values())
        books = self.checker.beside.open or books
        return books[-1 - which % len(books)] if books else None

    @step(which=_small(2))
    def cancel_beside(self, which: int) -> None:
        book = self._some_aside(which)
        self.world.post(ResponseCancel(book.id if book is not None else "resp_nobody"))

    @step(which=_small(2), kind=_small(5), fence=_small(4), shift=st.sampled_from((0, 0, 960, -960)))
    def stray_beside(self, which: int, kind: int, fence: int, shift: int) -> None:
        """More from its engine: in and out of order, of the wrong kind, late, and under fences that are not its own."""
        book = self._some_aside(which)
        if book is None or book.fence is None:
            return
        own = book.fence
        stamp = (
            own,
            own,
            Fence(own.session, own.incarnation, self.world.session.state.epoch),
            Fence(own.session, own.incarnation - 1, own.epoch),
            Fence(own.session, own.incarnation + 1, own.epoch),
        )[fence]
        start = book.generated + shift
        self.world.post(
            (
                EngineAudio(stamp, book.id, start, start + 960),
                EngineWords(stamp, book.id, (Word(" stray", 0, 960),)),
                EngineText(stamp, book.id, " stray"),
                EngineToolCall(stamp, book.id, "call_stray", "look_up", "{}"),
                EngineDone(stamp, book.id),
                EngineFailed(stamp, book.id, "stray", "stray"),
            )[kind]
        )

    # --- input by hand -----------------------------------------------------------------------------------------------

    @step()
    def commit_input(self) -> None:
        self.world.post(InputCommit())

    @step()
    def clear_input(self) -> None:
        self.world.post(InputClear())

    @step(which=_small(len(CONFIGS) - 1))
    def configure(self, which: int) -> None:
        if not self.abilities.engine_turns:
            self.world.post(ConfigUpdate(CONFIGS[which]))

    @step()
    def reject(self) -> None:
        self.world.post(CommandRejected("invalid_json", "not JSON"))

    # --- the carrier and the session's own life ----------------------------------------------------------------------

    @step(ms=st.sampled_from((100, 600, 0)))
    def detach(self, ms: int) -> None:
        self.world.post(CarrierLost("gone"))
        if ms:
            self.world.later(from_ms(ms), self.world.carrier.attached)

    @step()
    def attach(self) -> None:
        self.world.attach()

    @step(ms=st.sampled_from((60, 300, 0)))
    def block(self, ms: int) -> None:
        self.world.post(CarrierBlocked(9000))
        if ms:
            self.world.later(from_ms(ms), CarrierReady())

    @step()
    def unblock(self) -> None:
        self.world.post(CarrierReady())

    @step()
    def restore(self) -> None:
        self.world.restore()

    @step()
    def save(self) -> None:
        self.world.save()

    @step(
        ms=st.sampled_from((100, 600, 0)),
        told=st.booleans(),
        stopped=st.booleans(),
        lost=st.sampled_from((0, 0, 1, 2, 5, 13)),
    )
    def take_over(self, ms: int, told: bool, stopped: bool, lost: int) -> None:
        """`lost`: events that the owner before had not written; `stopped`: it is, until it wakes up; `told`: it learns
        of its successor."""
        world = self.world
        if world.session.state.closed:
            return
        world.succeed(lost)
        if lost:
            self._rewind()
        world.claim()
        if told and world.former is not None:
            world.former.handle(OwnershipLost(world.session.state.incarnation), world.now)
        elif stopped:
            world.stop_former()
        if ms:
            world.later(from_ms(ms), world.carrier.attached)

    def _rewind(self) -> None:
        """The checker knows what the successor knows."""
        checker = Checker(self.config, owns_turns=self.abilities.engine_turns)
        for step in self.world.log:
            checker.after(self.world.session, step)
        self.world.observers[self.world.observers.index(self.checker)] = checker
        self.checker = checker

    @step()
    def former_wakes_up(self) -> None:
        self.world.wake_former()

    @step(back=st.integers(0, 1))
    def claim_too_late(self, back: int) -> None:
        self.world.post(OwnershipTaken(self.world.session.state.incarnation - back))

    @precondition(lambda self: self.taken > 3 * STEPS_PER_EXAMPLE // 4)
    @step(kind=_small(12))
    def close(self, kind: int) -> None:
        """Late in an example: what follows it is little."""
        fence = self.world.session.fence
        if kind == 0:
            self.world.post(Close())
        elif kind == 1:
            self.world.post(OwnershipLost(fence.incarnation + 1))
        elif kind == 2:
            self.world.post(EngineFailed(fence, "", "engine_gone", "the engine is gone"))
        elif kind < 6:
            self.world.post(OwnershipLost(fence.incarnation))
            self.world.post(EngineFailed(Fence(fence.session, fence.incarnation - 1, 0), "", "stray", "stray"))

    def teardown(self) -> None:
        world: World | None = getattr(self, "world", None)
        if world is None or world.failed:
            return
        if not world.session.state.closed:
            world.post(Close())
        world.wait(2000)
        world.post(AudioArrived(world.position, world.position + self.window))
        self.tally.closed += 1
        self.replay()

    def replay(self) -> None:
        """Invariant 6: the same events through a fresh session, which was never restored, have the same effects."""
        again = Session("sess_t", 1, self.config, self.abilities)
        for number, step in enumerate(self.world.log):
            effects = again.handle(step.event, step.now)
            if effects != step.effects:
                raise Violation("6", f"event {number} {step.event} made {step.effects}, and then {effects}")
        if again.snapshot() != self.world.session.snapshot():
            raise Violation("6", "the same events led to another state")


def explore(steps: int, seed_number: int = 0, *, shrink: bool = True, tally: Tally | None = None) -> Tally:
    """Run at least `steps` steps; the same number explores the same. Raises what the checker or the core raises."""
    tally = Tally() if tally is None else tally
    machine = type("Conversation", (Conversation,), {"tally": tally})
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    rounds = 0
    while tally.steps < steps:  # some examples end early, so that one round may fall short
        run_state_machine_as_test(
            seed(seed_number * 1000 + rounds)(machine),
            settings=settings(
                max_examples=min(EXAMPLES_PER_ROUND, max(1, ceil((steps - tally.steps) / STEPS_PER_EXAMPLE))),
                stateful_step_count=STEPS_PER_EXAMPLE,
                backend=ANEW,
                deadline=None,
                database=None,
                phases=phases,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
        rounds += 1
    return tally
