"""How good a checkpoint is: quality of copies against originals, and what a frame costs.

    python -m codec.rvq.evaluate FOLDER                    # every WAV below it, by the shipped checkpoint
    python -m codec.rvq.evaluate FOLDER --codebooks 16 8 4 --write COPIES
    python -m codec.rvq.evaluate --cost                    # CPU ms per frame

Copies go through the streaming encoder and decoder, as they do in a session. PESQ wide-band (ITU-T P.862.2), STOI (Taal
et al., 2011) and the pitch (Praat) need `pesq`, `pystoi` and `praat-parselmouth`, which the product does not.
Word error rates: `python -m models.training.codec_eval`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile
import soxr
import torch
from numpy.typing import NDArray

from .checkpoint import Checkpoint, CheckpointError, load_checkpoint
from .data import DataError, Samples, praat_pitch, read_wave
from .shipped import SHIPPED
from .stream import ENCODER_DELAY, Codes, StreamingRvqDecoder, StreamingRvqEncoder
from .synthesis import FRAME, SAMPLE_RATE, mel_bands

_WIDE_BAND = 16_000
_FFT = 1024
_BANDS = 80
_LOUD = 10**-2.5
"""Hops that are softer by more than this (50 dB in power) than the loudest do not count in the log-mel distance."""


class EvaluationError(Exception):
    """A measure cannot be taken. The message says what to install or to give."""


class PitchError(NamedTuple):
    """`cents`: median distance where both are voiced. `wrong`: part of those hops that are off by over 100 cents.
    `voicing`: part of all hops where only one is voiced."""

    cents: float
    wrong: float
    voicing: float


@dataclass(frozen=True, slots=True)
class Quality:
    """Means over the clips of a set, by the first `codebooks`. `log_mel` is a distance in nats, `perplexity` one value
    per codebook: as many entries are in even use."""

    codebooks: int
    pesq: float
    stoi: float
    log_mel: float
    pitch: PitchError
    perplexity: tuple[float, ...]


class Cost(NamedTuple):
    """Processor milliseconds of one frame of all slots: the median, and what nine of ten do not exceed."""

    slots: int
    codebooks: int
    encode: float
    encode_p90: float
    decode: float
    decode_p90: float


def copy_of(checkpoint: Checkpoint, wave: Samples, codebooks: int) -> tuple[Samples, Codes]:
    """`wave` [n] through encoder and decoder, in line with the original again, and its codes [frames, codebooks]."""
    encoder = StreamingRvqEncoder(checkpoint, 1, codebooks=codebooks)
    decoder = StreamingRvqDecoder(checkpoint, 1, codebooks=codebooks)
    # What trails by the delay comes out only when that much has gone in after it.
    padded = np.pad(wave, (0, ENCODER_DELAY + -(len(wave) + ENCODER_DELAY) % FRAME)).astype(np.float32)
    run, reset = np.ones(1, np.bool_), np.zeros(1, np.bool_)
    codes = [encoder.encode(frame[None], run, reset) for frame in padded.reshape(-1, FRAME)]
    heard = np.concatenate([decoder.decode(code, run, reset)[0] for code in codes])
    return heard[ENCODER_DELAY : ENCODER_DELAY + len(wave)], np.concatenate(codes)


def quality(checkpoint: Checkpoint, waves: Sequence[Samples], codebooks: int) -> tuple[Quality, list[Samples]]:
    """The measures over `waves`, and their copies. Raises EvaluationError, DataError."""
    if not waves:
        raise EvaluationError("there is no clip to measure; give a folder with WAV files")
    copies, codes, scores, pitches = [], [], [], []
    for wave in waves:
        copy, code = copy_of(checkpoint, wave, codebooks)
        copies.append(copy)
        codes.append(code)
        scores.append((pesq_wide_band(wave, copy), stoi(wave, copy), log_mel_distance(wave, copy)))
        pitches.append(pitch_error(wave, copy))
    pesq, intelligibility, distance = np.mean(scores, axis=0).tolist()
    cents, wrong, voicing = np.mean(pitches, axis=0).tolist()
    spread = perplexity(np.concatenate(codes), checkpoint.identity.codebook_size)
    pitch = PitchError(cents, wrong, voicing)
    return Quality(codebooks, pesq, intelligibility, distance, pitch, tuple(spread.tolist())), copies


def cost(checkpoint: Checkpoint, slots: int, codebooks: int, frames: int = 200) -> Cost:
    """What `frames` frames of noise cost on this thread; the first ones, which allocate, are not counted."""
    chance = np.random.default_rng(0)
    encoder = StreamingRvqEncoder(checkpoint, slots, codebooks=codebooks)
    decoder = StreamingRvqDecoder(checkpoint, slots, codebooks=codebooks)
    run, reset = np.ones(slots, np.bool_), np.zeros(slots, np.bool_)
    warm, encoding, decoding = 5, [], []
    for _ in range(warm + frames):
        pcm = (0.05 * chance.standard_normal((slots, FRAME))).astype(np.float32)
        began = time.thread_time()
        codes = encoder.encode(pcm, run, reset)
        between = time.thread_time()
        decoder.decode(codes, run, reset)
        encoding.append(1000 * (between - began))
        decoding.append(1000 * (time.thread_time() - between))
    spread = [float(np.percentile(values[warm:], p)) for values in (encoding, decoding) for p in (50, 90)]
    return Cost(slots, codebooks, *spread)


def pesq_wide_band(original: Samples, copy: Samples) -> float:
    """1.0 (bad) to 4.64 (the same). Raises EvaluationError where `pesq` is not installed."""
    try:
        import pesq  # optional: only an evaluation needs it
    except ImportError as error:
        raise EvaluationError("PESQ: run `pip install pesq` first") from error
    return float(pesq.pesq(_WIDE_BAND, _to_wide_band(original), _to_wide_band(copy), "wb"))


def stoi(original: Samples, copy: Samples) -> float:
    """0 to 1 (as intelligible). Raises EvaluationError where `pystoi` is not installed."""
    try:
        import pystoi  # optional: only an evaluation needs it
    except ImportError as error:
        raise EvaluationError("STOI: run `pip install pystoi` first") from error
    return float(pystoi.stoi(_to_wide_band(original), _to_wide_band(copy), _WIDE_BAND))


def pitch_error(original: Samples, copy: Samples) -> PitchError:
    """How far the copy's pitch is from the original's, hop by hop. Raises DataError where Praat is not installed."""
    first, second = praat_pitch(original), praat_pitch(copy)
    hops = min(len(first), len(second))
    first, second = first[:hops], second[:hops]
    both = (first > 0) & (second > 0)
    voicing = float(((first > 0) != (second > 0)).mean())
    if not both.any():
        return PitchError(0.0, 0.0, voicing)
    cents = np.abs(1200 * np.log2(second[both] / first[both]))
    return PitchError(float(np.median(cents)), float((cents > 100).mean()), voicing)


def log_mel_distance(original: Samples, copy: Samples) -> float:
    """Mean absolute difference of log-mel spectra in nats, over the hops of the original that are not silent."""
    bands = mel_bands(_FFT // 2 + 1, _BANDS)

    def log_mel(wave: Samples) -> torch.Tensor:
        window = torch.hann_window(_FFT)
        transform = torch.stft(torch.from_numpy(wave), _FFT, _FFT // 4, window=window, return_complex=True)
        return (transform.abs().T @ bands).clamp_min(1e-3).log()

    first, second = log_mel(original), log_mel(copy)
    loudness = first.exp().sum(1)
    loud = loudness > loudness.max() * _LOUD
    return float((first - second).abs()[loud].mean())


def perplexity(codes: Codes, size: int) -> NDArray[np.float64]:
    """Of codes [frames, codebooks], per codebook: e to the entropy of their use."""
    values = []
    for column in codes.T:
        share = np.bincount(column, minlength=size) / len(column)
        used = share[share > 0]
        values.append(float(np.exp(-(used * np.log(used)).sum())))
    return np.array(values)


def _to_wide_band(wave: Samples) -> NDArray[np.float32]:
    resampled: NDArray[np.float32] = soxr.resample(wave, SAMPLE_RATE, _WIDE_BAND).astype(np.float32)
    return resampled


def describe(measured: Quality) -> str:
    """One line for people."""
    pitch = measured.pitch
    return (
        f"{measured.codebooks:2d} codebooks: PESQ-WB {measured.pesq:.2f}, STOI {measured.stoi:.3f}, "
        f"log-mel {measured.log_mel:.3f}, pitch {pitch.cents:.1f} cents, {100 * pitch.wrong:.1f} % over 100 cents, "
        f"voicing differs in {100 * pitch.voicing:.1f} %"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m codec.rvq.evaluate", description="Measure a codec checkpoint.")
    parser.add_argument("folder", type=Path, nargs="?", help="every .wav and .flac below it is copied and compared")
    parser.add_argument("--checkpoint", type=Path, default=SHIPPED)
    parser.add_argument("--codebooks", type=int, nargs="+", default=[16, 8])
    parser.add_argument("--write", type=Path, metavar="DIR", help="write the copies there")
    parser.add_argument("--cost", action="store_true", help="measure the CPU time of a frame at 1, 4 and 16 slots")
    options = parser.parse_args(arguments)
    if options.folder is None and not options.cost:
        parser.error("give a folder, --cost, or both")
    torch.set_num_threads(1)
    try:
        checkpoint = load_checkpoint(options.checkpoint)
        if options.folder is not None:
            paths = sorted(path for path in options.folder.rglob("*") if path.suffix.lower() in (".wav", ".flac"))
            waves = [read_wave(path) for path in paths]
            for codebooks in options.codebooks:
                measured, copies = quality(checkpoint, waves, codebooks)
                print(f"{len(waves)} clips, {describe(measured)}", flush=True)
                print("   perplexity: " + " ".join(f"{value:.0f}" for value in measured.perplexity))
                if options.write:
                    write_copies(options.write, paths, copies, codebooks)
        for slots in (1, 4, 16) if options.cost else ():
            for codebooks in options.codebooks:
                spent = cost(checkpoint, slots, codebooks)
                print(
                    f"{slots:2d} slots, {codebooks:2d} codebooks, CPU ms per frame: encode {spent.encode:.2f} "
                    f"(p90 {spent.encode_p90:.2f}), decode {spent.decode:.2f} (p90 {spent.decode_p90:.2f})",
                    flush=True,
                )
    except (CheckpointError, DataError, EvaluationError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def write_copies(folder: Path, originals: Sequence[Path], copies: Sequence[Samples], codebooks: int) -> None:
    """Each copy as `NAME-CODEBOOKS.wav`, 16 bits."""
    folder.mkdir(parents=True, exist_ok=True)
    for original, copy in zip(originals, copies, strict=True):
        soundfile.write(folder / f"{original.stem}-{codebooks}.wav", copy, SAMPLE_RATE)


if __name__ == "__main__":
    sys.exit(main())
