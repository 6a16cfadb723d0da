"""The real session core, with far fewer events: what would decide nothing waits and is handed over in one.

A session gets 50 stretches of input and 31 speech probabilities a second, and while the agent speaks it wakes 50 times
to let a frame out. Nearly all of them change no more than a position. They are merged here, by rules that follow from
the core's own (`sessions.core`), and whatever decides is handed over at its own time, behind all that waits before it.
The effects are the same, in the same order, but for the times at which frames leave, which move within the lead, and
for the timers "pump" that are not set. `tests/loadtest/test_coalesce.py` compares them on recorded sessions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from sessions.core.effects import Effect, SetTimer
from sessions.core.events import AudioArrived, Event, SpeechProbability, TimerDue
from sessions.core.listening import FORGET_EVERY, HYPOTHESIS_EVERY
from sessions.core.loudness import QUIETEST, RISE
from sessions.core.session import Session
from sessions.core.timeline import Ticks, from_ms
from sessions.core.turns import HYSTERESIS, TURN_MAX

PUMP = TimerDue("pump")

Place: TypeAlias = tuple[Ticks, int]
"""When the last of what waits came, and in which order."""


class Coalescer:
    """One session. Events go in by `handle`, as into the core; what comes back are the effects of all that was due."""

    __slots__ = (
        "_audio",
        "_audio_at",
        "_floor",
        "_number",
        "_pump_at",
        "_window",
        "_window_at",
        "handled",
        "session",
    )

    def __init__(self, session: Session) -> None:
        self.session = session
        self.handled = 0
        """Events that the core was given."""
        self._audio: AudioArrived | None = None
        self._audio_at: Place = (0, 0)
        self._window: SpeechProbability | None = None
        self._window_at: Place = (0, 0)
        self._floor = 0.0
        """What the waiting windows make of the noise floor."""
        self._pump_at: Place | None = None
        self._number = 0

    def handle(self, event: Event, now: Ticks) -> list[Effect]:
        """Take an event that is due at `now`; returns the effects of it and of what had waited, or of nothing yet."""
        if isinstance(event, AudioArrived):
            return self._arrived(event, now)
        if isinstance(event, SpeechProbability):
            return self._heard(event, now)
        if event == PUMP:
            return self._pump(now)
        effects = self.flush()
        self.handled += 1
        return effects + self.session.handle(event, now)

    def flush(self) -> list[Effect]:
        """Hand over what waits, in the order of its times."""
        waiting: list[tuple[Place, Event]] = []
        if self._audio is not None:
            waiting.append((self._audio_at, self._audio))
        if self._window is not None:
            waiting.append((self._window_at, self._window))
        if self._pump_at is not None:
            waiting.append((self._pump_at, PUMP))
        self._audio = self._window = self._pump_at = None
        if not waiting:
            return []
        waiting.sort(key=lambda one: one[0])
        self.handled += len(waiting)
        effects: list[Effect] = []
        for (at, _), event in waiting:
            effects += self.session.handle(event, at)
        return effects

    def _placed(self, now: Ticks) -> Place:
        self._number += 1
        return now, self._number

    # --- the input track ---------------------------------------------------------------------------------------------

    def _arrived(self, event: AudioArrived, now: Ticks) -> list[Effect]:
        state = self.session.state
        waiting = self._audio
        position = state.input.watermark if waiting is None else waiting.end
        if state.config.turns is None or state.abilities.engine_listens or event.start != position or state.idle_due:
            return self._at_once(event, now)
        effects: list[Effect] = []
        if waiting is not None and waiting.concealed != event.concealed:
            effects = self.flush()
            waiting = None
        start = event.start if waiting is None else waiting.start
        self._audio = AudioArrived(start, event.end, event.concealed)
        self._audio_at = self._placed(now)
        # The core forgets old input as it passes certain places.
        return effects + self.flush() if start // FORGET_EVERY != event.end // FORGET_EVERY else effects

    # --- speech detection --------------------------------------------------------------------------------------------

    def _heard(self, event: SpeechProbability, now: Ticks) -> list[Effect]:
        waiting = self._window
        if waiting is not None and waiting.end != event.start:
            effects = self.flush()
            return effects + self._heard(event, now)
        floor = self.session.state.policy.floor.level
        before = floor if waiting is None else self._floor
        after = max(QUIETEST, min(event.level, before + RISE))
        if self._decides(event) or not self._follows(floor, after):
            if waiting is None or not self._same_kind(waiting, event):
                return self._at_once(event, now)
            if self.session.state.policy.phase == "idle":
                return self._at_once(event, now)
            # A run that ends here: its last window is the one that decides, by its end alone.
            self._window = self._merged(waiting, event, event.level)
            self._window_at = self._placed(now)
            return self.flush()
        self._window = self._merged(waiting, event, after)
        self._window_at = self._placed(now)
        self._floor = after
        return []

    def _merged(self, waiting: SpeechProbability | None, event: SpeechProbability, level: float) -> SpeechProbability:
        idle = self.session.state.policy.phase == "idle"
        start = event.start if waiting is None else waiting.start
        return SpeechProbability(start, event.end, event.probability, level if idle else event.level, event.echo)

    def _follows(self, floor: float, after: float) -> bool:
        """Whether one window can move the noise floor as the waiting ones do together."""
        return self.session.state.policy.phase != "idle" or after <= floor + RISE

    def _same_kind(self, waiting: SpeechProbability, event: SpeechProbability) -> bool:
        return self._voiced(waiting) == self._voiced(event)

    def _voiced(self, event: SpeechProbability) -> bool:
        state = self.session.state
        turns = state.config.turns
        if turns is None:
            return False
        lowered = HYSTERESIS if state.policy.phase == "speech" else 0.0
        return event.probability >= turns.threshold - lowered

    def _decides(self, event: SpeechProbability) -> bool:
        """Whether the core does more with this window than move its positions."""
        state = self.session.state
        turns, policy = state.config.turns, state.policy
        if turns is None or state.abilities.engine_turns or state.idle_due or turns.idle_timeout_ms is not None:
            return True
        if event.echo >= turns.echo or event.end <= state.input.buffer_start:
            return True
        voiced = self._voiced(event)
        if policy.phase == "idle":
            return voiced or policy.floor.stands_out(event.level)
        if policy.phase == "speech":
            if not voiced or event.end - policy.start >= TURN_MAX:
                return True
            asks = state.utterance is not None and state.config.transcribe_input and state.abilities.transcripts
            return asks and event.end - max(state.hypothesis_until, policy.start) >= HYPOTHESIS_EVERY
        if policy.phase == "closing":
            if voiced or turns.kind != "server_vad":
                return True
            return event.end - policy.voiced_until >= from_ms(turns.silence_ms)
        return True

    # --- output ------------------------------------------------------------------------------------------------------

    def _pump(self, now: Ticks) -> list[Effect]:
        """Letting frames out may wait as long as none of them would be late: what is placed follows what was placed."""
        effects: list[Effect] = []
        if self._pump_at is not None and now > self.session.state.ledger.clock:
            effects = self.flush()
        self._pump_at = self._placed(now)
        return effects

    def pumped_until(self, now: Ticks) -> list[Effect]:
        """For who sets no timers "pump": as if each had been due in its time, up to `now`.

        Frames are taken to be whole; a reply's length must be a multiple of them.
        """
        state = self.session.state
        due = state.pump_due
        if due is None or due > now:
            return []
        frame = state.config.frame
        effects: list[Effect] = []
        while due is not None and due <= now:
            last = due + (min(now, max(due, state.ledger.clock)) - due) // frame * frame
            self._pump_at = self._placed(last)
            effects += self.flush()
            due = state.pump_due
        return effects

    def _at_once(self, event: Event, now: Ticks) -> list[Effect]:
        effects = self.flush()
        self.handled += 1
        return effects + self.session.handle(event, now)


def but_for_pumps(effects: Iterable[Effect]) -> list[Effect]:
    """Effects as they are compared: all but the timers that wake the core to let frames out."""
    return [effect for effect in effects if not (isinstance(effect, SetTimer) and effect.name == "pump")]
