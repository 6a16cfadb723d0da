"""Perception by models in this process: one ear per session, one set of models for all.

Three threads. *Intake* owns every session's track and the speech detector; it runs at the process's own priority and
does nothing that takes longer than about a millisecond, so that a hold does not wait for a transcript. The
*recognizer* and the *turn detector* have a lowered thread each, because both are asked at the same moment, at the
start of a closing silence, and the answer of one must not wait for the other.

Everything that belongs to a session goes through its inbox in order: a request sees exactly the audio that was fed
before it.
"""

from __future__ import annotations

import atexit
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sessions.core.effects import AssessTurn, OpenPerception, Transcribe
from sessions.core.events import EndOfTurnProbability, Event, PerceptionFailed, SpeechProbability, Transcript
from sessions.core.fence import Fence
from sessions.core.loudness import NoiseFloor
from sessions.core.timeline import TICK_RATE, Span, Ticks, Word, ticks_per_sample
from sessions.ports import Emit, PerceptionCapabilities

from ..priority import load_lowered, lower_priority
from ..remote.errors import RemoteError
from .asr import LanguageUnsupported, Recognition, Recognizer
from .denoise import DeepFilter, DenoiserMissing, Suppressor
from .echo import BLOCK, EchoDetector
from .endpoint import TurnDetector
from .levels import levels
from .mel import SAMPLE_RATE
from .requests import FairQueue
from .track import TICKS_PER_SAMPLE, AudioForgotten, AudioMissing, InputTrack, windows
from .vad import WINDOW, SpeechDetector, SpeechState

log = logging.getLogger(__name__)

Samples = NDArray[np.float32]

WINDOW_TICKS: Ticks = WINDOW * TICKS_PER_SAMPLE
"""32 ms."""

HEAP: Ticks = TICK_RATE // 2
"""How much audio of a session in which no speech is looked for may heap up before the intake takes it: a question about
it takes it at once, and one long stretch costs a tenth of many short ones."""

SLICE: Ticks = TICK_RATE // 10
"""How much audio of a session whose noise is reduced is taken at once: 14 ms of work."""

FEW = 2
"""Sessions up to which every stretch of audio is taken as it comes."""
BATCH = 10
"""Windows of a batch in which one costs less than half of what it does alone; each look wakes two threads besides."""
GATHER = (0.016, 0.028)
"""Seconds at least and at most from one time that the intake of more sessions takes what came to the next: in them such
a batch gathers, and the most is nearly a window. A hold comes half of that later; who asks for a transcript or whether
a turn is over does not wait for it."""

PLAIN_SILENCE = -66.0
"""Level in dBFS (RMS) below which a window behind `CALM` others without speech is not looked at: an amplitude of 16
in 16 bits, two of the smallest steps of µ-law."""
CALM = 8
"""Windows without speech after which silence may be taken for what it is: a quarter of a second."""
PLAYED_MAX = 500
"""Pieces of the agent's audio that wait to be compared: more than the longest lag of an echo."""
ECHO_LEVEL = -60.0
"""Level in dBFS below which a window is not compared: the agent would hardly be held for it."""
SELDOM: Ticks = 4 * WINDOW_TICKS
"""How often an echo is looked for while the user has the floor. It decides nothing then, but where the agent was cut
for its own echo, the rest of that is what it is known by the next time."""
VAIN = 3
"""Searches for that in which nothing was like it, one after the other, until the user is taken for who speaks."""
NO_SPEECH = 0.1
"""Probability below which a window counts as one without speech."""
FLOORS_APART = 3.0
"""dB by which the noise floor that the session goes by may be below the one that is known here."""

NOISE_LIMIT_DB = 12.0
"""How far noise is lowered. More sounds cleaner to people and is worse for the recognizer: of 24 questions in babble at
5 dB it misheard 44 % of the words as they were, 35 % at 12 dB, 54 % at 24 dB and 59 % without a limit."""

_NOTHING: Samples = np.zeros(0, np.float32)

ASSETS: tuple[str, ...] = ("silero-vad", "smart-turn", "whisper-base")
"""What `EmbeddedPerception.load` needs."""


