"""A worker as a Ray actor, on this machine or on another one of a cluster (extra `ray`).

The same worker as in a process of its own: what is said to it and by it is the same, only the way is another. Ray
places it where the resources that it asks for are (`num_gpus`, `num_cpus`), and ends it when whoever started it is
gone. It is not restarted by Ray: a worker that comes back has lost its sessions, and who promised them must know.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import ray
from ray.exceptions import RayError

from . import serving
from .messages import Command, Message, Note
from .outbox import Outbox
from .serving import Build

UNANSWERED: Final = 8
"""Batches on their way to the actor before more wait here, where frames that come too late are dropped."""
NAMESPACE: Final = "talkover"


def connect(address: str | None) -> None:
    """Join the cluster at `address` ("auto", "ray://HOST:PORT" or "HOST:PORT"), or start one on this machine (None).

    Nothing happens where this process has joined one already. Raises ConnectionError.
    """
    if not ray.is_initialized():
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, include_dashboard=False)


def batch(outbox: Outbox) -> list[Message] | None:
    """All that waits, once something does; None once it is closed and empty."""
    first = outbox.take()
    if first is None:
        return None
    messages = [first]
    while len(outbox) and (message := outbox.take()) is not None:
        messages.append(message)
    return messages


class Worker:
    """The actor. `hear` runs as long as it lives, `send` beside it."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._outbox = Outbox()

    def place(self) -> tuple[str, int]:
        """Its node, and its process there."""
        return ray.get_runtime_context().get_node_id(), os.getpid()

    def send(self, commands: Sequence[Command]) -> None:
        for command in commands:
            self._commands.put(command)

    def hear(self) -> Iterator[list[Message]]:
        """Load, serve until told to stop, and say what there is to say."""
        work = (self._build, self._commands, self._outbox, "actor")
        threading.Thread(target=serving.run, args=work, name="work", daemon=True).start()
        while (messages := batch(self._outbox)) is not None:
            yield messages


@dataclass(frozen=True, slots=True)
class RayLaunch:
    """`Launch` of an actor that serves what `build` makes. `connect` comes first."""

    build: Build
    num_cpus: float = 1.0
    num_gpus: float = 0.0

    def __call__(self, hear: Callable[[Note], None], lost: Callable[[str], None]) -> RayLink:
        return RayLink(self, hear, lost)


class RayLink:
    """`Link` to an actor."""

    def __init__(self, launch: RayLaunch, hear: Callable[[Note], None], lost: Callable[[str], None]) -> None:
        self._hear = hear
        self._lost = lost
        self._outbox = Outbox()
        self._gone = threading.Event()
        self._pid: int | None = None
        # Ray's own types know no class that is made an actor here and now.
        actor: Any = ray.remote
        kind = actor(max_concurrency=2, max_restarts=0, num_cpus=launch.num_cpus, num_gpus=launch.num_gpus)(Worker)
        self._actor: Any = kind.remote(launch.build)
        for run, what in ((self._read, "read"), (self._write, "write")):
            threading.Thread(target=run, name=f"ray-worker-{what}", daemon=True).start()

    @property
    def pid(self) -> int | None:
        return self._pid

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
        with contextlib.suppress(RayError, RuntimeError):
            ray.kill(self._actor, no_restart=True)

    def join(self, within: float) -> bool:
        return self._gone.wait(within)

    def _read(self) -> None:
        reason = "it ended"
        try:
            node, pid = ray.get(self._actor.place.remote())
            self._pid = pid if node == ray.get_runtime_context().get_node_id() else None
            for said in self._actor.hear.options(num_returns="streaming").remote():
                for note in ray.get(said):
                    self._hear(note)
        except (RayError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        self._outbox.close()
        self.kill()
        self._gone.set()
        self._lost(reason)

    def _write(self) -> None:
        unanswered: deque[Any] = deque()
        with contextlib.suppress(RayError, RuntimeError):
            while (messages := batch(self._outbox)) is not None:
                unanswered.append(self._actor.send.remote(messages))
                if len(unanswered) >= UNANSWERED:
                    ray.get(unanswered.popleft())


__all__ = ["RayLaunch", "RayLink", "Worker", "connect"]
