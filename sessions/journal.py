"""Records sessions, each into a folder of its own: every event in order and the audio of both sides.

    manifest.json         version, session, configuration, abilities, tracks
    events.jsonl.zst      every event before it is handled, and its effects after (`sessions.recording.lines`)
    user_in.flac          the input track
    agent_generated.flac  what the engine made, in the order of its making
    agent_codes.bin       the codes that it was decoded from, if it was (`sessions.codes_track`)
    agent_sent.flac       what was admitted, at its place on the session timeline
    agent_heard.flac      what reached the ear of it, where the model of the way has it

Samples are placed by position, never by wall clock. One thread writes for all sessions; every half second everything
is on the disk, so that a process that is killed leaves readable recordings. docs/recording.md tells more.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TypeAlias

from .codes_track import FILE as CODES
from .codes_track import CodedPcm, CodesTrack
from .core.config import SessionConfig
from .core.effects import AdmitFrame, Effect
from .core.events import AudioArrived, ConfigUpdate, DuplexFrame, EngineAudio, Event, ItemCreate
from .core.records import Plain, to_plain
from .core.state import Abilities
from .core.timeline import TICK_RATE, Ticks, ticks_per_sample
from .recording.events_file import EventsFile
from .recording.flac import FlacTrack
from .recording.format import EVENTS, VERSION, software, write_manifest
from .recording.lines import Writer
from .recording.placement import Piece, Placement
from .recording.policy import RecordingPolicy
from .recording.redaction import Redactor, may_tell
from .recording.retention import sweep
from .tracks import ticks_of

log = logging.getLogger(__name__)

FLUSH_SECONDS = 0.5
SWEEP_SECONDS = 60.0
CHAPTER: Ticks = 30 * TICK_RATE
"""What a damaged file loses at most, besides the damage."""
UNCONSENTED_BYTES = 16 << 20
"""How much of a session is held in memory until its client says whether it may be recorded."""


class FurtherTrack(Protocol):
    """Another file of a recording (`Journal.add`). Its methods are called in the recorder's thread."""

    name: str

    def flush(self) -> None:
        """Everything so far is on the disk. Called twice a second."""

    @property
    def size(self) -> int:
        """Bytes on the disk."""

    def close(self) -> dict[str, Plain]:
        """Finish; returns what the manifest says of it under `tracks`."""


class Recorder:
    """Writes the recordings of all sessions of a process below `root`."""

    def __init__(self, root: Path, policy: RecordingPolicy | None = None) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self.policy = policy or RecordingPolicy()
        self.redactor = Redactor(self.policy.secrets)
        self.faults = 0
        """Recordings that ended because something could not be written."""
        self._open: dict[str, _Files] = {}
        self._swept = float("-inf")
        self._work: deque[_Work | Callable[[], None] | None] = deque()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # Everybody's events wait for the next flush: to be woken for each costs more than to write it.
        ending = False
        while not ending:
            self._wake.wait(FLUSH_SECONDS if self._open or self._work else None)
            self._wake.clear()
            while self._work and not ending:
                job = self._work.popleft()
                if job is None:
                    ending = True
                elif isinstance(job, tuple):
                    self.guarded(*job)
                else:
                    job()
            self._flush()

    def _flush(self) -> None:
        full = shutil.disk_usage(self.root).free < self.policy.free_bytes
        for files in list(self._open.values()):
            self.guarded(files, files.flush)
            if full:
                files.stop("disk_full")

    def guarded(self, files: _Files, job: Callable[..., None], given: tuple[object, ...] = ()) -> None:
        """Run `job`; a fault ends that recording and nothing else. What was written of it stays readable."""
        try:
            job(*given)
        except Exception:
            self.faults += 1
            log.exception("recording of %s ended", files.folder.name)
            with contextlib.suppress(Exception):
                files.stop("write_failed")

    def submit(self, job: Callable[[], None]) -> None:
        """Run `job` in the recorder's thread soon, after all that was submitted before."""
        self._work.append(job)
        self._wake.set()

    def leave(self, files: _Files, job: Callable[..., None], *given: object) -> None:
        """`job(*given)` for a recording, with the next flush."""
        self._work.append((files, job, given))

    def open(
        self,
        session: str,
        incarnation: int,
        config: SessionConfig,
        abilities: Abilities,
        rate: int,
        engine: Mapping[str, Plain] | None = None,
    ) -> Journal:
        """A new recording. `rate`: Hz of the agent's audio; `engine`: what is needed to run it again (seed, model)."""
        files = _Files(self.root / session, rate, self.policy, self.redactor)
        manifest: dict[str, Plain] = {
            "version": VERSION,
            "software": software(),
            "session": session,
            "incarnation": incarnation,
            "tenant": config.tenant,
            "began": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "config": to_plain(config),
            "abilities": to_plain(abilities),
            "agent_rate": rate,
            "engine": dict(engine or {}),
            "consent": config.recording_consent or "not_stated",
            "tracks": {},
        }

        def begin() -> None:
            self._open[session] = files
            files.open(manifest)

        journal = Journal(self, files, config.recording_consent)
        journal.later(begin)
        self._wake.set()
        return journal

    def forget(self, session: str) -> None:
        """In the recorder's thread: a recording is finished."""
        self._open.pop(session, None)
        if time.monotonic() - self._swept >= SWEEP_SECONDS:
            self._swept = time.monotonic()
            sweep(self.root, self.policy, time.time(), frozenset(self._open))

    def close(self) -> None:
        """Write what waits and stop."""
        if self._thread.is_alive():
            self._work.append(None)
            self._wake.set()
            self._thread.join()


