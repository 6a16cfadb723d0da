"""A real Redis server of a test's own, on a Unix socket."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

import pytest

needs_redis = pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")


class RedisServer:
    """`with RedisServer(folder) as redis: ... redis.url`. Nothing of it is kept on disk."""

    def __init__(self, folder: Path) -> None:
        # A path for a socket may have 107 bytes at most; those of pytest may be longer.
        self.path = folder / "r.sock"
        self.url = f"unix://{self.path}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = ["redis-server", "--port", "0", "--unixsocket", str(self.path), "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 20
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError("redis-server does not start")
            time.sleep(0.02)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1)
            try:
                probe.connect(str(self.path))
                probe.sendall(b"PING\r\n")
                return probe.recv(7) == b"+PONG\r\n"
            except OSError:
                return False

    def kill(self) -> None:
        """As a crash: everything in it is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """It answers nobody."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
