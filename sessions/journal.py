"""Records sessions, each into a folder of its own: every event in order and the audio of both sides.

    manifest.json         version, session, configuration, abilities, tracks
    events.jsonl.zst      every event before it is handled, and its effects after (`sessions.recording.lines`)
    user_in.flac          the input track
    agent_generated.flac  what the engine made, in the order of its making
    agent_codes.bin       the codes that it was decoded from, if it was (`sessions.codes_track`)
    agent_sent.flac       what was admitted, at its place on the session timeline
    agent_heard.flac      what reached the ear of it, where the model of the way has it
    state.json            where another process had begun the session: how it stood when this one took it over

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
from typing import Any, Final, Protocol, TypeAlias

from .codes_track import FILE as CODES
from .codes_track import CodedPcm, CodesTrack
from .core.config import SessionConfig
from .core.effects import AdmitFrame, Effect
from .core.events import AudioArrived, ConfigUpdate, DuplexFrame, EngineAudio, Event, ItemCreate, PlaybackReported
from .core.records import Plain, read_as, to_plain
from .core.state import Abilities
from .core.timeline import TICK_RATE, Ticks, ticks_per_sample
from .recording.events_file import EventsFile
from .recording.flac_blocks import Shelf
from .recording.flac_copy import FlacCopy
from .recording.flac_track import FlacTrack
from .recording.format import EVENTS, VERSION, folder_name, software, write_manifest, write_state
from .recording.lines import Writer
from .recording.placement import Piece, Placement, Sources
from .recording.policy import RecordingPolicy
from .recording.redaction import NUMBERS, Redactor, may_tell
from .recording.sweeper import Sweeper
from .tracks import ticks_of

log = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 0.5
FREE_SECONDS: Final = 5.0
"""How often the disk is asked for its free space: no session fills what must stay free in so long."""
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
        self._asked = float("-inf")
        self._work: deque[Callable[[], None] | None] = deque()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._sweeper = Sweeper(root, self.policy, lambda: frozenset(self._open.copy()))
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
                else:
                    job()
            self._flush()

    def _flush(self) -> None:
        for files in list(self._open.values()):
            self.guarded(files, files.flush)
        if time.monotonic() - self._asked >= FREE_SECONDS:
            self._asked = time.monotonic()
            if shutil.disk_usage(self.root).free < self.policy.free_bytes:
                for files in self._open.values():
                    files.stop("disk_full")

    def guarded(self, files: _Files, job: Callable[[], None]) -> None:
        """Run `job`; a fault ends that recording and nothing else. What was written of it stays readable."""
        try:
            job()
        except Exception:
            self.faults += 1
            log.exception("recording of %s ended", files.folder.name)
            with contextlib.suppress(Exception):
                files.stop("write_failed")

    def submit(self, job: Callable[[], None]) -> None:
        """Run `job` in the recorder's thread soon, after all that was submitted before."""
        self._work.append(job)
        self._wake.set()

    def open(
        self,
        session: str,
        incarnation: int,
        config: SessionConfig,
        abilities: Abilities,
        rate: int,
        engine: Mapping[str, Plain] | None = None,
        state: Mapping[str, Plain] | None = None,
    ) -> Journal:
        """A new recording. `rate`: Hz of the agent's audio; `engine`: what is needed to run it again (seed, model).

        `state`: the snapshot of the core, of a session that another process began; `incarnation` is the new owner's.
        """
        began = _Beginning(state)
        folder = self.root / folder_name(session, incarnation, state is not None)
        files = _Files(folder, rate, self.policy, self.redactor, began)
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
        if state is not None:
            manifest["continues"] = {"incarnation": began.incarnation, "now": began.now}

        return Journal(self, files, manifest, config.recording_consent)

    def take(self, files: _Files) -> None:
        """In the recorder's thread: what waits for `files` is written from now on."""
        self._open[files.folder.name] = files

    def forget(self, session: str) -> None:
        """In the recorder's thread: a recording is finished."""
        self._open.pop(session, None)
        self._sweeper.ended()

    def close(self) -> None:
        """Write what waits and stop."""
        if self._thread.is_alive():
            self._work.append(None)
            self._wake.set()
            self._thread.join()
        self._sweeper.close()