class Journal:
    """One session's recording; calls only queue the work."""

    def __init__(self, recorder: Recorder, files: _Files, consent: str) -> None:
        self._recorder = recorder
        self._files = files
        self._held: list[tuple[Callable[..., None], tuple[object, ...]]] | None = None
        self._held_bytes = 0
        self._refused = consent == "refused"
        if recorder.policy.consent == "required" and consent != "given":
            self._held = []

    @property
    def folder(self) -> Path:
        return self._files.folder

    def later(self, job: Callable[..., None], *given: object, size: int = 0) -> None:
        """Run `job` in the recorder's thread, in its place; at once where consent was given, never where refused."""
        if self._refused:
            return
        if self._held is None:
            self._recorder.leave(self._files, job, *given)
            return
        self._held_bytes += size
        if self._held_bytes > UNCONSENTED_BYTES:
            self._refuse()
        else:
            self._held.append((job, given))

    def _refuse(self) -> None:
        """Nothing of this session is or stays recorded."""
        self._refused = True
        self._held = None
        files, recorder = self._files, self._recorder

        def forget() -> None:
            files.discard()
            recorder.forget(files.folder.name)

        recorder.submit(lambda: recorder.guarded(files, forget))

    def _stated(self, consent: str) -> None:
        if consent == "refused":
            self._refuse()
        elif consent == "given":
            held, self._held = self._held, None
            for job, given in held or ():
                self.later(job, *given)
            self.later(self._files.note, "consent", "given")

    def event(self, event: Event, now: Ticks, pcm: bytes | None, rate: int) -> None:
        self.later(self._files.event, event, now, pcm, rate, size=len(pcm or b""))
        if type(event) is ConfigUpdate and event.config.recording_consent:
            self._stated(event.config.recording_consent)

    def effects(self, effects: list[Effect]) -> None:
        if effects:
            self.later(self._files.effects, effects)

    def sent(self, frame: AdmitFrame, pcm: bytes) -> None:
        self.later(self._files.placement.admit, frame, pcm, size=len(pcm))

    def add(self, track: Callable[[], FurtherTrack]) -> None:
        """A further file, opened by `track` in the recorder's thread; it is flushed and closed with the others."""
        files = self._files
        self.later(lambda: files.further.append(track()))

    def close(self, reason: str) -> None:
        files, recorder = self._files, self._recorder

        def finish() -> None:
            try:
                files.close(reason)
            finally:
                recorder.forget(files.folder.name)

        self.later(finish)
        recorder.submit(lambda: None)

    def discard(self) -> None:
        """Forget a session that never began."""
        self._refuse()


_Work: TypeAlias = "tuple[_Files, Callable[..., None], tuple[object, ...]]"
"""A job for a recording: a fault in it ends that one alone."""


