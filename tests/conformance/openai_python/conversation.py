"""What the scenarios share: a connection, a microphone, and everything that arrived. Runs with openai alone."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI
from pydantic import BaseModel

FRAME_SECONDS = 0.02


def arguments() -> dict[str, Any]:
    return json.loads(sys.argv[1])


class Conversation:
    """A Realtime connection of the SDK, read in the background."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.events: list[Any] = []
        self.audio: dict[str, bytearray] = {}
        self._news = asyncio.Event()
        self._reader = asyncio.create_task(self._read())
        self._microphone: asyncio.Task[None] | None = None
        self._said = bytearray()
        self._quiet = asyncio.Event()
        self._silence = b"\0"
        self.rate = 48_000

    async def _read(self) -> None:
        async for event in self.connection:
            if not isinstance(event, BaseModel) or type(event).__name__ == "RealtimeServerEvent":
                raise AssertionError(f"the SDK has no type for {event!r}")
            self.events.append(event)
            if event.type == "response.output_audio.delta":
                self.audio.setdefault(event.response_id, bytearray()).extend(base64.b64decode(event.delta))
            self._news.set()

    async def wait(self, what: str | Callable[[Any], bool], after: int = 0, within: float = 45.0) -> Any:
        """The first event from index `after` on that is of this type or satisfies this."""
        seen = after
        deadline = time.monotonic() + within
        while True:
            while seen < len(self.events):
                event = self.events[seen]
                seen += 1
                if event.type == what if isinstance(what, str) else what(event):
                    return event
            if self._reader.done():
                self._reader.result()
                raise AssertionError(f"connection closed while waiting for {what}")
            self._news.clear()
            left = deadline - time.monotonic()
            if left <= 0:
                tail = [event.type if event.type != "error" else repr(event) for event in self.events[after:]][-8:]
                raise AssertionError(f"waited {within} s for {what}; last came {tail}")
            try:
                await asyncio.wait_for(self._news.wait(), left)
            except TimeoutError:
                pass

    def sounded(self, response: str) -> float:
        """Seconds of a response that have arrived."""
        return len(self.audio.get(response, b"")) / 48_000

    def index(self, event: Any) -> int:
        return next(index for index, one in enumerate(self.events) if one is event)

    def types(self, after: int = 0) -> list[str]:
        return [event.type for event in self.events[after:]]

    def errors(self) -> list[str]:
        return [event.error.message for event in self.events if event.type == "error"]

    # --- microphone: one frame per 20 ms by absolute deadlines, silence between what is said ---

    def open_microphone(self, bytes_per_second: int = 48_000, silence: bytes = b"\0") -> None:
        self.rate, self._silence = bytes_per_second, silence
        self._microphone = asyncio.create_task(self._capture())

    async def say(self, audio: bytes) -> None:
        """Put `audio` into the microphone; returns when its last sample has gone out."""
        self._said += audio
        self._quiet.clear()
        await self._quiet.wait()

    async def _capture(self) -> None:
        frame = round(self.rate * FRAME_SECONDS)
        due = time.monotonic()
        while True:
            chunk = bytes(self._said[:frame])
            del self._said[:frame]
            chunk += self._silence * (frame - len(chunk))
            await self.connection.input_audio_buffer.append(audio=base64.b64encode(chunk).decode())
            if not self._said:
                self._quiet.set()
            due += FRAME_SECONDS
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def close(self) -> None:
        for task in (self._microphone, self._reader):
            if task is not None:
                task.cancel()
        await asyncio.gather(*(task for task in (self._microphone, self._reader) if task), return_exceptions=True)


@asynccontextmanager
async def conversation(given: dict[str, Any], session: dict[str, Any]) -> AsyncIterator[Conversation]:
    """Connect with the SDK as an application does, and configure the session."""
    client = AsyncOpenAI(api_key="sk-none", base_url=given["base_url"])
    async with client.realtime.connect(model="talkover") as connection:
        talk = Conversation(connection)
        try:
            created = await talk.wait("session.created")
            assert created.session.type == "realtime"
            await connection.session.update(session={"type": "realtime", **session})
            await talk.wait("session.updated")
            yield talk
        finally:
            await talk.close()


def transcript(talk: Conversation, response: str) -> str:
    """What a response said, put together from its deltas."""
    kinds = ("response.output_audio_transcript.delta", "response.output_text.delta")
    return "".join(event.delta for event in talk.events if event.type in kinds and event.response_id == response)


def save(audio: bytes, path: str) -> str:
    Path(path).write_bytes(audio)
    return path


def report(result: dict[str, Any]) -> None:
    print(json.dumps(result))
