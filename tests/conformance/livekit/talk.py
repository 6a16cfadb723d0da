"""A RealtimeSession of the plugin without a room: what it generated, what it heard, what it sent, and its errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from livekit import rtc
from livekit.agents import llm
from livekit.plugins.openai.realtime import RealtimeModel
from microphone import Microphone
from openai.types.realtime import AudioTranscription, RealtimeServerEvent
from openai.types.realtime.realtime_audio_input_turn_detection import SemanticVad, ServerVad
from pydantic import TypeAdapter
from scenario import Log, typed

logging.basicConfig(level=logging.WARNING)

RATE = 24_000
ADAPTER: Any = TypeAdapter(RealtimeServerEvent)
DETECTION: dict[str | None, Callable[[], Any]] = {
    "server_vad": lambda: ServerVad(type="server_vad", create_response=True, interrupt_response=True),
    "semantic_vad": lambda: SemanticVad(type="semantic_vad", create_response=True, interrupt_response=True),
    None: lambda: None,
}


class Generation:
    """One response as the plugin streams it."""

    def __init__(self, event: llm.GenerationCreatedEvent) -> None:
        self.id = event.response_id
        self.user_initiated = event.user_initiated
        self.items: list[str] = []
        self.text = ""
        self.audio = bytearray()
        self.calls: list[llm.FunctionCall] = []
        self.sounded = asyncio.Event()
        self._event = event
        self._task = asyncio.create_task(self._collect())

    async def _collect(self) -> None:
        async def messages() -> None:
            async for message in self._event.message_stream:
                self.items.append(message.message_id)
                await asyncio.gather(texts(message), frames(message))

        async def texts(message: llm.MessageGeneration) -> None:
            async for piece in message.text_stream:
                self.text += piece

        async def frames(message: llm.MessageGeneration) -> None:
            async for frame in message.audio_stream:
                self.audio += bytes(frame.data)
                self.sounded.set()

        async def calls() -> None:
            async for call in self._event.function_stream:
                self.calls.append(call)

        await asyncio.gather(messages(), calls())

    async def done(self, within: float = 45.0) -> None:
        await asyncio.wait_for(asyncio.shield(self._task), within)

    async def speaks(self, within: float = 45.0) -> None:
        await asyncio.wait_for(self.sounded.wait(), within)


class Talk:
    def __init__(self, url: str, detection: str | None, **options: Any) -> None:
        self.model = RealtimeModel(
            base_url=url,
            api_key="sk-none",
            model="talkover",
            turn_detection=DETECTION[detection](),
            input_audio_transcription=AudioTranscription(model="whisper-1"),
            **options,
        )
        self.session = self.model.session()
        self.raw: Log[dict[str, Any]] = Log()
        self.sent: list[dict[str, Any]] = []
        self.generations: Log[Generation] = Log()
        self.heard: Log[llm.InputTranscriptionCompleted] = Log()
        self.errors: list[str] = []
        self.invalid: list[str] = []
        self.metrics: list[Any] = []
        self.microphone = Microphone(self._hear, RATE)
        self.session.on("openai_server_event_received", self._received)
        self.session.on("openai_client_event_queued", self.sent.append)
        self.session.on("generation_created", lambda event: self.generations.add(Generation(event)))
        self.session.on("input_audio_transcription_completed", self.heard.add)
        self.session.on("metrics_collected", self.metrics.append)
        self.session.on("error", lambda event: self.errors.append(f"{event.error} {event.error.body}"[:2000]))

    def _received(self, event: dict[str, Any]) -> None:
        try:
            ADAPTER.validate_python(event)
        except ValueError as error:
            self.invalid.append(f"{event.get('type')}: {str(error)[:500]}")
        self.raw.add(dict(event))

    async def _hear(self, pcm: bytes) -> None:
        self.session.push_audio(rtc.AudioFrame(pcm, RATE, 1, len(pcm) // 2))

    async def wait(self, kind: str, after: int = 0, within: float = 45.0) -> dict[str, Any]:
        return await self.raw.wait(typed(kind), after, within, kind)

    async def generation(self, after: int = 0) -> Generation:
        return await self.generations.wait(lambda generation: True, after, what="generation")

    async def final(self, after: int = 0) -> llm.InputTranscriptionCompleted:
        return await self.heard.wait(lambda entry: entry.is_final, after, what="transcript")

    async def write(self, text: str) -> None:
        """Put a user's message at the end of the conversation; the plugin sends it and waits until it is there."""
        context = self.session.chat_ctx.copy()
        context.add_message(role="user", content=text)
        await self.session.update_chat_ctx(context)

    def items(self) -> list[str]:
        """What the plugin holds of the conversation, a line per item."""
        return [
            f"{item.role}: {item.text_content}" if item.type == "message" else item.type
            for item in self.session.chat_ctx.items
        ]

    def verdict(self) -> dict[str, Any]:
        return {
            "errors": self.errors,
            "invalid": self.invalid,
            "types": [event["type"] for event in self.raw.entries],
            "sent": [event["type"] for event in self.sent if event["type"] != "input_audio_buffer.append"],
        }


@asynccontextmanager
async def talking(talk: Talk) -> AsyncIterator[Talk]:
    try:
        await talk.wait("session.updated")
        yield talk
    finally:
        await talk.microphone.close()
        await talk.session.aclose()
        await talk.model.aclose()
