"""What the codec does to the words of the default voice, and the other measures of `codec.rvq.evaluate`.

    python -m models.training.codec_data OUT held-out      # once: 40 sentences that no training has seen
    python -m models.training.codec_eval OUT/held-out      # the shipped checkpoint

The words are heard by the embedded Whisper, before the codec and behind it. Needs the prepared model files, `jiwer`,
and what `codec.rvq.evaluate` needs.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soxr
import torch

from codec.rvq.checkpoint import CheckpointError, load_checkpoint
from codec.rvq.data import DataError, read_wave
from codec.rvq.evaluate import EvaluationError, describe, quality, write_copies
from codec.rvq.shipped import SHIPPED
from codec.rvq.synthesis import SAMPLE_RATE
from models.assets import AssetError, ensure
from models.perception.asr import Recognizer
from models.perception.mel import SAMPLE_RATE as HEARD_RATE


def transcripts(recognizer: Recognizer, waves: Sequence[npt.NDArray[np.float32]]) -> list[str]:
    """What is heard in each wave, float32 [n] at 24 kHz, as plain lower-case words."""
    return [
        plain(recognizer.recognize(soxr.resample(wave, SAMPLE_RATE, HEARD_RATE).astype(np.float32)).text)
        for wave in waves
    ]


def plain(text: str) -> str:
    """Lower case without punctuation; a hyphen parts words."""
    return " ".join(re.sub(r"[^a-z0-9' ]", " ", text.lower()).replace("'", "").split())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m models.training.codec_eval", description="Measure what the codec does to spoken sentences."
    )
    parser.add_argument("folder", type=Path, help="WAV files with a sentences.tsv, as `codec_data OUT held-out` writes")
    parser.add_argument("--checkpoint", type=Path, default=SHIPPED)
    parser.add_argument("--codebooks", type=int, nargs="+", default=[16, 8])
    parser.add_argument("--write", type=Path, metavar="DIR", help="write the copies there")
    parser.add_argument("--show", action="store_true", help="show the sentences that were heard differently")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    try:
        import jiwer  # optional: part of the test extra
    except ImportError:
        print("word errors: run `pip install jiwer` first", file=sys.stderr)
        return 2
    try:
        lines = (options.folder / "sentences.tsv").read_text(encoding="utf-8").splitlines()
        named = [line.split("\t") for line in lines]
        paths = [options.folder / name for name, _ in named]
        wanted = [plain(sentence) for _, sentence in named]
        waves = [read_wave(path) for path in paths]
        checkpoint = load_checkpoint(options.checkpoint)
        recognizer = Recognizer(ensure(["whisper-base"])["whisper-base"])
        heard = transcripts(recognizer, waves)
        words = sum(len(sentence.split()) for sentence in wanted)
        print(
            f"{len(waves)} sentences, {words} words; original: WER {100 * jiwer.wer(wanted, heard):.1f} %", flush=True
        )
        for codebooks in options.codebooks:
            measured, copies = quality(checkpoint, waves, codebooks)
            again = transcripts(recognizer, copies)
            print(f"WER {100 * jiwer.wer(wanted, again):.1f} %, {describe(measured)}", flush=True)
            print("   perplexity: " + " ".join(f"{value:.0f}" for value in measured.perplexity))
            if options.write:
                write_copies(options.write, paths, copies, codebooks)
            if options.show:
                for sentence, before, after in zip(wanted, heard, again, strict=True):
                    if after != sentence:
                        print(f"   {sentence}\n      before: {before}\n      behind: {after}")
    except (AssetError, CheckpointError, DataError, EvaluationError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
