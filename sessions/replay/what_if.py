"""Run a recorded session otherwise: another turn policy, a lost acknowledgement, an interruption that comes earlier.

The core runs on a virtual clock. What came from outside comes again when it came; perception and engine answer as they
did for the same question, in the time that they took then. What was never recorded cannot come: the run says where it
had to do without. And it is the same user, who in truth would have reacted to what they heard.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..core.effects import (
    AdmitFrame,
    AssessTurn,
    CancelPerception,
    CancelResponse,
    ClearTimer,
    Effect,
    Notify,
    SetTimer,
    StartResponse,
    Transcribe,
)
from ..core.events import (
    ConfigUpdate,
    DuplexFrame,
    EndOfTurnProbability,
    EngineDone,
    EngineFailed,
    Event,
    ItemCreate,
    ItemDelete,
    ItemRetrieve,
    ItemTruncate,
    PerceptionFailed,
    PlaybackReported,
    ResponseCancel,
    TimerDue,
    Transcript,
)
from ..core.notices import OutputOpened, SpeechStarted
from ..core.session import Session
from ..core.timeline import TICK_RATE, TICKS_PER_MS, Ticks
from .account import SPOKEN_OVER, Account, Answer, Interruption, account
from .alterations import Alterations
from .explain import ms
from .material import SAME_ONSET, Made, Material, alter, asked_by, collect, words_in
from .reader import Recording, Step

AFTERWARDS: Ticks = 30 * TICK_RATE
"""How long after the end of the recording a run may still go on."""
ALIKE: Ticks = TICK_RATE // 20
"""Decisions that lie closer to each other count as the same."""
STEPS_MAX = 5_000_000
NOBODY_ASKED_WORDS = "questions about words that nobody asked in the recording: not answered"
NOBODY_ASKED_END = "questions about the end of a turn that nobody asked in the recording: not answered"
WORDS_TAKEN = "words taken from a recorded look at about the same stretch"
END_TAKEN = "ends of a turn judged as those at about the same time, since their own answers did not come in time"
LAST = 1 << 62
"""Number of a step that the recording does not have."""
USER = "the user is the recorded one: they would have reacted to what they heard, and here they do not"


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A recorded session and how it would have gone. `limits`: where the altered run rests on less than a recording."""

    recorded: Account
    altered: Account
    steps: list[Step]
    limits: list[str]
    apart: Ticks = SAME_ONSET
    """How far apart the same interruption may lie in the two runs."""

    def __str__(self) -> str:
        return "\n".join([*_interruptions(self), *_answers(self), "", "limits:", *(f"  {one}" for one in self.limits)])

    @property
    def same(self) -> bool:
        """Whether the same interruptions happened, at about the same time, and the same words were heard before."""
        cuts = list(zip(self.recorded.interruptions, self.altered.interruptions, strict=False))
        return (
            len(self.recorded.interruptions) == len(self.altered.interruptions)
            and len(self.recorded.answers) == len(self.altered.answers)
            and all(
                one.cause == other.cause
                and one.heard_text == other.heard_text
                and abs(one.decided - other.decided) <= ALIKE
                for one, other in cuts
            )
        )


def what_if(folder: Path, alterations: Alterations) -> WhatIf:
    """Run the session in `folder` with `alterations`. Raises JournalError, AlterationError."""
    recording = Recording(folder)
    steps = list(recording.steps())
    limits = [USER]
    material = collect(steps)
    alter(material, alterations, limits)
    manifest = recording.manifest
    run = _Run(replace(manifest, config=alterations.config(manifest.config)).session_core(), material, alterations)
    altered = run.run()
    config = alterations.config(manifest.config)
    apart = SAME_ONSET + max((abs(shift.by) for shift in alterations.shifts), default=0)
    return WhatIf(account(manifest.config, steps), account(config, altered), altered, limits + run.limits(), apart)


@dataclass(frozen=True, slots=True)
class _Short:
    """An answer that was cut in the recording: `audio` was made of it; had it been cut as late, that were at `cut`."""

    asked: Ticks
    audio: Ticks
    cut: Ticks

    def __str__(self) -> str:
        return (
            f"of the answer at {self.asked / TICK_RATE:.3f} s only {self.audio / TICK_RATE:.1f} s were made before it "
            "was cut in the recording; what would have followed is not known"
        )


