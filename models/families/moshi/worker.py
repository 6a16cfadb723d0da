"""Moshi in a worker: what the worker's process runs to make its engine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from models.workers.engine import WorkerEngine
from models.workers.host import Built
from models.workers.link import Launch
from models.workers.pool import WorkerPool
from models.workers.process import ProcessLaunch
from models.workers.serving import Progress

SLOTS = 4
"""Sessions of a device at a time where no setting says otherwise."""


def build(checkpoint: Path | None, slots: int, device: str | None, progress: Progress) -> Built:
    """The engine for the checkpoint in a folder, or with tiny random weights, on `device` (None: the best there is).

    Raises CheckpointError.
    """
    # Here, so that whoever only starts workers does not load torch.
    from models.checkpoint import Checkpoint
    from models.envelope import Versions

    from .engine import engine_of, placed

    progress("reading the weights", 1.0)
    loaded = placed(checkpoint, slots=slots, device=device, record=True)
    version = "random-tiny" if checkpoint is None else Checkpoint(checkpoint).version
    engine = engine_of(loaded)
    return Built(engine, Versions(model=f"moshi-{version}", codec=loaded.model.codec.identity), engine.drawn_from)


def actors(
    checkpoint: Path | None, slots: int, number: int, address: str | None, progress: Progress
) -> WorkerEngine | WorkerPool:
    """`number` actors of the Ray cluster at `address` (None: one on this machine), with `slots` sessions in each.

    One that runs a checkpoint asks the cluster for a GPU. Blocks until they are ready. Raises CheckpointError,
    WorkerError or ConnectionError; then none is left.
    """
    from models.workers.ray import RayLaunch, connect

    connect(address)
    gpus = 1.0 if checkpoint is not None else 0.0
    launch = RayLaunch(partial(build, checkpoint, slots, None), num_gpus=gpus)
    return _all([launch] * number, progress)


def workers(
    checkpoint: Path | None, slots: int, devices: tuple[str | None, ...], progress: Progress
) -> WorkerEngine | WorkerPool:
    """A process for each of `devices`, with `slots` sessions in each. Blocks until they are ready.

    Raises CheckpointError or WorkerError; then none is left.
    """
    return _all(
        [
            ProcessLaunch(partial(build, checkpoint, slots, device), f"talkover-moshi-{device or 'worker'}")
            for device in devices
        ],
        progress,
    )


def _all(launches: Sequence[Launch], progress: Progress) -> WorkerEngine | WorkerPool:
    made: list[WorkerEngine] = []
    try:
        for launch in launches:
            made.append(WorkerEngine(launch, progress=progress))
        return made[0] if len(made) == 1 else WorkerPool(made)
    except BaseException:
        for worker in made:
            worker.shutdown()
        raise


def cuda_devices() -> tuple[str | None, ...]:
    """Names of the CUDA devices of this machine; (None,) where there is none: one worker, wherever it can run."""
    if not any(Path("/dev").glob("nvidia[0-9]*")):
        return (None,)
    import torch

    return tuple(f"cuda:{number}" for number in range(torch.cuda.device_count())) or (None,)
