"""A Realtime session over WebSocket with the native duplex engine, random weights: it speaks, is cut, speaks again."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

from websockets.asyncio.client import ClientConnection

from models.families.moshi.engine import moshi_engine
from models.slots.duplex import DuplexEngine
from tests.server.serving import refusal, served

FRAME_BYTES = 1920 * 2


class Caller:
    """A client whose time is the engine's: every frame of audio that it sends is answered with a tick."""

    def __init__(self, socket: ClientConnection, engine: DuplexEngine) -> None:
        self._socket = socket
        self._engine = engine
        self.audio = b""
        self.told: list[dict[str, Any]] = []

    async def send(self, **message: object) -> None:
        await self._socket.send(json.dumps(message))

    async def speak(self, frames: int) -> None:
        """Silence of so many frames, each of them stepped."""
        quiet = base64.b64encode(bytes(FRAME_BYTES)).decode()
        for _ in range(frames):
            seen = self._engine.counters.get("steps", 0)
            await self.send(type="input_audio_buffer.append", audio=quiet)
            while self._engine.counters.get("steps", 0) == seen:
                await asyncio.to_thread(self._engine.tick)

    async def until(self, kind: str, seconds_of_audio: float = 0.0) -> dict[str, Any]:
        """Read on to a message of this type, and to so much audio."""
        while True:
            message = json.loads(await asyncio.wait_for(self._socket.recv(), 20))
            self.told.append(message)
            if message["type"] == "response.output_audio.delta":
                self.audio += base64.b64decode(message["delta"])
            if message["type"] == kind and len(self.audio) >= seconds_of_audio * 48_000:
                return message


async def test_a_session_is_spoken_to_cut_and_spoken_to_again() -> None:
    engine = moshi_engine(None, slots=2, worker=False)
    async with served(engine=engine) as place, place.socket() as socket:  # type: ignore[arg-type]
        caller = Caller(socket, engine)
        await caller.until("session.created")
        await caller.speak(6)
        first = (await caller.until("response.created"))["response"]["id"]
        await caller.until("response.output_audio.delta", seconds_of_audio=0.3)
        assert len(set(caller.audio)) > 100
        await caller.send(type="response.cancel")
        done = (await caller.until("response.done"))["response"]
        assert (done["id"], done["status"]) == (first, "cancelled")
        caller.audio = b""
        # Kept silent for a while after the cut, then it speaks again.
        await caller.speak(12)
        second = (await caller.until("response.created"))["response"]["id"]
        assert second != first
        await caller.until("response.output_audio.delta", seconds_of_audio=0.1)
        assert engine.active == 1
        assert not [message for message in caller.told if message["type"] == "error"]
    assert engine.active == 0
    engine.shutdown()


async def test_a_response_cannot_be_asked_of_it_and_a_full_engine_refuses_at_the_door() -> None:
    engine = moshi_engine(None, slots=1, worker=False)
    async with served(engine=engine) as place, place.socket() as socket:  # type: ignore[arg-type]
        caller = Caller(socket, engine)
        await caller.until("session.created")
        await caller.send(type="response.create")
        assert "error" in await caller.until("error")
        status, error = await refusal(place.socket())
        assert (status, error["code"]) == (503, "server_busy")
        assert "taken" in error["message"]
    engine.shutdown()
