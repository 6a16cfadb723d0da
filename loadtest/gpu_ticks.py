"""Tick time of full-size Moshi by number of slots, and the sessions that fit one device.

    python -m loadtest.gpu_ticks [--slots 1,8,32,64,128] [--ticks 30] [--context STEPS] [--reduced] [--json FILE]

Random weights in bfloat16, of the published 7 B geometry, with Mimi: encoding the user, both transformers with
sampling, decoding the agent. On a CUDA device the step is one CUDA graph. Without such a device, or with --reduced, a
model of 18 million parameters is measured on the CPU instead, which shows that the command works and nothing else.

A slot of the full model keeps 1.6 GB of keys and values for its window of 3000 steps. Where the slots asked for do not
fit with it, the window is halved until they do, and the table says so; less than 375 steps (30 s) is not tried.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import nn

from codec.mimi.config import MimiConfig
from codec.mimi.model import Mimi
from codec.mimi.transformer import ring_cells
from models.families.moshi.config import MoshiConfig
from models.families.moshi.language import MoshiLM
from models.families.moshi.slots import MoshiSlots
from models.slots.graph import GraphedModel
from models.slots.mimi import MimiSlots
from models.slots.model import StepInput
from tests.bench.report import percentile, table
from tests.bench.slot_ticks import SHAPE

FRAME_MS = 80.0
SHORTEST = 375
SPARE = 0.9
"""Part of the device's memory that is used."""


@dataclass(frozen=True, slots=True)
class Row:
    """One size of the batch; times in ms."""

    slots: int
    context: int
    p50: float
    p99: float
    encode: float
    decode: float
    memory_gb: float
    note: str = ""


def main(arguments: list[str] | None = None) -> list[Row]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", default="1,8,32,64,128", help="sizes of the batch (default: %(default)s)")
    parser.add_argument("--ticks", type=int, default=30, help="ticks of each size (default: %(default)s)")
    parser.add_argument("--context", type=int, metavar="STEPS", help="window of the temporal transformer")
    parser.add_argument("--reduced", action="store_true", help="the small model on the CPU, even if there is a GPU")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    options = parser.parse_args(arguments)
    full = torch.cuda.is_available() and not options.reduced
    device = torch.device("cuda" if full else "cpu")
    config = MoshiConfig.published() if full else MoshiConfig.read(SHAPE)
    if options.context is not None:
        config = replace(config, temporal=replace(config.temporal, context=options.context))
    name = torch.cuda.get_device_name() if full else "CPU (reduced model)"
    print(f"{name}, torch {torch.__version__}")
    began = time.monotonic()
    lm, mimi = build(config, full, device)
    print(
        f"{_size(lm):.2f} billion parameters in {next(lm.parameters()).dtype}, made in {time.monotonic() - began:.0f} s"
    )
    rows = []
    for slots in options.slots.split(","):
        rows.append(measure(lm, mimi, int(slots), options.ticks, device))
        gc.collect()
        if full:
            torch.cuda.empty_cache()
    heads = ("slots", "window", "tick p50 ms", "p99 ms", "encode ms", "decode ms", "memory GB", "")
    print(table([list(asdict(row).values()) for row in rows], heads))
    fitting = [row.slots for row in rows if row.p99 <= FRAME_MS]
    print(f"sessions whose tick fits {FRAME_MS:.0f} ms at p99: {max(fitting, default=0)} of the sizes measured")
    if options.json is not None:
        options.json.write_text(json.dumps({"device": name, "rows": [asdict(row) for row in rows]}, indent=1))
    return rows


def build(config: MoshiConfig, full: bool, device: torch.device) -> tuple[MoshiLM, Mimi]:
    """Both models with random weights, drawn on the device: seven billion on a CPU would take longer than the rest."""
    if not full:
        torch.set_num_threads(1)
        narrow = replace(MimiConfig.tiny(), codebook_size=config.codebook_size)
        return MoshiLM.random(config), Mimi.random(narrow)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with device:
            lm, mimi = MoshiLM(config), Mimi(MimiConfig())
    finally:
        torch.set_default_dtype(torch.float32)
    for module in (lm, mimi):
        module.requires_grad_(False)
        for weight in module.parameters():
            if weight.dim() > 1:
                weight.normal_(0, weight[0].numel() ** -0.5)
    return lm.eval(), mimi.eval()


def measure(lm: MoshiLM, mimi: Mimi, slots: int, ticks: int, device: torch.device) -> Row:
    """One size of the batch, with the longest window that fits."""
    context = _fitting(lm, slots, device)
    if context is None:
        return Row(slots, 0, float("inf"), float("inf"), 0.0, 0.0, 0.0, "does not fit")
    _set_context(lm, context)
    codec = MimiSlots(mimi, slots)
    model = MoshiSlots(lm, codec, slots)
    try:
        graphed, note = GraphedModel(model, device), "one CUDA graph" if device.type == "cuda" else "eager"
    except RuntimeError as error:
        if device.type != "cuda":
            raise
        torch.cuda.synchronize()
        graphed, note = GraphedModel(model, torch.device("cpu")), f"eager: {str(error).splitlines()[0][:60]}"
    everyone = torch.ones(slots, dtype=torch.bool, device=device)
    graphed.reset(everyone, torch.arange(slots))
    # The window is full, as after a long session.
    model.stand_at(context)
    pcm = 0.1 * torch.randn(slots, model.hop, device=device)
    codes = torch.zeros(slots, model.codebooks, dtype=torch.int64, device=device)
    given = StepInput.free(everyone, everyone, pcm, codes, torch.zeros_like(everyone))
    times = _times(lambda: graphed.step(given), ticks, device)
    encode = _times(lambda: codec.encode(pcm, everyone), max(3, ticks // 3), device)
    decode = _times(lambda: codec.decode(codes, everyone), max(3, ticks // 3), device)
    memory = torch.cuda.memory_allocated() if device.type == "cuda" else model.streams.bytes + codec.bytes
    return Row(
        slots,
        context,
        round(percentile(times, 0.5), 2),
        round(percentile(times, 0.99), 2),
        round(percentile(encode, 0.5), 2),
        round(percentile(decode, 0.5), 2),
        round(memory / 1e9, 2),
        note,
    )


def _times(step: Callable[[], object], ticks: int, device: torch.device) -> list[float]:
    """Milliseconds of each step, the device's work included; the first two are not counted."""
    found = []
    for _ in range(ticks + 2):
        began = time.perf_counter()
        with torch.no_grad():
            step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        found.append((time.perf_counter() - began) * 1e3)
    return found[2:]


def _fitting(lm: MoshiLM, slots: int, device: torch.device) -> int | None:
    """The longest window, halved from the configured one, with which so many slots fit; None: not even the shortest."""
    temporal = lm.config.temporal
    if device.type != "cuda":
        return temporal.context
    free = torch.cuda.mem_get_info()[0] * SPARE
    context = temporal.context
    while context >= min(SHORTEST, temporal.context):
        cells = ring_cells(replace(temporal, context=context), 0)
        if slots * temporal.layers * 2 * cells * temporal.dimension * 2 < free:
            return context
        context //= 2
    return None


def _set_context(lm: MoshiLM, context: int) -> None:
    short = replace(lm.config.temporal, context=context)
    lm.transformer.config = short
    for layer in lm.transformer.layers:
        attention = layer.get_submodule("self_attn")
        attention.config = short  # type: ignore[assignment]


def _size(module: nn.Module) -> float:
    return sum(weight.numel() for weight in module.parameters()) / 1e9


if __name__ == "__main__":
    main()
