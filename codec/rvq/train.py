"""Train the codec on one CPU thread, or go on with its decoder alone.

    python -m codec.rvq.train DATA OUT --cpu-minutes 90 --share hibari=8 --share shifted=1.5
    python -m codec.rvq.train DATA OUT2 --cpu-minutes 30 --decoder-of OUT/final.safetensors

DATA holds the NPZ files of `codec.rvq.data`. OUT gets `log.jsonl`, `state.pt` every minute, from which the same command
goes on after an interruption, `minute-NNN.safetensors` now and then, and `final.safetensors`.

Time is processor time: how fast the learning rate falls does not depend on what else the machine does. A file `STOP` in
OUT ends the training early and in good order: the rate is brought down within eight minutes, which is worth more than
the same eight minutes at a high rate.

With `--decoder-of` the encoder and the codebooks stay as they are, so that codes keep their meaning.
"""

from __future__ import annotations

import argparse
import json
import math
import pickle
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from .checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from .data import Batch, DataError, TrainingSet
from .losses import SpectralLosses
from .model import ModelConfigError, RvqCodec, RvqConfig

RATE: float = 8e-4
BATCH: int = 8

FIRST_STEPS: int = 100
"""Steps in which the rate rises."""
LAST_RATE: float = 0.02
"""Part of the full rate that is left at the end."""
WIND_DOWN: float = 480.0
"""Processor seconds in which an early end brings the rate down."""

_CONVERGENCE = 0.25
_PITCH = 6.0
_COMMITMENT = 0.5
_UNVOICED = 0.05
"""How much the pitch of an unvoiced hop counts beside a voiced one: just enough to keep it where its neighbours are."""
_CLIP = 2.0
_KMEANS_VECTORS = 6144
_STATE_EVERY = 60.0
_LOG_EVERY = 50
_PATIENCE = 50
"""Steps without a finite gradient after which something is broken and not just unlucky."""


class TrainingError(Exception):
    """Training cannot go on. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to train. `cpu_seconds` of processor time in all; `rate` is AdamW's at its highest."""

    cpu_seconds: float
    rate: float = RATE
    batch: int = BATCH
    frames: int = 16
    """Per stretch: 1.28 s."""
    unquantized_steps: int = 400
    """Steps before the codebooks are started, on latents that mean something by then."""
    seed: int = 0
    decoder_only: bool = False


class Losses(NamedTuple):
    """The parts of a step's loss, for the log. `pitch` in semitones over voiced hops, `gradient` its norm."""

    log_mel: float
    convergence: float
    pitch: float
    commitment: float
    gradient: float


class Schedule:
    """The learning rate over processor time: a short rise, then half a cosine down to `LAST_RATE`."""

    def __init__(self, seconds: float) -> None:
        self._end = seconds
        self._stop: tuple[float, float] | None = None

    @property
    def end(self) -> float:
        """When training ends, in processor seconds from its beginning."""
        return self._end

    def stop_early(self, now: float) -> None:
        """Bring the rate down from where it is and end after `WIND_DOWN`, unless the end is nearer anyway."""
        if self._stop is None and now + WIND_DOWN < self._end:
            self._stop = (now, self._factor(now))
            self._end = now + WIND_DOWN

    def factor(self, now: float, step: int) -> float:
        """The part of the full rate at `now`, in step `step` from 0."""
        return self._factor(now) * min(1.0, (step + 1) / FIRST_STEPS)

    def _factor(self, now: float) -> float:
        begin, height = self._stop or (0.0, 1.0)
        done = min(1.0, (now - begin) / (self._end - begin))
        return LAST_RATE + (height - LAST_RATE) * 0.5 * (1.0 + math.cos(math.pi * done))


