"""What a recording holds for another run of the same session: who said and answered what, and how long each took."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from operator import itemgetter

from ..core.effects import (
    AdmitFrame,
    AdvanceEpoch,
    AssessTurn,
    CancelPerception,
    CancelResponse,
    ClearTimer,
    Notify,
    SetTimer,
    StartResponse,
    Transcribe,
)
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
    """A transcript: of which input span, final or a look, how long it took, and the number of its step.

    `answer` None: there was none so long, and nobody wanted it any more then.
    """

    start: Ticks
    end: Ticks
    final: bool
    answer: Transcript | PerceptionFailed | None
    took: Ticks
    number: int = 0


@dataclass(slots=True)
class Assessed:
    """An end-of-turn probability, in the same way."""

    at: Ticks
    probability: float | None
    took: Ticks
    number: int = 0


@dataclass(slots=True)
class Made:
    """What the engine made for one order: events, by time since the order and number of their step."""

    response: str
    started: Ticks
    asked: str
    """The last words of the user that it answers."""
    events: list[tuple[Ticks, int, Event]] = field(default_factory=list)
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
    """A playback report: content `position`, told `took` after that position was placed, in step `number`."""

    position: Ticks
    took: Ticks
    number: int


class Timers:
    """When the timers of a recording were raised, which is later than they were due where their process was busy."""

    def __init__(self) -> None:
        self._set: dict[tuple[str, Ticks], deque[list[tuple[Ticks, int]]]] = {}
        """By name and due time, each time that it was set: when it was raised, and the number of that step."""
        self._open: dict[str, tuple[Ticks, list[tuple[Ticks, int]]]] = {}
        self._late: list[tuple[Ticks, Ticks]] = []
        """Spans in which a timer that was due was not raised, in order of their ends."""

    def set(self, name: str, due: Ticks, now: Ticks, number: int) -> None:
        """In the recorded step `number`."""
        self.cleared(name, now, number)
        raised: list[tuple[Ticks, int]] = []
        self._set.setdefault((name, due), deque()).append(raised)
        self._open[name] = due, raised

    def cleared(self, name: str, now: Ticks, number: int) -> None:
        """One that was due by then was not raised before that step: had it not been cleared, it would come after it."""
        due, raised = self._open.pop(name, (now, []))
        if due <= now:
            self._came(due, raised, now, number + 1)

    def ended(self, now: Ticks, number: int) -> None:
        """The recording ends with that step."""
        for name in list(self._open):
            self.cleared(name, now, number)

    def raised(self, name: str, now: Ticks, number: int) -> None:
        """In that step."""
        due, raised = self._open.pop(name, (now, []))
        self._came(due, raised, now, number)

    def _came(self, due: Ticks, raised: list[tuple[Ticks, int]], now: Ticks, number: int) -> None:
        raised.append((now, number))
        if due < now:
            self._late.append((due, now))

    def due(self, name: str, due: Ticks, now: Ticks) -> tuple[Ticks, int]:
        """When a timer is raised that is set at `now`, and the number of the recorded step that this was (0: none).

        Each time that it was set in the recording counts once.
        """
        before = self._set.get((name, due))
        if before:
            for raised, number in before.popleft():
                if raised >= now:
                    return raised, number
        due = max(due, now)
        after = bisect_right(self._late, due, key=itemgetter(1))
        if after < len(self._late) and self._late[after][0] <= due:
            return self._late[after][1], 0
        return due, 0


@dataclass(slots=True)
class Material:
    """Of one recording. `inputs`: what came from outside, and when; `order`: the numbers of their steps."""

    inputs: list[tuple[Ticks, Event]] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    timers: Timers = field(default_factory=Timers)
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
            if shared <= 0 or heard.answer is None:
                continue
            likeness = shared / (max(end, heard.end) - min(start, heard.start)) + (0.05 if heard.final == final else 0)
            if likeness > score:
                best, score = heard, likeness
        if best is None or score < 0.3:
            return None
        return best, score >= 0.85

    def assessment(self, at: Ticks) -> Assessed | None:
        near = [one for one in self.assessed if abs(one.at - at) <= ASSESSED and one.probability is not None]
        return min(near, key=lambda one: abs(one.at - at)) if near else None

    def unanswered(self, order: Transcribe | AssessTurn) -> Ticks | None:
        """How long the same question had no answer before nobody wanted it any more; None where it had one."""
        if isinstance(order, AssessTurn):
            return next((one.took for one in self.assessed if one.at == order.at and one.probability is None), None)
        asked = (order.start, order.end, order.final)
        same = (one for one in self.heard if (one.start, one.end, one.final) == asked and one.answer is None)
        return next((one.took for one in same), None)

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
        self._unwanted: dict[int, Ticks] = {}
        """Since when nobody wants the answer to a request any more."""
        self._made: dict[str, Made] = {}
        self._placed: dict[str, list[tuple[Ticks, Ticks, Ticks]]] = {}
        self._epoch = 0
        self._epochs = 0
        self._open: int | None = None

    def collect(self, steps: Iterable[Step]) -> Material:
        number = 0
        for step in steps:
            number = step.number
            self.material.length = max(self.material.length, step.now)
            self._event(step.event, step.now, step.number)
            for effect in step.effects:
                if type(effect) is Transcribe:
                    self._transcribing[effect.request] = (effect, step.now)
                elif type(effect) is AssessTurn:
                    self._assessing[effect.request] = (effect, step.now)
                elif type(effect) is CancelPerception:
                    self._unwanted[effect.request] = step.now
                elif type(effect) is StartResponse:
                    made = Made(effect.response, step.now, asked_by(effect))
                    self._made[effect.response] = made
                    self.material.made.append(made)
                elif type(effect) is CancelResponse and effect.response in self._made:
                    self._made[effect.response].cancelled = step.now
                elif type(effect) is AdmitFrame:
                    spans = self._placed.setdefault(effect.response, [])
                    spans.append((effect.start, effect.end, effect.placed_at))
                elif type(effect) is SetTimer:
                    self.material.timers.set(effect.name, effect.due, step.now, step.number)
                elif type(effect) is ClearTimer:
                    self.material.timers.cleared(effect.name, step.now, step.number)
                elif type(effect) is AdvanceEpoch:
                    self._epoch = effect.fence.epoch
                elif type(effect) is Notify:
                    self._notice(effect)
        self.material.timers.ended(self.material.length, number)
        self._unanswered()
        return self.material

    def _unanswered(self) -> None:
        material = self.material
        for request, (asked, since) in self._transcribing.items():
            took = self._unwanted.get(request, material.length) - since
            material.heard.append(Heard(asked.start, asked.end, asked.final, None, took))
        for request, (assess, since) in self._assessing.items():
            took = self._unwanted.get(request, material.length) - since
            material.assessed.append(Assessed(assess.at, None, took))

    def _event(self, event: Event, now: Ticks, number: int) -> None:
        material = self.material
        if isinstance(event, Transcript | PerceptionFailed):
            asked = self._transcribing.pop(event.request, None)
            if asked is not None:
                request, since = asked
                material.heard.append(Heard(request.start, request.end, request.final, event, now - since, number))
        elif isinstance(event, EndOfTurnProbability):
            assess = self._assessing.pop(event.request, None)
            if assess is not None:
                material.assessed.append(Assessed(assess[0].at, event.probability, now - assess[1], number))
        elif isinstance(event, ENGINE_EVENTS) and event.response:
            made = self._made.get(event.response)
            if made is not None and not made.complete:
                made.events.append((now - made.started, number, event))
                made.complete = isinstance(event, EngineDone | EngineFailed)
                if isinstance(event, EngineAudio):
                    made.audio = max(made.audio, event.end)
        elif isinstance(event, PlaybackReported):
            placed = self._where(event.response, event.position)
            if placed is not None:
                material.reports.setdefault(event.response, []).append(Report(event.position, now - placed, number))
        elif isinstance(event, TimerDue):
            material.timers.raised(event.name, now, number)
        else:
            if isinstance(event, SpeechProbability):
                material.windows.append(len(material.inputs))
            elif isinstance(event, DuplexFrame) and event.fence.epoch != self._epoch:
                material.stale.add(len(material.inputs))
            material.inputs.append((now, event))
            material.order.append(number)

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
    quiet, still = min(window.level for window in windows), min(window.hiss for window in windows)
    new = [
        replace(window, probability=0.0, level=quiet, echo=0.0, hiss=still) if start <= window.start < end else window
        for window in windows
    ]
    if by is not None and moved:
        first = windows.index(moved[0]) + round(by / hop)
        for offset, window in enumerate(moved):
            place = first + offset
            if 0 <= place < len(new) and window.probability >= new[place].probability:
                new[place] = replace(window, start=new[place].start, end=new[place].end)
    for index, window in zip(material.windows, new, strict=True):
        material.inputs[index] = (material.inputs[index][0], window)
