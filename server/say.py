"""`talkover say`: text to a WAV file, by the voice that sessions speak with."""

from __future__ import annotations

import json
import sys
import time
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sessions.core.timeline import TICK_RATE, Word

if TYPE_CHECKING:
    from models.families.embedded.talker import Spoken, Talker

LONGEST = 20_000
"""Characters; about twenty minutes of speech."""


class SayError(Exception):
    """What was asked for cannot be said; says why and what to do."""


@dataclass(frozen=True, slots=True)
class Said:
    """What was written: `seconds` of audio, its words, and the seconds that it took to make it."""

    file: Path
    rate: int
    seconds: float
    made_in: float
    words: tuple[Word, ...]

    def __str__(self) -> str:
        lines = [
            f"{word.start / TICK_RATE:8.3f} {word.end / TICK_RATE:8.3f}  {word.text.strip()}" for word in self.words
        ]
        times = self.seconds / max(self.made_in, 1e-6)
        lines.append(
            f"{self.file}: {self.seconds:.2f} s at {self.rate} Hz, made in {self.made_in:.3f} s "
            f"({times:.0f} times faster than it plays)"
        )
        return "\n".join(lines)

    def plain(self) -> dict[str, object]:
        words = [
            {"text": word.text.strip(), "start": _seconds(word.start), "end": _seconds(word.end)} for word in self.words
        ]
        return {
            "file": str(self.file),
            "text": "".join(word.text for word in self.words),
            "rate": self.rate,
            "seconds": round(self.seconds, 4),
            "made_in": round(self.made_in, 4),
            "words": words,
        }


def _seconds(ticks: int) -> float:
    return round(ticks / TICK_RATE, 4)


def say(*, text: Sequence[str], out: Path, voice: str, speed: float, as_json: bool) -> int:
    """Speak, write `out`, print what it became; returns the exit status."""
    try:
        words = read_text(text)
        # Imported here because a wrong command line is to be told in no time.
        from models.assets import AssetError, ensure
        from models.families.embedded.talker import TalkerError
    except SayError as error:
        print(f"talkover say: {error}", file=sys.stderr)
        return 2
    try:
        directory = ensure(["hibari"])["hibari"]
        from models.families.embedded.talker_hibari import HibariTalker

        said = speak_to_file(words, HibariTalker(directory), out, voice, speed)
    except TalkerError as error:
        print(f"talkover say: {error}", file=sys.stderr)
        return 2 if error.code in ("unknown_voice", "invalid_speed") else 1
    except ModuleNotFoundError as error:
        print(f"talkover say: {error.name} is not installed; run: pip install 'talkover[embedded]'", file=sys.stderr)
        return 1
    except (SayError, AssetError) as error:
        print(f"talkover say: {error}", file=sys.stderr)
        return 1
    print(json.dumps(said.plain(), ensure_ascii=False, indent=1) if as_json else said)
    return 0


def read_text(parts: Sequence[str]) -> str:
    """The text of the command line; a lone "-" stands for standard input. Raises SayError."""
    if list(parts) == ["-"]:
        try:
            text = sys.stdin.read(LONGEST + 1)
        except UnicodeDecodeError:
            raise SayError("standard input is not text in UTF-8") from None
    else:
        text = " ".join(parts)
    if not text.strip():
        raise SayError("there is nothing to say; give the text, or - to read it from standard input")
    if len(text) > LONGEST:
        raise SayError(f"the text has more than {LONGEST} characters; say it in pieces")
    return text


def speak_to_file(text: str, talker: Talker, out: Path, voice: str, speed: float) -> Said:
    """Speak `text` clause by clause, as a session would, into a mono 16-bit WAV file.

    Raises SayError, and TalkerError for a wrong voice or speed.
    """
    from models.families.script import speak_all

    began = time.perf_counter()
    pcm, words = speak_all(text, _Voiced(talker, voice, speed))
    made_in = time.perf_counter() - began
    if not pcm:
        raise SayError("nothing in the text can be pronounced; the voice speaks English")
    try:
        with out.open("wb") as file, wave.open(file, "wb") as wav:
            wav.setnchannels(1)
            wav.setsampwidth(2)
            wav.setframerate(talker.rate)
            wav.writeframes(pcm)
    except OSError as error:
        raise SayError(f"--out {out} cannot be written: {error.strerror}") from None
    return Said(out, talker.rate, len(pcm) / 2 / talker.rate, made_in, words)


class _Voiced:
    """A talker that always speaks with one voice at one speed."""

    def __init__(self, talker: Talker, voice: str, speed: float) -> None:
        self._talker = talker
        self._voice = voice
        self._speed = speed

    @property
    def voices(self) -> tuple[str, ...]:
        return self._talker.voices

    @property
    def rate(self) -> int:
        return self._talker.rate

    def speak(self, text: str, *, voice: str = "", speed: float = 1.0, first: bool = True) -> Spoken:
        return self._talker.speak(text, voice=self._voice, speed=self._speed, first=first)
