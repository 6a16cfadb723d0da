"""What the engines ask of a talker: a clause of text in, PCM with word times out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sessions.core.timeline import Word


@dataclass(frozen=True, slots=True)
class Spoken:
    """A clause as it sounds. `pcm`: mono int16 LE at the talker's rate.

    `words` have ticks relative to the start of `pcm`; their joined texts are the clause, whose first word carries a
    leading space unless it begins the response.
    """

    pcm: bytes
    words: tuple[Word, ...]


class TalkerError(Exception):
    """The talker could not speak. `code` is for programs, the message for people, with a remedy."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Talker(Protocol):
    """Speaks on the calling thread."""

    @property
    def voices(self) -> tuple[str, ...]:
        """Names that `speak` takes."""

    @property
    def rate(self) -> int:
        """Hz of its PCM; divides 48 kHz."""

    def speak(self, text: str, *, voice: str = "default", speed: float = 1.0, first: bool = True) -> Spoken:
        """Synthesize one clause. `first`: nothing was said before it in this response. Raises TalkerError.

        Text with nothing to pronounce gives empty PCM and no words.
        """
