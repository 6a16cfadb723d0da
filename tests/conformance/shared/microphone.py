"""A microphone for any client: one frame per 20 ms by absolute deadlines, silence between what is said."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

FRAME_SECONDS = 0.02


class Microphone:
    """Raw int16 mono PCM at `rate`, frame by frame to `send`, from `open` on."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]], rate: int = 24_000) -> None:
        self._send = send
        self._frame = 2 * round(rate * FRAME_SECONDS)
        self._said = bytearray()
        self._quiet = asyncio.Event()
        self._capturing: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._capturing = asyncio.create_task(self._capture())

    async def say(self, path: str) -> None:
        """Speak a file; returns when its last sample has gone out. Raises what `send` raised, if it did."""
        if self._capturing is None:
            raise AssertionError("the microphone is not open")
        self._said += Path(path).read_bytes()
        self._quiet.clear()
        said = asyncio.create_task(self._quiet.wait())
        await asyncio.wait([said, self._capturing], return_when=asyncio.FIRST_COMPLETED)
        said.cancel()
        if self._capturing.done():
            self._capturing.result()

    async def _capture(self) -> None:
        due = time.monotonic()
        while True:
            chunk = bytes(self._said[: self._frame])
            del self._said[: self._frame]
            await self._send(chunk.ljust(self._frame, b"\0"))
            if not self._said:
                self._quiet.set()
            due += FRAME_SECONDS
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def close(self) -> None:
        """Raises what `send` raised, if it did."""
        if self._capturing is None:
            return
        self._capturing.cancel()
        try:
            await self._capturing
        except asyncio.CancelledError:
            pass
