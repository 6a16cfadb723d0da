"""What happened in a recorded session, told per interruption, per sound over the agent, and per answer.

Times are session time in ticks. They come from the recorded events and effects alone, so that a what-if run is
told in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..core.config import SessionConfig, TurnConfig
from ..core.effects import AdmitFrame, CancelResponse, DropAudio, Effect, FlushCarrier, HoldCarrier, Notify, Transcribe
from ..core.events import (
    AudioArrived,
    CarrierAttached,
    EngineAudio,
    Event,
    ItemCreate,
    PlaybackReported,
    SpeechProbability,
    TimerDue,
    Transcript,
)
from ..core.notices import (
    EpochBegan,
    Held,
    OutputClosed,
    PlaybackCleared,
    ResponseClosed,
    ResponseOpened,
    Resumed,
    SessionConfigured,
    SpeechStarted,
    SpeechStopped,
    StageReached,
    TurnEnded,
)
from ..core.timeline import TICKS_PER_MS, Ticks
from .input_clock import InputClock
from .reader import Step

SPOKEN_OVER = ("barge_in", "withdrawn")
"""Causes of an epoch that are the user's voice."""


@dataclass(slots=True)
class Look:
    """Words that were asked for while a sound over the agent was undecided."""

    asked: Ticks
    answered: Ticks | None = None
    words: str = ""


@dataclass(slots=True)
class Interruption:
    """The end of an epoch. `onset`: where its sound begins, on the session timeline; None for a command.

    `crossed`: when the first window of it was told by the detector; `held`: when the carrier was held; `decided`: when
    the epoch ended, and `why`; `stopped`: when the engine was told to stop; `stale_until`: when the last audio of the
    dead epoch came from it (`stale` ticks in all); `flushed`: when the carrier was told to throw away what it had;
    `heard`: content position up to which it was heard, by `heard_by`; `heard_text`: its words, which the history keeps.
    """

    number: int
    epoch: int
    cause: str
    decided: Ticks
    why: str
    onset: Ticks | None = None
    crossed: Ticks | None = None
    held: Ticks | None = None
    looks: list[Look] = field(default_factory=list)
    stopped: Ticks | None = None
    flushed: Ticks | None = None
    stale_until: Ticks | None = None
    stale: Ticks = 0
    response: str = ""
    heard: Ticks | None = None
    heard_by: str = ""
    heard_text: str = ""
    kept: str | None = None
    said: str | None = None
    """What the user was understood to say then; None where no words were asked for."""
    sent_until: Ticks | None = None
    """Where the last sample that was sent of it lies on the session timeline."""


@dataclass(slots=True)
class Overlap:
    """A hold that ended without an interruption: a backchannel, a cough, an echo."""

    held: Ticks
    resumed: Ticks
    onset: Ticks
    words: str
    looks: list[Look] = field(default_factory=list)


@dataclass(slots=True)
class Answer:
    """One response. Milestones in session time; None where it never came so far."""

    response: str
    opened: Ticks | None = None
    speech_end: Ticks | None = None
    turn_ended: Ticks | None = None
    turn_ended_by: str = ""
    asked: Ticks | None = None
    """When the words of the turn were asked for."""
    stages: dict[str, Ticks] = field(default_factory=dict)
    made: Ticks | None = None
    """When its first audio came from the engine."""
    admitted: Ticks | None = None
    placed: Ticks | None = None
    heard: Ticks | None = None
    """When its first sample reached the ear, by the client's word or by the model."""
    status: str = "in_progress"
    text: str = ""
    user: str = ""

    @property
    def latency(self) -> Ticks | None:
        """From the end of the user's speech to the first sample at the ear."""
        if self.heard is None or self.speech_end is None:
            return None
        return self.heard - self.speech_end

    def parts(self) -> dict[str, Ticks]:
        """How long each stage kept the answer waiting; they sum up to `latency`.

        Work that is done while another stage is still waited for costs nothing: a stage is charged with what it adds.
        """
        if self.latency is None or self.speech_end is None:
            return {}
        stages = self.stages
        thinker = stages.get("first_clause", stages.get("first_token"))
        milestones = (
            ("endpointing", self.asked),
            ("asr", stages.get("words")),
            ("thinker", thinker),
            ("talker", self.made),
            ("endpointing", self.turn_ended),
            ("session", self.placed),
            ("carrier and client", self.heard),
        )
        parts: dict[str, Ticks] = {}
        reached = self.speech_end
        for stage, at in milestones:
            if at is not None:
                parts[stage] = parts.get(stage, 0) + max(0, at - reached)
                reached = max(reached, at)
        return parts


