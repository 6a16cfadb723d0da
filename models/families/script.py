"""Scripts: the replies of an engine that thinks nothing, as TOML, and their audio, made once.

[[reply]]
text = "Hello, how can I help?"   # spoken by the talker, or
# wav = "hello.wav"               # a file beside the script, or
# tone_hz = 440                   # a sine, for `seconds`, or
# seconds = 3.0
# tool = { name = "get_weather", arguments = { city = "Paris" } }
delay_ms = 300                    # silence of the engine before the first audio
"""

from __future__ import annotations

import json
import tomllib
import wave
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soxr

from sessions.core.timeline import Word, ticks_per_sample

from .embedded.clauses import ClauseCutter
from .embedded.speakable import Speakable
from .embedded.talker import Talker, TalkerError

RATE = 24_000
"""Hz of all prepared audio."""

_KINDS = ("text", "wav", "tone_hz", "tool")
_FIELDS = {*_KINDS, "seconds", "delay_ms"}
_LONGEST_S = 600.0
_TONE_PEAK = 0.3
_FADE = RATE * 5 // 1000


class ScriptError(Exception):
    """A script that cannot be used: names the file, the reply (from 1; 0 for the file itself) and the field."""

    def __init__(self, path: Path, reply: int, field: str, problem: str) -> None:
        place = f"reply {reply}, {field}" if reply else field
        super().__init__(f"{path}: {place}: {problem}")
        self.path = path
        self.reply = reply
        self.field = field


@dataclass(frozen=True, slots=True)
class ScriptedTool:
    """`arguments` is JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply as written: exactly one of `text`, `wav` (a full path), `tone_hz` (for `seconds`) and `tool`."""

    delay_ms: int = 0
    text: str | None = None
    wav: Path | None = None
    tone_hz: float | None = None
    seconds: float = 0.0
    tool: ScriptedTool | None = None


@dataclass(frozen=True, slots=True)
class PreparedReply:
    """A reply with its audio: mono int16 LE at `RATE`, and the words in it, in ticks from its start."""

    delay_ms: int
    pcm: bytes
    words: tuple[Word, ...] = ()
    text: str = ""
    tool: ScriptedTool | None = None


@dataclass(frozen=True, slots=True)
class Script:
    path: Path
    replies: tuple[Reply, ...]

    @classmethod
    def load(cls, path: Path) -> Script:
        """Read and check a script. Raises ScriptError."""
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ScriptError(path, 0, "file", f"cannot be read as TOML ({error})") from error
        tables = document.get("reply")
        if not isinstance(tables, list) or not tables:
            raise ScriptError(path, 0, "reply", "has no [[reply]] table; write at least one")
        if extra := sorted(document.keys() - {"reply"}):
            raise ScriptError(path, 0, extra[0], "is unknown; only [[reply]] tables are read")
        return cls(path, tuple(_Table(path, number, table).reply() for number, table in enumerate(tables, 1)))

    def prepare(self, talker: Talker | None = None) -> tuple[PreparedReply, ...]:
        """The audio of every reply; `talker` is needed where a reply has `text`. Raises ScriptError."""
        return tuple(_prepare(self.path, number, reply, talker) for number, reply in enumerate(self.replies, 1))