class _Run:
    """One session on a virtual clock, with the recording as its peers."""

    def __init__(self, session: Session, material: Material, alterations: Alterations) -> None:
        self._session = session
        self._material = material
        self._alterations = alterations
        self._queue: list[tuple[Ticks, int, int, str, Event]] = []
        self._serial = 0
        self._timers: dict[str, int] = {}
        self._cancelled: dict[str, Ticks] = {}
        """Until when a response that was cancelled still says something; since when an answer is not wanted."""
        self._unsaid: dict[str, str] = {}
        """Of an answer that was not recorded: the limit to tell, should it come."""
        self._of: dict[str, Made] = {}
        self._ids: dict[str, str] = {}
        self._outputs: dict[tuple[str, int], str] = {}
        self._spoken: list[tuple[Ticks, str]] = []
        self._reported: dict[str, int] = {}
        self._short: dict[str, _Short] = {}
        """Answers that were cut in the recording."""
        self._counts: Counter[str] = Counter()
        self._missing: list[str] = []

    def run(self) -> list[Step]:
        for index, (now, event) in enumerate(self._material.inputs):
            if type(event) not in self._alterations.dropped:
                self._plan(now, event, "stale" if index in self._material.stale else "", self._material.order[index])
        steps: list[Step] = []
        session = self._session
        while self._queue and not session.state.closed and len(steps) < STEPS_MAX:
            now, _, serial, kind, event = heapq.heappop(self._queue)
            if now > self._material.length + AFTERWARDS:
                break
            if kind in self._cancelled and now > self._cancelled[kind]:
                continue
            if isinstance(event, TimerDue):
                if self._timers.get(event.name) != serial:
                    continue
                del self._timers[event.name]
            if kind in self._unsaid:
                self._counts[self._unsaid.pop(kind)] += 1
            if isinstance(event, EngineDone) and kind in self._short:
                self._missing.append(str(self._short.pop(kind)))
            translated = self._translated(event, kind)
            if translated is None:
                continue
            now = max(now, session.state.now)
            effects = session.handle(translated, now)
            steps.append(Step(len(steps) + 1, now, translated, effects))
            for effect in effects:
                self._effect(effect, now)
        if not session.state.closed and len(steps) >= STEPS_MAX:
            self._missing.append("the altered run would not come to an end and was broken off")
        return steps

    def _plan(self, now: Ticks, event: Event, kind: str = "", number: int = LAST) -> int:
        """`number`: of the recorded step that it was; what came at the same instant comes in the same order."""
        self._serial += 1
        heapq.heappush(self._queue, (now, number, self._serial, kind, event))
        return self._serial

    # --- effects -------------------------------------------------------------------------------------------------

    def _effect(self, effect: Effect, now: Ticks) -> None:
        if type(effect) is SetTimer:
            # One that was not set in the recording is the first at its instant, as on an event loop.
            raised, number = self._material.timers.due(effect.name, effect.due, now)
            self._timers[effect.name] = self._plan(raised, TimerDue(effect.name), number=number)
        elif type(effect) is ClearTimer:
            self._timers.pop(effect.name, None)
        elif type(effect) is Transcribe:
            self._transcribe(effect, now)
        elif type(effect) is AssessTurn:
            self._assess(effect, now)
        elif type(effect) is CancelPerception:
            self._cancelled[_request(effect.request)] = now
        elif type(effect) is StartResponse:
            self._start(effect, now)
        elif type(effect) is CancelResponse:
            made = self._of.get(effect.response)
            self._cancelled[effect.response] = now + (0 if made is None else made.tail)
        elif type(effect) is AdmitFrame:
            self._report(effect)
            self._runs_out(effect, now)
        elif type(effect) is Notify:
            if isinstance(effect.notice, OutputOpened):
                self._outputs[effect.notice.response, effect.notice.index] = effect.notice.item.id
            elif isinstance(effect.notice, SpeechStarted):
                self._spoken.append((effect.notice.at, effect.notice.item))

    def _transcribe(self, order: Transcribe, now: Ticks) -> None:
        found = self._material.transcript(order.start, order.end, order.final)
        none_for = self._material.unanswered(order)
        if found is None:
            failed = PerceptionFailed(order.request, "not_recorded", "nothing was recorded for this stretch")
            after = TICK_RATE // 4 if none_for is None else none_for + 1
            self._unsure(order, now + after, failed, NOBODY_ASKED_WORDS)
            return
        heard, exact = found
        answer: Any = heard.answer
        if isinstance(answer, Transcript):
            text = answer.text if exact else words_in(answer, order.start, order.end)
            answer = replace(answer, start=order.start, end=order.end, text=text)
        answer = replace(answer, request=order.request)
        if exact and none_for is None:
            self._plan(now + heard.took, answer, number=heard.number)
        else:
            took = heard.took if none_for is None else max(heard.took, none_for + 1)
            self._unsure(order, now + took, answer, WORDS_TAKEN)

    def _assess(self, order: AssessTurn, now: Ticks) -> None:
        found = self._material.assessment(order.at)
        none_for = self._material.unanswered(order)
        if found is None or found.probability is None or EndOfTurnProbability in self._alterations.dropped:
            if none_for is None:
                self._counts[NOBODY_ASKED_END] += 1
            return
        answer = EndOfTurnProbability(order.request, order.at, found.probability)
        if none_for is None:
            self._plan(now + found.took, answer, number=found.number)
        else:
            self._unsure(order, now + max(found.took, none_for + 1), answer, END_TAKEN)

    def _unsure(self, order: Transcribe | AssessTurn, at: Ticks, answer: Event, limit: str) -> None:
        """An answer that was not recorded comes at `at`, if it is still wanted then; `limit` is said if it does."""
        kind = _request(order.request)
        self._unsaid[kind] = limit
        self._plan(at, answer, kind)

    def _start(self, order: StartResponse, now: Ticks) -> None:
        asked = asked_by(order)
        made = self._material.response(asked, now, {one.response for one in self._of.values()})
        if made is None:
            self._missing.append(f'{now / TICK_RATE:.3f} s: no answer to "{asked}" was recorded; there is none here')
            failed = EngineFailed(order.fence, order.response, "not_recorded", "no such answer was recorded")
            self._plan(now + TICK_RATE // 4, failed, order.response)
            return
        if made.asked != asked:
            self._counts["answers that in the recording were given to other words"] += 1
        self._of[order.response] = made
        self._ids[made.response] = order.response
        for after, number, event in made.events:
            again: Any = event
            again = replace(again, fence=order.fence, response=order.response)
            self._plan(now + after, again, order.response, number)
        if not made.complete:
            cut = 0 if made.cancelled is None else made.cancelled - made.started
            self._short[order.response] = _Short(now, made.audio, now + cut)

    def _report(self, frame: AdmitFrame) -> None:
        """Playback reports come as long after their audio was placed as they did."""
        made = self._of.get(frame.response)
        if made is None or PlaybackReported in self._alterations.dropped:
            return
        reports = self._material.reports.get(made.response, [])
        number = self._reported.get(frame.response, 0)
        while number < len(reports) and reports[number].position <= frame.end:
            report = reports[number]
            placed = frame.placed_at + report.position - frame.start
            told = PlaybackReported(frame.response, report.position)
            self._plan(placed + report.took, told, number=report.number)
            number += 1
        self._reported[frame.response] = number

    def _runs_out(self, frame: AdmitFrame, now: Ticks) -> None:
        """An answer that was cut in the recording ends where nothing more is known of it."""
        short = self._short.get(frame.response)
        if short is not None and frame.end >= short.audio:
            # That nothing more came before the cut is known.
            self._plan(max(now, short.cut + 1), EngineDone(frame.fence, frame.response), frame.response)

    # --- what names something of the recording -------------------------------------------------------------------

    def _translated(self, event: Event, kind: str) -> Event | None:
        if isinstance(event, ConfigUpdate):
            return replace(event, config=self._alterations.config(event.config))
        if isinstance(event, DuplexFrame):
            fence = self._session.fence
            return replace(event, fence=replace(fence, epoch=fence.epoch - 1) if kind == "stale" else fence)
        if isinstance(event, ResponseCancel) and event.response is not None:
            return self._renamed(event, "response", self._ids.get(event.response))
        if isinstance(event, ItemTruncate | ItemDelete | ItemRetrieve):
            return self._renamed(event, "item", self._item(event.item))
        if isinstance(event, ItemCreate) and event.previous not in (None, "root"):
            return replace(event, previous=self._item(str(event.previous)))
        return event

    def _renamed(self, event: Any, name: str, value: str | None) -> Event | None:
        if value is None:
            self._counts["commands about something that is not there in the altered run: left out"] += 1
            return None
        renamed: Event = replace(event, **{name: value})
        return renamed

    def _item(self, item: str) -> str | None:
        place = self._material.items.get(item)
        if place is not None:
            return self._outputs.get((self._ids.get(place[0], ""), place[1]))
        onset = next((at for at, own in self._material.spoken if own == item), None)
        if onset is None:
            return item  # the client's own, or unknown in both
        near = [(abs(at - onset), own) for at, own in self._spoken if abs(at - onset) <= SAME_ONSET]
        return min(near)[1] if near else None

    def limits(self) -> list[str]:
        """What the run had to do without."""
        return [*self._missing, *(f"{number} × {what}" for what, number in self._counts.items())]


def _request(number: int) -> str:
    return f"request {number}"


# --- side by side --------------------------------------------------------------------------------------------------


def pairs(result: WhatIf) -> list[tuple[Interruption | None, Interruption | None]]:
    """The interruptions of both runs, those by the same sound or at the same time together, in order of time."""
    left = list(result.recorded.interruptions)
    found: list[tuple[Interruption | None, Interruption | None]] = []
    for cut in result.altered.interruptions:
        match = next((one for one in left if _together(one, cut, result.apart)), None)
        if match is not None:
            left.remove(match)
        found.append((match, cut))
    found += [(one, None) for one in left]
    return sorted(found, key=lambda pair: next(cut.decided for cut in pair if cut is not None))


def _together(one: Interruption, other: Interruption, apart: Ticks) -> bool:
    if (one.cause in SPOKEN_OVER) != (other.cause in SPOKEN_OVER):
        return False
    if one.onset is not None and other.onset is not None:
        return abs(one.onset - other.onset) <= apart
    return abs(one.decided - other.decided) <= apart


def _interruptions(result: WhatIf) -> list[str]:
    lines = [f"{'interruptions':<34}{'recorded':<34}altered"]
    for one, other in pairs(result):
        known = one or other
        if known is None:
            continue
        when = f"{(known.onset if known.onset is not None else known.decided) / TICK_RATE:9.3f} s {known.cause}"
        lines.append(f"{when:<34}{_cell(one):<34}{_cell(other)}")
        for name, cut in (("recorded", one), ("altered", other)):
            if cut is not None and cut.heard is not None:
                lines.append(f'{"":<14}{name + " heard:":<20}"{cut.heard_text.strip()}"')
    if len(lines) == 1:
        lines.append("  none in either")
    kept = f"{len(result.recorded.overlaps)} in the recording, {len(result.altered.overlaps)} altered"
    return [*lines, f"sounds over the agent that were none: {kept}"]


def _cell(cut: Interruption | None) -> str:
    if cut is None:
        return "does not happen"
    after = "" if cut.onset is None else f" (+{ms(cut.decided - cut.onset)})"
    heard = "" if cut.heard is None else f", {ms(cut.heard)} heard"
    return f"{cut.decided / TICK_RATE:.3f} s{after}{heard}"


def _answers(result: WhatIf) -> list[str]:
    lines = ["", f"{'answers':<34}{'recorded':<34}altered"]
    left = list(result.altered.answers)
    for answer in result.recorded.answers:
        match = next((one for one in left if abs(_when(one) - _when(answer)) <= SAME_ONSET), None)
        if match is not None:
            left.remove(match)
        lines.append(
            f"{_name(answer.speech_end, answer.opened):<34}{_took(answer.latency):<34}"
            f"{'does not happen' if match is None else _took(match.latency)}"
        )
    for answer in left:
        lines.append(f"{_name(answer.speech_end, answer.opened):<34}{'did not happen':<34}{_took(answer.latency)}")
    return lines


def _when(answer: Answer) -> Ticks:
    return answer.speech_end if answer.speech_end is not None else answer.opened or 0


def _name(speech_end: Ticks | None, opened: Ticks | None) -> str:
    if speech_end is not None:
        return f"{speech_end / TICK_RATE:9.3f} s end of speech"
    return f"{(opened or 0) / TICK_RATE:9.3f} s asked for"


def _took(latency: Ticks | None) -> str:
    return "not heard" if latency is None else f"heard after {latency // TICKS_PER_MS} ms"