class Trainer:
    """A codec in training, step by step."""

    def __init__(self, codec: RvqCodec, data: TrainingSet, recipe: Recipe) -> None:
        self.codec = codec
        self.recipe = recipe
        self.step = 0
        self.quantizing = recipe.decoder_only
        self._data = data
        self._spectra = SpectralLosses()
        self._failures = 0
        codec.train().requires_grad_(True)
        if recipe.decoder_only:
            codec.encoder.requires_grad_(False)
            codec.quantizer.eval()  # its entries follow the data only in training mode
        learning = [parameter for parameter in codec.parameters() if parameter.requires_grad]
        self._optimizer = torch.optim.AdamW(learning, lr=recipe.rate, betas=(0.8, 0.98), weight_decay=1e-2, fused=True)

    def train_step(self, factor: float) -> Losses:
        """One step at `factor` of the full rate. Raises TrainingError when gradients stay broken."""
        if not self.quantizing and self.step >= self.recipe.unquantized_steps:
            self._start_codebooks()
        for group in self._optimizer.param_groups:
            group["lr"] = self.recipe.rate * factor
        batch = self._data.draw(self.recipe.batch, self.recipe.frames)
        loss, parts = self._loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.codec.parameters(), _CLIP)
        if bool(torch.isfinite(norm)):
            self._optimizer.step()
            self._failures = 0
        else:
            self._failures += 1
            if self._failures > _PATIENCE:
                raise TrainingError(f"no finite gradient in {_PATIENCE} steps; lower --rate or look at the data")
        self._optimizer.zero_grad()
        self.step += 1
        return parts._replace(gradient=float(norm))

    def state(self) -> dict[str, object]:
        """Everything that the next step depends on, for `torch.save`."""
        quantizer = self.codec.quantizer
        return {
            "recipe": asdict(self.recipe),
            "config": asdict(self.codec.config),
            "step": self.step,
            "quantizing": self.quantizing,
            "codec": self.codec.state_dict(),
            "use": quantizer.use,
            "sums": quantizer.sums,
            "optimizer": self._optimizer.state_dict(),
            "random": torch.get_rng_state(),
            "data": json.dumps(self._data.position()),
        }

    def restore(self, state: Mapping[str, object]) -> None:
        """Go on from a `state`. Raises TrainingError for one of another recipe or size; only its time may differ."""
        for name, mine in (("recipe", asdict(self.recipe)), ("config", asdict(self.codec.config))):
            theirs = state.get(name)
            same = isinstance(theirs, dict) and {**theirs, "cpu_seconds": 0} == {**mine, "cpu_seconds": 0}
            if not same:
                raise TrainingError(f"the state was made with {name} {theirs}, not {mine}; give another output folder")
        try:
            quantizer = self.codec.quantizer
            self.codec.load_state_dict(state["codec"])  # type: ignore[arg-type]
            quantizer.use.copy_(state["use"])  # type: ignore[arg-type]
            quantizer.sums.copy_(state["sums"])  # type: ignore[arg-type]
            self._optimizer.load_state_dict(state["optimizer"])  # type: ignore[arg-type]
            torch.set_rng_state(state["random"])  # type: ignore[arg-type]
            self._data.resume_at(json.loads(state["data"]))  # type: ignore[arg-type]
            self.step, self.quantizing = int(state["step"]), bool(state["quantizing"])  # type: ignore[call-overload]
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise TrainingError(f"the state does not fit: {error}; remove it to begin anew") from error

    def _loss(self, batch: Batch) -> tuple[Tensor, Losses]:
        levels = draw_levels(self.recipe.batch, self.codec.config.codebooks) if self.quantizing else None
        heard = self.codec(batch.samples, batch.pitch, levels)
        spectral = self._spectra(heard.wave, batch.target, self.step)
        # The branch speaks of the hops after the first; see PitchBranch.
        octaves = (heard.log_pitch - batch.pitch[:, 1:].log2()).abs()
        voiced = batch.voiced[:, 1:]
        loss = spectral.log_mel + _CONVERGENCE * spectral.convergence + _PITCH * (octaves * (voiced + _UNVOICED)).mean()
        if self.quantizing:
            # By the spread of the first codebook, or growing latents would look like falling behind.
            spread = self.codec.quantizer.entries[0].var(0).mean().clamp_min(1e-3)
            loss = loss + _COMMITMENT * heard.commitment / spread
        semitones = 12.0 * (octaves * voiced).sum() / voiced.sum().clamp_min(1.0)
        parts = (spectral.log_mel, spectral.convergence, semitones, heard.commitment)
        log_mel, convergence, pitch, commitment = (float(part.detach()) for part in parts)
        return loss, Losses(log_mel, convergence, pitch, commitment, gradient=0.0)

    @torch.no_grad()
    def _start_codebooks(self) -> None:
        vectors: list[Tensor] = []
        while sum(len(part) for part in vectors) < _KMEANS_VECTORS:
            batch = self._data.draw(self.recipe.batch, self.recipe.frames)
            latent = self.codec.encoder(batch.samples)
            vectors.append(latent.transpose(1, 2).reshape(-1, latent.shape[1]))
        self.codec.quantizer.start_from(torch.cat(vectors))
        # Momentum from before would push against codebooks that it knows nothing of.
        self._optimizer.state.clear()
        self.quantizing = True


