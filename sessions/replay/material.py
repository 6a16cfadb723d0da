"""What a recording holds for another run of the same session: who said and answered what, and how long each took."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ..core.effects import AdmitFrame, AdvanceEpoch, AssessTurn, CancelResponse, Notify, StartResponse, Transcribe
from ..core.events import (
    ENGINE_EVENTS,
    DuplexFrame,
    EndOfTurnProbability,
    EngineAudio,
    EngineDone,
    EngineFailed,
    Event,
    PerceptionFailed,
    PlaybackReported,
    SpeechProbability,
    TimerDue,
    Transcript,
)
from ..core.notices import EpochBegan, OutputOpened, SpeechStarted, SpeechStopped
from ..core.timeline import TICK_RATE, Ticks, Word
from .alterations import Alterations
from .reader import Step

SAME_ONSET: Ticks = TICK_RATE // 2
"""How far apart the onsets of one utterance may lie in two runs."""
ASSESSED: Ticks = TICK_RATE * 2 // 5
"""How far from where it was asked an end-of-turn probability still counts."""


@dataclass(slots=True)
class Heard:
    """A transcript: of which input span, final or a look, and how long it took."""

    start: Ticks
    end: Ticks
    final: bool
    answer: Transcript | PerceptionFailed
    took: Ticks


@dataclass(slots=True)
class Assessed:
    at: Ticks
    probability: float
    took: Ticks


@dataclass(slots=True)
class Made:
    """What the engine made for one order: events, by time since the order."""

    response: str
    started: Ticks
    asked: str
    """The last words of the user that it answers."""
    events: list[tuple[Ticks, Event]] = field(default_factory=list)
    audio: Ticks = 0
    complete: bool = False
    cancelled: Ticks | None = None
    """When the engine was told to stop."""

    @property
    def tail(self) -> Ticks:
        """How long after it was told to stop something still came from it."""
        if self.cancelled is None or not self.events:
            return 0
        return max(0, self.started + self.events[-1][0] - self.cancelled)


@dataclass(slots=True)
class Report:
    """A playback report: content `position`, told `took` after that position was placed."""

    position: Ticks
    took: Ticks


@dataclass(slots=True)
class Material:
    """Of one recording. `inputs`: what came from outside, with its session time."""

    inputs: list[tuple[Ticks, Event]] = field(default_factory=list)
    windows: list[int] = field(default_factory=list)
    """Which of `inputs` are speech probabilities, in order."""
    heard: list[Heard] = field(default_factory=list)
    assessed: list[Assessed] = field(default_factory=list)
    made: list[Made] = field(default_factory=list)
    reports: dict[str, list[Report]] = field(default_factory=dict)
    stale: set[int] = field(default_factory=set)
    """Which of `inputs` are frames of a dead epoch."""
    onsets: list[tuple[Ticks, Ticks]] = field(default_factory=list)
    """Input span of the speech of each epoch that a voice began, in order; the numbers of the account are `numbers`."""
    numbers: list[int] = field(default_factory=list)
    items: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Of an agent's item: the response and the number of the output in it."""
    spoken: list[tuple[Ticks, str]] = field(default_factory=list)
    """Of a user's item: its onset."""
    length: Ticks = 0

    def transcript(self, start: Ticks, end: Ticks, final: bool) -> tuple[Heard, bool] | None:
        """The recorded answer that comes nearest to what [start, end) would be heard as, and whether it is that."""
        best: Heard | None = None
        score = 0.0
        for heard in self.heard:
            shared = min(end, heard.end) - max(start, heard.start)
            if shared <= 0:
                continue
            likeness = shared / (max(end, heard.end) - min(start, heard.start)) + (0.05 if heard.final == final else 0)
            if likeness > score:
                best, score = heard, likeness
        if best is None or score < 0.3:
            return None
        return best, score >= 0.85

    def assessment(self, at: Ticks) -> Assessed | None:
        near = [one for one in self.assessed if abs(one.at - at) <= ASSESSED]
        return min(near, key=lambda one: abs(one.at - at)) if near else None

    def response(self, asked: str, now: Ticks, taken: set[str]) -> Made | None:
        """What the engine made for the same words, or else for another order at about the same time."""
        alike = [made for made in self.made if made.asked == asked]
        fresh = [made for made in alike if made.response not in taken] or alike
        if not fresh:
            near = [made for made in self.made if abs(made.started - now) < 3 * TICK_RATE]
            fresh = [made for made in near if made.response not in taken]
        return min(fresh, key=lambda made: abs(made.started - now)) if fresh else None


