"""Opens a recorded session: its manifest, its steps in order, and the samples of its tracks.

    recording = Recording(folder)                       # JournalError: no recording, or of a newer version
    for step in recording.steps(faults):                # event, and what the core made of it
        ...
    samples = recording.samples("agent_heard", start, end)

Sessions that are still being recorded, or whose process died, are read as far as they are on the disk. Versions 1 and 2
of the format are read alike.
"""

from __future__ import annotations

import json
import wave
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, cast, get_args

import numpy as np
from numpy.typing import NDArray

from ..core.config import SessionConfig
from ..core.effects import AdmitFrame, Effect
from ..core.events import AudioArrived, DuplexFrame, EngineAudio, Event, ItemCreate
from ..core.records import Plain, Reader, RecordError, read_as, to_plain
from ..core.session import Session
from ..core.state import Abilities
from ..core.timeline import Ticks, ticks_per_sample
from ..recording.events_file import read_chapters
from ..recording.flac import FlacFile, TrackError
from ..recording.format import EVENTS, EVENTS_1, MANIFEST, READABLE, STATE, TRACKS, VERSION, JournalError
from ..recording.line_reader import LineReader, parsed
from ..recording.placement import Piece, Placement, Sources
from .input_clock import InputClock

Samples = NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a recording says of itself. `ended`: why the session ended; `stopped`: why recording ended before it did."""

    version: int
    session: str
    incarnation: int
    config: SessionConfig
    abilities: Abilities
    agent_rate: int
    tenant: str = ""
    began: str = ""
    software: str = ""
    consent: str = ""
    ended: str | None = None
    stopped: str | None = None
    tracks: Mapping[str, Plain] | None = None
    engine: Mapping[str, Plain] | None = None
    state: Mapping[str, Plain] | None = None
    """How the session stood when the recording began, where another process had begun it."""

    @property
    def begins(self) -> Ticks:
        """Session time at which the recording begins."""
        return 0 if self.state is None else cast(Ticks, self.state["now"])

    def session_core(self) -> Session:
        """The session as the recording begins, under `config`."""
        if self.state is None:
            return Session(self.session, self.incarnation, self.config, self.abilities)
        return Session.restore({**self.state, "config": to_plain(self.config)})


@dataclass(slots=True)
class Step:
    """Event `number`, handled at session time `now`, and its effects (none either where the process died over it).

    `track`: the track with the user's samples of it; `at`: the position on `agent_generated` of the engine's.
    """

    number: int
    now: Ticks
    event: Event
    effects: list[Effect]
    track: str | None = None
    at: Ticks | None = None


@dataclass(frozen=True, slots=True)
class Track:
    """One audio track. `length` in ticks; position p of it lies at p + `starts` on the session timeline.

    That is exact for the agent's tracks but `agent_generated`, which lies on no timeline, and the beginning only of the
    user's: see `Recording.input_clock`.
    """

    name: str
    rate: int
    length: Ticks
    starts: Ticks = 0


class _Audio(Protocol):
    rate: int
    samples: int

    def read(self, first: int, count: int) -> Samples: ...

    def close(self) -> None: ...


class _WavFile:
    """A WAV file of version 1, whose header may never have been finished."""

    def __init__(self, path: Path) -> None:
        try:
            with wave.open(str(path)) as file:
                self.rate = file.getframerate()
            size = path.stat().st_size
        except (OSError, wave.Error, EOFError) as error:
            raise TrackError(f"{path} is damaged: {error}") from None
        ticks_per_sample(self.rate)
        self._path = path
        self.samples = max(0, size - 44) // 2

    def read(self, first: int, count: int) -> Samples:
        samples = np.zeros(max(0, count), np.int16)
        start = max(0, first)
        wanted = min(first + count, self.samples) - start
        if wanted > 0:
            with self._path.open("rb") as file:
                file.seek(44 + 2 * start)
                read = np.frombuffer(file.read(wanted * 2), "<i2")
            samples[start - first : start - first + len(read)] = read
        return samples

    def close(self) -> None:
        """Nothing stays open."""


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a recording. Raises JournalError."""
    path = folder / MANIFEST
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise JournalError(f"{folder} holds no {MANIFEST}; give the folder of one recorded session") from None
    except OSError as error:
        raise JournalError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise JournalError(f"{path} is damaged: {error}") from None
    if not isinstance(plain, dict):
        raise JournalError(f"{path} is damaged: it is no JSON object")
    version = plain.get("version")
    if type(version) is not int:
        raise JournalError(f"{folder} is no recorded session: its {MANIFEST} names no version of the format")
    if version > VERSION:
        raise JournalError(
            f"{folder} was written in version {version} of the format; this program reads up to {VERSION}. "
            "Use a newer one",
            plain,
        )
    if version not in READABLE:
        raise JournalError(f"{folder}: there is no version {version} of the format")
    return _manifest(path, plain)


