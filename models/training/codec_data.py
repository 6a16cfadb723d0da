"""Audio to train and to judge the codec with, spoken by voices whose licences allow a trained codec to be shipped.

    python -m models.training.codec_data OUT hibari --minutes 150      # OUT/hibari.npz
    python -m models.training.codec_data OUT shifted --minutes 40      # the same voice, higher and lower
    python -m models.training.codec_data OUT held-out                  # OUT/held-out/*.wav and sentences.tsv

The voice, hibari-tts (Apache-2.0), is part of the embedded set. Training audio needs `praat-parselmouth`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from codec.rvq.data import Clip, DataError, Pitch, Samples, praat_pitch, write_source
from codec.rvq.synthesis import HOP, SAMPLE_RATE

from .sentences import HELD_OUT, sentences

_VOICED = 50.0
"""Hz from which the voice's own pitch means one."""
_QUIET = 10 ** (-50 / 20)
_LEAD = SAMPLE_RATE // 100
_FADE = SAMPLE_RATE // 200
_LONGEST_PAUSE = SAMPLE_RATE * 3 // 10
_HIGHER = (0.6, 1.3)
"""Factors of pitch and formants: from a deep male voice to a child's."""


def hibari(seed: int) -> Iterator[Clip]:
    """The default voice at three speeds; its pitch is what its network asked for, where Praat hears voicing."""
    chance = np.random.default_rng(seed)
    voice = _Hibari(chance)
    for sentence in sentences(seed):
        for wave, pitch in voice.speak(sentence, float(chance.choice([1.0, 1.0, 1.0, 0.9, 1.1]))):
            yield _clip(wave, pitch, chance)


def shifted(seed: int) -> Iterator[Clip]:
    """The default voice with pitch and formants moved, at about its own pace."""
    chance = np.random.default_rng(seed)
    voice = _Hibari(chance)
    for sentence in sentences(seed):
        higher = float(np.exp(chance.uniform(*np.log(_HIGHER))))
        for wave, pitch in voice.speak(sentence, float(np.clip(1 / higher, 0.6, 1.5))):
            moved = soxr.resample(wave, SAMPLE_RATE * higher, SAMPLE_RATE).astype(np.float32)
            hops = len(moved) // HOP
            yield _clip(moved, _between(pitch, (np.arange(hops) + 0.5) * higher - 0.5) * np.float32(higher), chance)


class _Hibari:
    """The default voice with the pitch that it gives out beside its sound."""

    def __init__(self, chance: np.random.Generator) -> None:
        from hibari import Hibari  # loads the model

        self._voice = Hibari()
        self._chance = chance

    def speak(self, text: str, speed: float) -> Iterator[tuple[Samples, Pitch]]:
        """A sentence as float32 [n] and its pitch in Hz per hop, [n // HOP]."""
        from hibari import dsp

        for phonemes in self._voice.phonemize(text):
            ids = self._voice.ids(phonemes)
            if len(ids) < 3:
                continue
            inputs = {"ids": np.asarray([ids], np.int64), "speed": np.asarray([speed], np.float32)}
            parts = [part[0] for part in self._voice.sess.run(None, inputs)]
            wave: Samples = dsp.synth(*parts, self._chance)
            pitch = np.where(parts[-1] > _VOICED, parts[-1], 0.0)
            # Its values lie in the middles of hops of their own length.
            middles = (np.arange(len(wave) // HOP) + 0.5) * HOP / dsp.HOP - 0.5
            yield wave, _between(pitch, middles)


def _between(pitch: Pitch, places: npt.NDArray[np.floating]) -> Pitch:
    """`pitch` read off at fractional `places`, 0 where the nearest value is.

    Only voiced values take part: halfway to an unvoiced hop the pitch is not half as high.
    """
    voiced = np.flatnonzero(pitch > 0)
    if not len(voiced):
        return np.zeros(len(places), np.float32)
    nearest = np.clip(np.rint(places).astype(int), 0, len(pitch) - 1)
    values = np.exp2(np.interp(places, voiced, np.log2(pitch[voiced])))
    return np.where(pitch[nearest] > 0, values, 0.0).astype(np.float32)


def _clip(wave: Samples, pitch: Pitch, chance: np.random.Generator) -> Clip:
    """Cut silence off and let a pause follow, as the talker does; forget the pitch of what is not voiced."""
    # The voice's pitch runs on through what nobody hears as voiced.
    heard = praat_pitch(wave)
    pitch = np.where(heard[: len(pitch)] > 0, pitch[: len(heard)], 0).astype(np.float32)
    loud = np.flatnonzero(np.abs(wave) > _QUIET)
    if not len(loud):
        return Clip(wave[:0], pitch[:0])
    first = max(0, int(loud[0]) - _LEAD) // HOP
    last = min(len(wave), int(loud[-1]) + _FADE) // HOP
    pause = int(chance.integers(0, _LONGEST_PAUSE)) // HOP
    kept = wave[first * HOP : last * HOP].copy()
    ramp = np.linspace(0.0, 1.0, _FADE, dtype=np.float32)
    kept[:_FADE] *= ramp[: len(kept)]
    kept[-_FADE:] *= ramp[::-1][: len(kept)]
    return Clip(np.pad(kept, (0, pause * HOP)), np.pad(pitch[first:last], (0, pause)))


def held_out(folder: Path) -> None:
    """The sentences kept for evaluation as the talker speaks them: NN.wav and `sentences.tsv` with their words."""
    from models.families.embedded.talker_hibari import HibariTalker

    talker = HibariTalker()
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, sentence in enumerate(HELD_OUT):
        pcm = np.frombuffer(talker.speak(sentence).pcm, "<i2")
        soundfile.write(folder / f"{number:02d}.wav", pcm, SAMPLE_RATE)
        lines.append(f"{number:02d}.wav\t{sentence}\n")
    (folder / "sentences.tsv").write_text("".join(lines), encoding="utf-8")


SOURCES: dict[str, Callable[[int], Iterator[Clip]]] = {"hibari": hibari, "shifted": shifted}
_SEEDS = {"hibari": 1, "shifted": 2}


def _until(clips: Iterator[Clip], minutes: float) -> Iterator[Clip]:
    wanted, made = int(minutes * 60 * SAMPLE_RATE), 0
    while made < wanted:
        clip = next(clips)
        made += len(clip.wave)
        if len(clip.wave):
            yield clip
        print(f"\r{made / SAMPLE_RATE / 60:7.1f} of {minutes:g} min", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m models.training.codec_data", description="Make audio to train and to judge the codec with."
    )
    parser.add_argument("out", type=Path, help="folder to write to")
    parser.add_argument("source", choices=[*SOURCES, "held-out"])
    parser.add_argument("--minutes", type=float, default=60.0, help="of training audio (default 60)")
    parser.add_argument("--seed", type=int, help="another seed than the source's own")
    options = parser.parse_args(arguments)
    try:
        if options.source == "held-out":
            held_out(options.out / "held-out")
            return 0
        seed = _SEEDS[options.source] if options.seed is None else options.seed
        path = options.out / f"{options.source}.npz"
        source = write_source(path, _until(SOURCES[options.source](seed), options.minutes))
    except DataError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{path}: {source.minutes:.1f} min, {100 * source.voiced.mean():.0f} % voiced")
    return 0


if __name__ == "__main__":
    sys.exit(main())
