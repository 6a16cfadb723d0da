"""Turn policy: perception in, decisions out. Pure; durations are measured on the input track.

Over a silent agent speech opens a turn; over a busy one it is first a *hold*, which ends as a *resume* (backchannel,
cough, noise) or as an *interrupt* (barge-in). A turn closes after silence; while it closes, its words are already
looked up, and if speech goes on they are thrown away.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from .backchannel import meaning_of
from .config import TurnConfig
from .loudness import SILENT, NoiseFloor
from .quick import quicken
from .timeline import Ticks, from_ms

Agent: TypeAlias = Literal["silent", "busy"]

HYSTERESIS = 0.15
MIN_SPEECH = from_ms(64)
"""Speech that opens a turn over a silent agent: two VAD windows, so that a click does not."""
ONSET_GAP = from_ms(96)
CLOSING = from_ms(64)
"""Silence after which a turn may be closing."""
ASSESS_AFTER = from_ms(160)
ASSESS_EVERY = from_ms(320)
SEMANTIC_SILENCE = from_ms(240)
SOUND_MAX = from_ms(224)
"""How long a sound may hold the agent before the detector calls it speech, from its beginning on. The agent is held one
window later, so the usual lead covers it: a sound that was nothing is not heard in the agent's voice."""
SOUND_GAP = from_ms(96)
"""Silence within such a sound that does not end it: the closure of a plosive, as in "skip"."""
LOOK_AFTER = from_ms(224)
"""Speech over the agent after which its words are looked at for the first time."""
LOOK_MIN = from_ms(96)
ECHO_SURE = from_ms(64)
"""The agent's own voice for this long, and nothing else since, ends the hold that its first windows began."""
SIGNAL_MAX = from_ms(1600)
"""Even what sounds like a backchannel, or a voice without words, takes the floor when it goes on for this long."""
DOUBTED_MAX = from_ms(1000)
"""The same for what sounded like a backchannel at first and is unclear now: recognizers stumble over what follows."""
UNDECIDED_MAX = from_ms(640)
"""Silence after which a hold without words is decided by its duration."""
UNDECIDED_SPEECH = from_ms(400)
TURN_MAX = from_ms(120_000)


@dataclass(frozen=True, slots=True)
class Began:
    """A turn opened at `at` over a silent agent."""

    at: Ticks


@dataclass(frozen=True, slots=True)
class Hold:
    at: Ticks


@dataclass(frozen=True, slots=True)
class Resume:
    words: str


@dataclass(frozen=True, slots=True)
class Interrupt:
    """The user takes the floor; speech began at `at`. A turn is open from here on."""

    at: Ticks


@dataclass(frozen=True, slots=True)
class Look:
    """Words of [start, end) are wanted, to decide a hold."""

    start: Ticks
    end: Ticks


@dataclass(frozen=True, slots=True)
class Closing:
    """Speech stopped at `speech_end`; the turn may be over."""

    start: Ticks
    speech_end: Ticks


@dataclass(frozen=True, slots=True)
class Assess:
    start: Ticks
    at: Ticks


@dataclass(frozen=True, slots=True)
class Reopened:
    """Speech goes on; forget what was looked up while the turn was closing."""


@dataclass(frozen=True, slots=True)
class Ended:
    start: Ticks
    speech_end: Ticks
    decided_at: Ticks
    by: str


Decision: TypeAlias = Began | Hold | Resume | Interrupt | Look | Closing | Assess | Reopened | Ended

quicken(get_args(Decision))


def _written_completeness(words: str) -> float:
    """How complete a transcript looks, 0..1: a question mark is set for a reason, a full stop often out of habit."""
    text = words.rstrip().rstrip("\"'\u201d")
    if text.endswith(("...", "\u2026", ",", "-")):
        return 0.0
    if text.endswith("?"):
        return 1.0
    return 0.5 if text.endswith((".", "!")) else 0.0