class DetectsSpeech(Protocol):
    """See `SpeechDetector`."""

    def detect(self, windows: Samples, states: list[SpeechState]) -> Samples: ...


class DetectsTurns(Protocol):
    """See `TurnDetector`."""

    def probability(self, turn: Samples) -> float: ...


class Recognizes(Protocol):
    """See `Recognizer`."""

    @property
    def languages(self) -> tuple[str, ...]: ...

    def recognize(self, samples: Samples, language: str = "en", *, times: bool = False) -> Recognition: ...


@dataclass(slots=True)
class _Feed:
    start: Ticks
    pcm: bytes
    """Grows while the stretch waits in an inbox; guarded by the intake's lock until it is taken from there."""
    rate: int


@dataclass(frozen=True, slots=True)
class _Played:
    at: Ticks
    pcm: bytes
    """Empty: nothing is heard from `at` on."""
    rate: int


@dataclass(frozen=True, slots=True)
class _Cancel:
    request: int


@dataclass(frozen=True, slots=True)
class _Forget:
    before: Ticks


_Command: TypeAlias = _Feed | OpenPerception | Transcribe | AssessTurn | _Cancel | _Forget


@dataclass(eq=False, slots=True)
class _Ear:
    """One session. `inbox`, `waiting` and `open` are guarded by the intake's lock; the rest is the intake's own."""

    session: str
    emit: Emit
    track: InputTrack
    incarnation: int = 1
    """Of the owner who hears with it."""
    inbox: deque[_Command] = field(default_factory=deque)
    waiting: Ticks = 0
    """Audio in the inbox."""
    open: bool = True
    denoised: bool = False
    """Whether noise is to be reduced, as far as the calls so far say; guarded by the intake's lock."""
    preparing: bool = False
    """Everything waits in the inbox until the suppressor is made; guarded by the intake's lock."""
    suppressor: Suppressor | None = None
    language: str = "en"
    logprobs: bool = False
    speech: SpeechState | None = None
    """None: speech probabilities are not wanted."""
    heeded: bool = False
    """Whether speech is looked for, as far as the calls so far say; guarded by the intake's lock."""
    window: Ticks = 0
    """Where the next window begins."""
    fed_until: Ticks = 0
    """Where the audio that was fed ends; guarded by the intake's lock."""
    wanted_at: Ticks = 0
    """How far audio must come before the intake has something to look at; guarded by its lock."""
    played: deque[_Played] = field(default_factory=deque)
    """What the agent said and `echo` was not told yet; guarded by the intake's lock."""
    echo: EchoDetector | None = None
    """None: nothing was said yet."""
    floor_taken: bool = False
    """Whether the user has the floor; written by the event loop alone."""
    searched: Ticks = 0
    """The newest window in which an echo was looked for."""
    vain: int = 0
    """Searches one after the other in which nothing was like the agent, since the floor was given or taken."""
    floor_then: bool = False
    """`floor_taken` in the newest window that an echo could be looked for in."""
    likeness: float = 0.0
    """Of the newest window that could be compared."""
    floor: NoiseFloor = field(default_factory=NoiseFloor)
    calm: int = 0
    """Windows without speech since there was any."""
    jobs: dict[int, _Job] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class _Job:
    """A request with the audio that it is about."""

    ear: _Ear
    request: int
    final: bool
    span: Span
    samples: Samples
    language: str
    wanted: bool = True

    @property
    def session(self) -> str:
        return self.ear.session


