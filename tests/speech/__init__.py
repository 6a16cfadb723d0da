"""Labelled speech: questions, backchannels and commands, each clip with the true first and last sample of its sound.

`python -m tests.speech.make` made the files; `manifest.jsonl` in each folder says what is in them.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import soundfile
from numpy.typing import NDArray

SetName = Literal["questions", "backchannels", "commands"]
Split = Literal["tune", "test"]
Kind = Literal["question", "backchannel", "noise", "command"]

RATE = 16_000
"""Hz of every clip."""

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Clip:
    """One clip of a labelled set.

    `pcm` is int16 mono at 16 kHz, shape [samples]. `onset` and `end` are the half-open stretch of sound within it, in
    samples, to 5 ms; outside it the clip is digital silence. `kind` is "noise" for a sound that is not speech (cough,
    knock …), whose `text` then names the sound. `heard` is what Whisper base made of the clip when it was made.
    """

    name: str
    text: str
    pcm: NDArray[np.int16] = field(repr=False)
    onset: int
    end: int
    kind: Kind
    voice: str
    heard: str

    @property
    def seconds(self) -> float:
        """Length of the sound itself."""
        return (self.end - self.onset) / RATE


def folder(name: SetName) -> Path:
    """Where the files and the manifest of a set lie."""
    return _HERE / name


@functools.cache
def load(name: SetName, split: Split) -> tuple[Clip, ...]:
    """The clips of one split of a set, in the order of the manifest.

    Raises ValueError for an unknown set or split, and for a file that is not what its manifest line says.
    """
    if name not in ("questions", "backchannels", "commands"):
        raise ValueError(f"no set {name!r}; there are questions, backchannels and commands")
    if split not in ("tune", "test"):
        raise ValueError(f"no split {split!r}; there are tune and test")
    clips = []
    for line in (folder(name) / "manifest.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["split"] != split:
            continue
        pcm, rate = soundfile.read(folder(name) / entry["file"], dtype="int16")
        if rate != RATE or pcm.ndim != 1 or len(pcm) != entry["samples"]:
            raise ValueError(f"{entry['file']}: expected {entry['samples']} mono samples at {RATE} Hz; make it again")
        clips.append(
            Clip(
                name=Path(entry["file"]).stem,
                text=entry["text"],
                pcm=pcm,
                onset=entry["onset"],
                end=entry["end"],
                kind=entry["kind"],
                voice=entry["voice"],
                heard=entry["heard"],
            )
        )
    return tuple(clips)
