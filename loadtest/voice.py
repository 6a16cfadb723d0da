"""What the people of a load say, encoded once for all of them: recorded speech and the noise of a room."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import soxr

from codec import g711
from codec.opus import OpusEncoder
from codec.pcm import Samples, to_bytes
from tests.speech import RATE, Clip, SetName, load

FRAME_S = 0.02
"""Seconds of one frame."""
NOISE_S = 10

Coding = Literal["ulaw", "opus"]


@dataclass(frozen=True, slots=True)
class Utterance:
    """A recorded clip as frames of 20 ms. `onset` and `end`: of the sound in it, in seconds from its first sample."""

    text: str
    frames: tuple[bytes, ...]
    onset: float
    end: float


def _ulaw(pcm: Samples) -> list[bytes]:
    """Frames of µ-law at 8 kHz as base64 text, of int16 at 16 kHz."""
    codes = g711.compress(np.asarray(soxr.resample(pcm, RATE, 8000, quality="HQ"), np.int16), "ulaw")
    size = round(8000 * FRAME_S)
    return [base64.b64encode(codes[at : at + size]) for at in range(0, len(codes) - size + 1, size)]


def _opus(pcm: Samples) -> list[bytes]:
    """Packets as a browser's encoder makes them, of int16 at 16 kHz."""
    encoder = OpusEncoder(RATE, application="voip", bitrate=32_000)
    data, size = to_bytes(pcm), 2 * round(RATE * FRAME_S)
    return [encoder.encode(data[at : at + size]) for at in range(0, len(data) - size + 1, size)]


_CODERS: dict[Coding, Callable[[Samples], list[bytes]]] = {"ulaw": _ulaw, "opus": _opus}


class Voice:
    """Utterances and room noise in one coding."""

    def __init__(self, coding: Coding, dbfs: float = -60.0) -> None:
        """`dbfs`: level of the room's noise, which is under the speech too."""
        self.coding = coding
        self._code = _CODERS[coding]
        rng = np.random.default_rng(7)
        self._room = np.clip(np.round(rng.normal(size=NOISE_S * RATE) * 32768 * 10 ** (dbfs / 20)), -32768, 32767)
        self.noise: Sequence[bytes] = self._code(self._room.astype(np.int16))

    def utterances(self, name: SetName, longest: float = 10.0) -> list[Utterance]:
        """Those of the test split of a set that are speech and last at most `longest` seconds."""
        clips = [clip for clip in load(name, "test") if clip.kind != "noise" and clip.seconds <= longest]
        return [self._utterance(clip) for clip in clips]

    def _utterance(self, clip: Clip) -> Utterance:
        size = round(RATE * FRAME_S)
        pcm = np.zeros(-(-len(clip.pcm) // size) * size)
        pcm[: len(clip.pcm)] = clip.pcm
        mixed = np.clip(pcm + self._room[: len(pcm)], -32768, 32767).astype(np.int16)
        return Utterance(clip.text, tuple(self._code(mixed)), clip.onset / RATE, clip.end / RATE)
