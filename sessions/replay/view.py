"""What a recording shows, chapter by chapter: a long session is looked at without reading all of it.

    view = View(folder)                     # JournalError: no recording, or one of a newer version
    view.chapters                           # session times at which they begin
    view.marks(3)                           # words, holds, epochs, stages … of the fourth
    view.events(3)                          # its events and effects, complete
    view.interruptions()                    # of the whole session

Times are ticks of the session timeline.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from ..core.effects import AdmitFrame, AdvanceEpoch, Effect, HoldCarrier, Notify, ResumeCarrier
from ..core.events import AudioArrived, CarrierAttached, Event, PlaybackReported, SpeechProbability, Transcript
from ..core.notices import (
    EpochBegan,
    InputTranscriptDone,
    OutputText,
    PlaybackCleared,
    PlaybackStarted,
    PlaybackStopped,
    ResponseClosed,
    ResponseOpened,
    StageReached,
    TurnEnded,
)
from ..core.records import Plain, to_plain
from ..core.timeline import TICK_RATE, Ticks, Word
from ..recording import chapters
from ..recording.format import EVENTS
from ..recording.line_reader import LineReader, parsed
from .reader import Recording, Step

SPEECH: Final = 0.5
"""Probability from which a window counts as speech in the marks."""
SAMPLED: Final[Ticks] = TICK_RATE // 5
"""How often watermarks are noted at most."""

_EPOCH = b'{"type":"EpochBegan"'
_EVENT = re.compile(rb'"now":(\d+),"event":')


class View:
    """One recording, finished or still growing. Not safe for several threads at once."""

    def __init__(self, folder: Path) -> None:
        self.recording = Recording(folder)
        self._path = folder / EVENTS
        self._places: list[chapters.Place] = []
        self._epochs: dict[int, list[Plain]] = {}
        self._paced = False
        self._size = -1
        self.refresh()

    def refresh(self) -> None:
        """Look again how far the recording goes."""
        if self.recording.manifest.version == 1:
            return
        size = self._path.stat().st_size if self._path.exists() else 0
        if size == self._size:
            return
        self._size = size
        self._places = chapters.places(self._path)
        if self._places and not self._paced:
            self._paced = b'"paced":true' in chapters.text(self._path, self._places[0])

    @property
    def chapters(self) -> list[Ticks]:
        """Session times at which the chapters begin."""
        return [place.now for place in self._places] or [0]

    def finished(self, chapter: int) -> bool:
        """Whether nothing more is added to that chapter."""
        if not self._places:
            return self.recording.manifest.ended is not None
        return self._places[chapter].whole

    def chapter_at(self, now: Ticks) -> int:
        """The chapter that holds session time `now`."""
        return max(0, bisect_right(self.chapters, now) - 1)

    def steps(self, chapter: int) -> Iterator[Step]:
        """The steps of one chapter, as far as they can be read. Raises IndexError where there is no such chapter."""
        if not self._places:
            if chapter != 0:
                raise IndexError(chapter)
            yield from self.recording.steps([])
            return
        reader = LineReader()
        step: Step | None = None
        for line in chapters.text(self._path, self._places[chapter]).split(b"\n")[:-1]:
            try:
                read = reader.line(parsed(line))
            except (ValueError, RecursionError):
                break
            if read.event is not None:
                if step is not None:
                    yield step
                step = Step(read.number, read.now, read.event, [], read.track, read.at)
            elif step is not None and read.effects is not None:
                step.effects = read.effects
        if step is not None:
            yield step

    def events(self, chapter: int) -> list[Plain]:
        """Every event of a chapter with its effects: {"n", "now", "event", "effects"}."""
        return [
            {
                "n": step.number,
                "now": step.now,
                "event": to_plain(step.event),
                "effects": [to_plain(effect) for effect in step.effects],
            }
            for step in self.steps(chapter)
        ]

    def marks(self, chapter: int) -> dict[str, Plain]:
        """What a chapter shows (docs/recordings-api.md)."""
        return marks_of(self.steps(chapter), self._paced)

    def interruptions(self) -> list[Plain]:
        """Every epoch that began: {"now", "epoch", "cause"}."""
        found: list[Plain] = []
        for chapter in range(len(self.chapters)):
            if chapter not in self._epochs:
                epochs = self._epochs_of(chapter)
                if not self.finished(chapter):
                    found += epochs
                    continue
                self._epochs[chapter] = epochs
            found += self._epochs[chapter]
        return found

    def _epochs_of(self, chapter: int) -> list[Plain]:
        if not self._places:
            return [
                {"now": step.now, "epoch": notice.epoch, "cause": notice.cause}
                for step in self.steps(chapter)
                for notice in _notices(step)
                if isinstance(notice, EpochBegan)
            ]
        lines = chapters.text(self._path, self._places[chapter])
        found: list[Plain] = []
        at = -1
        while (at := lines.find(_EPOCH, at + 1)) >= 0:
            # It stands in the effects of the event on the line before.
            line = lines.rfind(b"\n", 0, at)
            before = _EVENT.search(lines, lines.rfind(b"\n", 0, max(0, line)) + 1, max(0, line))
            try:
                notice = json.loads(lines[at : lines.find(b"}", at) + 1])
            except ValueError:
                continue
            if before is not None:
                found.append({"now": int(before[1]), "epoch": notice.get("epoch"), "cause": notice.get("cause")})
        return found

    def close(self) -> None:
        self.recording.close()


def marks_of(steps: Iterable[Step], paced: bool | None = None) -> dict[str, Plain]:
    """What these steps show. `paced`: whether the carrier paces; None: its attachment is among them."""
    marks = _Marks(paced or False)
    for step in steps:
        if paced is None and isinstance(step.event, CarrierAttached):
            marks.paced = step.event.paced
        marks.step(step)
    return marks.plain()


def _notices(step: Step) -> Iterator[object]:
    return (effect.notice for effect in step.effects if isinstance(effect, Notify))


class _Marks:
    """Gathers what one chapter shows."""

    def __init__(self, paced: bool) -> None:
        self.paced = paced
        self._held_at: Ticks | None = None
        self._offset: Ticks | None = None
        """From input positions to session time: packets come late and never early, so the least one is the true one."""
        self._speech: list[list[Ticks]] = []
        self._vad: list[int] = []
        self._arrived: list[list[Ticks]] = []
        self._transcripts: dict[str, Transcript] = {}
        """The newest with each text: what becomes an item is told when its turn ends."""
        self._words: list[dict[str, Plain]] = []
        self._sent: list[list[Plain]] = []
        self._reports: list[list[Plain]] = []
        self._lists: dict[str, list[Plain]] = {
            name: [] for name in ("holds", "epochs", "cleared", "turns", "stages", "responses")
        }

    def _note(self, name: str, **mark: Plain) -> None:
        self._lists[name].append(dict(mark))

    def step(self, step: Step) -> None:
        self._event(step.event, step.now)
        waiting: list[OutputText] = []
        for effect in step.effects:
            if isinstance(effect, Notify) and isinstance(effect.notice, OutputText):
                waiting.append(effect.notice)
            elif isinstance(effect, AdmitFrame):
                # The core tells the words of a frame right before it.
                for text in waiting:
                    self._agent_words(text, effect)
                waiting.clear()
                self._admit(effect)
            else:
                self._effect(effect, step.now)

    def _event(self, event: Event, now: Ticks) -> None:
        if isinstance(event, AudioArrived):
            offset = now - event.end
            self._offset = offset if self._offset is None else min(self._offset, offset)
            if not self._arrived or now - self._arrived[-1][0] >= SAMPLED:
                self._arrived.append([now, event.end])
        elif isinstance(event, SpeechProbability):
            self._vad += [event.start, round(event.probability * 100)]
            if event.probability >= SPEECH:
                if self._speech and self._speech[-1][1] >= event.start:
                    self._speech[-1][1] = event.end
                else:
                    self._speech.append([event.start, event.end])
        elif isinstance(event, Transcript):
            self._transcripts[event.text.strip()] = event
        elif isinstance(event, PlaybackReported):
            last = self._reports[-1] if self._reports else None
            if last is None or last[1] != event.response or now - _int(last[0]) >= SAMPLED:
                self._reports.append([now, event.response, event.position])

    def _user_words(self, done: InputTranscriptDone, now: Ticks) -> None:
        transcript = self._transcripts.get(done.text.strip())
        if not done.text.strip():
            return
        if transcript is None:
            # It was transcribed in the chapter before.
            end = now - (self._offset or 0)
            self._words.append({"side": "user", "text": done.text, "at": end - done.length, "end": end})
            return
        for word in transcript.words or (Word(done.text, transcript.start, transcript.end),):
            self._words.append({"side": "user", "text": word.text, "at": word.start, "end": word.end})

    def _agent_words(self, text: OutputText, frame: AdmitFrame) -> None:
        if text.spoken:
            self._words.append(
                {
                    "side": "agent",
                    "text": text.text,
                    "at": frame.placed_at,
                    "end": frame.placed_at + frame.end - frame.start,
                    "response": text.response,
                    "content": frame.start,
                }
            )

    def _admit(self, frame: AdmitFrame) -> None:
        length = frame.end - frame.start
        last = self._sent[-1] if self._sent else None
        if last is not None and last[2] == frame.response and _int(last[0]) + _int(last[1]) == frame.placed_at:
            last[1] = _int(last[1]) + length
        else:
            self._sent.append([frame.placed_at, length, frame.response, frame.start])

    def _effect(self, effect: Effect, now: Ticks) -> None:
        if isinstance(effect, HoldCarrier):
            self._held_at = now
            self._note("holds", now=now, what="hold")
        elif isinstance(effect, ResumeCarrier):
            self._note("holds", now=now, what="resume")
            if self.paced and self._held_at is not None:
                self._move(self._held_at, now - self._held_at)
            self._held_at = None
        elif isinstance(effect, AdvanceEpoch):
            self._held_at = None
            self._note("holds", now=now, what="cut")
        elif isinstance(effect, Notify):
            self._notice(effect.notice, now)

    def _move(self, held_at: Ticks, by: Ticks) -> None:
        """What a carrier that paces had not released at the hold lies so much later."""
        for word in self._words:
            if word["side"] == "agent" and _int(word["at"]) >= held_at:
                word["at"], word["end"] = _int(word["at"]) + by, _int(word["end"]) + by
        for span in self._sent:
            if _int(span[0]) >= held_at:
                span[0] = _int(span[0]) + by

    def _notice(self, notice: object, now: Ticks) -> None:
        if isinstance(notice, EpochBegan):
            self._note("epochs", now=now, epoch=notice.epoch, cause=notice.cause, at=notice.at)
        elif isinstance(notice, PlaybackCleared):
            self._note(
                "cleared",
                now=now,
                response=notice.response,
                heard=notice.heard,
                text=notice.text,
                by=notice.heard_by,
            )
        elif isinstance(notice, InputTranscriptDone):
            self._user_words(notice, now)
        elif isinstance(notice, TurnEnded):
            self._note(
                "turns", now=now, item=notice.item, end=notice.speech_end, decided=notice.decided_at, by=notice.by
            )
        elif isinstance(notice, StageReached):
            self._note("stages", now=now, response=notice.response, stage=notice.stage)
        elif isinstance(notice, PlaybackStarted):
            self._note("stages", now=now, response=notice.response, stage="sent")
        elif isinstance(notice, PlaybackStopped):
            self._note("stages", now=now, response=notice.response, stage="played")
        elif isinstance(notice, ResponseOpened):
            self._note("responses", now=now, response=notice.response.id, what="opened")
        elif isinstance(notice, ResponseClosed):
            self._note("responses", now=now, response=notice.response.id, what=notice.response.status)

    def plain(self) -> dict[str, Plain]:
        offset = self._offset or 0
        words: list[Plain] = []
        for word in self._words:
            if word["side"] == "user":
                word["at"], word["end"] = _int(word["at"]) + offset, _int(word["end"]) + offset
            words.append(dict(word))
        for turn in self._lists["turns"]:
            if isinstance(turn, dict):
                turn["end"], turn["decided"] = _int(turn["end"]) + offset, _int(turn["decided"]) + offset
        for epoch in self._lists["epochs"]:
            if isinstance(epoch, dict) and epoch["at"] is not None:
                epoch["at"] = _int(epoch["at"]) + offset
        vad: list[Plain] = [value + offset if index % 2 == 0 else value for index, value in enumerate(self._vad)]
        return {
            "offset": offset,
            "speech": [[start + offset, end + offset] for start, end in self._speech],
            "vad": vad,
            "words": words,
            "sent": [list(span) for span in self._sent],
            "reports": [list(report) for report in self._reports],
            "arrived": [[now, end] for now, end in self._arrived],
            **self._lists,
        }


def _int(value: Plain) -> int:
    return value if isinstance(value, int) else 0
