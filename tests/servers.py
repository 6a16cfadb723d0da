"""A Talkover server in a process of its own, for whoever tests it from outside."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal

import httpx

ROOT = Path(__file__).resolve().parent.parent

Engine = Literal["embedded", "scripted", "duplex-script", "moshi", "qwen3-omni"]


class ServerFailed(Exception):
    """The server did not come up, or went down; the message ends with the tail of its log."""


def free_port() -> int:
    """A TCP port on loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """`talkover serve` as a subprocess; a context manager that is ready inside the block.

    `script` is the path of a TOML file, or its text, for the scripted engines. `env` is added to this process's
    environment; `arguments` to the command line. `ready_within` covers a first preparation of the model files. `tls` is
    certificate and key, the certificate its own authority.
    """

    def __init__(
        self,
        engine: Engine = "embedded",
        script: Path | str | None = None,
        env: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        ready_within: float = 300.0,
        tls: tuple[Path, Path] | None = None,
    ) -> None:
        self.port = free_port()
        self.ready_within = ready_within
        self._scratch = tempfile.TemporaryDirectory(prefix="talkover-server-")
        if isinstance(script, str):
            path = Path(self._scratch.name) / "script.toml"
            path.write_text(script)
            script = path
        self.command = [sys.executable, "-m", "server.cli", "serve", "--host", "127.0.0.1", "--port", str(self.port)]
        self.command += ["--engine", engine, *(["--script", str(script)] if script else []), *arguments]
        if tls is not None:
            self.command += ["--tls-cert", str(tls[0]), "--tls-key", str(tls[1])]
        self._secure = "s" if tls is not None else ""
        self._trust = ssl.create_default_context(cafile=tls[0]) if tls is not None else True
        self._env = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        self.log_path = Path(self._scratch.name) / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def base_url(self) -> str:
        """What an OpenAI SDK takes as `base_url`."""
        return f"http{self._secure}://127.0.0.1:{self.port}/v1"

    @property
    def realtime_url(self) -> str:
        """The WebSocket itself."""
        return f"ws{self._secure}://127.0.0.1:{self.port}/v1/realtime?model=talkover"

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def log(self) -> str:
        """All that the server has printed."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    @property
    def rss(self) -> int:
        """Resident memory of the server and its children, in bytes."""
        return sum(_rss(pid) for pid in [self.pid, *_children(self.pid)])

    def health(self) -> dict[str, object]:
        """The body of GET /healthz."""
        with self._http(5.0) as client:
            return dict(client.get("/healthz").json())

    def start(self) -> ServerProcess:
        """Start and wait until ready; raises ServerFailed when it ends before or takes longer than `ready_within`."""
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                self.command, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, env=self._env, start_new_session=True
            )
        deadline = time.monotonic() + self.ready_within
        state = "not listening"
        with self._http(2.0) as client:
            while time.monotonic() < deadline:
                try:
                    reply = client.get("/healthz")
                    if reply.status_code == 200:
                        return self
                    state = f"{reply.status_code} {reply.text[:200]}"
                except httpx.TransportError as error:
                    state = str(error)
                try:
                    status = self._process.wait(timeout=0.1)
                except subprocess.TimeoutExpired:
                    continue
                raise ServerFailed(f"server ended with status {status} before it was ready\n{self.log[-3000:]}")
        self.stop()
        raise ServerFailed(f"server not ready after {self.ready_within:.0f} s ({state})\n{self.log[-3000:]}")

    def stop(self, within: float = 10.0) -> int:
        """Ask it to end, as a supervisor does; returns the exit status. Kills it after `within` seconds."""
        process = self._running()
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=within)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return process.returncode

    def _http(self, timeout: float) -> httpx.Client:
        base = f"http{self._secure}://127.0.0.1:{self.port}"
        return httpx.Client(base_url=base, timeout=timeout, trust_env=False, verify=self._trust)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerFailed("the server was not started")
        return self._process

    def __enter__(self) -> ServerProcess:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if error is not None:
            error.add_note(f"server log ends:\n{self.log[-3000:]}")
        self._scratch.cleanup()


def _rss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:")), 0)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *_children(child)]
    return found