class EmbeddedPerception:
    """`PerceptionPort` on Silero VAD, Smart Turn and Whisper."""

    def __init__(
        self,
        detector: DetectsSpeech,
        turns: DetectsTurns,
        recognizer: Recognizes,
        *,
        history: Ticks = 120 * TICK_RATE,
        workers: int = 1,
        denoiser: Callable[[], Suppressor] | None = None,
        unload: Callable[[], None] | None = None,
    ) -> None:
        """Starts the threads; `stop` ends them.

        `history`: the most audio that is kept, or may wait, per session. `workers`: utterances recognized at once.
        `denoiser` makes what reduces the noise of one session; None: it is not offered.
        `unload` is called after the last thread has ended.
        """
        self._detector = detector
        self._turns = turns
        self._recognizer = recognizer
        self._history = history
        self._unload = unload
        self._changed = threading.Condition()
        self._ears: dict[str, _Ear] = {}
        self._busy: set[_Ear] = set()
        """Ears with something in the inbox."""
        self._asked = threading.Event()
        """Somebody waits for an answer: what came is taken at once."""
        self._stopping = False
        self._denoiser = denoiser
        self._unprepared: queue.SimpleQueue[_Ear | None] = queue.SimpleQueue()
        self.windows_lost = 0
        """Windows that no probability was given for, because audio came faster than it could be looked at."""
        self.opens_refused = 0
        """Calls of former owners of a session."""
        self._utterances: FairQueue[_Job] = FairQueue()
        self._endings: FairQueue[_Job] = FairQueue()
        self._threads = [threading.Thread(target=self._listen, name="intake", daemon=True)]
        self._threads += [
            threading.Thread(target=_work, args=(queue, answer), name=name, daemon=True)
            for queue, answer, name in (
                *[(self._utterances, self._transcript, f"recognizer-{n}") for n in range(workers)],
                (self._endings, self._ending, "turn-detector"),
            )
        ]
        if denoiser is not None:
            self._threads.append(threading.Thread(target=self._prepare, name="denoiser", daemon=True))
        for thread in self._threads:
            thread.start()
        # CTranslate2 ends the process with an abort if the interpreter leaves while it computes.
        atexit.register(self.stop)

    @classmethod
    def load(
        cls, directories: Mapping[str, Path], *, workers: int = 1, elsewhere: Recognizes | None = None
    ) -> EmbeddedPerception:
        """Load the models from the directories of `ASSETS`, as `models.assets.ensure` returns them. Blocks.

        `elsewhere` recognizes in place of Whisper, which is not loaded then.
        """
        detector = SpeechDetector(directories["silero-vad"])
        turns = TurnDetector(directories["smart-turn"])
        if elsewhere is not None:
            return cls(detector, turns, elsewhere, workers=workers, denoiser=_denoiser())
        recognizer = load_lowered(lambda: Recognizer(directories["whisper-base"], workers=workers))
        # The first call of each allocates and plans; that is not to fall on somebody's first word.
        silence = np.zeros(SAMPLE_RATE, np.float32)
        detector.detect(silence[None, :WINDOW], [SpeechState()])
        turns.probability(silence)
        recognizer.recognize(silence, recognizer.languages[0], times=True)
        return cls(detector, turns, recognizer, workers=workers, denoiser=_denoiser(), unload=recognizer.unload)

    # --- the port: called from the event loop, never blocks ----------------------------------------------------------

    @property
    def capabilities(self) -> PerceptionCapabilities:
        return PerceptionCapabilities(
            window=WINDOW_TICKS,
            languages=self._recognizer.languages,
            end_of_turn=True,
            transcripts=True,
            noise_reduction=self._denoiser is not None,
            logprobs=True,
        )

    def open(self, fence: Fence, request: OpenPerception, emit: Emit) -> None:
        session = fence.session
        with self._changed:
            ear = self._ears.get(session)
            if ear is not None and fence.incarnation < ear.incarnation:
                self.opens_refused += 1
                return
            if ear is not None and fence.incarnation > ear.incarnation:
                # Requests are numbered by their owner: an answer to the former one must not pass for one to this.
                self.close(session)
                ear = None
            if ear is None:
                ear = _Ear(session, emit, InputTrack(self._history), incarnation=fence.incarnation)
                self._ears[session] = ear
            ear.emit = emit
            ear.heeded = request.speech
            ear.denoised = request.denoise and self._denoiser is not None
            if ear.denoised and ear.suppressor is None and not ear.preparing:
                ear.preparing = True
                self._unprepared.put(ear)
            self._post(ear, request)

    def feed(self, session: str, start: Ticks, pcm: bytes, rate: int) -> None:
        """See `PerceptionPort`. Raises ValueError for a rate that does not divide 48 kHz and for half a sample."""
        length = ticks_per_sample(rate)
        if len(pcm) % 2:
            raise ValueError(f"pcm has {len(pcm)} bytes; 16-bit samples need an even number")
        with self._changed:
            if (ear := self._ears.get(session)) is None:
                return
            ear.waiting += len(pcm) // 2 * length
            # Only a process that has stood still for as long as it remembers gets here with several stretches. The
            # oldest goes; the track shows silence in its place. One stretch that is longer is cut by the track.
            while ear.waiting > self._history and (lost := _oldest_feed(ear.inbox)) is not None:
                ear.inbox.remove(lost)
                ear.waiting -= _ticks(lost)
            follows, ear.fed_until = start == ear.fed_until, start + len(pcm) // 2 * length
            _heap(ear.inbox, start, pcm, rate)
            if self._ripe(ear) or not follows:
                self._rouse(ear)

    def play(self, session: str, at: Ticks, pcm: bytes, rate: int) -> None:
        """See `PerceptionPort`. Kept as it is until something in the input could be like it."""
        with self._changed:
            if (ear := self._ears.get(session)) is not None:
                ear.played.append(_Played(at, pcm, rate))
                if len(ear.played) > PLAYED_MAX:
                    ear.played.popleft()

    def hush(self, session: str, at: Ticks) -> None:
        self.play(session, at, b"", SAMPLE_RATE)

    def floor(self, session: str, taken: bool) -> None:
        """See `Heeds`."""
        with self._changed:
            if (ear := self._ears.get(session)) is not None:
                ear.floor_taken = taken

    def transcribe(self, session: str, request: Transcribe) -> None:
        self._command(session, request)
        self._asked.set()

    def assess(self, session: str, request: AssessTurn) -> None:
        self._command(session, request)
        self._asked.set()

    def cancel(self, session: str, request: int) -> None:
        """See `PerceptionPort`. An answer that is being handed over at this moment may still arrive."""
        self._command(session, _Cancel(request))

    def forget(self, session: str, before: Ticks) -> None:
        self._command(session, _Forget(before))

    def close(self, session: str) -> None:
        with self._changed:
            ear = self._ears.pop(session, None)
            if ear is None:
                return
            ear.open = False
            ear.inbox.clear()
            self._busy.discard(ear)
        self._utterances.drop(session)
        self._endings.drop(session)

    def stop(self) -> None:
        """End the threads, after what each is computing right now; nothing is emitted afterwards. Idempotent."""
        with self._changed:
            if self._stopping:
                return
            self._stopping = True
            atexit.unregister(self.stop)
            for ear in self._ears.values():
                ear.open = False
            self._ears.clear()
            self._busy.clear()
            self._changed.notify_all()
        self._asked.set()
        self._utterances.close()
        self._endings.close()
        self._unprepared.put(None)
        for thread in self._threads:
            thread.join()
        if self._unload is not None:
            self._unload()

    def _command(self, session: str, command: _Command) -> None:
        with self._changed:
            if (ear := self._ears.get(session)) is not None:
                self._post(ear, command)

    def _post(self, ear: _Ear, command: _Command) -> None:
        ear.inbox.append(command)
        self._rouse(ear)

    @staticmethod
    def _ripe(ear: _Ear) -> bool:
        """Whether what waits is worth taking: a window is complete, or enough has heaped up."""
        if ear.heeded:
            return ear.denoised or ear.fed_until >= ear.wanted_at
        return ear.waiting >= HEAP

    def _rouse(self, ear: _Ear) -> None:
        """The intake is to take what waits for `ear`; with the lock held."""
        if not ear.preparing:
            self._busy.add(ear)
            self._changed.notify()

    def _prepare(self) -> None:
        """Make suppressors, one after the other: each takes longer than anybody's window may wait."""
        lower_priority()
        while (ear := self._unprepared.get()) is not None:
            made: Suppressor | None = None
            if ear.open and self._denoiser is not None:
                try:
                    made = self._denoiser()
                except Exception:
                    log.exception("session %s is heard without noise reduction", ear.session)
            with self._changed:
                ear.suppressor, ear.preparing = made, False
                if ear.open and ear.inbox:
                    self._busy.add(ear)
                    self._changed.notify()

    def _take(self, ear: _Ear) -> list[_Command]:
        """What the intake does next for `ear`; with the lock held. Reducing noise costs a seventh of real time, so of
        a long stretch only as much is taken at once as the others can wait for."""
        self._busy.discard(ear)
        if not ear.denoised:
            taken, ear.waiting = list(ear.inbox), 0
            ear.inbox.clear()
            return taken
        taken = []
        room = SLICE
        while ear.inbox and room > 0:
            command = ear.inbox.popleft()
            if isinstance(command, _Feed):
                if _ticks(command) > room:
                    command, rest = _split(command, room)
                    ear.inbox.appendleft(rest)
                room -= _ticks(command)
                ear.waiting -= _ticks(command)
            taken.append(command)
        if ear.inbox:
            self._busy.add(ear)
        return taken

    # --- intake ------------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        listening: set[_Ear] = set()
        """Ears with a whole window that was not looked at yet."""
        taken = 0.0
        while True:
            with self._changed:
                while not (self._busy or listening or self._stopping):
                    self._changed.wait()
            sessions = len(self._ears)
            if sessions > FEW and not listening:
                self._asked.wait(max(0.0, taken + _gather(sessions) - time.monotonic()))
            self._asked.clear()
            taken = time.monotonic()
            with self._changed:
                if self._stopping:
                    return
                news = [(ear, self._take(ear)) for ear in list(self._busy)]
            for ear, commands in news:
                for command in commands:
                    try:
                        self._apply(ear, command)
                    except Exception as error:
                        log.exception("session %s: %s failed", ear.session, type(command).__name__)
                        if isinstance(command, Transcribe | AssessTurn):
                            _tell(ear, _failure(command.request, error))
                listening.add(ear)
            # One window of everybody, then the inboxes again: a session that appends a minute at once delays the
            # others' windows by a batch, not by a minute's worth.
            if due := [ear for ear in listening if ear.open and self._due(ear)]:
                self._look(due)
            with self._changed:
                resting = {ear for ear in listening if not (ear.open and self._due(ear))}
                for ear in resting:
                    self._rest(ear)
            listening -= resting

    def _rest(self, ear: _Ear) -> None:
        """Nothing of `ear` is to be looked at before its next window is whole; with the lock held."""
        ear.wanted_at = ear.window + WINDOW_TICKS + ear.track.received - ear.track.end
        if ear.inbox and ear.open and self._ripe(ear):
            self._rouse(ear)

    def _apply(self, ear: _Ear, command: _Command) -> None:
        match command:
            case _Feed(start, pcm, rate):
                if ear.track.append(start, pcm, rate):
                    ear.window = start
                    ear.speech = ear.speech and SpeechState()
            case OpenPerception(speech, language, denoise, logprobs):
                ear.language = language
                ear.logprobs = logprobs
                ear.track.clean_with(ear.suppressor if denoise else None)
                if speech and ear.speech is None:
                    ear.speech, ear.window = SpeechState(), ear.track.end
                elif not speech:
                    ear.speech = None
            case Transcribe(request, start, end, final):
                self._request(ear, request, Span(start, end), final, self._utterances)
            case AssessTurn(request, start, at):
                self._request(ear, request, Span(start, at), True, self._endings)
            case _Cancel(request):
                if (job := ear.jobs.pop(request, None)) is not None:
                    job.wanted = False
                    self._utterances.cancel(ear.session, request)
                    self._endings.cancel(ear.session, request)
            case _Forget(before):
                # Windows that were not looked at yet are still needed, whatever the session has done with the rest.
                ear.track.forget(min(before, ear.window) if ear.speech is not None else before)

    def _request(self, ear: _Ear, request: int, span: Span, final: bool, queue: FairQueue[_Job]) -> None:
        try:
            samples = ear.track.read(span.start, span.end)
        except AudioForgotten as error:
            _tell(ear, PerceptionFailed(request, "audio_forgotten", str(error)))
        except AudioMissing as error:
            _tell(ear, PerceptionFailed(request, "audio_missing", str(error)))
        else:
            ear.jobs = {number: job for number, job in ear.jobs.items() if job.wanted}
            ear.jobs[request] = job = _Job(ear, request, final, span, samples, ear.language)
            if (overtaken := queue.put(job)) is not None:
                overtaken.wanted = False

    def _due(self, ear: _Ear) -> bool:
        if ear.speech is None:
            return False
        if (lost := ear.track.oldest - ear.window) > 0:
            skipped = -(-lost // WINDOW_TICKS)
            self.windows_lost += skipped
            ear.window += skipped * WINDOW_TICKS
        return ear.window + WINDOW_TICKS <= ear.track.end

    def _look(self, ears: list[_Ear]) -> None:
        """One window of each."""
        try:
            sound = windows([ear.track for ear in ears], [ear.window for ear in ears], WINDOW)
            loudness = levels(sound)
            plain = [ear.calm >= CALM and level < PLAIN_SILENCE for ear, (level, _) in zip(ears, loudness, strict=True)]
            probabilities = self._probabilities(ears, sound, plain)
        except Exception:
            if len(ears) > 1:  # it may be the fault of one of them alone
                for ear in ears:
                    self._look([ear])
                return
            # Nobody asked, so nobody is answered; the core's own time-outs see that no probability comes.
            log.exception("speech detection failed for session %s", ears[0].session)
            self.windows_lost += len(ears)
            for ear in ears:
                ear.window += WINDOW_TICKS
            return
        for ear, probability, (level, hiss), unheard in zip(ears, probabilities, loudness, plain, strict=True):
            start, ear.window = ear.window, ear.window + WINDOW_TICKS
            if unheard:
                ear.speech = ear.speech and SpeechState()
            speech = probability >= NO_SPEECH
            ear.calm = 0 if speech else ear.calm + 1
            if level >= ECHO_LEVEL:
                # The agent is held for speech and for sounds. Nothing is looked for in the noise of a room, which is
                # there all the time.
                counts = speech or ear.floor.stands_out(level + FLOORS_APART, hiss + FLOORS_APART, ear.window)
                ear.likeness = self._echo(ear, counts and self._worth(ear, start))
            elif not speech:
                ear.likeness = 0.0
            # Else the detector has not forgotten yet what it heard before, and what that was holds for it too.
            if not speech:
                ear.floor.follow(level, hiss)
            # Rounded far below what decides anything: thirty times a second, digits are most of what a journal holds.
            _tell(ear, SpeechProbability(start, ear.window, round(probability, 4), level, ear.likeness, hiss))

    def _probabilities(self, ears: list[_Ear], sound: Samples, plain: list[bool]) -> list[float]:
        """Of each window of `sound`; 0 for those that are `plain` silence."""
        heard = [row for row, unheard in enumerate(plain) if not unheard]
        if not heard:
            return [0.0] * len(ears)
        states = [ears[row].speech or SpeechState() for row in heard]
        probabilities = np.zeros(len(ears), np.float32)
        probabilities[heard] = self._detector.detect(sound[heard] if len(heard) < len(ears) else sound, states)
        each: list[float] = probabilities.tolist()
        return each

    @staticmethod
    def _worth(ear: _Ear, start: Ticks) -> bool:
        """Whether an echo is to be looked for in the window at `start`: in every one as long as there is something like
        it, else in every second; while the user has the floor see `SELDOM` and `VAIN`."""
        if ear.floor_then is not ear.floor_taken:
            ear.floor_then, ear.vain = ear.floor_taken, 0
        if not ear.floor_taken:
            return ear.vain == 0 or start - ear.searched >= 2 * WINDOW_TICKS
        return ear.vain < VAIN and start - ear.searched >= SELDOM

    def _echo(self, ear: _Ear, search: bool) -> float:
        """How much the window that was just looked at is like what the agent said a moment before.

        Without `search` only where it is known how long an echo takes.
        """
        if not search and (ear.echo is None or ear.echo.lag is None):
            return 0.0  # and what was played waits
        if ear.echo is None and not ear.played:
            return 0.0
        with self._changed:
            played = list(ear.played)
            ear.played.clear()
        if ear.echo is None:
            ear.echo = EchoDetector()
        for piece in played:
            if piece.pcm:
                ear.echo.reference.play(piece.at, piece.pcm, piece.rate)
            else:
                ear.echo.reference.hush(piece.at)
        begins = ear.window - BLOCK * TICKS_PER_SAMPLE
        if begins < ear.track.oldest or not ear.echo.wanted(ear.window, search=search):
            return 0.0
        likeness = ear.echo.likeness(ear.track.read(begins, ear.window), ear.window, search=search)
        if search:
            ear.searched = ear.window - WINDOW_TICKS
            ear.vain = ear.vain + 1 if ear.echo.vain else 0
        return round(likeness, 3)

    # --- answers -----------------------------------------------------------------------------------------------------

    def _transcript(self, job: _Job) -> Event:
        try:
            # Word times are for the history; a look at an utterance that goes on is about the words alone.
            heard = self._recognizer.recognize(job.samples, job.language, times=job.final)
        except LanguageUnsupported as error:
            return PerceptionFailed(job.request, "language_unsupported", str(error))
        words = tuple(
            Word(word.text, job.span.start + _to_ticks(word.start), job.span.start + _to_ticks(word.end))
            for word in heard.words
        )
        tokens = heard.tokens if job.ear.logprobs else ()
        return Transcript(job.request, job.span.start, job.span.end, heard.text, words, tokens)

    def _ending(self, job: _Job) -> Event:
        return EndOfTurnProbability(job.request, job.span.end, self._turns.probability(job.samples))


def _gather(sessions: int) -> float:
    """Seconds in which so many sessions fill a batch, as far as they can be waited for."""
    least, most = GATHER
    return max(least, min(most, BATCH * WINDOW_TICKS / TICK_RATE / sessions))


def _work(queue: FairQueue[_Job], answer: Callable[[_Job], Event]) -> None:
    """A worker thread: whatever happens in a model, the next request is served."""
    lower_priority()
    while (job := queue.take()) is not None:
        if not (job.wanted and job.ear.open):
            continue
        try:
            event = answer(job)
        except RemoteError as error:
            log.warning("perception request %d of session %s failed: %s", job.request, job.session, error)
            event = _failure(job.request, error)
        except Exception as error:
            log.exception("perception request %d of session %s failed", job.request, job.session)
            event = _failure(job.request, error)
        job.samples = _NOTHING  # the ear may keep the job until its next request
        if job.wanted:
            job.wanted = False
            _tell(job.ear, event)


def _tell(ear: _Ear, event: Event) -> None:
    if not ear.open:
        return
    try:
        ear.emit(event)
    except Exception:
        # A session whose shell is gone; it will be closed, and the others need this thread.
        log.exception("session %s took no perception event", ear.session)


def _denoiser() -> Callable[[], Suppressor] | None:
    try:
        return DeepFilter(NOISE_LIMIT_DB).stream
    except DenoiserMissing as error:
        log.info("%s", error)
        return None


def _failure(request: int, error: Exception) -> PerceptionFailed:
    if isinstance(error, RemoteError):
        return PerceptionFailed(request, error.code, str(error))
    return PerceptionFailed(request, "perception_failed", f"{type(error).__name__}: {error}")


def _heap(inbox: deque[_Command], start: Ticks, pcm: bytes, rate: int) -> None:
    """Add a stretch, to the one before it where it follows; long ones are not copied again and again."""
    last = inbox[-1] if inbox else None
    if type(last) is _Feed and last.rate == rate:
        length = _ticks(last)
        if length < HEAP and last.start + length == start:
            last.pcm += pcm
            return
    inbox.append(_Feed(start, pcm, rate))


def _split(feed: _Feed, room: Ticks) -> tuple[_Feed, _Feed]:
    """The first `room` ticks of `feed`, and the rest."""
    size = room // ticks_per_sample(feed.rate) * 2
    return _Feed(feed.start, feed.pcm[:size], feed.rate), _Feed(feed.start + room, feed.pcm[size:], feed.rate)


def _oldest_feed(inbox: deque[_Command]) -> _Feed | None:
    return next((command for command in inbox if isinstance(command, _Feed)), None)


def _ticks(feed: _Feed) -> Ticks:
    return len(feed.pcm) // 2 * ticks_per_sample(feed.rate)


def _to_ticks(seconds: float) -> Ticks:
    return round(seconds * TICK_RATE)
