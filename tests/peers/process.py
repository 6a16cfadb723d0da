"""A peer in a process of its own, on a port that the system chose."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from types import TracebackType

from websockets.sync.client import connect

from tests.servers import ROOT


class PeerProcess:
    """`python -m tests.peers.MODULE ARGUMENTS`; a context manager that listens inside the block."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._command = [sys.executable, "-m", f"tests.peers.{module}", *arguments]
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    def __enter__(self) -> PeerProcess:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("listening "), f"the peer did not begin: {line!r}"
        self.port = int(line.split()[1])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """End it at once, as a crash does."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    @property
    def ws(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def seen(self) -> dict[str, list[dict[str, object]]]:
        """What the peer was told so far, by type of message; only for peers that serve `/seen`."""
        with connect(f"{self.ws}/seen", proxy=None) as socket:
            return defaultdict(list, json.loads(socket.recv()))