def words_in(answer: Transcript, start: Ticks, end: Ticks) -> str:
    """What of a transcript lies in [start, end), where it knows when its words were said."""
    if not answer.words:
        return answer.text
    kept: list[Word] = [word for word in answer.words if start <= (word.start + word.end) // 2 < end]
    return "".join(word.text for word in kept).strip()


def collect(steps: Iterable[Step]) -> Material:
    """The material of a recording."""
    return _Collector().collect(steps)


class _Collector:
    def __init__(self) -> None:
        self.material = Material()
        self._transcribing: dict[int, tuple[Transcribe, Ticks]] = {}
        self._assessing: dict[int, tuple[AssessTurn, Ticks]] = {}
        self._made: dict[str, Made] = {}
        self._placed: dict[str, list[tuple[Ticks, Ticks, Ticks]]] = {}
        self._epoch = 0
        self._epochs = 0
        self._open: int | None = None

    def collect(self, steps: Iterable[Step]) -> Material:
        for step in steps:
            self.material.length = max(self.material.length, step.now)
            self._event(step.event, step.now)
            for effect in step.effects:
                if type(effect) is Transcribe:
                    self._transcribing[effect.request] = (effect, step.now)
                elif type(effect) is AssessTurn:
                    self._assessing[effect.request] = (effect, step.now)
                elif type(effect) is StartResponse:
                    made = Made(effect.response, step.now, asked_by(effect))
                    self._made[effect.response] = made
                    self.material.made.append(made)
                elif type(effect) is CancelResponse and effect.response in self._made:
                    self._made[effect.response].cancelled = step.now
                elif type(effect) is AdmitFrame:
                    spans = self._placed.setdefault(effect.response, [])
                    spans.append((effect.start, effect.end, effect.placed_at))
                elif type(effect) is AdvanceEpoch:
                    self._epoch = effect.fence.epoch
                elif type(effect) is Notify:
                    self._notice(effect)
        return self.material

    def _event(self, event: Event, now: Ticks) -> None:
        material = self.material
        if isinstance(event, Transcript | PerceptionFailed):
            asked = self._transcribing.pop(event.request, None)
            if asked is not None:
                request, since = asked
                material.heard.append(Heard(request.start, request.end, request.final, event, now - since))
        elif isinstance(event, EndOfTurnProbability):
            assess = self._assessing.pop(event.request, None)
            if assess is not None:
                material.assessed.append(Assessed(assess[0].at, event.probability, now - assess[1]))
        elif isinstance(event, ENGINE_EVENTS) and event.response:
            made = self._made.get(event.response)
            if made is not None and not made.complete:
                made.events.append((now - made.started, event))
                made.complete = isinstance(event, EngineDone | EngineFailed)
                if isinstance(event, EngineAudio):
                    made.audio = max(made.audio, event.end)
        elif isinstance(event, PlaybackReported):
            placed = self._where(event.response, event.position)
            if placed is not None:
                material.reports.setdefault(event.response, []).append(Report(event.position, now - placed))
        elif not isinstance(event, TimerDue):
            if isinstance(event, SpeechProbability):
                material.windows.append(len(material.inputs))
            elif isinstance(event, DuplexFrame) and event.fence.epoch != self._epoch:
                material.stale.add(len(material.inputs))
            material.inputs.append((now, event))

    def _where(self, response: str, position: Ticks) -> Ticks | None:
        for start, end, placed_at in self._placed.get(response, []):
            if start <= position <= end:
                return placed_at + position - start
        return None

    def _notice(self, effect: Notify) -> None:
        material = self.material
        match effect.notice:
            case EpochBegan(_, cause, at):
                self._epochs += 1
                if at is not None and cause in ("barge_in", "withdrawn"):
                    self._open = len(material.onsets)
                    material.onsets.append((at, at + TICK_RATE))
                    material.numbers.append(self._epochs)
            case SpeechStopped(_, at) if self._open is not None:
                material.onsets[self._open] = (material.onsets[self._open][0], at)
                self._open = None
            case SpeechStarted(item, at):
                material.spoken.append((at, item))
            case OutputOpened(response, index, item):
                material.items[item.id] = (response, index)
            case _:
                pass


def asked_by(order: StartResponse) -> str:
    """The last words of the user in what an order's response reads."""
    return next((entry.text for entry in reversed(order.context) if entry.role == "user" and entry.text), "")


def alter(material: Material, alterations: Alterations, limits: list[str]) -> None:
    """Move and silence the speech of interruptions in `material`."""
    for number in alterations.silenced:
        _speech(material, number, None, limits)
    for shift in alterations.shifts:
        _speech(material, shift.number, shift.by, limits)


def _speech(material: Material, number: int | None, by: Ticks | None, limits: list[str]) -> None:
    which = [index for index, own in enumerate(material.numbers) if number in (None, own)]
    if not which:
        known = ", ".join(map(str, material.numbers)) or "none"
        limits.append(f"there is no interruption {number} by voice to change; there are: {known}")
    # From the end, so that one that comes later is not moved over by one that was moved already.
    for index in sorted(which, reverse=by is not None and by > 0):
        start, end = material.onsets[index]
        _move(material, start, end, by)
        if by is not None:
            for heard in material.heard:
                if min(end, heard.end) > max(start, heard.start):
                    heard.start += by
                    heard.end += by
            for assessed in material.assessed:
                if start <= assessed.at <= end + TICK_RATE:
                    assessed.at += by


def _move(material: Material, start: Ticks, end: Ticks, by: Ticks | None) -> None:
    """Let the windows of [start, end) be heard `by` later, and silence where they were (None: not at all)."""
    events = [material.inputs[index][1] for index in material.windows]
    windows = [event for event in events if isinstance(event, SpeechProbability)]
    if not windows:
        return
    hop = max(1, windows[0].end - windows[0].start)
    moved = [window for window in windows if start <= window.start < end]
    quiet = min((window.level for window in windows), default=-120.0)
    new = [
        replace(window, probability=0.0, level=quiet, echo=0.0) if start <= window.start < end else window
        for window in windows
    ]
    if by is not None and moved:
        first = windows.index(moved[0]) + round(by / hop)
        for offset, window in enumerate(moved):
            place = first + offset
            if 0 <= place < len(new) and window.probability >= new[place].probability:
                new[place] = replace(new[place], probability=window.probability, level=window.level, echo=window.echo)
    for index, window in zip(material.windows, new, strict=True):
        material.inputs[index] = (material.inputs[index][0], window)
