"""The yardstick: a server that does nothing but echo messages, by the library `websockets` alone.

    python -m loadtest.baseline                # an echo server on a port of its own, which it prints

A processor shared with others makes everything slower alike, so a ratio to this says more than milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from types import TracebackType

import uvloop
import websockets


class EchoProcess:
    """`python -m loadtest.baseline` as a subprocess; a context manager that is ready inside the block."""

    def __enter__(self) -> EchoProcess:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "loadtest.baseline"],
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the load, which ends it
        )
        if self._process.stdout is None or not (port := self._process.stdout.readline().strip()):
            raise RuntimeError("the echo server did not start")
        self.url = f"ws://127.0.0.1:{port}/"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.communicate()

    @property
    def pid(self) -> int:
        return self._process.pid


async def _echo(socket: websockets.ServerConnection) -> None:
    with contextlib.suppress(websockets.ConnectionClosed):
        async for message in socket:
            await socket.send(message)


async def main() -> None:
    """Serve until the standard input ends."""
    async with websockets.serve(_echo, "127.0.0.1", 0, compression=None) as server:
        print(next(iter(server.sockets)).getsockname()[1], flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main())
