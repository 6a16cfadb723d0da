"""What the scenarios share: a RealtimeSession of the SDK, a microphone, and the SDK's own verdict on every event."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agents.realtime import RealtimeAgent, RealtimeRunner
from agents.realtime.openai_realtime import get_server_event_type_adapter

FRAME_SECONDS = 0.02
FRAME_BYTES = 960
"""20 ms of 24 kHz int16."""

ADAPTER: Any = get_server_event_type_adapter()


def arguments() -> dict[str, Any]:
    return json.loads(sys.argv[1])


class Talk:
    """A running session: everything it reported, what it played, and whether each raw event was valid."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.events: list[Any] = []
        self.raw: list[dict[str, Any]] = []
        self.invalid: list[str] = []
        self.errors: list[str] = []
        self.audio = bytearray()
        self.interruptions = 0
        self._news = asyncio.Event()
        self._said = bytearray()
        self._quiet = asyncio.Event()
        self._tasks = [asyncio.create_task(self._read())]

    async def _read(self) -> None:
        async for event in self.session:
            self.events.append(event)
            if event.type == "error":
                self.errors.append(str(event.error)[:2000])
            elif event.type == "audio":
                self.audio += event.audio.data
            elif event.type == "audio_interrupted":
                self.interruptions += 1
            elif event.type == "raw_model_event":
                kind = event.data.type
                if kind == "raw_server_event":
                    self._judge(event.data.data)
                elif kind in ("error", "exception"):
                    self.errors.append(str(getattr(event.data, "error", None) or event.data)[:2000])
            self._news.set()

    def _judge(self, raw: dict[str, Any]) -> None:
        """The SDK passes over some events before its own validator sees them; here every one is put to it."""
        self.raw.append(raw)
        shown = {**raw, "previous_item_id": raw.get("previous_item_id") or ""} if "previous_item_id" in raw else raw
        try:
            ADAPTER.validate_python(shown)
        except ValueError as error:
            self.invalid.append(f"{raw.get('type')}: {str(error)[:500]}")

    async def wait(
        self, what: str | Callable[[dict[str, Any]], bool], after: int = 0, within: float = 45.0
    ) -> dict[str, Any]:
        """The first raw event from index `after` on that is of this type or satisfies this."""
        seen, deadline = after, time.monotonic() + within
        while True:
            while seen < len(self.raw):
                raw = self.raw[seen]
                seen += 1
                if raw["type"] == what if isinstance(what, str) else what(raw):
                    return raw
            self._news.clear()
            left = deadline - time.monotonic()
            if left <= 0 or self._tasks[0].done():
                tail = [raw["type"] for raw in self.raw[after:]][-8:]
                raise AssertionError(f"no {what} within {within} s; last came {tail}; errors {self.errors}")
            try:
                await asyncio.wait_for(self._news.wait(), left)
            except TimeoutError:
                pass

    def open_microphone(self) -> None:
        self._tasks.append(asyncio.create_task(self._capture()))

    async def say(self, path: str) -> None:
        """Speak a file of raw PCM; returns when its last sample has gone out."""
        self._said += Path(path).read_bytes()
        self._quiet.clear()
        await self._quiet.wait()

    async def _capture(self) -> None:
        due = time.monotonic()
        while True:
            chunk = bytes(self._said[:FRAME_BYTES])
            del self._said[:FRAME_BYTES]
            await self.session.send_audio(chunk.ljust(FRAME_BYTES, b"\0"))
            if not self._said:
                self._quiet.set()
            due += FRAME_SECONDS
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def verdict(self) -> dict[str, Any]:
        return {
            "errors": self.errors,
            "invalid": self.invalid,
            "types": [raw["type"] for raw in self.raw],
            "interruptions": self.interruptions,
        }

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def talk_with(given: dict[str, Any], agent: RealtimeAgent[Any], settings: dict[str, Any]) -> AsyncIterator[Talk]:
    """Run the agent as an application does; `settings` are its model settings."""
    runner = RealtimeRunner(starting_agent=agent)
    session = await runner.run(
        model_config={"url": given["url"], "api_key": "sk-none", "initial_model_settings": settings}
    )
    async with session:
        talk = Talk(session)
        try:
            yield talk
        finally:
            await talk.close()


def report(result: dict[str, Any]) -> None:
    print(json.dumps(result))
