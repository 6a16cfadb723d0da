"""The journal of a session: a folder that holds every event in order and the audio of both sides.

    manifest.json        version, session, configuration, abilities, rates
    events.jsonl         {"n", "now", "event"} before an event is handled, {"n", "effects"} after
    user_in.wav          the input track
    agent_generated.wav  what the engine made, in the order of its making
    agent_sent.wav       what was admitted, at its place on the session timeline
    agent_heard.wav      the same, less what was cut before it was played

Samples are placed by position, never by wall clock. Writing happens in one thread for all sessions.
"""

from __future__ import annotations

import json
import logging
import queue
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from .core.config import SessionConfig
from .core.effects import AdmitFrame, Effect, Notify
from .core.events import AudioArrived, DuplexFrame, EngineAudio, Event, ItemCreate
from .core.notices import PlaybackCleared
from .core.records import Plain, to_plain
from .core.state import Abilities
from .core.timeline import Ticks
from .tracks import ticks_of
from .wav import WavTrack

log = logging.getLogger(__name__)

VERSION = 1
MANIFEST = "manifest.json"
EVENTS = "events.jsonl"


class Recorder:
    """Writes the journals of all sessions of a process below `root`."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()
        self.faults = 0

    def _run(self) -> None:
        while (job := self._work.get()) is not None:
            try:
                job()
            except Exception:
                # A full disk must not end conversations; the loss is counted and said once per job.
                self.faults += 1
                log.exception("recording failed")

    def submit(self, job: Callable[[], None]) -> None:
        self._work.put(job)

    def open(self, session: str, incarnation: int, config: SessionConfig, abilities: Abilities, rate: int) -> Journal:
        """A new journal. `rate`: Hz of the agent's audio."""
        files = _Files(self.root / session, rate)
        manifest: dict[str, Plain] = {
            "version": VERSION,
            "session": session,
            "incarnation": incarnation,
            "config": to_plain(config),
            "abilities": to_plain(abilities),
            "agent_rate": rate,
        }
        self.submit(lambda: files.open(manifest))
        return Journal(self, files)

    def close(self) -> None:
        """Write what waits and stop."""
        self._work.put(None)
        self._thread.join()


class Journal:
    """One session's journal; calls only queue the work."""

    def __init__(self, recorder: Recorder, files: _Files) -> None:
        self._recorder = recorder
        self._files = files

    @property
    def folder(self) -> Path:
        return self._files.folder

    def event(self, event: Event, now: Ticks, pcm: bytes | None, rate: int) -> None:
        files = self._files
        self._recorder.submit(lambda: files.event(event, now, pcm, rate))

    def effects(self, effects: list[Effect]) -> None:
        files = self._files
        if effects:
            self._recorder.submit(lambda: files.effects(effects))

    def sent(self, frame: AdmitFrame, pcm: bytes) -> None:
        files = self._files
        self._recorder.submit(lambda: files.sent(frame, pcm))

    def close(self, reason: str) -> None:
        files = self._files
        self._recorder.submit(lambda: files.close(reason))

    def discard(self) -> None:
        """Forget a session that never began."""
        files = self._files
        self._recorder.submit(files.discard)


@dataclass(slots=True)
class _Placed:
    """Content [start, start + length) of a response lies at `at` on the session timeline."""

    start: Ticks
    length: Ticks
    at: Ticks


@dataclass(slots=True)
class _Files:
    """The open files of one journal. Used by the recorder's thread only."""

    folder: Path
    rate: int
    number: int = 0
    generated: Ticks = 0
    lines: IO[str] | None = None
    manifest: dict[str, Plain] = field(default_factory=dict)
    tracks: dict[str, WavTrack] = field(default_factory=dict)
    user_track: str = "user_in"
    placed: dict[str, list[_Placed]] = field(default_factory=dict)

    def open(self, manifest: dict[str, Plain]) -> None:
        self.folder.mkdir(parents=True)
        self.manifest = manifest
        self._write_manifest()
        # Half a surrogate pair is valid in JSON and not in UTF-8; its backslash escape is the same in both.
        self.lines = (self.folder / EVENTS).open("w", encoding="utf-8", errors="backslashreplace", buffering=1)

    def _write_manifest(self) -> None:
        (self.folder / MANIFEST).write_text(json.dumps(self.manifest, indent=1) + "\n", encoding="utf-8")

    def _line(self, record: dict[str, Plain]) -> None:
        if self.lines is not None:
            self.lines.write(json.dumps(record, separators=(",", ":"), ensure_ascii=False) + "\n")

    def _track(self, name: str, rate: int) -> WavTrack:
        track = self.tracks.get(name)
        if track is None:
            track = self.tracks[name] = WavTrack(self.folder / f"{name}.wav", rate)
        return track

    def event(self, event: Event, now: Ticks, pcm: bytes | None, rate: int) -> None:
        self.number += 1
        record: dict[str, Plain] = {"n": self.number, "now": now, "event": to_plain(event)}
        if pcm is not None:
            if isinstance(event, AudioArrived):
                record["track"] = self._user(event.start, pcm, rate)
            elif isinstance(event, ItemCreate) and event.audio is not None:
                record["track"] = self._user(event.audio.start, pcm, rate)
            elif isinstance(event, EngineAudio | DuplexFrame):
                record["track"] = "agent_generated"
                record["at"] = self.generated
                self._track("agent_generated", self.rate).write(self.generated, pcm)
                self.generated += ticks_of(pcm, self.rate)
        self._line(record)

    def _user(self, start: Ticks, pcm: bytes, rate: int) -> str:
        """A client that changes its format goes on in a further file, at the same positions."""
        track = self._track(self.user_track, rate)
        if track.rate != rate:
            self.user_track = f"user_in_{len(self.tracks)}"
            track = self._track(self.user_track, rate)
        track.write(start, pcm)
        return self.user_track

    def effects(self, effects: list[Effect]) -> None:
        self._line({"n": self.number, "effects": [to_plain(effect) for effect in effects]})
        for effect in effects:
            if isinstance(effect, Notify) and isinstance(effect.notice, PlaybackCleared):
                self._unheard(effect.notice.response, effect.notice.heard)

    def _unheard(self, response: str, heard: Ticks) -> None:
        """Blank what was sent of `response` beyond content position `heard`."""
        track = self._track("agent_heard", self.rate)
        for placed in self.placed.pop(response, []):
            if placed.start + placed.length > heard:
                skip = max(0, heard - placed.start)
                track.silence(placed.at + skip, placed.at + placed.length)

    def sent(self, frame: AdmitFrame, pcm: bytes) -> None:
        self._track("agent_sent", self.rate).write(frame.placed_at, pcm)
        self._track("agent_heard", self.rate).write(frame.placed_at, pcm)
        placed = self.placed.setdefault(frame.response, [])
        length = frame.end - frame.start
        if placed and placed[-1].at + placed[-1].length == frame.placed_at:
            placed[-1].length += length
        else:
            placed.append(_Placed(frame.start, length, frame.placed_at))

    def close(self, reason: str) -> None:
        if self.lines is None:
            return
        for track in self.tracks.values():
            track.close()
        self.manifest["ended"] = reason
        self.manifest["tracks"] = {name: track.rate for name, track in self.tracks.items()}
        self._write_manifest()
        self.lines.close()
        self.lines = None

    def discard(self) -> None:
        self.close("refused")
        shutil.rmtree(self.folder, ignore_errors=True)
