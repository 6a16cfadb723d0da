"""Training audio: waves with a pitch per hop, kept in NPZ files, drawn in short stretches.

A file holds one source: `wave` int16 [n] at 24 kHz, `pitch` float32 [n / HOP] in Hz, running on through unvoiced
stretches, and `voiced` bool [n / HOP].

    python -m codec.rvq.data FOLDER OUT.npz      # every WAV or FLAC below FOLDER, any rate, pitch by Praat

needs `praat-parselmouth` (GPL-3.0, installed apart; the product does not use it).
"""

from __future__ import annotations

import argparse
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile
import soxr
import torch
from numpy.typing import NDArray
from torch import Tensor

from .model import DELAY, DELAY_HOPS
from .synthesis import FRAME, HOP, HOPS, SAMPLE_RATE

Samples = NDArray[np.float32]
"""Mono audio in -1..1 at SAMPLE_RATE, float32 [n]."""
Pitch = NDArray[np.float32]
"""Hz per hop, 0 where nothing is voiced, float32 [n / HOP]."""

PITCH_RANGE = (65.0, 480.0)
"""Hz that are looked for."""
_UNVOICED_PITCH = 120.0
"""Hz for a stretch in which nothing at all is voiced."""
_GAIN = 8.0
"""dB by which a stretch is made louder or softer, at most."""
_PEAK = 0.98


class DataError(ValueError):
    """Training audio is missing or malformed. The message names the file and the remedy."""


class Clip(NamedTuple):
    """One utterance: `wave` [n] and the pitch of its hops, Hz or 0."""

    wave: Samples
    pitch: Pitch


class Batch(NamedTuple):
    """What a training step sees, float32.

    `samples` [batch, FRAME * frames] go into the encoder. What the decoder should give for them lies DELAY earlier:
    `target` [batch, FRAME * frames], with `pitch` and `voiced` [batch, HOPS * frames + 1] of its hops and the next.
    """

    samples: Tensor
    target: Tensor
    pitch: Tensor
    voiced: Tensor


@dataclass(frozen=True, slots=True)
class Source:
    """The audio of one file, as described above."""

    wave: NDArray[np.int16]
    pitch: NDArray[np.float32]
    voiced: NDArray[np.bool_]

    @property
    def minutes(self) -> float:
        return len(self.wave) / SAMPLE_RATE / 60


class TrainingSet:
    """Sources and how often each is drawn from. The same seed draws the same stretches."""

    def __init__(self, sources: Mapping[str, Source], shares: Mapping[str, float], seed: int) -> None:
        """`shares` by source name, any scale; a source without one is drawn by its length in minutes.

        Raises DataError for a share without a source, or one that is not positive.
        """
        for name, share in shares.items():
            if name not in sources:
                raise DataError(f"shares: there is no source {name!r}; there are {', '.join(sorted(sources))}")
            if not share > 0:
                raise DataError(f"shares: {name} has {share}; give a positive number or remove its file")
        self._sources = dict(sources)
        weights = np.array([shares.get(name, source.minutes) for name, source in self._sources.items()])
        self._weights = weights / weights.sum()
        self._chance = np.random.default_rng(seed)

    @classmethod
    def load(cls, folder: Path, shares: Mapping[str, float], seed: int) -> TrainingSet:
        """Every `*.npz` in `folder`, named by its file. Raises DataError."""
        sources = {path.stem: read_source(path) for path in sorted(folder.glob("*.npz"))}
        if not sources:
            raise DataError(f"{folder} has no .npz file; make some with `python -m codec.rvq.data`")
        return cls(sources, shares, seed)

    @property
    def minutes(self) -> dict[str, float]:
        """Length of each source."""
        return {name: source.minutes for name, source in self._sources.items()}

    def draw(self, size: int, frames: int) -> Batch:
        """`size` random stretches of `frames` codec frames."""
        names = list(self._sources)
        drawn = self._chance.choice(len(names), size, p=self._weights)
        items = [self._stretch(self._sources[names[index]], frames) for index in drawn]
        return Batch(*(torch.from_numpy(np.stack(part)) for part in zip(*items, strict=True)))

    def position(self) -> dict[str, object]:
        """Where the random draws are, in plain values; `resume_at` goes on from there."""
        return dict(self._chance.bit_generator.state)

    def resume_at(self, position: Mapping[str, object]) -> None:
        """Go on where `position` was taken."""
        self._chance.bit_generator.state = position

    def _stretch(self, source: Source, frames: int) -> tuple[Samples, Samples, Samples, Samples]:
        hops = HOPS * frames
        first = int(self._chance.integers(0, len(source.pitch) - hops - DELAY_HOPS))
        wave: Samples = source.wave[first * HOP : (first + hops + DELAY_HOPS) * HOP].astype(np.float32)
        gain = 10 ** (self._chance.uniform(-_GAIN, _GAIN) / 20)
        wave *= np.float32(min(gain / 32768, _PEAK / (np.abs(wave).max() + 0.03)))
        pitch = source.pitch[first : first + hops + 1]
        voiced: Samples = source.voiced[first : first + hops + 1].astype(np.float32)
        return wave[DELAY:], wave[: FRAME * frames], pitch, voiced