class Journal:
    """One session's recording; calls only queue the work."""

    def __init__(self, recorder: Recorder, files: _Files, manifest: dict[str, Plain], consent: str) -> None:
        self._recorder = recorder
        self._files = files
        # Looked up once: these three come for every frame.
        self._event, self._effects, self._admit = files.event, files.effects, files.placement.admit
        self._held: list[_Job] = []
        self._held_bytes = 0
        self._leave: Callable[[_Job], None] = self._hold
        """Takes a job on its way to the recorder's thread: at once where consent was given, never where refused."""
        if consent == "refused":
            self._leave = _nothing
        elif recorder.policy.consent != "required" or consent == "given":
            self._release()
        self._leave((files.open, (manifest,)))

    @property
    def folder(self) -> Path:
        return self._files.folder

    def _release(self) -> None:
        """From here on, what is to be written is."""
        held, self._held = self._held, []
        self._files.waiting.extend(held)
        self._leave = self._files.waiting.append
        files, recorder = self._files, self._recorder
        recorder.submit(lambda: recorder.take(files))

    def _hold(self, job: _Job) -> None:
        self._held_bytes += sum(len(given) for given in job[1] if isinstance(given, bytes))
        if self._held_bytes > UNCONSENTED_BYTES:
            self._refuse()
        else:
            self._held.append(job)

    def _refuse(self) -> None:
        """Nothing of this session is or stays recorded."""
        self._leave = _nothing
        self._held.clear()
        files, recorder = self._files, self._recorder

        def forget() -> None:
            files.discard()
            recorder.forget(files.folder.name)

        recorder.submit(lambda: recorder.guarded(files, forget))

    def _stated(self, consent: str) -> None:
        if self._leave is _nothing:
            return
        if consent == "refused":
            self._refuse()
        elif consent == "given":
            if self._leave == self._hold:
                self._release()
            self._leave((self._files.note, ("consent", "given")))

    def event(self, event: Event, now: Ticks, pcm: bytes | None, rate: int) -> None:
        self._leave((self._event, (event, now, pcm, rate)))
        if type(event) is ConfigUpdate and event.config.recording_consent:
            self._stated(event.config.recording_consent)

    def effects(self, effects: list[Effect]) -> None:
        if effects:
            self._leave((self._effects, (effects,)))

    def sent(self, frame: AdmitFrame, pcm: bytes) -> None:
        self._leave((self._admit, (frame, pcm)))

    def add(self, track: Callable[[], FurtherTrack]) -> None:
        """A further file, opened by `track` in the recorder's thread; it is flushed and closed with the others."""
        self._leave((self._files.add, (track,)))

    def close(self, reason: str) -> None:
        self._leave((self._files.close, (reason,)))
        files, recorder = self._files, self._recorder

        def forget() -> None:
            recorder.guarded(files, files.work)
            recorder.forget(files.folder.name)

        recorder.submit(forget)

    def discard(self) -> None:
        """Forget a session that never began."""
        self._refuse()


def _nothing(job: _Job) -> None:
    """Of a session that must not be recorded."""


_Job: TypeAlias = tuple[Callable[..., None], tuple[Any, ...]]
"""Work for the recorder's thread: what to call, and with what."""


class _Beginning:
    """Where a recording begins: with the session, or where its former owner had brought it."""

    def __init__(self, state: Mapping[str, Plain] | None) -> None:
        self.state = state
        found = state or {}
        self.now: Ticks = read_as(int, found.get("now", 0), "now")
        self.incarnation: int = read_as(int, found.get("incarnation", 0), "incarnation")


