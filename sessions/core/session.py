"""A conversation as a function: event in, effects out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from . import counters
from .asides import Asides
from .commands import Commands
from .config import SessionConfig
from .effects import (
    ClearTimer,
    CloseEngine,
    Count,
    Effect,
    EndSession,
    FlushCarrier,
    OpenEngine,
    OpenPerception,
    SetTimer,
)
from .errors import CommandError
from .events import (
    ENGINE_EVENTS,
    AudioArrived,
    CarrierAttached,
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
    EngineDraft,
    EngineFailed,
    EngineForgot,
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
    SpeechProbability,
    TimerDue,
    Transcript,
)
from .fence import Fence
from .keypad import Keypad
from .listening import Listening
from .records import Plain, read_as, to_plain
from .speaking import Speaking
from .state import Abilities, State
from .timeline import Ticks, from_ms
from .turns import TurnPolicy


class Session:
    """One conversation. No clock, no I/O, no randomness: the same events give the same effects, byte for byte.

    `handle` takes an event and the session time at which it is handled (ticks, never going back) and returns what is
    to be done, in order.
    """

    def __init__(self, session: str, incarnation: int, config: SessionConfig, abilities: Abilities) -> None:
        self._bind(State(session, incarnation, config, abilities, policy=TurnPolicy(transcripts=abilities.transcripts)))

    def _bind(self, state: State) -> None:
        self._state = state
        self._out: list[Effect] = []
        self._speaking = Speaking(state, self._out)
        self._listening = Listening(state, self._out, self._speaking)
        self._asides = Asides(state, self._out)
        self._commands = Commands(state, self._out, self._listening, self._speaking, self._asides)
        self._keypad = Keypad(state, self._out, self._listening, self._commands.stop)
        self._handlers: dict[type, Callable[[Any], None]] = {  # by the parts; `_OWN` has the rest
            AudioArrived: self._listening.arrived,
            SpeechProbability: self._listening.speech,
            EndOfTurnProbability: self._listening.end_of_turn,
            Transcript: self._listening.transcript,
            PerceptionFailed: self._listening.failed,
            EngineAudio: self._speaking.audio,
            EngineWords: self._speaking.words,
            EngineText: self._speaking.text,
            EngineToolCall: self._speaking.tool_call,
            EngineStage: self._speaking.stage,
            EngineDraft: self._speaking.draft,
            EngineDone: self._speaking.done,
            EngineForgot: self._speaking.forgot,
            DuplexFrame: self._speaking.duplex,
            PlaybackReported: self._speaking.report,
            DigitPressed: self._keypad.pressed,
            ConfigUpdate: self._commands.configure,
            InputCommit: self._commands.commit_input,
            InputClear: self._commands.clear_input,
            ItemCreate: self._commands.create_item,
            ItemTruncate: self._commands.truncate,
            ItemDelete: self._commands.delete_item,
            ItemRetrieve: self._commands.retrieve,
            ResponseCreate: self._commands.create_response,
            ResponseCancel: self._commands.cancel_response,
            OutputClear: self._commands.clear_output,
            CommandRejected: self._commands.rejected,
        }
        self._timers: dict[str, Callable[[], None]] = {
            "played": self._speaking.settle,
            "stall": self._listening.stall,
            "transcript": self._listening.words_timed_out,
            "idle": self._listening.idle,
            "keys": self._keypad.entered,
        }

    @property
    def state(self) -> State:
        """The state, to be read only."""
        return self._state

    @property
    def fence(self) -> Fence:
        """What may pass the gate now."""
        return self._state.fence

    def handle(self, event: Event, now: Ticks) -> list[Effect]:
        """Take `event` at session time `now`. Raises ValueError when time goes back."""
        state = self._state
        if now < state.now:
            raise ValueError(f"session time went back from {state.now} to {now}")
        state.now = now
        out = self._out
        if state.closed:
            return [Count(counters.AFTER_CLOSE)]
        try:
            if state.asides and isinstance(event, ENGINE_EVENTS) and event.response in state.asides:
                self._asides.take(event)
            else:
                kind = type(event)
                handler = self._handlers.get(kind)
                if handler is not None:
                    handler(event)
                else:
                    _OWN[kind](self, event)
        except CommandError as error:
            self._commands.refuse(error, getattr(event, "command", None))
        if state.respond and state.active is None:
            self._listening.respond()
        if state.active is not None and state.pump_due is None:
            self._speaking.pump()  # whatever the event was, it may have opened the gate
        turns = state.config.turns
        timed = state.idle_due is not None or (turns is not None and turns.idle_timeout_ms is not None)
        if timed and not state.closed:
            self._listening.rest()
        effects = out.copy()
        out.clear()
        return effects

    # --- snapshot --------------------------------------------------------------------------------------------------

    def snapshot(self) -> Plain:
        """The whole state as plain data; `restore` gives a session that goes on from here."""
        return to_plain(self._state)

    @classmethod
    def restore(cls, plain: Plain) -> Session:
        """A session from its snapshot. Raises RecordError when the snapshot does not fit."""
        session = cls.__new__(cls)
        session._bind(cast(State, read_as(State, plain)))
        return session

    # --- carrier and life ------------------------------------------------------------------------------------------

    def _attached(self, event: CarrierAttached) -> None:
        s = self._state
        if s.attached:
            self._part()
        s.attached = True
        s.blocked = False
        s.acknowledged = event.acknowledged
        s.ledger.paced = event.paced
        s.ledger.delay = event.delay
        if s.alone_until is not None:
            s.alone_until = None
            self._out.append(ClearTimer("grace"))
        if s.opened:
            self._out.append(FlushCarrier(s.fence))  # a new gate must know what may pass it
        self._asides.pump()
        if not s.opened:
            s.opened = True
            self._open_ports()
        if s.config.greet_after_ms is not None and not s.conversation.items:
            # Of every carrier that finds nothing said: what was to be said to the one before was not heard.
            self._out.append(SetTimer("greet", s.now + from_ms(s.config.greet_after_ms)))

    def _greet(self) -> None:
        """Timer "greet": if nobody has said anything since the beginning, the agent does."""
        s = self._state
        silent = s.policy.phase == "idle" and s.utterance is None and s.active is None and not s.conversation.items
        speaks = s.config.responses and not s.abilities.engine_turns and s.config.greet_after_ms is not None
        if silent and s.attached and speaks:
            self._speaking.begin()

    def _open_ports(self) -> None:
        s = self._state
        if s.config.responses:
            self._out.append(OpenEngine(s.fence, s.config))
        self._out.append(OpenPerception.of(s.config))

    def _lost(self, event: CarrierLost) -> None:
        s = self._state
        if not s.attached:
            return
        self._part()
        self._wait_for_another(event.reason)

    def _wait_for_another(self, reason: str) -> None:
        s = self._state
        s.attached = False
        if s.config.grace:
            s.alone_until = s.now + s.config.grace
            self._out.append(SetTimer("grace", s.alone_until))
        else:
            self._end(reason or "detached", lost=True)

    def _part(self) -> None:
        """The carrier is out of reach: what it had is unknown, and what was being said to it is over."""
        self._asides.close()
        self._speaking.cut("detached", lost=True)
        self._listening.forget()

    def _left_alone(self) -> None:
        """Timer "grace": no other carrier came in time."""
        s = self._state
        if s.alone_until is not None and s.now >= s.alone_until:
            self._end("detached", lost=True)

    def _carrier_blocked(self, event: CarrierBlocked) -> None:
        self._state.blocked = True

    def _carrier_ready(self, event: CarrierReady) -> None:
        self._state.blocked = False
        self._speaking.pump()
        self._asides.pump()

    def _engine_failed(self, event: EngineFailed) -> None:
        if event.response:
            self._speaking.failed(event)
        elif event.fence.incarnation == self._state.incarnation:
            self._end(event.code, lost=False)

    def _timer(self, event: TimerDue) -> None:
        run = self._timers.get(event.name)
        if run is not None:
            run()
        elif event.name in _OWN_TIMERS:
            _OWN_TIMERS[event.name](self)

    def _pump_due(self) -> None:
        self._state.pump_due = None
        self._speaking.pump()

    def _ownership_lost(self, event: OwnershipLost) -> None:
        if event.incarnation > self._state.incarnation:
            self._end("ownership_lost", lost=True)

    def _ownership_taken(self, event: OwnershipTaken) -> None:
        s = self._state
        if event.incarnation <= s.incarnation:
            self._out.append(Count(counters.OLD_OWNER))
            return
        s.incarnation = event.incarnation
        s.sequence = 0
        s.pump_due = s.stall_due = s.idle_due = s.muted_until = None
        if s.opened:
            self._open_ports()
        self._part()
        self._listening.abandon()
        self._keypad.go_on()
        self._wait_for_another("")

    def _close(self, event: Close) -> None:
        self._end(event.reason, lost=not self._state.attached)

    def _end(self, reason: str, lost: bool) -> None:
        s = self._state
        self._asides.close()
        self._speaking.cut("superseded", lost=lost)
        self._listening.close()
        s.closed = True
        s.respond = False
        if s.conversation.open_calls:
            self._out.append(Count(counters.UNANSWERED_TOOLS, len(s.conversation.open_calls)))
        if not s.ledger.balanced or s.ledger.tracks:
            self._out.append(Count(counters.LEDGER_FAULT))
        self._out.append(CloseEngine())
        self._out.append(EndSession(reason))


# What a session handles by itself is not looked up in it: an object that holds its own methods is freed by the garbage
# collector alone, and with it all that was said.
_OWN: Final[dict[type, Callable[[Session, Any], None]]] = {
    EngineFailed: lambda session, event: session._engine_failed(event),
    CarrierAttached: lambda session, event: session._attached(event),
    CarrierLost: lambda session, event: session._lost(event),
    CarrierBlocked: lambda session, event: session._carrier_blocked(event),
    CarrierReady: lambda session, event: session._carrier_ready(event),
    TimerDue: lambda session, event: session._timer(event),
    OwnershipLost: lambda session, event: session._ownership_lost(event),
    OwnershipTaken: lambda session, event: session._ownership_taken(event),
    Close: lambda session, event: session._close(event),
}
_OWN_TIMERS: Final[dict[str, Callable[[Session], None]]] = {
    "pump": lambda session: session._pump_due(),
    "greet": lambda session: session._greet(),
    "grace": lambda session: session._left_alone(),
}