def read_source(path: Path) -> Source:
    """The source in an NPZ file. Raises DataError where it is not one."""
    try:
        with np.load(path) as arrays:
            source = Source(arrays["wave"], arrays["pitch"], arrays["voiced"])
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: {error}; make it again with `python -m codec.rvq.data`") from error
    kinds = [array.dtype.name for array in (source.wave, source.pitch, source.voiced)]
    if kinds != ["int16", "float32", "bool"]:
        raise DataError(f"{path}: wave, pitch and voiced are {kinds}, not int16, float32 and bool; make it again")
    if len(source.wave) != HOP * len(source.pitch) or len(source.pitch) != len(source.voiced):
        raise DataError(f"{path}: the pitch does not have one value for every {HOP} samples; make it again")
    if len(source.wave) < 10 * SAMPLE_RATE:
        raise DataError(f"{path}: {source.minutes * 60:.1f} s are too short to draw from; give at least 10 s")
    return source


def write_source(path: Path, clips: Iterable[Clip]) -> Source:
    """Join clips, each filled up to whole frames, into one NPZ file. Raises DataError where there is no clip."""
    waves, pitches, voicings = [], [], []
    for clip in clips:
        wave = np.pad(clip.wave, (0, -len(clip.wave) % FRAME))
        pitch, voiced = continuous(np.pad(clip.pitch, (0, len(wave) // HOP - len(clip.pitch))))
        waves.append(np.rint(np.clip(wave, -1.0, 1.0) * 32767).astype(np.int16))
        pitches.append(pitch)
        voicings.append(voiced)
    if not waves:
        raise DataError(f"{path}: there is no audio to write")
    source = Source(np.concatenate(waves), np.concatenate(pitches), np.concatenate(voicings))
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, wave=source.wave, pitch=source.pitch, voiced=source.voiced)
    return source


def praat_pitch(wave: Samples) -> Pitch:
    """Pitch at the middle of each hop by Praat's autocorrelation method (Boersma, 1993), float32 [n // HOP], 0 where
    unvoiced. Raises DataError where praat-parselmouth is not installed."""
    try:
        import parselmouth  # optional: only who makes training audio needs it
    except ImportError as error:
        raise DataError("pitch: run `pip install praat-parselmouth` first") from error
    hops = len(wave) // HOP
    if len(wave) < SAMPLE_RATE // 10:
        return np.zeros(hops, np.float32)  # shorter than what Praat looks at
    sound = parselmouth.Sound(wave.astype(np.float64), SAMPLE_RATE)
    track = sound.to_pitch_ac(time_step=0.005, pitch_floor=PITCH_RANGE[0], pitch_ceiling=PITCH_RANGE[1])
    middles = (np.arange(hops) + 0.5) * HOP / SAMPLE_RATE
    values = track.selected_array["frequency"]
    nearest = np.clip(np.rint((middles - track.xs()[0]) / 0.005).astype(int), 0, len(values) - 1)
    pitch: Pitch = values[nearest].astype(np.float32)
    return pitch


def continuous(pitch: Pitch) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Pitch without gaps, drawn straight in octaves between voiced hops, and which hops are voiced."""
    voiced = pitch > 0
    if not voiced.any():
        return np.full(len(pitch), _UNVOICED_PITCH, np.float32), voiced
    at = np.flatnonzero(voiced)
    filled = np.exp2(np.interp(np.arange(len(pitch)), at, np.log2(pitch[at])))
    return filled.astype(np.float32), voiced


def read_wave(path: Path) -> Samples:
    """A sound file as mono float32 at SAMPLE_RATE. Raises DataError where it cannot be read."""
    try:
        wave, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (OSError, soundfile.SoundFileError) as error:
        raise DataError(f"{path}: {error}") from error
    resampled: Samples = soxr.resample(wave.mean(1), rate, SAMPLE_RATE).astype(np.float32)
    return resampled


def _clips(paths: list[Path]) -> Iterator[Clip]:
    for number, path in enumerate(paths, 1):
        wave = read_wave(path)
        yield Clip(wave, praat_pitch(wave))
        print(f"\r{number}/{len(paths)} {path.name[:60]:60s}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m codec.rvq.data", description="Make a training file of sound files."
    )
    parser.add_argument("folder", type=Path, help="every .wav and .flac below it is taken")
    parser.add_argument("out", type=Path, help="the NPZ file to write; its name names the source")
    options = parser.parse_args(arguments)
    try:
        paths = sorted(path for path in options.folder.rglob("*") if path.suffix.lower() in (".wav", ".flac"))
        source = write_source(options.out, _clips(paths))
    except DataError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{options.out}: {source.minutes:.1f} min, {100 * source.voiced.mean():.0f} % voiced")
    return 0


if __name__ == "__main__":
    sys.exit(main())