@dataclass(slots=True)
class Account:
    """All of a session."""

    interruptions: list[Interruption] = field(default_factory=list)
    overlaps: list[Overlap] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    length: Ticks = 0
    heard: list[tuple[str, Ticks, str]] = field(default_factory=list)
    """Of each response that was cut: content heard, and its words."""

    def answer(self, response: str) -> Answer | None:
        return next((answer for answer in self.answers if answer.response == response), None)


def account(config: SessionConfig, steps: Iterable[Step]) -> Account:
    """Tell what happened in `steps` of a session that began with `config`."""
    teller = _Teller(config)
    for step in steps:
        teller.step(step)
    return teller.finish()


class _Teller:
    def __init__(self, config: SessionConfig) -> None:
        self._config = config
        self._account = Account()
        self._clock = InputClock()
        self._onsets: list[tuple[Interruption, Ticks]] = []
        self._overlap_onsets: list[tuple[Overlap, Ticks]] = []
        self._speech_ends: list[tuple[Answer, Ticks]] = []
        self._held: tuple[Ticks, Ticks] | None = None
        self._looks: dict[int, Look] = {}
        self._windows: list[tuple[Ticks, Ticks]] = []
        self._answers: dict[str, Answer] = {}
        self._turn: tuple[Ticks, Ticks, str] | None = None
        self._asked: Ticks | None = None
        self._user = ""
        self._delay: Ticks = 0
        self._acknowledged = False
        self._cuts: dict[str, Interruption] = {}
        self._sent: dict[str, Ticks] = {}
        self._reported: set[str] = set()
        self._speaking = ""
        self._cut_by: dict[str, Interruption] = {}
        self._finals: dict[int, str] = {}
        self._stopped: Ticks | None = None
        self._flushed: Ticks | None = None

    @property
    def _turns(self) -> TurnConfig:
        return self._config.turns or TurnConfig()

    def step(self, step: Step) -> None:
        event, now = step.event, step.now
        self._account.length = max(self._account.length, now)
        self._event(event, now)
        for effect in step.effects:
            self._effect(effect, event, now)

    def _event(self, event: Event, now: Ticks) -> None:
        if type(event) is AudioArrived:
            self._clock.arrived(event.start, event.end, now)
        elif type(event) is SpeechProbability:
            if event.probability >= self._turns.threshold:
                self._windows.append((event.start, now))
                del self._windows[:-200]
        elif type(event) is EngineAudio:
            answer = self._answer(event.response)
            if answer.made is None:
                answer.made = now
        elif type(event) is Transcript:
            look = self._looks.get(event.request)
            if look is not None:
                look.answered, look.words = now, event.text.strip()
            item = self._finals.pop(event.request, None)
            if item is not None:
                self._understood(item, event.text.strip())
        elif type(event) is PlaybackReported:
            answer = self._answer(event.response)
            if answer.placed is not None and event.position > 0:
                # Pauses and late reports only make it later than it was; any report is worth more than the model.
                began = max(answer.placed, now - event.position)
                known = answer.heard if event.response in self._reported else None
                answer.heard = began if known is None else min(known, began)
                self._reported.add(event.response)
        elif type(event) is CarrierAttached:
            self._delay, self._acknowledged = event.delay, event.acknowledged
        elif type(event) is ItemCreate and event.audio is not None:
            self._clock.arrived(event.audio.start, event.audio.end, now)

    def _effect(self, effect: Effect, event: Event, now: Ticks) -> None:
        if type(effect) is AdmitFrame:
            self._admitted(effect, now)
        elif type(effect) is Notify:
            self._notice(effect, event, now)
        elif type(effect) is HoldCarrier:
            self._looks.clear()
        elif type(effect) is Transcribe:
            if effect.final:
                self._asked = now
                self._finals[effect.request] = self._speaking
            else:
                self._looks[effect.request] = Look(now)
        elif type(effect) is DropAudio and effect.why == "stale":
            cut = self._cuts.get(effect.source)
            if cut is not None:
                cut.stale += effect.end - effect.start
                cut.stale_until = now
        elif type(effect) is CancelResponse:
            self._stopped = now
        elif type(effect) is FlushCarrier:
            self._flushed = now

    def _admitted(self, frame: AdmitFrame, now: Ticks) -> None:
        answer = self._answer(frame.response)
        self._sent[frame.response] = frame.placed_at + frame.end - frame.start
        if answer.admitted is None:
            answer.admitted, answer.placed = now, frame.placed_at
            if not self._acknowledged:
                answer.heard = frame.placed_at + self._delay

    def _answer(self, response: str) -> Answer:
        answer = self._answers.get(response)
        if answer is None:
            answer = self._answers[response] = Answer(response)
            self._account.answers.append(answer)
        return answer

    def _notice(self, effect: Notify, event: Event, now: Ticks) -> None:
        notice = effect.notice
        match notice:
            case SessionConfigured():
                self._config = notice.config
            case Held(at):
                self._held = (now, at)
            case Resumed(words) if self._held is not None:
                held, at = self._held
                overlap = Overlap(held, now, 0, words, list(self._looks.values()))
                self._overlap_onsets.append((overlap, at))
                self._account.overlaps.append(overlap)
                self._held = None
            case EpochBegan():
                self._epoch(notice, event, now)
            case PlaybackCleared():
                self._cleared(notice)
            case SpeechStopped():
                self._turn = (notice.at, now, "")
            case TurnEnded():
                self._turn = (notice.speech_end, now, notice.by)
                for answer in self._answers.values():
                    if answer.opened is None and answer.status == "in_progress":
                        self._answers_turn(answer)
            case SpeechStarted():
                self._user = ""
                self._speaking = notice.item
            case ResponseOpened():
                answer = self._answer(notice.response.id)
                answer.opened = now
                if answer.turn_ended is None:
                    self._answers_turn(answer)
                answer.user = self._user
                self._turn = None
            case StageReached():
                if notice.response:
                    answer = self._answer(notice.response)
                    answer.stages.setdefault(notice.stage, now)
                    if answer.asked is None:
                        answer.asked = self._asked
            case ResponseClosed():
                answer = self._answer(notice.response.id)
                answer.status = notice.response.status
            case OutputClosed():
                self._closed(notice)
            case _:
                pass

    def _answers_turn(self, answer: Answer) -> None:
        if self._turn is None:
            return
        speech_end, now, by = self._turn
        self._speech_ends.append((answer, speech_end))
        answer.turn_ended, answer.turn_ended_by = now, by

    def _closed(self, notice: OutputClosed) -> None:
        if not notice.item.spoken:
            return
        answer = self._answer(notice.response)
        answer.text = notice.item.text
        cut = self._cuts.get(notice.response)
        if cut is not None:
            cut.kept = notice.item.text

    def _epoch(self, notice: EpochBegan, event: Event, now: Ticks) -> None:
        number = len(self._account.interruptions) + 1
        looks = list(self._looks.values()) if self._held is not None else []
        cut = Interruption(number, notice.epoch, notice.cause, now, "", looks=looks)
        # The engine is stopped and the carrier flushed before anyone is told; an engine that was done needs no stop.
        cut.stopped = self._stopped if self._stopped == now else None
        cut.flushed = self._flushed
        if self._held is not None and notice.cause in SPOKEN_OVER:
            cut.held = self._held[0]
        if notice.at is not None:
            self._onsets.append((cut, notice.at))
            cut.crossed = next((told for start, told in self._windows if start >= notice.at), cut.held)
        cut.why = self._why(notice, event, cut, now)
        self._held = None
        self._account.interruptions.append(cut)
        if notice.cause in SPOKEN_OVER and self._speaking:
            self._cut_by[self._speaking] = cut

    def _understood(self, item: str, text: str) -> None:
        self._user = text
        if item in self._cut_by:
            self._cut_by[item].said = text

    def _why(self, notice: EpochBegan, event: Event, cut: Interruption, now: Ticks) -> str:
        turns = self._turns
        if notice.cause not in SPOKEN_OVER:
            return f"asked for by {type(event).__name__}"
        if isinstance(event, Transcript):
            return f'its words "{event.text.strip()}" ask for the floor'
        if isinstance(event, SpeechProbability) and notice.at is not None:
            spoken = (event.end - notice.at) // TICKS_PER_MS
            limit = turns.commit_ms if turns.kind == "server_vad" else turns.semantic_commit_ms
            return f"{spoken} ms of speech, from {limit} ms on is an interruption ({turns.kind})"
        if isinstance(event, TimerDue):
            return f"the input stood still (timer {event.name!r}) and what there was of it was decided by its length"
        return f"decided with {type(event).__name__}"

    def _cleared(self, notice: PlaybackCleared) -> None:
        self._account.heard.append((notice.response, notice.heard, notice.text))
        if not self._account.interruptions:
            return
        cut = self._account.interruptions[-1]
        cut.response, cut.heard, cut.heard_by = notice.response, notice.heard, notice.heard_by
        cut.heard_text = cut.kept = notice.text
        cut.sent_until = self._sent.get(notice.response)
        self._cuts[notice.response] = cut
        self._cuts["duplex"] = cut

    def finish(self) -> Account:
        clock = self._clock
        for cut, at in self._onsets:
            cut.onset = clock.session_time(at)
        for overlap, at in self._overlap_onsets:
            overlap.onset = clock.session_time(at)
        for answer, at in self._speech_ends:
            answer.speech_end = clock.session_time(at)
        # One that was made in advance and taken back before anyone knew of it is no answer.
        self._account.answers = [answer for answer in self._account.answers if answer.opened is not None]
        return self._account