def draw_levels(batch: int, codebooks: int) -> Tensor:
    """How many codebooks each item uses, int64 [batch]: half of them all, some just half, the others any number.

    All and half are what the product offers; the rest keeps the codebooks in order of weight.
    """
    draw = torch.rand(batch)
    anything = torch.randint(1, codebooks + 1, (batch,))
    half = torch.full_like(anything, max(1, codebooks // 2))
    whole = torch.full_like(anything, codebooks)
    return torch.where(draw < 0.5, whole, torch.where(draw < 0.65, half, anything))


def train(trainer: Trainer, out: Path, *, version: str, snapshot_seconds: float, show: bool = True) -> None:
    """Train to the end of the recipe, or of `STOP`; see above for what is written to `out`. Raises TrainingError."""
    out.mkdir(parents=True, exist_ok=True)
    saved, stop = out / "state.pt", out / "STOP"
    schedule = Schedule(trainer.recipe.cpu_seconds)
    before = 0.0
    if saved.exists():
        state = _read_state(saved)
        trainer.restore(state)
        before = float(state["seconds"])  # type: ignore[arg-type]
    began = time.process_time() - before
    next_state = before + _STATE_EVERY
    next_snapshot = (before // snapshot_seconds + 1) * snapshot_seconds
    recent: list[Losses] = []
    with (out / "log.jsonl").open("a", encoding="utf-8") as log:
        while (now := time.process_time() - began) < schedule.end:
            if stop.exists():
                schedule.stop_early(now)
            factor = schedule.factor(now, trainer.step)
            recent.append(trainer.train_step(factor))
            if trainer.step % _LOG_EVERY == 0:
                means = [sum(values) / len(values) for values in zip(*recent, strict=True)]
                entry = {"step": trainer.step, "cpu": round(now, 1), "rate": trainer.recipe.rate * factor}
                entry |= {name: round(value, 4) for name, value in zip(Losses._fields, means, strict=True)}
                print(json.dumps(entry), file=log, flush=True)
                recent.clear()
                if show:
                    _show(now, schedule.end, trainer.step, means[0])
            if now >= next_state:
                _save_state(trainer, saved, now)
                next_state = now + _STATE_EVERY
            if now >= next_snapshot:
                save_checkpoint(out / f"minute-{round(now / 60):03d}.safetensors", trainer.codec, version)
                next_snapshot += snapshot_seconds
    _save_state(trainer, saved, now)
    save_checkpoint(out / "final.safetensors", trainer.codec, version)
    if show:
        print(f"\n{out / 'final.safetensors'}: {trainer.step} steps", file=sys.stderr)


def _read_state(path: Path) -> dict[str, object]:
    try:
        state = torch.load(path, weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise TrainingError(f"{path} is no state: {error}; remove it to begin anew") from error
    if not isinstance(state, dict) or not isinstance(state.get("seconds"), float):
        raise TrainingError(f"{path} is no state of a training; remove it to begin anew")
    return state


def _save_state(trainer: Trainer, path: Path, seconds: float) -> None:
    partial = path.with_suffix(".partial")
    torch.save({**trainer.state(), "seconds": seconds}, partial)
    partial.replace(path)


def _show(now: float, end: float, step: int, log_mel: float) -> None:
    width = 30
    bar = ("#" * round(width * min(1.0, now / end))).ljust(width, ".")
    print(
        f"\r[{bar}] {now / 60:.1f}/{end / 60:.1f} CPU min, step {step}, log-mel {log_mel:.3f} ",
        end="",
        file=sys.stderr,
        flush=True,
    )


def _share(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=NUMBER, such as hibari=8") from None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m codec.rvq.train", description="Train the codec on one CPU thread.")
    parser.add_argument("data", type=Path, help="folder of NPZ files")
    parser.add_argument(
        "out", type=Path, help="folder for log, state and checkpoints; training goes on if it has a state"
    )
    parser.add_argument("--cpu-minutes", type=float, required=True, help="processor time in all")
    parser.add_argument(
        "--share", type=_share, action="append", default=[], metavar="NAME=X", help="how often a source is drawn"
    )
    parser.add_argument("--rate", type=float, default=RATE, help="highest learning rate (default %(default)g)")
    parser.add_argument("--batch", type=int, default=BATCH, help="stretches per step (default %(default)d)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--version", default="1", help="version of the codes, part of the codec's identity")
    parser.add_argument(
        "--decoder-of", type=Path, metavar="CHECKPOINT", help="train its decoder only; its codes stay valid"
    )
    parser.add_argument("--snapshot-minutes", type=float, default=10.0, help="processor time between checkpoints")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    try:
        data = TrainingSet.load(options.data, dict(options.share), options.seed)
        version = options.version
        if options.decoder_of:
            checkpoint = load_checkpoint(options.decoder_of)
            codec, version = checkpoint.codec, checkpoint.identity.version
        else:
            codec = RvqCodec(RvqConfig())
        recipe = Recipe(
            60.0 * options.cpu_minutes,
            options.rate,
            options.batch,
            seed=options.seed,
            decoder_only=bool(options.decoder_of),
        )
        print(", ".join(f"{name} {minutes:.0f} min" for name, minutes in data.minutes.items()), file=sys.stderr)
        train(
            Trainer(codec, data, recipe), options.out, version=version, snapshot_seconds=60.0 * options.snapshot_minutes
        )
    except (DataError, CheckpointError, ModelConfigError, TrainingError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
