"""Run the perception of a recorded session again on what the user said, and the core on what it answers now."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, replace
from pathlib import Path

from ..core.effects import (
    AdmitFrame,
    AssessTurn,
    Effect,
    FlushCarrier,
    ForgetInput,
    HoldCarrier,
    OpenPerception,
    ResumeCarrier,
    Transcribe,
)
from ..core.events import (
    AudioArrived,
    CarrierAttached,
    EndOfTurnProbability,
    Event,
    ItemCreate,
    PerceptionFailed,
    SpeechProbability,
    Transcript,
)
from ..core.fence import Fence
from ..core.timeline import Ticks
from ..own_voice import OwnVoice
from ..ports import PerceptionPort
from ..recording.format import JournalError
from ..tracks import silence
from .reader import Recording, Step
from .rerun import Difference, rerun_steps

PATIENCE = 60.0
"""Real seconds to wait for one answer of perception."""
FALLBACK_RATE = 24_000
"""Of the silence that stands for audio that never came, as the shell has it."""

Answer = Transcript | EndOfTurnProbability | PerceptionFailed


@dataclass(slots=True)
class Perceived:
    """What perception answers now, against what was recorded.

    `windows` were heard again, `changed` of them otherwise, by up to `furthest` in probability; `answers` likewise:
    transcripts and end-of-turn probabilities. `difference`: the first that the core makes of it.
    """

    events: int = 0
    windows: int = 0
    changed: int = 0
    furthest: float = 0.0
    answers: int = 0
    answers_changed: int = 0
    unheard: int = 0
    """Recorded windows that did not come again."""
    difference: Difference | None = None

    @property
    def identical(self) -> bool:
        return self.difference is None

    def __str__(self) -> str:
        return (
            f"{self.windows} windows heard again, {self.changed} otherwise (by up to {self.furthest:.4f}), "
            f"{self.unheard} missing; {self.answers} answers, {self.answers_changed} otherwise"
        )


def perceive(folder: Path, perception: PerceptionPort) -> Perceived:
    """Feed `user_in` of the recording in `folder` to `perception`, and re-run the core on its answers.

    Blocks for as long as perception takes. Raises JournalError where the recording cannot be read, or where perception
    does not answer in time.
    """
    recording = Recording(folder)
    listener = _Listener(recording, perception)
    steps = list(recording.steps())
    try:
        again = listener.listen(steps)
    finally:
        perception.close(listener.session)
    result = listener.result
    run = rerun_steps(recording.manifest, iter(again))
    result.events, result.difference = run.events, run.difference
    if result.difference is not None and listener.first:
        result.difference = replace(result.difference, cause=f"{result.difference.cause}; {listener.first}")
    return result


class _Listener:
    """Plays a recording to a perception, in the order of its steps."""

    def __init__(self, recording: Recording, perception: PerceptionPort) -> None:
        self.session = f"{recording.manifest.session}_again"
        self._fence = Fence(self.session, recording.manifest.incarnation, 0)
        self.result = Perceived()
        self.first = ""
        """The first answer that is otherwise, in words."""
        self._recording = recording
        self._rates = {name: track.rate for name, track in recording.tracks().items()}
        self._perception = perception
        self._voice = OwnVoice(self.session, perception, recording.manifest.agent_rate)
        self._listening: OpenPerception | None = None
        self._paced = False
        self._came = threading.Condition()
        self._windows: dict[Ticks, SpeechProbability] = {}
        self._answers: dict[int, Answer] = {}
        self._patience = PATIENCE

    def _emit(self, event: Event, pcm: bytes | None = None) -> None:
        with self._came:
            if isinstance(event, SpeechProbability):
                self._windows[event.start] = event
            elif isinstance(event, Transcript | EndOfTurnProbability | PerceptionFailed):
                self._answers[event.request] = event
            self._came.notify_all()

    def listen(self, steps: list[Step]) -> list[Step]:
        """The steps, with what perception says now in the place of what it said then."""
        wanted = {step.event.request for step in steps if isinstance(step.event, Transcript | EndOfTurnProbability)}
        again: list[Step] = []
        for step in steps:
            event = step.event
            if isinstance(event, AudioArrived):
                self._feed(event, step.track)
                self._voice.arrived(event.start, event.end, step.now)
            elif isinstance(event, ItemCreate) and event.audio is not None and self._listening is not None:
                self._perception.open(self._fence, replace(self._listening, speech=False), self._emit)
                self._feed(event.audio, step.track)
                self._perception.open(self._fence, self._listening, self._emit)
            elif isinstance(event, CarrierAttached):
                self._paced = event.paced
            elif isinstance(event, SpeechProbability):
                event = self._window(event)
            elif isinstance(event, Transcript | EndOfTurnProbability):
                event = self._answer(event)
            again.append(replace(step, event=event))
            for effect in step.effects:
                self._effect(effect, step.now, wanted)
        return again

    def _feed(self, audio: AudioArrived, track: str | None) -> None:
        rate = self._rates.get(track or "", FALLBACK_RATE)
        if track in self._rates and not audio.concealed:
            pcm = self._recording.samples(str(track), audio.start, audio.end).astype("<i2").tobytes()
        else:
            pcm = silence(audio.end - audio.start, rate)
        self._perception.feed(self.session, audio.start, pcm, rate)

    def _effect(self, effect: Effect, now: Ticks, wanted: set[int]) -> None:
        """What the shell did with it, as far as perception is concerned."""
        perception, session = self._perception, self.session
        match effect:
            case OpenPerception():
                self._listening = effect
                perception.open(self._fence, effect, self._emit)
            case Transcribe() if effect.request in wanted:
                perception.transcribe(session, effect)
            case AssessTurn() if effect.request in wanted:
                perception.assess(session, effect)
            case ForgetInput():
                perception.forget(session, effect.before)
            case AdmitFrame() if self._listening is not None and self._listening.speech:
                pcm = self._recording.generated(effect.source, effect.source_start, effect.end - effect.start)
                self._voice.play(effect.placed_at, pcm.astype("<i2").tobytes(), now)
            case HoldCarrier() if self._paced:
                self._voice.hold(now)
            case ResumeCarrier():
                self._voice.resume(now)
            case FlushCarrier():
                self._voice.flush(now)
            case _:
                pass

    def _window(self, recorded: SpeechProbability) -> SpeechProbability:
        with self._came:
            self._came.wait_for(lambda: recorded.start in self._windows, self._patience)
            heard = self._windows.pop(recorded.start, None)
        if heard is None:
            # One that never comes must not cost a minute for each that follows.
            self._patience = min(self._patience, PATIENCE / 60)
            self.result.unheard += 1
            return recorded
        self.result.windows += 1
        if heard != recorded:
            self.result.changed += 1
            self.result.furthest = max(self.result.furthest, abs(heard.probability - recorded.probability))
            self._note(f"speech at {recorded.start} is {heard.probability} and was {recorded.probability}")
        return heard

    def _answer(self, recorded: Transcript | EndOfTurnProbability) -> Answer:
        with self._came:
            self._came.wait_for(lambda: recorded.request in self._answers, PATIENCE)
            heard = self._answers.pop(recorded.request, None)
        if heard is None:
            raise JournalError(f"perception did not answer request {recorded.request} within {PATIENCE:.0f} s")
        self.result.answers += 1
        if heard != recorded:
            self.result.answers_changed += 1
            self._note(f"request {recorded.request} is answered {_told(heard)} and was {_told(recorded)}")
        return heard

    def _note(self, what: str) -> None:
        self.first = self.first or f"perception hears otherwise: {what}"


def _told(answer: Answer) -> str:
    if isinstance(answer, Transcript):
        return json.dumps(answer.text, ensure_ascii=False)
    return str(answer.probability) if isinstance(answer, EndOfTurnProbability) else f"with {answer.code}"
