"""A worker in a process of its own, over a pipe.

It is spawned and not forked: it shares neither threads nor locks nor a device's context with whoever started it. When
the pipe breaks, the other end is gone, whatever happened to it, and the worker ends at once: it outlives nobody.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection

from . import serving
from .messages import Command, Note
from .outbox import Outbox
from .serving import BEAT, Build

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProcessLaunch:
    """`Launch` of a process that serves what `build` makes. `name`: how it is called in lists of processes and logs."""

    build: Build
    name: str = "talkover-worker"

    def __call__(self, hear: Callable[[Note], None], lost: Callable[[str], None]) -> ProcessLink:
        return ProcessLink(self, hear, lost)


class ProcessLink:
    """`Link` to a process."""

    def __init__(self, launch: ProcessLaunch, hear: Callable[[Note], None], lost: Callable[[str], None]) -> None:
        context = multiprocessing.get_context("spawn")
        self._hear = hear
        self._lost = lost
        self._outbox = Outbox()
        self._gone = threading.Event()
        self._pipe, theirs = context.Pipe()
        level = logging.getLogger().getEffectiveLevel()
        self._process = context.Process(target=work, args=(theirs, launch.build, level), name=launch.name, daemon=True)
        try:
            with _no_interrupt():
                self._process.start()
        finally:
            theirs.close()
        for run, what in ((self._read, "read"), (self._write, "write")):
            threading.Thread(target=run, name=f"{launch.name}-{what}", daemon=True).start()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def counters(self) -> Mapping[str, int]:
        return self._outbox.counters

    @property
    def waiting(self) -> int:
        return len(self._outbox)

    def send(self, command: Command) -> None:
        self._outbox.put(command)

    def forget(self, session: str) -> None:
        self._outbox.forget(session)

    def kill(self) -> None:
        self._process.kill()

    def join(self, within: float) -> bool:
        return self._gone.wait(within)

    def _read(self) -> None:
        try:
            while True:
                self._hear(self._pipe.recv())
        except (EOFError, OSError):
            pass
        except Exception:
            log.exception("what the worker says cannot be understood; it is killed")
            self._process.kill()
        self._outbox.close()
        # Its pipe is closed, so it ends by itself; unless it is stuck.
        self._process.join(BEAT)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._gone.set()
        self._lost(_reason(self._process.exitcode))

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            while (message := self._outbox.take()) is not None:
                self._pipe.send(message)


def _reason(status: int | None) -> str:
    if status is not None and status < 0:
        name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
        hint = "; perhaps the system ran out of memory" if -status == signal.SIGKILL else ""
        return f"{name}{hint}"
    return f"exit status {status}"


@contextlib.contextmanager
def _no_interrupt() -> Iterator[None]:
    """A process that is started inside is deaf to Ctrl-C from its first instruction on: who started it ends it.

    A terminal sends the signal to all; Python would otherwise print where the worker stood.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# --- in the worker ----------------------------------------------------------------------------------------------------


def work(pipe: Connection, build: Build, level: int) -> None:
    """What the process runs: load, then serve until it is told to stop or the other end is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    outbox = Outbox()
    writer = threading.Thread(target=_write, args=(pipe, outbox), name="write", daemon=True)
    writer.start()
    commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
    # It reads while the model is loaded already: only so it is seen that nobody waits for it any more.
    threading.Thread(target=_read, args=(pipe, commands), name="read", daemon=True).start()
    serving.run(build, commands, outbox, "process")
    writer.join()


def _read(pipe: Connection, commands: queue.SimpleQueue[Command]) -> None:
    try:
        while True:
            commands.put(pipe.recv())
    except (EOFError, OSError):
        # Nobody is there any more. Not by an exception: the model's thread may be in the middle of a step, or loading.
        os._exit(1)


def _write(pipe: Connection, outbox: Outbox) -> None:
    with contextlib.suppress(OSError):
        while (message := outbox.take()) is not None:
            pipe.send(message)


__all__ = ["ProcessLaunch", "ProcessLink", "work"]
