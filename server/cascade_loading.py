"""The embedded models in workers of their own: processes of this machine, or actors of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from models.workers.cascade_host import Cascade
from models.workers.link import Launch

from .settings import Settings, SettingsError

if TYPE_CHECKING:
    from models.workers.cascade import CascadeWorkers

Progress = Callable[[str, float], None]

PROCESSES = 2
"""Workers of this machine: one goes on while the other is started again."""


def build(settings: Settings, slots: int, progress: Progress) -> Cascade:
    """What a worker runs: both ports as in a server of its own. Raises what `models_loading.load` raises."""
    from .models_loading import load

    models = load(replace(settings, worker="thread", ray_workers=1, ray_address=None, max_sessions=slots), progress)
    return Cascade(models.engine, models.perception, slots, models.close, version=settings.engine)


def cascade(settings: Settings, sessions: int, progress: Progress) -> CascadeWorkers:
    """Workers for so many sessions in all, as `settings` ask for. Blocks until they are ready.

    Raises SettingsError, WorkerError, and what a worker met while loading.
    """
    from models.workers.cascade import CascadeWorkers

    launches: list[Launch]
    if settings.worker == "process":
        from models.workers.process import ProcessLaunch

        each = -(-sessions // PROCESSES)
        made = partial(build, settings, each)
        launches = [ProcessLaunch(made, f"talkover-embedded-{number}") for number in range(PROCESSES)]
    else:
        if find_spec("ray") is None:
            raise SettingsError("--worker ray needs the package ray: pip install 'talkover[ray]'")
        from models.workers.ray import RayLaunch, connect

        try:
            connect(settings.ray_address)
        except ConnectionError as why:
            raise SettingsError(
                f"--ray-address {settings.ray_address}: no Ray cluster answers there ({why}); `ray status` tells of one"
            ) from why
        each = -(-sessions // settings.ray_workers)
        launches = [RayLaunch(partial(build, settings, each))] * settings.ray_workers
    return CascadeWorkers(launches, progress=progress)
