"""Devices: those of `devices.toml`, as their makers state them, and this machine's processor, measured here."""

from __future__ import annotations

import functools
import os
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import TypedDict, cast

import numpy as np

from .figures import Figure, PlanError, declared, measured

CPU = "cpu"
NETWORK = declared(12.5e9, "bytes/s", "100 Gbit/s; --link network=BYTES_PER_SECOND says otherwise")
"""Between machines, where nobody says what there is."""


@dataclass(frozen=True, slots=True)
class Device:
    """`flops` by dtype; `links`: "peer" to a device like it beside it, "host" to the machine's memory, "network"."""

    name: str
    about: str
    memory: Figure
    bandwidth: Figure
    flops: Mapping[str, Figure]
    links: Mapping[str, Figure]


def names() -> tuple[str, ...]:
    """All that `device` knows."""
    return (*_table(), CPU)


def device(name: str) -> Device:
    """By its name; "cpu" is this machine's, and is measured for half a second. Raises PlanError."""
    if name == CPU:
        return _this_machine()
    given = _table().get(name)
    if given is None:
        raise PlanError("--device", f"there is no {name!r}; choose one of {', '.join(names())}")
    source = given["source"]
    links = {kind: declared(float(rate), "bytes/s", source) for kind, rate in given["links"].items()}
    return Device(
        name,
        given["about"],
        declared(float(given["memory"]), "bytes", source),
        declared(float(given["bandwidth"]), "bytes/s", source),
        {dtype: declared(float(rate), "FLOP/s", source) for dtype, rate in given["flops"].items()},
        {**links, "network": NETWORK},
    )


class _Entry(TypedDict):
    about: str
    memory: float
    bandwidth: float
    flops: dict[str, float]
    links: dict[str, float]
    source: str


@functools.cache
def _table() -> Mapping[str, _Entry]:
    text = (files(__package__) / "devices.toml").read_text(encoding="utf-8")
    return cast("Mapping[str, _Entry]", tomllib.loads(text))


def _this_machine() -> Device:
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    bandwidth = measured(_bandwidth(), "bytes/s", "copying 64 MiB here, one thread, best of 5")
    return Device(
        CPU,
        f"this machine's processor, {os.cpu_count()} cores",
        measured(pages * size, "bytes", "physical memory of this machine"),
        bandwidth,
        {"float32": measured(_flops(), "FLOP/s", "a product of two 1024² matrices here, one thread, best of 5")},
        # Everything on one host lies in one memory.
        {"host": bandwidth, "network": NETWORK},
    )


def _bandwidth() -> float:
    source, target = np.ones(1 << 23), np.empty(1 << 23)
    best = min(_seconds(lambda: np.copyto(target, source)) for _ in range(5))
    # Read and written.
    return 2 * source.nbytes / best


def _flops() -> float:
    left = np.ones((1024, 1024), np.float32)
    return 2 * 1024**3 / min(_seconds(lambda: left @ left) for _ in range(5))


def _seconds(run: Callable[[], object]) -> float:
    begin = time.thread_time()
    run()
    return max(1e-9, time.thread_time() - begin)