def _manifest(path: Path, plain: dict[str, Plain]) -> Manifest:
    def field(annotation: Any, name: str, otherwise: Any = None) -> Any:
        value = plain.get(name)
        return otherwise if value is None and otherwise is not None else read_as(annotation, value, name)

    try:
        return Manifest(
            cast(int, plain["version"]),
            field(str, "session"),
            field(int, "incarnation"),
            field(SessionConfig, "config"),
            field(Abilities, "abilities"),
            field(int, "agent_rate"),
            field(str, "tenant", ""),
            field(str, "began", ""),
            field(str, "software", ""),
            field(str, "consent", ""),
            field(str | None, "ended"),
            field(str | None, "stopped"),
            _object(plain, "tracks"),
            _object(plain, "engine"),
            _state(path.parent, plain) if plain.get("continues") is not None else None,
        )
    except RecordError as error:
        raise JournalError(f"{path} is damaged: {error}", plain) from None


def _object(plain: dict[str, Plain], name: str) -> Mapping[str, Plain]:
    """What the manifest says under `name`; nothing where that is no object."""
    value = plain.get(name)
    return value if isinstance(value, dict) else {}


def _state(folder: Path, known: Mapping[str, Plain]) -> Mapping[str, Plain]:
    """How a session stood that was taken over. Raises JournalError."""
    path = folder / STATE
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        Session.restore(plain)
    except OSError as error:
        raise JournalError(f"{path} cannot be read: {error.strerror}; nothing can be run without it", known) from None
    except (ValueError, RecursionError) as error:
        raise JournalError(f"{path} is damaged: {error}; nothing can be run without it", known) from None
    return cast("Mapping[str, Plain]", plain)


class _From:
    """A track whose first sample has the position `first`, in ticks."""

    def __init__(self, audio: _Audio, first: Ticks) -> None:
        self._audio = audio
        self._first = first // ticks_per_sample(audio.rate)
        self.rate = audio.rate
        self.samples = self._first + audio.samples

    def read(self, first: int, count: int) -> Samples:
        return self._audio.read(first - self._first, count)

    def close(self) -> None:
        self._audio.close()


