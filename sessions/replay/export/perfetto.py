"""A trace for https://ui.perfetto.dev, in its own format: why an answer took 420 ms, seen at a glance.

Field numbers from perfetto's `trace_packet.proto`, `track_event.proto`, `track_descriptor.proto` and
`debug_annotation.proto`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from ...core.effects import AdmitFrame
from ...core.events import SpeechProbability
from ...core.timeline import TICK_RATE, Ticks
from ..account import Answer, account
from ..reader import Recording
from ..speech import speech
from .protobuf import block, double, fixed64, varint, whole

_SEQUENCE = 1
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_PROCESS = 1


@dataclass(slots=True)
class _Slice:
    """Something that lasts (or, with `end` None, happens), on a row of its kind."""

    row: str
    start: Ticks
    end: Ticks | None
    name: str
    notes: dict[str, str] = field(default_factory=dict)
    flow: int | None = None


def write_perfetto(recording: Recording, path: Path) -> None:
    """Write `path`: rows for user, agent, holds, stages of each answer, epochs; speech probability and lead."""
    rows: dict[str, int] = {}
    with path.open("wb") as file:
        session = recording.manifest.session
        process = whole(1, _PROCESS) + block(3, whole(1, _PROCESS) + block(6, session)) + block(2, session)
        _packet(file, block(60, process))
        for slice_ in _apart(_slices(recording)):
            uuid = rows.get(slice_.row)
            if uuid is None:
                uuid = rows[slice_.row] = 100 + len(rows)
                _packet(file, block(60, whole(1, uuid) + block(2, slice_.row) + whole(5, _PROCESS)))
            _slice(file, uuid, slice_)
        _counters(file, recording)


def _slices(recording: Recording) -> Iterator[_Slice]:
    for said in speech(recording):
        yield _Slice(f"{said.side} says", said.start, said.end, said.text)
        for word in said.words:
            yield _Slice(f"{said.side} words", word.start, word.end, word.text.strip() or word.text)
    for piece in recording.pieces("heard"):
        yield _Slice("agent heard", piece.placed_at, piece.end, piece.response)
    told = account(recording.manifest.config, recording.steps([]))
    for cut in told.interruptions:
        notes = {"why": cut.why, "heard": cut.heard_text, "cause": cut.cause}
        yield _Slice("epochs", cut.decided, None, f"epoch {cut.epoch}: {cut.cause}", notes)
        if cut.onset is not None:
            yield _Slice("interruptions", cut.onset, cut.decided, f"interruption {cut.number}", notes)
        if cut.held is not None:
            yield _Slice("holds", cut.held, cut.decided, "hold, then interruption")
    for overlap in told.overlaps:
        yield _Slice("holds", overlap.held, overlap.resumed, f"hold: {overlap.words or 'a sound'}")
    for number, answer in enumerate(told.answers, 1):
        yield from _answer(number, answer)


def _answer(number: int, answer: Answer) -> Iterator[_Slice]:
    if answer.speech_end is None or answer.heard is None:
        return
    notes = {"response": answer.response, "user": answer.user, "agent": answer.text, "status": answer.status}
    yield _Slice("answers", answer.speech_end, answer.heard, f"answer {number}", notes, number)
    at = answer.speech_end
    for stage, length in answer.parts().items():
        if length:
            yield _Slice("what kept it waiting", at, at + length, stage)
            at += length
    for stage, reached in answer.stages.items():
        yield _Slice("stages", reached, None, stage, {"response": answer.response}, number)


def _apart(slices: Iterator[_Slice]) -> Iterator[_Slice]:
    """In order of time, and no two of one row over each other: a row nests what overlaps, which would be a lie."""
    ends: dict[str, Ticks] = {}
    for slice_ in sorted(slices, key=lambda one: (one.row, one.start)):
        slice_.start = max(slice_.start, ends.get(slice_.row, 0), 0)
        if slice_.end is not None:
            slice_.end = max(slice_.end, slice_.start)
            ends[slice_.row] = slice_.end
        yield slice_


def _slice(file: BinaryIO, uuid: int, slice_: _Slice) -> None:
    notes = b"".join(block(4, block(10, name) + block(6, text)) for name, text in slice_.notes.items() if text)
    flow = b"" if slice_.flow is None else fixed64(47, slice_.flow)
    kind = _INSTANT if slice_.end is None else _BEGIN
    _event(file, slice_.start, whole(9, kind) + whole(11, uuid) + block(23, slice_.name) + notes + flow)
    if slice_.end is not None:
        _event(file, slice_.end, whole(9, _END) + whole(11, uuid))


def _counters(file: BinaryIO, recording: Recording) -> None:
    probability, lead = 90, 91
    for uuid, name in ((probability, "speech probability"), (lead, "sent ahead of playback (ms)")):
        _packet(file, block(60, whole(1, uuid) + block(2, name) + whole(5, _PROCESS) + block(8, b"")))
    clock = recording.input_clock
    for step in recording.steps([]):
        event = step.event
        if type(event) is SpeechProbability:
            at = max(0, clock.session_time(event.end))
            _event(file, at, whole(9, _COUNTER) + whole(11, probability) + double(44, event.probability))
        for effect in step.effects:
            if type(effect) is AdmitFrame:
                ahead = (effect.placed_at + effect.end - effect.start - step.now) * 1000 / TICK_RATE
                _event(file, step.now, whole(9, _COUNTER) + whole(11, lead) + double(44, ahead))


def _event(file: BinaryIO, at: Ticks, event: bytes) -> None:
    nanoseconds = at * 1_000_000_000 // TICK_RATE
    _packet(file, whole(8, nanoseconds) + block(11, event))


def _packet(file: BinaryIO, content: bytes) -> None:
    packet = content + whole(10, _SEQUENCE)
    file.write(varint(1 << 3 | 2) + varint(len(packet)) + packet)