class _Table:
    def __init__(self, path: Path, number: int, table: object) -> None:
        self._path = path
        self._number = number
        if not isinstance(table, Mapping):
            raise ScriptError(path, number, "reply", "must be a table; write [[reply]]")
        self._table: Mapping[str, object] = table

    def reply(self) -> Reply:
        if unknown := sorted(self._table.keys() - _FIELDS):
            raise self._error(unknown[0], f"is unknown; known are {', '.join(sorted(_FIELDS))}")
        given = [kind for kind in _KINDS if kind in self._table]
        if len(given) != 1:
            field = given[1] if given else "text"
            raise self._error(field, f"give exactly one of {', '.join(_KINDS)}, not {len(given)}")
        if "seconds" in self._table and given != ["tone_hz"]:
            raise self._error("seconds", "goes with tone_hz only")
        delay = self._number_in("delay_ms", 0, 600_000, 0)
        match given[0]:
            case "text":
                return Reply(int(delay), text=self._string("text"))
            case "wav":
                wav = self._path.parent / self._string("wav")
                if not wav.is_file():
                    raise self._error("wav", f"there is no file {wav}")
                return Reply(int(delay), wav=wav)
            case "tone_hz":
                tone = self._number_in("tone_hz", 20, 11_000, None)
                return Reply(int(delay), tone_hz=tone, seconds=self._number_in("seconds", 0.02, _LONGEST_S, None))
            case _:
                return Reply(int(delay), tool=self._tool())

    def _tool(self) -> ScriptedTool:
        tool = self._table["tool"]
        if not isinstance(tool, Mapping) or not isinstance(name := tool.get("name"), str) or not name:
            raise self._error("tool", 'must be a table with a name, as in { name = "f", arguments = {} }')
        if unknown := sorted(tool.keys() - {"name", "arguments"}):
            raise self._error(f"tool.{unknown[0]}", "is unknown; a tool has name and arguments")
        arguments = tool.get("arguments", {})
        try:
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            parsed = json.loads(text)
        except (TypeError, ValueError) as error:
            raise self._error("tool.arguments", f"is not JSON ({error})") from error
        if not isinstance(parsed, dict):
            raise self._error("tool.arguments", "must be a table, or the text of a JSON object")
        return ScriptedTool(name, text)

    def _string(self, field: str) -> str:
        value = self._table[field]
        if not isinstance(value, str) or not value.strip():
            raise self._error(field, f"must be a text that is not empty, not {value!r}")
        return value

    def _number_in(self, field: str, low: float, high: float, default: float | None) -> float:
        value = self._table.get(field, default)
        if value is None:
            raise self._error(field, f"is missing; give a number from {low} to {high}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self._error(field, f"must be a number from {low} to {high}, not {value!r}")
        return float(value)

    def _error(self, field: str, problem: str) -> ScriptError:
        return ScriptError(self._path, self._number, field, problem)


def _prepare(path: Path, number: int, reply: Reply, talker: Talker | None) -> PreparedReply:
    if reply.tool is not None:
        return PreparedReply(reply.delay_ms, b"", tool=reply.tool)
    if reply.tone_hz is not None:
        return PreparedReply(reply.delay_ms, tone(reply.tone_hz, reply.seconds))
    if reply.wav is not None:
        try:
            return PreparedReply(reply.delay_ms, read_wav(reply.wav))
        except (OSError, EOFError, ValueError, wave.Error) as error:
            raise ScriptError(path, number, "wav", f"{reply.wav} cannot be used ({error})") from error
    if talker is None:
        raise ScriptError(path, number, "text", "needs a talker, and this engine has none; use wav or tone_hz")
    if talker.rate != RATE:
        raise ScriptError(path, number, "text", f"needs a talker at {RATE} Hz, not {talker.rate}")
    try:
        pcm, words = speak_all(reply.text or "", talker)
    except TalkerError as error:
        raise ScriptError(path, number, "text", str(error)) from error
    if not pcm:
        raise ScriptError(path, number, "text", "has nothing in it that can be spoken")
    return PreparedReply(reply.delay_ms, pcm, words, "".join(word.text for word in words))


def speak_all(text: str, talker: Talker) -> tuple[bytes, tuple[Word, ...]]:
    """PCM at the talker's rate and words (ticks from the start) of a whole text, clause by clause as in a reply."""
    speakable, cutter = Speakable(), ClauseCutter()
    clauses = [cutter.feed(word) for word in [*speakable.feed(text), *speakable.finish()]]
    pcm = b""
    words: list[Word] = []
    for clause in [*clauses, cutter.finish()]:
        if clause:
            spoken = talker.speak(clause, first=not words)
            shift = len(pcm) // 2 * ticks_per_sample(talker.rate)
            words += [Word(word.text, shift + word.start, shift + word.end) for word in spoken.words]
            pcm += spoken.pcm
    return pcm, tuple(words)


def tone(hz: float, seconds: float) -> bytes:
    """A sine with short fades: mono int16 LE at `RATE`."""
    samples = round(seconds * RATE)
    wave_ = _TONE_PEAK * np.sin(2 * np.pi * hz * np.arange(samples) / RATE)
    fade = min(_FADE, samples // 2)
    ramp = np.linspace(0.0, 1.0, fade)
    wave_[:fade] *= ramp
    wave_[samples - fade :] *= ramp[::-1]
    return (wave_ * 32767).astype("<i2").tobytes()


def read_wav(path: Path) -> bytes:
    """A WAV file (16-bit PCM, any rate, channels averaged) as mono int16 LE at `RATE`.

    Raises OSError, EOFError, wave.Error, and ValueError for what is not usable.
    """
    with wave.open(str(path), "rb") as file:
        if file.getsampwidth() != 2:
            raise ValueError(f"it has {8 * file.getsampwidth()}-bit samples; convert it to 16-bit PCM")
        rate, channels = file.getframerate(), file.getnchannels()
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, channels)
    if not len(samples):
        raise ValueError("it is empty")
    if len(samples) > _LONGEST_S * rate:
        raise ValueError(f"it is longer than {_LONGEST_S:.0f} s")
    mono = samples.astype(np.float32).mean(axis=1)
    if rate != RATE:
        mono = soxr.resample(mono, rate, RATE)
    pcm: npt.NDArray[np.int16] = np.clip(np.rint(mono), -32768, 32767).astype("<i2")
    return pcm.tobytes()
