"""Who said what and when, on the session timeline: the user as understood, the agent as heard."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ..core.effects import Notify, Transcribe
from ..core.events import DuplexFrame, EngineWords, Event, Transcript
from ..core.notices import SpeechStarted, SpeechStopped
from ..core.timeline import TICK_RATE, Ticks, Word
from .reader import Recording

CUE: Ticks = 6 * TICK_RATE
"""A stretch of the agent's speech is given in pieces of at most this length, broken between words."""


@dataclass(frozen=True, slots=True)
class Said:
    """[start, end) of the session timeline. `words` are empty where nobody told when they were said."""

    side: Literal["user", "agent"]
    start: Ticks
    end: Ticks
    text: str
    words: tuple[Word, ...] = ()


def speech(recording: Recording) -> list[Said]:
    """Everything that was said and heard, in order of time."""
    collector = _Collector()
    for step in recording.steps([]):
        collector.event(step.event)
        for effect in step.effects:
            if type(effect) is Transcribe and effect.final:
                collector.asked[effect.request] = collector.item
            elif type(effect) is Notify and isinstance(effect.notice, SpeechStarted | SpeechStopped):
                collector.notice(effect.notice)
    said = [*_agent(recording, collector.words), *_user(recording, collector)]
    return sorted(said, key=lambda one: (one.start, one.side))


class _Collector:
    def __init__(self) -> None:
        self.item = ""
        self.words: dict[str, list[Word]] = {}
        self.asked: dict[int, str] = {}
        self.spans: dict[str, tuple[Ticks, Ticks]] = {}
        self.texts: dict[str, Transcript] = {}

    def event(self, event: Event) -> None:
        if type(event) is EngineWords:
            self.words.setdefault(event.response, []).extend(event.words)
        elif type(event) is DuplexFrame and event.text:
            self.words.setdefault("duplex", []).append(Word(event.text, event.start, event.end))
        elif type(event) is Transcript:
            item = self.asked.pop(event.request, None)
            if item is not None:
                self.texts[item] = event

    def notice(self, notice: SpeechStarted | SpeechStopped) -> None:
        if isinstance(notice, SpeechStarted):
            self.item = notice.item
            self.spans[notice.item] = (notice.at, notice.at)
        elif notice.item in self.spans:
            self.spans[notice.item] = (self.spans[notice.item][0], notice.at)


def _user(recording: Recording, collector: _Collector) -> Iterator[Said]:
    clock = recording.input_clock
    for item, (start, end) in collector.spans.items():
        told = collector.texts.get(item)
        if told is None or not told.text.strip():
            continue
        words = tuple(
            Word(word.text, clock.session_time(word.start), clock.session_time(word.end)) for word in told.words
        )
        begins, ends = clock.session_time(start), clock.session_time(max(end, start + 1))
        yield Said("user", begins, max(ends, begins + 1), told.text.strip(), words)


def _agent(recording: Recording, words: dict[str, list[Word]]) -> Iterator[Said]:
    """The words whose audio was heard, where it was heard; one that was cut counts when half of it was."""
    placed: list[Word] = []
    of: str | None = None
    for piece in recording.pieces("heard"):
        if of is not None and piece.response != of:
            yield from _cues(placed)
            placed = []
        of = piece.response
        first, last = piece.source_start, piece.source_start + piece.length
        for word in words.get(piece.source, []):
            middle = (word.start + word.end) // 2
            if first <= middle < last or (word.start == word.end and first <= word.start < last):
                start = piece.placed_at + max(0, word.start - first)
                placed.append(Word(word.text, start, max(start + 1, piece.placed_at + min(word.end, last) - first)))
    yield from _cues(placed)


def _cues(words: list[Word]) -> Iterator[Said]:
    cue: list[Word] = []
    for word in words:
        ends = cue and cue[-1].text.rstrip().endswith((".", "?", "!"))
        if cue and (ends or word.end - cue[0].start > CUE or word.start - cue[-1].end > TICK_RATE):
            yield _cue(cue)
            cue = []
        cue.append(word)
    if cue:
        yield _cue(cue)


def _cue(words: list[Word]) -> Said:
    text = "".join(word.text for word in words).strip()
    return Said("agent", words[0].start, words[-1].end, text, tuple(words))
