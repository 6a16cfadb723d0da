"""Network namespaces for tests: networks of their own, which the machine's own never sees.

Interfaces are made inside the namespaces and named there alone. The names of the namespaces hold this process's id, so
runs beside each other do not meet, and what a killed run left behind is known by an id that is no longer there.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import fcntl
import itertools
import os
import shutil
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

Result = TypeVar("Result")

PREFIX: Final = "talkover"
RUN: Final = Path("/run/netns")
"""Where `ip netns` keeps its names."""

_CLONE_NEWNET: Final = 0x40000000
_SIOCETHTOOL: Final = 0x8946
_ETHTOOL_STXCSUM: Final = 0x17
"""linux/sched.h, linux/sockios.h, linux/ethtool.h."""

_numbers = itertools.count()


class NamespaceError(Exception):
    """A command that sets up a network failed; the message has what it said."""


def missing() -> str | None:
    """Why namespaces cannot be made here; None where they can."""
    if shutil.which("ip") is None:
        return "the command ip is not installed (Debian: iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    probe = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        return f"network namespaces are not permitted here: {probe.stderr.strip()}"
    return None


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NamespaceError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def sweep() -> list[str]:
    """Remove the namespaces of runs whose process is gone, and end what still runs in them; their names."""
    removed = []
    for entry in sorted(RUN.glob(f"{PREFIX}-*-*")):
        owner = entry.name.split("-")[1]
        if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
            inside = subprocess.run(["ip", "netns", "pids", entry.name], capture_output=True, text=True, check=False)
            for process in map(int, inside.stdout.split()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            # It may be that another run does the same at this moment.
            subprocess.run(["ip", "netns", "del", entry.name], capture_output=True, check=False)
            removed.append(entry.name)
    return removed


class Namespace:
    """One network namespace with its loopback up. A context manager: it is gone after the block."""

    def __init__(self, role: str) -> None:
        """`role`: a word that ends its name. Raises NamespaceError."""
        self.name = f"{PREFIX}-{os.getpid()}-{next(_numbers)}-{role}"
        _ip("netns", "add", self.name)
        try:
            self.ip("link", "set", "lo", "up")
        except NamespaceError:
            self.delete()
            raise

    def ip(self, *arguments: str) -> str:
        """Run `ip` on this namespace; its output. Raises NamespaceError."""
        return _ip("-n", self.name, *arguments)

    def join(self, interface: str, other: Namespace, its_interface: str) -> None:
        """A cable: `interface` here, `its_interface` in `other`. Both are up and complete their checksums."""
        self.ip("link", "add", interface, "type", "veth", "peer", "name", its_interface, "netns", other.name)
        for place, name in ((self, interface), (other, its_interface)):
            place.ip("link", "set", name, "addrgenmode", "none")
            # veth hands frames over with their checksums left to a card that is not there: whoever reads them raw
            # and sends them on would send them damaged.
            place.run(lambda name=name: _complete_checksums(name))  # type: ignore[misc]
            place.ip("link", "set", name, "up")

    def run(self, function: Callable[[], Result]) -> Result:
        """Call `function` in a thread of its own that lives in this namespace, and return what it does or raises.

        Sockets made there, and processes and threads begun there, are of this namespace.
        """
        done: list[Result] = []
        failed: list[BaseException] = []

        def enter() -> None:
            try:
                self._enter()
                done.append(function())
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=enter, name=self.name, daemon=True)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        return done[0]

    def _enter(self) -> None:
        """Move the calling thread here. It cannot go back: it has to end."""
        libc = ctypes.CDLL(None, use_errno=True)
        with (RUN / self.name).open() as handle:
            if libc.setns(handle.fileno(), _CLONE_NEWNET):
                number = ctypes.get_errno()
                raise NamespaceError(f"cannot enter namespace {self.name}: {os.strerror(number)}")

    def delete(self) -> None:
        """Remove it, with its interfaces. Idempotent."""
        if (RUN / self.name).exists():
            _ip("netns", "del", self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.delete()


def _complete_checksums(interface: str) -> None:
    off = array.array("B", struct.pack("II", _ETHTOOL_STXCSUM, 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCETHTOOL, struct.pack("16sP", interface.encode(), off.buffer_info()[0]))