@dataclass(slots=True)
class TurnPolicy:
    """State of the turn taking of one session.

    phase: idle; onset (too short to be speech yet); over (hold, undecided); speech; closing.
    """

    transcripts: bool = True
    phase: Literal["idle", "onset", "over", "speech", "closing"] = "idle"
    start: Ticks = 0
    voiced_until: Ticks = 0
    position: Ticks = 0
    looked_until: Ticks = 0
    looking: bool = False
    words: str = ""
    signal: bool = False
    """The sound over the agent seems to be a backchannel, or no words at all."""
    signalled: bool = False
    """A shorter look at it heard a backchannel; a longer one that is unclear is doubted."""
    suspected: bool = False
    """Its words seemed to ask for the floor, but may have been half heard."""
    end_probability: float | None = None
    assessed_at: Ticks = 0
    voiced: Ticks = 0
    """Speech in the utterance so far, without its gaps."""
    echoed: Ticks = 0
    """How much of the sound over the agent was its own voice, since anything in it was not."""
    loudest: float = 0.0
    """Level of the sound that the agent is held for, in dBFS, while no speech was found in it."""
    hissed: float = 0.0
    """The same of its hiss."""
    loud_until: Ticks = 0
    """Where it stood out for the last time."""
    floor: NoiseFloor = field(default_factory=NoiseFloor)

    @property
    def open(self) -> bool:
        """Whether the user has the floor."""
        return self.phase in ("speech", "closing")

    def reset(self) -> None:
        """Forget the utterance in progress."""
        self.phase = "idle"
        self._forget()

    def _forget(self) -> None:
        self.looking = False
        self.looked_until = 0
        self.words = ""
        self.signal = False
        self.signalled = False
        self.suspected = False
        self.end_probability = None
        self.assessed_at = 0
        self.voiced = 0
        self.echoed = 0

    def window(
        self,
        start: Ticks,
        end: Ticks,
        probability: float,
        agent: Agent,
        config: TurnConfig,
        level: float = SILENT,
        echo: bool = False,
        hiss: float = SILENT,
    ) -> list[Decision]:
        """One VAD window [start, end) of the input track; `level` is its RMS in dBFS, `hiss` that of its hiss.

        `echo`: it is the agent's own voice coming back. That opens nothing and, while the agent is held for it, decides
        that it was nothing. Of who has the floor already it means nothing: the agent is silent then.
        """
        self.position = end
        continuing = self.phase in ("onset", "over", "speech")
        voiced = probability >= (config.threshold - HYSTERESIS if continuing else config.threshold)
        loud = self.floor.stands_out(level, hiss, end)
        if echo and self.phase in ("idle", "onset", "over"):
            if self.phase == "idle":
                return []
            voiced = loud = False
            self.echoed += end - start
            if self.phase == "over" and self.echoed >= ECHO_SURE:
                return self._resume()
        elif voiced:
            self.echoed = 0
        if voiced:
            self.voiced += end - start
        elif self.phase == "idle":
            self.floor.follow(level, hiss)
        match self.phase:
            case "idle":
                if loud and not voiced and agent == "busy":
                    return self._sound(start, end, level, hiss)
                return self._idle(start, end, voiced, agent)
            case "onset":
                return self._onset(end, voiced, agent)
            case "over":
                if self.voiced == 0:
                    return self._unvoiced(end, loud, level, hiss, config)
                return self._over(end, voiced, agent, config)
            case "speech":
                return self._speech(end, voiced)
            case "closing":
                return self._closing(end, voiced, config)

    # --- before anyone has the floor -------------------------------------------------------------------------------

    def _idle(self, start: Ticks, end: Ticks, voiced: bool, agent: Agent) -> list[Decision]:
        if not voiced:
            return []
        self._begin(start, end)
        self.voiced = end - start
        if agent == "busy":
            self.phase = "over"
            return [Hold(start)]
        self.phase = "onset"
        return self._promote(end)

    def _begin(self, start: Ticks, voiced_until: Ticks) -> None:
        self._forget()
        self.start = start
        self.voiced_until = voiced_until

    def _onset(self, end: Ticks, voiced: bool, agent: Agent) -> list[Decision]:
        if not voiced:
            if end - self.voiced_until >= ONSET_GAP:
                self.phase = "idle"
            return []
        self.voiced_until = end
        if agent == "busy":
            self.phase = "over"
            return [Hold(self.start)]
        return self._promote(end)

    def _promote(self, end: Ticks) -> list[Decision]:
        if end - self.start < MIN_SPEECH:
            return []
        self.phase = "speech"
        return [Began(self.start)]

    # --- over the agent --------------------------------------------------------------------------------------------

    def _sound(self, start: Ticks, end: Ticks, level: float, hiss: float) -> list[Decision]:
        """Something that stands out and is not speech yet: hold, and see what becomes of it."""
        self._begin(start, start)
        self.loudest, self.hissed = level, hiss
        self.loud_until = end
        self.phase = "over"
        return [Hold(start)]

    def _unvoiced(self, end: Ticks, loud: bool, level: float, hiss: float, config: TurnConfig) -> list[Decision]:
        """Still no speech in the sound that the agent is held for."""
        self.loudest, self.hissed = max(self.loudest, level), max(self.hissed, hiss)
        if loud:
            self.loud_until = end
        lasts = end - self.start < SOUND_MAX and end - self.loud_until < SOUND_GAP
        if lasts or end - self.start < from_ms(config.resume_ms):
            return []
        self.floor.accept(self.loudest, self.hissed, end)
        return self._resume()

    def _over(self, end: Ticks, voiced: bool, agent: Agent, config: TurnConfig) -> list[Decision]:
        if voiced:
            self.voiced_until = end
            if agent == "silent":
                return self._agent_fell_silent()
            if end - self.start >= self._limit(config) and self.voiced >= MIN_SPEECH:
                return self._interrupt()
            return self._look(end) if self._wants_look(config) and end - self.start >= LOOK_AFTER else []
        silence = end - self.voiced_until
        if agent == "silent":
            return self._resume() if silence >= from_ms(config.resume_ms) else []
        if not self._wants_look(config):
            return (
                self._resume()
                if not self.looking and silence >= from_ms(config.resume_ms)
                else self._undecided(silence)
            )
        return self._look(end) if silence >= from_ms(32) else []

    def _limit(self, config: TurnConfig) -> Ticks:
        if config.kind == "server_vad":
            return from_ms(config.commit_ms)
        limit = from_ms(config.semantic_commit_ms)
        if self.signal:
            return max(limit, SIGNAL_MAX)
        return max(limit, DOUBTED_MAX) if self.signalled else limit

    def _wants_look(self, config: TurnConfig) -> bool:
        """Whether words not yet looked at could decide."""
        return (
            config.kind == "semantic_vad"
            and self.transcripts
            and not self.looking
            and self.looked_until < self.voiced_until
            and self.voiced_until - self.start >= LOOK_MIN
        )

    def _look(self, end: Ticks) -> list[Decision]:
        self.looking = True
        self.looked_until = end
        return [Look(self.start, end)]

    def _undecided(self, silence: Ticks) -> list[Decision]:
        if silence < UNDECIDED_MAX:
            return []
        return self._decide_by_duration()

    def _decide_by_duration(self) -> list[Decision]:
        long_enough = self.voiced_until - self.start >= UNDECIDED_SPEECH and not self.signal
        return self._interrupt() if long_enough else self._resume()

    def _interrupt(self) -> list[Decision]:
        self.phase = "speech"
        return [Interrupt(self.start)]

    def _resume(self) -> list[Decision]:
        words = self.words
        self.reset()
        return [Resume(words)]

    def _agent_fell_silent(self) -> list[Decision]:
        """The reply ran out under the hold: what is being said is a turn of its own."""
        self.phase = "speech"
        return [Resume(self.words), Began(self.start)]

    def looked(self, end: Ticks, text: str, config: TurnConfig) -> list[Decision]:
        """The words of [start, `end`) of the sound over the agent, answering a `Look`; "" where none were found."""
        if self.phase != "over" or not self.looking:
            return []
        self.looking = False
        self.words = text
        whole = end >= self.voiced_until and self.position > self.voiced_until
        meaning = meaning_of(text, whole)
        self.signal = meaning in ("backchannel", "nothing")
        self.signalled = self.signalled or meaning == "backchannel"
        if meaning == "command" or (meaning == "interruption" and (whole or self.suspected)):
            return self._interrupt()
        self.suspected = meaning == "interruption"
        if end >= self.voiced_until and self.position - self.voiced_until >= from_ms(config.resume_ms):
            return self._resume()
        return []

    # --- the user's turn -------------------------------------------------------------------------------------------

    def _speech(self, end: Ticks, voiced: bool) -> list[Decision]:
        if voiced:
            self.voiced_until = end
            return self._end(end, "length") if end - self.start >= TURN_MAX else []
        if end - self.voiced_until < CLOSING:
            return []
        self.phase = "closing"
        self.words = ""
        self.end_probability = None
        self.assessed_at = 0
        return [Closing(self.start, self.voiced_until)]

    def _closing(self, end: Ticks, voiced: bool, config: TurnConfig) -> list[Decision]:
        if voiced:
            self.phase = "speech"
            self.voiced_until = end
            return [Reopened()]
        silence = end - self.voiced_until
        if config.kind == "server_vad":
            return self._end(end, "silence") if silence >= from_ms(config.silence_ms) else []
        if silence >= self._required_silence(config):
            return self._end(end, "end_of_turn" if self.end_probability is not None else "silence")
        due = self.assessed_at + ASSESS_EVERY if self.assessed_at else self.voiced_until + ASSESS_AFTER
        if end >= due:
            self.assessed_at = end
            return [Assess(self.start, end)]
        return []

    def _required_silence(self, config: TurnConfig) -> Ticks:
        """Silence that ends the turn: short when it sounds complete, longer the less it does."""
        longest = from_ms(config.max_silence_ms)
        if self.end_probability is None:
            return longest
        completeness = max(self.end_probability / config.end_of_turn_threshold, _written_completeness(self.words))
        doubt = max(0.0, 1.0 - completeness)
        return SEMANTIC_SILENCE + round((longest - SEMANTIC_SILENCE) * doubt * doubt)

    def worded(self, text: str, config: TurnConfig) -> list[Decision]:
        """The words of a turn that is closing. How they end is evidence of its own: voices differ more than grammar."""
        if self.phase != "closing":
            return []
        self.words = text
        return self._end_if_complete(config)

    def assessed(self, at: Ticks, probability: float, config: TurnConfig) -> list[Decision]:
        """How complete the turn sounds at `at`, answering an `Assess`."""
        if self.phase != "closing" or at <= self.voiced_until:
            return []
        self.end_probability = probability
        return self._end_if_complete(config)

    def _end_if_complete(self, config: TurnConfig) -> list[Decision]:
        if config.kind == "semantic_vad" and self.position - self.voiced_until >= self._required_silence(config):
            return self._end(self.position, "end_of_turn")
        return []

    def _end(self, at: Ticks, by: str) -> list[Decision]:
        start, speech_end = self.start, self.voiced_until
        self.reset()
        return [Ended(start, speech_end, at, by)]

    # --- when the input itself stops -------------------------------------------------------------------------------

    def stalled(self) -> list[Decision]:
        """No input for too long in the middle of an utterance: decide with what there is."""
        if self.phase == "over":
            return self._decide_by_duration()
        if self.open:
            return self._end(self.position, "stalled")
        self.phase = "idle"
        return []
