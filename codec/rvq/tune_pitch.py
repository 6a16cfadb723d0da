"""Train the pitch branch of a finished codec by itself, on codes that are made once.

    python -m codec.rvq.tune_pitch DATA CHECKPOINT OUT.safetensors --cpu-minutes 4

The branch is a hundredth of the codec. Trained with the rest it sees as few examples as the rest has time for; by
itself, without synthesis and spectra, it sees fifty times as many in a minute, and the pitch that it hears in the same
codes is a third closer. Codes keep their meaning: the identity stays.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from .data import DataError, Source, read_source
from .model import DELAY_HOPS, RvqCodec
from .synthesis import FRAME, HOPS
from .train import LAST_RATE, draw_levels

RATE: float = 2e-3
BATCH: int = 32
FRAMES: int = 48
"""Codec frames in an example."""

_PIECE = 60 * 25 // 2
"""Frames that are encoded at once: a minute."""
_WARM_UP = 8
"""Frames before a piece, so that the encoder knows what came before; it looks back 6."""
_UNJUDGED = 2
"""Frames at the beginning of an example in which the branch does not know what came before."""


class Coded(NamedTuple):
    """Codes of one source, int64 [codebooks, frames], with what the branch should say of them: `log_pitch` log2 Hz and
    `voiced`, float32 [frames, HOPS]."""

    codes: Tensor
    log_pitch: Tensor
    voiced: Tensor


def coded(codec: RvqCodec, source: Source, frames: int) -> Coded:
    """The first `frames` frames of `source`, or all but the last if there are fewer."""
    frames = min(frames, len(source.wave) // FRAME - 1)
    pieces = []
    for first in range(0, frames, _PIECE):
        warm_up = min(first, _WARM_UP)
        stretch = source.wave[(first - warm_up) * FRAME : min(first + _PIECE, frames) * FRAME]
        wave = torch.from_numpy(stretch.astype(np.float32) / 32768)
        pieces.append(codec.encode(wave[None])[0, :, warm_up:])
    # The branch's first value of a frame is of the hop after the one that the decoder begins the frame with, and that
    # lies DELAY_HOPS before the encoder's.
    hops = np.clip(np.arange(HOPS * frames) - DELAY_HOPS + 1, 0, None)
    log_pitch = torch.from_numpy(np.log2(source.pitch[hops])).view(frames, HOPS)
    voiced = torch.from_numpy(source.voiced[hops].astype(np.float32)).view(frames, HOPS)
    return Coded(torch.cat(pieces, 1), log_pitch, voiced)


def tune(codec: RvqCodec, sources: Sequence[Coded], seconds: float, *, rate: float = RATE, show: bool = True) -> float:
    """Train the branch for `seconds` of processor time; the learning rate falls along half a cosine.

    Gives the mean distance in cents over voiced hops of the last hundred steps. Sources are drawn by their length.
    Raises DataError where none is long enough for an example.
    """
    sources = [source for source in sources if source.codes.shape[1] > FRAMES]
    if not sources:
        raise DataError(f"no source is longer than the {FRAMES} frames of an example; make more training audio")
    branch = codec.pitch.train().requires_grad_(True)
    optimizer = torch.optim.AdamW(branch.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=1e-3, fused=True)
    weights = torch.tensor([float(source.codes.shape[1]) for source in sources])
    recent: list[float] = []
    began = time.process_time()
    while (now := time.process_time() - began) < seconds:
        for group in optimizer.param_groups:
            group["lr"] = rate * (LAST_RATE + (1 - LAST_RATE) * 0.5 * (1 + math.cos(math.pi * now / seconds)))
        source = sources[int(torch.multinomial(weights, 1))]
        loss = _loss(codec, source)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        recent = [*recent[-99:], 1200 * float(loss.detach())]
        if show and len(recent) == 100:
            mean = sum(recent) / 100
            print(
                f"\r{now / 60:.1f}/{seconds / 60:.1f} CPU min, {mean:.1f} cents ", end="", file=sys.stderr, flush=True
            )
    branch.eval().requires_grad_(False)
    return sum(recent) / max(1, len(recent))


def _loss(codec: RvqCodec, source: Coded) -> Tensor:
    """Mean distance in octaves over the voiced hops of random examples."""
    first = torch.randint(0, source.codes.shape[1] - FRAMES + 1, (BATCH,))
    frames = first[:, None] + torch.arange(FRAMES)
    levels = draw_levels(BATCH, codec.config.codebooks)
    with torch.no_grad():
        latent = torch.zeros(BATCH, FRAMES, codec.config.latent)
        for level, codes in enumerate(source.codes):
            latent += codec.quantizer.entries[level][codes[frames]] * (levels > level)[:, None, None]
    heard: Tensor = codec.pitch(latent.transpose(1, 2)).view(BATCH, FRAMES, HOPS)
    voiced = source.voiced[frames].clone()
    voiced[:, :_UNJUDGED] = 0
    return ((heard - source.log_pitch[frames]).abs() * voiced).sum() / voiced.sum().clamp_min(1)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m codec.rvq.tune_pitch", description="Train the pitch branch of a codec by itself."
    )
    parser.add_argument("data", type=Path, help="folder of NPZ files, as for training")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("out", type=Path, help="checkpoint to write")
    parser.add_argument("--cpu-minutes", type=float, default=4.0, help="processor time of the training itself")
    parser.add_argument("--audio-minutes", type=float, default=60.0, help="of each source that are used")
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    try:
        checkpoint = load_checkpoint(options.checkpoint)
        paths = sorted(options.data.glob("*.npz"))
        frames = round(options.audio_minutes * 60 * checkpoint.identity.frame_rate)
        sources = [coded(checkpoint.codec, read_source(path), frames) for path in paths]
        cents = tune(checkpoint.codec, sources, 60 * options.cpu_minutes, rate=options.rate)
        save_checkpoint(options.out, checkpoint.codec, checkpoint.identity.version)
    except (CheckpointError, DataError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"\n{options.out}: {cents:.1f} cents on training audio")
    return 0


if __name__ == "__main__":
    sys.exit(main())