class Recording:
    """One recorded session. Raises JournalError where the folder holds none that can be read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = read_manifest(folder)
        self._files: dict[str, _Audio | None] = {}
        self._layout: _Layout | None = None

    # --- steps -------------------------------------------------------------------------------------------------------

    def steps(self, faults: list[str] | None = None) -> Iterator[Step]:
        """Every event in order, with its effects.

        A last line cut short is left out. What is damaged raises JournalError, or, where `faults` is given, is told
        there, and reading goes on behind it where the format lets it (version 2: at the next chapter).
        """
        lines = self._lines_1(faults) if self.manifest.version == 1 else self._lines(faults)
        step: Step | None = None
        for one in lines:
            if isinstance(one, Step):
                if step is not None:
                    yield step
                step = one
            elif step is not None:
                step.effects = one
        if step is not None:
            yield step

    def _lines(self, faults: list[str] | None) -> Iterator[Step | list[Effect]]:
        path = self.folder / EVENTS
        reader = LineReader()
        number = 0
        try:
            for chapter in read_chapters(path):
                if chapter.lost:
                    _tell(faults, f"{path}: what follows event {reader.number} is lost; it goes on behind that")
                for line in chapter.lines():
                    number += 1
                    try:
                        read = reader.line(parsed(line))
                    except (ValueError, RecursionError) as error:
                        _tell(faults, f"{path} line {number} is damaged: {error}")
                        break
                    if read.event is None:
                        yield cast("list[Effect]", read.effects)
                    else:
                        yield Step(read.number, read.now, read.event, [], read.track, read.at)
                if chapter.fault:
                    _tell(faults, f"{path}: damaged after event {reader.number}: {chapter.fault}")
        except OSError as error:
            raise JournalError(f"{path} cannot be read: {error.strerror}") from None

    def _lines_1(self, faults: list[str] | None) -> Iterator[Step | list[Effect]]:
        read = Reader((*get_args(Event), *get_args(Effect))).read
        last = 0
        for number, plain in _plain_lines(self.folder / EVENTS_1, faults):
            try:
                if "event" in plain:
                    last = read_as(int, plain.get("n"), "n")
                    track = read_as(str | None, plain.get("track"), "track")
                    at = read_as(int | None, plain.get("at"), "at")
                    yield Step(last, read_as(int, plain.get("now"), "now"), read(plain["event"]), [], track, at)
                    continue
                effects = plain.get("effects")
                if not isinstance(effects, list):
                    raise RecordError("effects", "expected a list, or an event in its place")
                if plain.get("n") != last:
                    raise RecordError("n", f"effects of event {plain.get('n')} do not follow it")
                yield [read(effect) for effect in effects]
            except RecordError as error:
                _tell(faults, f"{self.folder / EVENTS_1} line {number} is damaged: {error}")
                return

    # --- audio -------------------------------------------------------------------------------------------------------

    def tracks(self) -> dict[str, Track]:
        """The tracks that can be read, by name; of the user's there is more than one where the format changed."""
        found = {}
        layout = self._placed()
        for name in (*TRACKS, *self._user_tracks()):
            audio = self._audio("agent_generated" if self._derived(name) else name)
            if audio is None:
                continue
            tick = ticks_per_sample(audio.rate)
            if self._derived(name):
                pieces = layout.sent if name == "agent_sent" else layout.heard
                length = pieces[-1].end if pieces else 0
                if length == 0:
                    continue
            else:
                length = audio.samples * tick
            starts = layout.clock.starts if name.startswith("user_in") else 0
            found[name] = Track(name, audio.rate, length, starts)
        return found

    @property
    def input_clock(self) -> InputClock:
        """Where positions of the user's track lie on the session timeline."""
        return self._placed().clock

    def samples(self, track: str, start: Ticks, end: Ticks) -> Samples:
        """[start, end) of a track, mono, at its rate; silence where there is none. Raises JournalError."""
        derived = self._derived(track)
        audio = self._audio("agent_generated" if derived else track)
        if audio is None:
            raise JournalError(f"{self.folder} holds no track {track!r}")
        tick = ticks_per_sample(audio.rate)
        first, count = start // tick, max(0, end // tick - start // tick)
        if not derived:
            return audio.read(first, count)
        layout = self._placed()
        samples = np.zeros(count, np.int16)
        for piece in layout.between("sent" if track == "agent_sent" else "heard", start, end):
            place = piece.placed_at
            for at, length in layout.sources.places(piece.source, piece.source_start, piece.length):
                read = audio.read(at // tick, length // tick)
                _lay(samples, place // tick - first, read)
                place += length
        return samples

    def session_audio(self, side: Literal["user", "agent"], start: Ticks, end: Ticks, rate: int) -> Samples:
        """What was said and heard in [start, end) of the session timeline, both sides on the same clock.

        At `rate` Hz, which must be the track's own; a user who changed the format is heard where the rates agree.
        """
        tick = ticks_per_sample(rate)
        samples = np.zeros(max(0, end // tick - start // tick), np.int16)
        if side == "agent":
            known = self._audio("agent_generated" if self._derived("agent_heard") else "agent_heard")
            return samples if known is None else self.samples("agent_heard", start, end)
        for name in ("user_in", *self._user_tracks()):
            audio = self._audio(name)
            if audio is None or audio.rate != rate:
                continue
            for stretch in self.input_clock.stretches:
                first = max(stretch.start, start - stretch.offset)
                last = min(stretch.end, end - stretch.offset)
                if first < last:
                    read = audio.read(first // tick, last // tick - first // tick)
                    if read.any():
                        _lay(samples, (first + stretch.offset - start) // tick, read)
        return samples

    def generated(self, source: str, start: Ticks, length: Ticks) -> Samples:
        """[start, start + length) of an engine's own track: of a response by its id, or of "duplex"."""
        audio = self._audio("agent_generated")
        rate = self.manifest.agent_rate if audio is None else audio.rate
        tick = ticks_per_sample(rate)
        samples = np.zeros(length // tick, np.int16)
        place = 0
        if audio is not None:
            for at, stretch in self._placed().sources.places(source, start, length):
                _lay(samples, place // tick, audio.read(at // tick, stretch // tick))
                place += stretch
        return samples

    def pieces(self, which: Literal["sent", "heard"]) -> list[Piece]:
        """Where the agent's audio lies on the session timeline, and which of it: stretches without a pause inside."""
        return list(self._placed().sent if which == "sent" else self._placed().heard)

    def close(self) -> None:
        """Close the files of the tracks."""
        for audio in self._files.values():
            if audio is not None:
                audio.close()
        self._files.clear()

    def _derived(self, track: str) -> bool:
        """Whether a track is put together from what was generated: it is whole then even if the process died."""
        return self.manifest.version > 1 and track in ("agent_sent", "agent_heard")

    def _user_tracks(self) -> list[str]:
        suffix = ".wav" if self.manifest.version == 1 else ".flac"
        return sorted(path.stem for path in self.folder.glob(f"user_in_*{suffix}"))

    def _audio(self, name: str) -> _Audio | None:
        if name not in self._files:
            try:
                if self.manifest.version == 1:
                    self._files[name] = _WavFile(self.folder / f"{name}.wav")
                else:
                    self._files[name] = _from(FlacFile(self.folder / f"{name}.flac"), self.manifest.tracks, name)
            except ValueError:
                self._files[name] = None
        return self._files[name]

    def _placed(self) -> _Layout:
        if self._layout is None:
            self._layout = _Layout(self.steps([]))
        return self._layout


class _Layout:
    """Where everything that was sent and heard lies, from all steps of a recording."""

    def __init__(self, steps: Iterator[Step]) -> None:
        self.sources = Sources()
        self.clock = InputClock()
        placement = Placement()
        self.sent: list[Piece] = []
        self.heard: list[Piece] = []
        for step in steps:
            event = step.event
            placement.event(event, step.now)
            if isinstance(event, AudioArrived):
                self.clock.arrived(event.start, event.end, step.now)
            elif isinstance(event, ItemCreate) and event.audio is not None:
                self.clock.arrived(event.audio.start, event.audio.end, step.now)
            elif step.at is not None and isinstance(event, EngineAudio):
                self.sources.made(event.response, event.start, event.end, step.at)
            elif step.at is not None and isinstance(event, DuplexFrame):
                self.sources.made("duplex", event.start, event.end, step.at)
            if step.effects:
                placement.effects(step.effects)
                for effect in step.effects:
                    if type(effect) is AdmitFrame:
                        placement.admit(effect)
                self._take(placement)
        placement.end()
        self._take(placement)

    def _take(self, placement: Placement) -> None:
        for pieces, settled in ((self.sent, placement.sent()), (self.heard, placement.heard())):
            for piece in settled:
                last = pieces[-1] if pieces else None
                follows = last is not None and last.response == piece.response and last.end == piece.placed_at
                if last is not None and follows and last.source_start + last.length == piece.source_start:
                    last.length += piece.length
                else:
                    pieces.append(piece)

    def between(self, which: Literal["sent", "heard"], start: Ticks, end: Ticks) -> Iterator[Piece]:
        """The pieces in [start, end), cut to it."""
        for piece in self.sent if which == "sent" else self.heard:
            if piece.end > start and piece.placed_at < end:
                first = max(0, start - piece.placed_at)
                cut = piece.from_(first) if first else piece.from_(0)
                cut.length = min(cut.length, end - cut.placed_at)
                yield cut


def _from(audio: _Audio, tracks: Mapping[str, Plain] | None, name: str) -> _Audio:
    """`audio` by its positions, which need not begin with 0."""
    told = (tracks or {}).get(name)
    first = told.get("first", 0) if isinstance(told, dict) else 0
    return _From(audio, first) if isinstance(first, int) and first > 0 else audio


def full_lines(recording: Recording, faults: list[str] | None = None) -> Iterator[dict[str, Plain]]:
    """Every event and its effects as complete records, one after the other, whatever the version."""
    for step in recording.steps(faults):
        line: dict[str, Plain] = {"n": step.number, "now": step.now, "event": to_plain(step.event)}
        if step.at is not None:
            line["track"], line["at"] = "agent_generated", step.at
        elif step.track is not None and isinstance(step.event, AudioArrived | ItemCreate):
            line["track"] = step.track
        yield line
        if step.effects:
            yield {"n": step.number, "effects": [to_plain(effect) for effect in step.effects]}


def _plain_lines(path: Path, faults: list[str] | None) -> Iterator[tuple[int, dict[str, Plain]]]:
    """The lines of a journal of version 1 as JSON, with their numbers from 1; one that was cut short is left out."""
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    return
                try:
                    plain = json.loads(line)
                    if not isinstance(plain, dict):
                        raise ValueError("it is not an object")
                except (ValueError, RecursionError) as error:
                    _tell(faults, f"{path} line {number} is damaged: {error}")
                    return
                yield number, plain
    except OSError as error:
        raise JournalError(f"{path} cannot be read: {error.strerror}") from None


def _tell(faults: list[str] | None, message: str) -> None:
    if faults is None:
        raise JournalError(message)
    faults.append(message)


def _lay(samples: Samples, at: int, read: Samples) -> None:
    """Put `read` into `samples` at `at`, as far as it fits."""
    first = max(0, -at)
    last = min(len(read), len(samples) - at)
    if first < last:
        samples[at + first : at + last] = read[first:last]
