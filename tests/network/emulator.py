"""A path with delay, jitter, loss and cuts: frames are taken from one interface and sent on another, each way.

The kernel's own emulator (sch_netem) is a module that many machines do not have. This one is a process in the
namespace between two others: `python -m tests.network.emulator LEFT RIGHT [SEED]`. It is told of new conditions by JSON
lines, answers each with what it has counted since the last one, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import random
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.bench.report import percentile

from .namespaces import Namespace

ROOT: Final = Path(__file__).resolve().parents[2]

_ALL_PROTOCOLS: Final = 0x0003
_SOL_PACKET: Final = 263
_IGNORE_OUTGOING: Final = 23
"""linux/if_ether.h, linux/socket.h, linux/if_packet.h."""
_ARP: Final = b"\x08\x06"
_READ_AT_ONCE: Final = 64
_BUFFER: Final = 1 << 21
"""Bytes that wait in a socket while this process does not run."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What happens to a frame on its way in one direction.

    `delay_ms`: of the path. `jitter_ms`: normally distributed around it, 95 % of frames within this. `loss`: share of
    frames, 0..1. `burst`: how many are lost together on average; 1: each by itself. `reorder`: a frame may overtake
    another; if not, it waits for the one before. `cut`: nothing passes. Raises ValueError, which names the field.
    """

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    burst: float = 1.0
    reorder: bool = True
    cut: bool = False

    def __post_init__(self) -> None:
        for name, least, most in (
            ("delay_ms", 0, 10_000),
            ("jitter_ms", 0, 10_000),
            ("loss", 0, 0.9),
            ("burst", 1, 1000),
        ):
            value = getattr(self, name)
            if not (math.isfinite(value) and least <= value <= most):
                raise ValueError(f"{name} is {value}; give a number from {least} to {most}")


class Way:
    """Which frames of one direction are lost, and how long the others take. `rng` is of this direction alone."""

    def __init__(self, rng: random.Random, conditions: Conditions | None = None) -> None:
        self.conditions = conditions or Conditions()
        self._rng = rng
        self._losing = False
        self._last = -math.inf

    def loses(self) -> bool:
        """Whether the next frame is lost: a Gilbert model (two states, all lost in the bad one) for bursts."""
        now = self.conditions
        if now.cut:
            return True
        if now.burst <= 1:
            return self._rng.random() < now.loss
        # Mean stay in the bad state: `burst` frames; share of time in it: `loss`.
        change = 1 / now.burst if self._losing else now.loss / (now.burst * (1 - now.loss))
        if self._rng.random() < change:
            self._losing = not self._losing
        return self._losing

    def arrival(self, sent: float) -> float:
        """When a frame that was sent at `sent` arrives, in seconds of the same clock."""
        now = self.conditions
        at = sent + max(0.0, self._rng.gauss(now.delay_ms, now.jitter_ms / 2)) / 1000
        if not now.reorder:
            at = max(at, self._last)
            self._last = at
        return at


@dataclass(frozen=True, slots=True)
class Counted:
    """Frames of one direction. `late_ms`: how much later than due they left, 99 % of them; `latest_ms`: all."""

    frames: int
    lost: int
    late_ms: float
    latest_ms: float


@dataclass(slots=True)
class _Direction:
    """Reads frames of one interface and writes what the path leaves of them to another."""

    source: socket.socket
    target: socket.socket
    path: Way
    loop: asyncio.AbstractEventLoop
    frames: int = 0
    lost: int = 0
    lateness: list[float] = field(default_factory=list)

    def read(self) -> None:
        for _ in range(_READ_AT_ONCE):
            try:
                frame = self.source.recv(65_536)
            except BlockingIOError:
                return
            self.frames += 1
            # Without addresses there is no path at all: what asks for them is cut, but not lost at random.
            if self.path.conditions.cut or (frame[12:14] != _ARP and self.path.loses()):
                self.lost += 1
                continue
            due = self.path.arrival(self.loop.time())
            self.loop.call_at(due, self._write, frame, due)

    def _write(self, frame: bytes, due: float) -> None:
        self.lateness.append(self.loop.time() - due)
        # An interface that is just being removed takes nothing, as a cable would.
        with contextlib.suppress(OSError):
            self.target.send(frame)

    def count(self) -> Counted:
        late, self.lateness = self.lateness, []
        counted = Counted(
            self.frames,
            self.lost,
            round(percentile(late, 0.99) * 1000, 2) if late else 0.0,
            round(max(late, default=0.0) * 1000, 2),
        )
        self.frames = self.lost = 0
        return counted


def _raw(interface: str) -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
    opened.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
    opened.bind((interface, 0))
    opened.setblocking(False)
    return opened


async def forward(left: str, right: str, seed: int) -> None:
    """Forward between two interfaces until standard input ends. "up" is from `left` to `right`."""
    loop = asyncio.get_running_loop()
    one, other = _raw(left), _raw(right)
    ways = {
        "up": _Direction(one, other, Way(random.Random(seed)), loop),
        "down": _Direction(other, one, Way(random.Random(seed + 1)), loop),
    }
    for way in ways.values():
        loop.add_reader(way.source, way.read)
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    print("{}", flush=True)
    while line := await commands.readline():
        for name, wanted in json.loads(line).items():
            ways[name].path.conditions = Conditions(**wanted)
        print(json.dumps({name: asdict(way.count()) for name, way in ways.items()}), flush=True)


class Emulator:
    """The process that forwards, in the namespace between two others. A context manager: it has ended after the block.

    "up" is from `left` to `right`.
    """

    def __init__(self, namespace: Namespace, left: str, right: str, seed: int = 1) -> None:
        for interface in (left, right):
            namespace.ip("link", "set", interface, "promisc", "on")
        command = [sys.executable, "-m", "tests.network.emulator", left, right, str(seed)]
        self._process: subprocess.Popen[str] = namespace.run(
            lambda: subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        )
        try:
            self._answer()
        except BaseException:
            self.close()
            raise

    def set(self, up: Conditions | None = None, down: Conditions | None = None) -> dict[str, Counted]:
        """New conditions from now on; None leaves those of a direction. Returns what was counted since the last call,
        by direction. Frames that are on their way arrive as they would have."""
        wanted = {name: asdict(one) for name, one in (("up", up), ("down", down)) if one is not None}
        pipe = self._process.stdin
        assert pipe is not None
        pipe.write(json.dumps(wanted) + "\n")
        pipe.flush()
        return self._answer()

    def _answer(self) -> dict[str, Counted]:
        pipe = self._process.stdout
        assert pipe is not None
        line = pipe.readline()
        if not line:
            raise RuntimeError(f"the network emulator ended with status {self._process.wait()}")
        names = {one.name for one in fields(Counted)}
        return {
            name: Counted(**{key: value for key, value in one.items() if key in names})
            for name, one in json.loads(line).items()
        }

    def close(self) -> None:
        """End the process. Idempotent."""
        process = self._process
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def main(arguments: list[str], run: Callable[[str, str, int], None]) -> int:
    if len(arguments) not in (2, 3):
        print("usage: python -m tests.network.emulator LEFT RIGHT [SEED]", file=sys.stderr)
        return 2
    # What a path does must not depend on what else the machine does. It is little work.
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    run(arguments[0], arguments[1], int(arguments[2]) if len(arguments) == 3 else 1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], lambda left, right, seed: asyncio.run(forward(left, right, seed))))
