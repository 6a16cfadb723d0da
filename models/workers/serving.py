"""What a worker does wherever it runs: load, then serve until it is told to stop."""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable
from typing import Final, Protocol

from ..garbage import spare_what_stays
from .errors import describe
from .messages import Beat, Command, Loading, Note, Ready, Stop
from .outbox import Outbox

log = logging.getLogger(__name__)

Progress = Callable[[str, float], None]


class Serves(Protocol):
    """Does what commands say, and says what comes of it."""

    @property
    def ready(self) -> Ready:
        """What it can do."""

    def beat(self) -> Beat:
        """How it does."""

    def receive(self, command: Command, tell: Callable[[Note], None]) -> None: ...


class Built(Protocol):
    """The models of a worker, loaded."""

    def host(self) -> Serves: ...

    def close(self) -> None:
        """End their threads."""


Build = Callable[[Progress], Built]
"""Makes the engine, in the worker. It is pickled: a function of a module, or a `functools.partial` of one."""

BEAT: Final = 0.5
"""Seconds between two signs of life."""


def run(build: Build, commands: queue.SimpleQueue[Command], outbox: Outbox, place: str) -> None:
    """Serve what `build` makes; all that there is to say goes to `outbox`, which is closed behind it.

    `place`: where it runs, as the first sign of progress says it.
    """
    try:
        outbox.put(Loading(f"starting the model's {place}", 1.0))
        built = build(lambda stage, fraction: outbox.put(Loading(stage, fraction)))
    except Exception as error:
        log.debug("the model could not be loaded", exc_info=True)
        outbox.put(describe(error))
    else:
        spare_what_stays()
        _serve(built.host(), commands, outbox)
        built.close()
    outbox.close()


def _serve(host: Serves, commands: queue.SimpleQueue[Command], outbox: Outbox) -> None:
    outbox.put(host.ready)
    due = time.monotonic()
    while True:
        try:
            command = commands.get(timeout=max(0.0, due - time.monotonic()))
        except queue.Empty:
            pass
        else:
            host.receive(command, outbox.put)
            if isinstance(command, Stop):
                return
        if time.monotonic() >= due:
            outbox.put(host.beat())
            due = time.monotonic() + BEAT