class _Files:
    """The open files of one recording. Used by the recorder's thread only."""

    def __init__(self, folder: Path, rate: int, policy: RecordingPolicy, redactor: Redactor) -> None:
        self.folder = folder
        self.placement = Placement()
        self.further: list[FurtherTrack] = []
        self._rate = rate
        self._limit = policy.session_bytes
        self._redactor = redactor
        self._writer = Writer()
        self._lines: EventsFile | None = None
        self._manifest: dict[str, Plain] = {}
        self._tracks: dict[str, FlacTrack] = {}
        self._told: dict[str, Plain] = {}
        self._codes: CodesTrack | None = None
        self._user_track = "user_in"
        self._number = 0
        self._now: Ticks = 0
        self._generated: Ticks = 0
        self._chapter_from: Ticks = 0

    def open(self, manifest: dict[str, Plain]) -> None:
        self.folder.mkdir(parents=True)
        self._manifest = self._redactor.plain(manifest)
        write_manifest(self.folder, self._manifest)
        self._lines = EventsFile(self.folder / EVENTS)

    def note(self, name: str, value: Plain) -> None:
        """Say something in the manifest."""
        if self._lines is not None:
            self._manifest[name] = value
            write_manifest(self.folder, self._manifest)

    def _track(self, name: str, rate: int, starts: Ticks = 0) -> FlacTrack:
        track = self._tracks.get(name)
        if track is None:
            track = self._tracks[name] = FlacTrack(self.folder / f"{name}.flac", rate)
            self._told[name] = {"rate": rate, "starts": starts}
            self.note("tracks", dict(self._told))
        return track

    def event(self, event: Event, now: Ticks, pcm: bytes | None, rate: int) -> None:
        if self._lines is None:
            return
        if now - self._chapter_from >= CHAPTER:
            self._chapter_from = now
            self._lines.frame()
            self._writer.chapter()
        self._number += 1
        self._now = now
        track: str | None = None
        at: Ticks | None = None
        if isinstance(event, EngineAudio | DuplexFrame):
            at = self._generated
            if pcm:
                self._track("agent_generated", self._rate).write(at, pcm)
                if isinstance(pcm, CodedPcm):
                    self._code(at, pcm)
                self._generated += ticks_of(pcm, self._rate)
        elif pcm is not None:
            if isinstance(event, AudioArrived):
                track = self._user(event, pcm, rate)
            elif isinstance(event, ItemCreate) and event.audio is not None:
                track = self._user(event.audio, pcm, rate)
        line = self._writer.event(self._number, event, now, track, at)
        self._lines.write(self._redactor.line(line) if may_tell((event,)) else line)
        self.placement.event(event, now)

    def _code(self, at: Ticks, pcm: CodedPcm) -> None:
        if self._codes is None:
            self._codes = CodesTrack(self.folder / CODES, pcm.span.format)
            self.further.append(self._codes)
        self._codes.write(at, ticks_of(pcm, self._rate), pcm.span)

    def _user(self, audio: AudioArrived, pcm: bytes, rate: int) -> str:
        """A client that changes its format goes on in a further file, at the same positions."""
        name = self._user_track
        if name in self._tracks and self._tracks[name].rate != rate:
            name = self._user_track = f"user_in_{len(self._tracks)}"
        starts = max(0, self._now - audio.end) if audio.start == 0 else 0
        self._track(name, rate, starts).write(audio.start, pcm)
        return name

    def effects(self, effects: list[Effect]) -> None:
        if self._lines is None:
            return
        line = self._writer.effects(effects)
        self._lines.write(self._redactor.line(line) if may_tell(effects) else line)
        self.placement.effects(effects)

    def flush(self) -> None:
        """Everything so far is on the disk."""
        if self._lines is None:
            return
        self._lines.flush()
        self._place()
        for track in self._tracks.values():
            track.flush()
        for further in self.further:
            further.flush()
        size = self._lines.size + sum(track.size for track in self._tracks.values())
        size += sum(further.size for further in self.further)
        if self._limit is not None and size >= self._limit:
            self.stop("size_limit")

    def _place(self) -> None:
        for piece in self.placement.sent():
            self._track("agent_sent", self._rate).write(piece.placed_at, self._samples(piece))
        for piece in self.placement.heard():
            self._track("agent_heard", self._rate).write(piece.placed_at, self._samples(piece))

    def _samples(self, piece: Piece) -> bytes:
        ticks = ticks_per_sample(self._rate)
        first = piece.skip // ticks * 2
        return piece.pcm[first : first + piece.length // ticks * 2]

    def stop(self, reason: str) -> None:
        """Record no more of this session; `reason` is told in the manifest."""
        if self._lines is not None:
            self._finish("stopped", reason)

    def close(self, reason: str) -> None:
        if self._lines is not None:
            self._finish("ended", reason)

    def _finish(self, how: str, reason: str) -> None:
        """Close what can be closed, and say in the manifest how it came to its end."""
        lines, self._lines = self._lines, None
        self.placement.end()
        try:
            with contextlib.ExitStack() as stack:
                # Last in, first out; what one of them cannot do does not keep the others from being closed.
                for further in self.further:
                    stack.callback(self._tell, further)
                for track in self._tracks.values():
                    stack.callback(track.close)
                stack.callback(self._place)
                if lines is not None:
                    stack.callback(lines.close)
            for track in self._tracks.values():
                track.close()  # one that only the last pieces began
        finally:
            self._manifest[how] = reason
            self._manifest["length"] = self._now
            self._manifest["tracks"] = dict(self._told)
            write_manifest(self.folder, self._manifest)

    def _tell(self, further: FurtherTrack) -> None:
        self._told[further.name] = further.close()

    def discard(self) -> None:
        self.close("refused")
        shutil.rmtree(self.folder, ignore_errors=True)
