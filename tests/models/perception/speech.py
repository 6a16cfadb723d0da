"""Real speech and the prepared models, for the tests beside this file."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from models import assets

Samples = NDArray[np.float32]

_CLIPS = Path(__file__).parents[2] / "speech" / "librivox"


@functools.cache
def clips() -> dict[str, tuple[Samples, str]]:
    """Read sentences by name: float32 [N] at 16 kHz, and what is said."""
    found = {}
    for name, text in json.loads((_CLIPS / "transcripts.json").read_text()).items():
        samples, rate = soundfile.read(_CLIPS / name, dtype="float32")
        assert rate == 16_000
        found[name] = (samples, text)
    return found


@functools.cache
def model(name: str) -> Path:
    return assets.ensure([name])[name]


def plain(text: str) -> str:
    """Lower case, letters and single spaces only: what word error rates are counted on."""
    return " ".join(re.sub(r"[^a-z' ]", " ", text.lower()).split())


def silence(seconds: float) -> Samples:
    return np.zeros(round(seconds * 16_000), np.float32)


def hiss(seconds: float, level: float, seed: int = 1) -> Samples:
    return np.random.default_rng(seed).normal(0.0, level, round(seconds * 16_000)).astype(np.float32)
