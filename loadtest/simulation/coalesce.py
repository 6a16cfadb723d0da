"""The real session core, with far fewer events: what would decide nothing waits and is handed over in one.

A session gets 50 stretches of input and 31 speech probabilities a second, and while the agent speaks it wakes 50 times
to let a frame out. Nearly all of them change no more than a position. They are merged here, by rules that follow from
the core's own (`sessions.core`), and whatever decides is handed over at its own time, behind all that waits before it.
The effects are the same, in the same order, but for the times at which frames leave, which move within the lead, and
for the timers "pump" that are not set. `tests/loadtest/test_coalesce.py` compares them on recorded sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from loadtest.simulation.frames import FrameRun, let_out
from sessions.core.effects import Effect, SetTimer
from sessions.core.events import AudioArrived, Event, SpeechProbability, TimerDue
from sessions.core.listening import FORGET_EVERY, HYPOTHESIS_EVERY
from sessions.core.loudness import RISE, followed
from sessions.core.session import Session
from sessions.core.timeline import Ticks, from_ms
from sessions.core.turns import CLOSING, HYSTERESIS, TURN_MAX

PUMP = TimerDue("pump")

Place: TypeAlias = tuple[Ticks, int]
"""When the last of what waits came, and in which order."""

Done: TypeAlias = list[Effect | FrameRun]
"""Effects in their order, those of frames that left one after the other in one."""

_START: Place = (0, 0)


class Coalescer:
    """One session. Events go in by `handle`, as into the core; what comes back are the effects of all that was due.

    `paces`: nobody sets the timer "pump"; it counts as due in each of its times, up to whatever comes next.
    """

    __slots__ = (
        "_audio",
        "_audio_at",
        "_floor",
        "_number",
        "_paces",
        "_pump_at",
        "_state",
        "_window",
        "_window_at",
        "handled",
        "session",
    )

    def __init__(self, session: Session, *, paces: bool = False) -> None:
        self.session = session
        self.handled = 0
        """Events that the core was given."""
        self._paces = paces
        self._state = session.state
        self._audio: AudioArrived | None = None
        self._audio_at = _START
        self._window: SpeechProbability | None = None
        self._window_at = _START
        self._floor = (0.0, 0.0)
        """What the waiting windows make of the noise floor, and of that of hiss."""
        self._pump_at: Place | None = None
        self._number = 0

    def handle(self, event: Event, now: Ticks) -> Done:
        """Take an event that is due at `now`; returns the effects of it and of what had waited, or of nothing yet."""
        kind = type(event)
        if kind is AudioArrived:
            return self._arrived(event, now)  # type: ignore[arg-type]
        if kind is SpeechProbability:
            return self._heard(event, now)  # type: ignore[arg-type]
        if event == PUMP:
            return self._pump(now)
        return self._at_once(event, now)

    def flush(self) -> Done:
        """Hand over what waits, in the order of its times."""
        audio, window, pump_at = self._audio, self._window, self._pump_at
        self._audio = self._window = self._pump_at = None
        if window is None and pump_at is None:
            return self._hand(audio, self._audio_at[0]) if audio is not None else []
        waiting: list[tuple[Place, Event]] = []
        if audio is not None:
            waiting.append((self._audio_at, audio))
        if window is not None:
            waiting.append((self._window_at, window))
        if pump_at is not None:
            waiting.append((pump_at, PUMP))
        waiting.sort(key=lambda one: one[0])
        done: Done = []
        for (at, _), event in waiting:
            done += self._hand(event, at)
        return done

    def catch_up(self, now: Ticks) -> Done:
        """Of who `paces`: all that was due up to `now`."""
        done = self.flush()
        return done + self._let_out(now)

    def paced_until(self) -> Ticks | None:
        """Of who `paces`: when frames must be caught up with at the latest, for what comes of them; None: nothing does.

        That is when the last of a reply has been played, or when the engine is to make more of it.
        """
        due, response = self._state.pump_due, self._state.active
        if due is None or response is None:
            return None
        ledger, config = self._state.ledger, self._state.config
        track = ledger.tracks[response.id]
        if response.done:
            return ledger.clock + track.generated - track.admitted
        before_more = (response.credit - config.credit // 2 - track.admitted) // config.frame
        return due + max(0, before_more) * config.frame

    def _hand(self, event: Event, at: Ticks) -> Done:
        due = self._state.pump_due
        if due is None or due > at or not self._paces:
            self.handled += 1
            return self.session.handle(event, at)  # type: ignore[return-value]
        done = self._let_out(at)
        self.handled += 1
        done += self.session.handle(event, at)
        return done

    def _let_out(self, until: Ticks) -> Done:
        done: Done = []
        state = self._state
        while self._paces and (due := state.pump_due) is not None and due <= until:
            run = let_out(state, until)
            self.handled += 1
            if run is not None:
                done.append(run)
            else:
                done += self.session.handle(PUMP, max(due, state.now))
        return done

    def _at_once(self, event: Event, now: Ticks) -> Done:
        audio = self._audio
        if self._window is not None or self._pump_at is not None:
            return self.flush() + self._hand(event, now)
        if audio is None:
            return self._hand(event, now)
        self._audio = None
        done = self._hand(audio, self._audio_at[0])
        return done + self._hand(event, now) if done else self._hand(event, now)

    def _placed(self, now: Ticks) -> Place:
        self._number += 1
        return now, self._number

    # --- the input track ---------------------------------------------------------------------------------------------

    def _arrived(self, event: AudioArrived, now: Ticks) -> Done:
        state = self._state
        waiting = self._audio
        position = state.input.watermark if waiting is None else waiting.end
        if state.config.turns is None or state.abilities.engine_listens or event.start != position or state.idle_due:
            return self._at_once(event, now)
        done: Done = []
        if waiting is None:
            self._audio = event
        elif waiting.concealed == event.concealed:
            self._audio = AudioArrived(waiting.start, event.end, event.concealed)
        else:
            done = self.flush()
            self._audio = waiting = event
        self._audio_at = self._placed(now)
        # The core forgets old input as it passes certain places.
        crosses = self._audio.start // FORGET_EVERY != event.end // FORGET_EVERY
        return done + self.flush() if crosses else done

    # --- speech detection --------------------------------------------------------------------------------------------

    def _heard(self, event: SpeechProbability, now: Ticks) -> Done:
        waiting, policy = self._window, self._state.policy
        if waiting is not None and (waiting.end != event.start or self._voiced(waiting) != self._voiced(event)):
            done = self.flush()
            return done + self._heard(event, now)
        phase = policy.phase
        if waiting is None and (phase in ("onset", "over") or (phase == "idle" and self._voiced(event))):
            return self._at_once(event, now)  # each window counts there
        if phase != "idle":
            if self._decides(event):
                if waiting is None:
                    return self._at_once(event, now)
                # A run that ends here: its last window is the one that decides, by its end alone.
                self._window = self._merged(waiting, event, event.level, event.hiss)
                self._window_at = self._placed(now)
                return self.flush()
            level, hiss = event.level, event.hiss
        else:
            floor = policy.floor
            before = (floor.level, floor.hiss) if waiting is None else self._floor
            self._floor = level, hiss = followed(before[0], event.level), followed(before[1], event.hiss)
            # One window raises the floor by one step; and from a lower one more stands out than the core knows yet.
            steps = level - floor.level, hiss - floor.hiss
            if min(steps) < 0 or max(steps) > RISE or self._decides(event):
                return self._at_once(event, now)
            if waiting is None and not any(steps):
                return []  # the core would do nothing with it
        self._window = self._merged(waiting, event, level, hiss)
        self._window_at = self._placed(now)
        return []

    @staticmethod
    def _merged(
        waiting: SpeechProbability | None, event: SpeechProbability, level: float, hiss: float
    ) -> SpeechProbability:
        start = event.start if waiting is None else waiting.start
        return SpeechProbability(start, event.end, event.probability, level, event.echo, hiss)

    def _voiced(self, event: SpeechProbability) -> bool:
        turns = self._state.config.turns
        if turns is None:
            return False
        lowered = HYSTERESIS if self._state.policy.phase == "speech" else 0.0
        return event.probability >= turns.threshold - lowered

    def _decides(self, event: SpeechProbability) -> bool:
        """Whether the core does more with this window than move its positions."""
        state = self._state
        turns, policy = state.config.turns, state.policy
        if turns is None or state.abilities.engine_turns or state.idle_due or turns.idle_timeout_ms is not None:
            return True
        if event.echo >= turns.echo or event.end <= state.input.buffer_start:
            return True
        voiced = self._voiced(event)
        if policy.phase == "idle":
            return voiced or policy.floor.stands_out(event.level, event.hiss, event.end)
        if policy.phase == "speech":
            over = event.end - policy.start >= TURN_MAX if voiced else event.end - policy.voiced_until >= CLOSING
            asks = state.utterance is not None and state.config.transcribe_input and state.abilities.transcripts
            return over or (asks and event.end - max(state.hypothesis_until, policy.start) >= HYPOTHESIS_EVERY)
        if policy.phase == "closing":
            if voiced or turns.kind != "server_vad":
                return True
            return event.end - policy.voiced_until >= from_ms(turns.silence_ms)
        return True

    # --- output ------------------------------------------------------------------------------------------------------

    def _pump(self, now: Ticks) -> Done:
        """Letting frames out may wait as long as none of them would be late: what is placed follows what was placed."""
        done: Done = []
        if self._pump_at is not None and now > self._state.ledger.clock:
            done = self.flush()
        self._pump_at = self._placed(now)
        return done


def single(effects: Iterable[Effect | FrameRun]) -> Iterator[Effect]:
    """The effects as the core alone would have given them: each frame on its own."""
    for effect in effects:
        if type(effect) is FrameRun:
            yield from effect.frames()
        else:
            yield effect  # type: ignore[misc]


def but_for_pumps(effects: Iterable[Effect | FrameRun]) -> list[Effect]:
    """Effects as they are compared: all but the timers that wake the core to let frames out."""
    return [effect for effect in single(effects) if not (isinstance(effect, SetTimer) and effect.name == "pump")]