class _Files:
    """The open files of one recording. Used by the recorder's thread only."""

    def __init__(self, folder: Path, rate: int, policy: RecordingPolicy, redactor: Redactor, began: _Beginning) -> None:
        self.folder = folder
        self._began = began
        self.waiting: deque[_Job] = deque()
        """What is still to be done, in order; added to by whoever runs the session."""
        self.placement = Placement()
        self._further: list[FurtherTrack] = []
        self._rate = rate
        self._limit = policy.session_bytes
        self._redactor = redactor
        self._writer = Writer()
        self._lines: EventsFile | None = None
        self._manifest: dict[str, Plain] = {}
        self._tracks: dict[str, FlacTrack] = {}
        self._copies: dict[str, FlacCopy] = {}
        """What was sent and heard, which is what was made at other places."""
        self._shelf = Shelf()
        self._sources = Sources()
        self._told: dict[str, Plain] = {}
        self._codes: CodesTrack | None = None
        self._user_track = "user_in"
        self._number = 0
        self._now: Ticks = began.now
        self._generated: Ticks = 0
        self._chapter_from: Ticks = began.now
        self._finished = False
        self._harmless: str | None = None
        """A response whose name holds no secret."""

    def open(self, manifest: dict[str, Plain]) -> None:
        self.folder.mkdir(parents=True)
        self._manifest = self._redactor.plain(manifest)
        if self._began.state is not None:
            write_state(self.folder, self._redactor.plain(dict(self._began.state)))
        write_manifest(self.folder, self._manifest)
        self._lines = EventsFile(self.folder / EVENTS)

    def add(self, track: Callable[[], FurtherTrack]) -> None:
        """See `Journal.add`."""
        self._further.append(track())

    def work(self) -> None:
        """Do what waits, unless nothing more is recorded."""
        waiting = self.waiting
        if self._finished:
            waiting.clear()
        while waiting:
            job, given = waiting.popleft()
            job(*given)

    def note(self, name: str, value: Plain) -> None:
        """Say something in the manifest."""
        if self._lines is not None:
            self._manifest[name] = value
            write_manifest(self.folder, self._manifest)

    def _track(self, name: str, rate: int, starts: Ticks = 0, first: Ticks = 0, shared: bool = False) -> FlacTrack:
        """`first`: the position of its first sample, which lies at `starts` on the session timeline."""
        track = self._tracks.get(name)
        if track is None:
            shelf = self._shelf if shared else None
            track = self._tracks[name] = FlacTrack(self.folder / f"{name}.flac", rate, first, shelf)
            self._tell_track(name, rate, starts, first)
        return track

    def _copy(self, name: str) -> FlacCopy:
        """A track whose positions are those of the session timeline, of what lies on `agent_generated`."""
        track = self._copies.get(name)
        if track is None:
            first = self._began.now
            track = self._copies[name] = FlacCopy(self.folder / f"{name}.flac", self._rate, first, self._shelf)
            self._tell_track(name, self._rate, first, first)
        return track

    def _tell_track(self, name: str, rate: int, starts: Ticks, first: Ticks) -> None:
        told: dict[str, Plain] = {"rate": rate, "starts": starts}
        if first:
            told["first"] = first
        self._told[name] = told
        self.note("tracks", dict(self._told))

    def _audio(self) -> list[FlacTrack | FlacCopy]:
        return [*self._tracks.values(), *self._copies.values()]

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
        kind = type(event)
        if kind is EngineAudio or kind is DuplexFrame:
            at = self._generated
            if pcm and isinstance(event, EngineAudio | DuplexFrame):
                self._track("agent_generated", self._rate, shared=True).write(at, pcm)
                source = event.response if isinstance(event, EngineAudio) else "duplex"
                self._sources.made(source, event.start, event.end, at)
                if isinstance(pcm, CodedPcm):
                    self._code(at, pcm)
                self._generated += ticks_of(pcm, self._rate)
        elif pcm is not None:
            if isinstance(event, AudioArrived):
                track = self._user(event, pcm, rate)
            elif isinstance(event, ItemCreate) and event.audio is not None:
                track = self._user(event.audio, pcm, rate)
        line = self._writer.event(self._number, event, now, track, at)
        self._lines.write(line if kind in NUMBERS else self._redacted(event, line))
        self.placement.event(event, now)

    def _redacted(self, event: Event, line: str) -> str:
        # Reports of playback come for every frame, and only the name of the response in them could hold a secret.
        if type(event) is not PlaybackReported:
            return self._redactor.line(line)
        if event.response == self._harmless:
            return line
        redacted = self._redactor.line(line)
        if redacted == line:
            self._harmless = event.response
        return redacted

    def _code(self, at: Ticks, pcm: CodedPcm) -> None:
        if self._codes is None:
            self._codes = CodesTrack(self.folder / CODES, pcm.span.format)
            self._further.append(self._codes)
        self._codes.write(at, ticks_of(pcm, self._rate), pcm.span)

    def _user(self, audio: AudioArrived, pcm: bytes, rate: int) -> str:
        track = self._tracks.get(self._user_track)
        if track is None or track.rate != rate:
            track = self._further_user(audio, rate)
        track.write(audio.start, pcm)
        return self._user_track

    def _further_user(self, audio: AudioArrived, rate: int) -> FlacTrack:
        """A client that changes its format goes on in a further file, at the same positions."""
        if self._user_track in self._tracks:
            self._user_track = f"user_in_{len(self._tracks)}"
        # Where the format changes within a recording, what goes on is filled up, so as to have the same positions.
        anew = self._user_track == "user_in" or self._began.state is not None
        first = audio.start if anew else 0
        return self._track(self._user_track, rate, first + max(0, self._now - audio.end) if anew else 0, first)

    def effects(self, effects: list[Effect]) -> None:
        if self._lines is None:
            return
        line = self._writer.effects(effects)
        self._lines.write(self._redactor.line(line) if may_tell(effects) else line)
        self.placement.effects(effects)

    def flush(self) -> None:
        """Everything so far is on the disk."""
        self.work()
        if self._lines is None:
            return
        self._lines.flush()
        self._place()
        for track in self._audio():
            track.flush()
        for further in self._further:
            further.flush()
        if self._limit is not None and self._size(self._lines) >= self._limit:
            self.stop("size_limit")

    def _size(self, lines: EventsFile) -> int:
        """Bytes on the disk."""
        audio = sum(track.size for track in self._audio())
        return lines.size + audio + sum(further.size for further in self._further)

    def _place(self) -> None:
        for piece in self.placement.sent():
            self._put("agent_sent", piece)
        for piece in self.placement.heard():
            self._put("agent_heard", piece)

    def _put(self, name: str, piece: Piece) -> None:
        made = next(self._sources.places(piece.source, piece.source_start, piece.length), None)
        self._copy(name).write(piece.placed_at, self._samples(piece), 0 if made is None else made[0])

    def _samples(self, piece: Piece) -> bytes:
        ticks = ticks_per_sample(self._rate)
        first = piece.skip // ticks * 2
        return bytes(piece.pcm[first : first + piece.length // ticks * 2])

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
        self._finished = True
        self.placement.end()
        try:
            with contextlib.ExitStack() as stack:
                # Last in, first out; what one of them cannot do does not keep the others from being closed.
                for further in self._further:
                    stack.callback(self._tell, further)
                for track in self._audio():
                    stack.callback(track.close)
                stack.callback(self._place)
                if lines is not None:
                    stack.callback(lines.close)
            for track in self._audio():
                track.close()  # one that only the last pieces began
        finally:
            self._manifest[how] = reason
            self._manifest["length"] = self._now
            self._manifest["tracks"] = dict(self._told)
            write_manifest(self.folder, self._manifest)

    def _tell(self, further: FurtherTrack) -> None:
        self._told[further.name] = further.close()

    def discard(self) -> None:
        """Delete what there is."""
        self.waiting.clear()
        self.close("refused")
        if self._manifest:  # else the folder is not this recording's
            shutil.rmtree(self.folder, ignore_errors=True)
