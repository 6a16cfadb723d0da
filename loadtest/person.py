"""One person on a line: speaks, listens, interrupts, agrees, and remembers when what happened."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from loadtest.voice import FRAME_S, Utterance, Voice

Kind = Literal["question", "command", "backchannel"]

BREAK = 0.3
"""Seconds without a piece after which the next one begins another stretch of the agent's speech."""
JITTER = 0.1
"""Seconds that a piece may be late while the agent still speaks."""
PATIENCE = 8.0
"""Seconds that a person waits for an answer before asking again."""


@dataclass(frozen=True, slots=True)
class Said:
    """Something that a person said: when its sound truly began and ended, on the loop's clock."""

    kind: Kind
    onset: float
    end: float


@dataclass(frozen=True, slots=True)
class Habits:
    """`over`: what is said while the agent speaks, if anything, each time `after` seconds into its speech. `pause`:
    seconds between the end of an answer and the next question."""

    over: Kind | None = None
    after: float = 0.9
    pause: float = 0.6


@dataclass(slots=True)
class Memory:
    """What one person saw. Times in seconds on the loop's clock."""

    said: list[Said] = field(default_factory=list)
    pieces: list[tuple[float, str | bytes]] = field(default_factory=list)
    cleared: list[float] = field(default_factory=list)
    failed: list[tuple[float, str]] = field(default_factory=list)
    unanswered: int = 0


class Person:
    """Has a microphone that is never off: asked for its next frame each 20 ms."""

    def __init__(self, habits: Habits, voice: Voice, clips: dict[Kind, Sequence[Utterance]], seed: int) -> None:
        """`clips`: what can be said, by kind; `seed` chooses among it, and when."""
        self.memory = Memory()
        self._habits = habits
        self._noise = voice.noise
        self._clips = clips
        self._chance = random.Random(seed)
        self._at = seed * 37 % len(self._noise)
        self._frames: Sequence[bytes] = ()
        self._next = 0
        self._speaks_at: float | None = None
        """When the next question is due; None while an answer is waited for or listened to."""
        self._waits_until = 0.0
        self._plays_until = 0.0
        """When what has come will have been heard."""
        self._sounds_since: float | None = None
        self._last = 0.0
        self._over_at: float | None = None

    def frame(self, now: float) -> bytes:
        """The 20 ms that end `now`."""
        if self._next < len(self._frames):
            self._next += 1
            return self._frames[self._next - 1]
        kind = self._wants_to_say(now)
        if kind is not None:
            self._say(kind, now)
            return self._frames[0]
        self._at = (self._at + 1) % len(self._noise)
        return self._noise[self._at]

    def _wants_to_say(self, now: float) -> Kind | None:
        if self._over_at is not None and now >= self._over_at and now < self._plays_until + JITTER:
            return self._habits.over
        if now < self._plays_until:
            return None
        if self._speaks_at is None and self._sounds_since is not None and now - self._plays_until > BREAK:
            # The answer was heard to its end.
            self._sounds_since = None
            self._over_at = None
            self._speaks_at = now + self._habits.pause * self._chance.uniform(0.5, 1.5)
        if self._speaks_at is None and self._sounds_since is None and now > self._waits_until:
            if self.memory.said:
                self.memory.unanswered += 1
                self._speaks_at = now
            else:
                self._speaks_at = now + self._chance.uniform(0.2, 2.0)
                self._waits_until = self._speaks_at
        return "question" if self._speaks_at is not None and now >= self._speaks_at else None

    def _say(self, kind: Kind, now: float) -> None:
        clip = self._chance.choice(self._clips[kind])
        began = now - FRAME_S
        said = Said(kind, began + clip.onset, began + clip.end)
        self.memory.said.append(said)
        self._frames, self._next = clip.frames, 1
        self._speaks_at = None
        if kind == "backchannel":
            self._over_at = said.end + self._again()
            return
        # What is heard from here on is the rest of before, until `piece` finds a break. Whoever is not listened to
        # says it again.
        self._sounds_since = None
        self._over_at = said.end + PATIENCE / 2 if kind == "command" else None
        self._waits_until = said.end + PATIENCE

    def _again(self) -> float:
        return self._habits.after * self._chance.uniform(0.8, 1.6)

    # --- the line's side ---------------------------------------------------------------------------------------------

    def piece(self, at: float, payload: str | bytes, seconds: float) -> None:
        """The agent speaks."""
        self.memory.pieces.append((at, payload))
        if at - self._last > BREAK and (not self.memory.said or at > self.memory.said[-1].end):
            self._sounds_since = at
            self._over_at = at + self._again() if self._habits.over is not None else None
        self._last = at
        self._plays_until = max(self._plays_until, at) + seconds

    def cleared(self, at: float) -> None:
        """What has come and was not heard yet never will be."""
        self.memory.cleared.append(at)
        self._plays_until = min(self._plays_until, at)

    def failed(self, at: float, reason: str) -> None:
        """The line has something to complain about."""
        self.memory.failed.append((at, reason))
