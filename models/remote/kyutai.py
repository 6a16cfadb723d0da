"""The messages of Kyutai's STT and TTS servers (`moshi-server`): MessagePack maps over a WebSocket.

Source: the delayed-streams-modeling repository's server scripts. To STT (`/api/asr-streaming`): Audio{pcm}, Marker{id};
from it: Ready, Step, Word{text, start_time}, EndWord{stop_time}, Marker{id}, Error{message}. To TTS
(`/api/tts_streaming?format=PcmMessagePack`): Text{text}, Eos; from it: Ready, Audio{pcm}, Text{text, start_s, stop_s},
Error{message}. `pcm`: float32 in -1..1, mono, 24 kHz. The key goes in the header `kyutai-api-key`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import quote

import msgpack  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray

from .errors import RemoteError, shown

RATE = 24_000
FRAME = 1920
"""Samples that the models take at once: 80 ms."""
LONGEST_MESSAGE = 4 << 20
"""Bytes of one message; a second of audio takes 120 kB."""
DEFAULT_KEY = "public_token"
"""The key of a server that was not given another one."""

Samples: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Ready:
    pass


@dataclass(frozen=True, slots=True)
class Audio:
    """float32 [N] in -1..1 at `RATE`."""

    pcm: Samples


@dataclass(frozen=True, slots=True)
class Word:
    """A word with seconds: heard from `start` on (`end` is NaN until `EndWord`), or spoken from `start` to `end`."""

    text: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class EndWord:
    """The word before ended at `end` seconds."""

    end: float


@dataclass(frozen=True, slots=True)
class Marker:
    """All that was sent before the marker `id` has been heard."""

    id: int


@dataclass(frozen=True, slots=True)
class Failed:
    message: str


@dataclass(frozen=True, slots=True)
class Other:
    type: str


Message: TypeAlias = Ready | Audio | Word | EndWord | Marker | Failed | Other


def headers(key: str) -> dict[str, str]:
    """What shows `key`."""
    return {"kyutai-api-key": key or DEFAULT_KEY}


def stt_address(url: str) -> str:
    """Where the recognizer of the server at `url` is."""
    return url if url.rstrip("/").endswith("/asr-streaming") else f"{url.rstrip('/')}/api/asr-streaming"


def tts_address(url: str, voice: str) -> str:
    """Where the voice of the server at `url` is; an empty `voice` is the server's own choice."""
    place = url if url.rstrip("/").endswith("/tts_streaming") else f"{url.rstrip('/')}/api/tts_streaming"
    return f"{place}?format=PcmMessagePack" + (f"&voice={quote(voice)}" if voice else "")


def audio(pcm: Samples) -> bytes:
    """Audio{pcm}, in single precision."""
    return _pack({"type": "Audio", "pcm": pcm.tolist()})


def marker(number: int) -> bytes:
    return _pack({"type": "Marker", "id": number})


def text(word: str) -> bytes:
    return _pack({"type": "Text", "text": word})


def eos() -> bytes:
    """No more text comes."""
    return _pack({"type": "Eos"})


def _pack(message: dict[str, object]) -> bytes:
    packed: bytes = msgpack.packb(message, use_single_float=True)
    return packed


def read(setting: str, message: str | bytes) -> Message:
    """One message of a server, whose address the option `setting` named. Raises RemoteError."""
    if isinstance(message, str):
        raise _nonsense(setting, "text came where MessagePack is spoken")
    try:
        given: object = msgpack.unpackb(message)
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise _nonsense(setting, f"a message is not MessagePack ({type(error).__name__})") from None
    if not isinstance(given, dict):
        raise _nonsense(setting, "a message is no map")
    kind = given.get("type")
    match kind:
        case "Ready":
            return Ready()
        case "Audio":
            return Audio(_pcm(setting, given.get("pcm")))
        case "Word":
            return Word(_string(setting, given, "text"), _seconds(setting, given, "start_time"), math.nan)
        case "Text":
            return Word(
                _string(setting, given, "text"),
                _seconds(setting, given, "start_s"),
                _seconds(setting, given, "stop_s"),
            )
        case "EndWord":
            return EndWord(_seconds(setting, given, "stop_time"))
        case "Marker":
            number = given.get("id")
            if not isinstance(number, int):
                raise _nonsense(setting, "a Marker has no id")
            return Marker(number)
        case "Error":
            return Failed(shown(str(given.get("message", "no reason given"))))
        case str():
            return Other(kind)
    raise _nonsense(setting, "a message has no type")


def _pcm(setting: str, given: object) -> Samples:
    if not isinstance(given, list) or not all(isinstance(value, float | int) for value in given):
        raise _nonsense(setting, "the pcm of an Audio is no list of numbers")
    pcm = np.array(given, dtype=np.float32)
    if not np.isfinite(pcm).all():
        raise _nonsense(setting, "an Audio holds samples that are no numbers")
    return pcm


def _string(setting: str, given: dict[object, object], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str):
        raise _nonsense(setting, f"{name} is no text")
    return value


def _seconds(setting: str, given: dict[object, object], name: str) -> float:
    value = given.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _nonsense(setting, f"{name} is no time in seconds")
    return float(value)


def _nonsense(setting: str, what: str) -> RemoteError:
    return RemoteError("remote_bad_response", f"{setting}: {what}; is it one of Kyutai's servers?")
