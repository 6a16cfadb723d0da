"""A whole AgentSession around the model, an ear and a loudspeaker in place of a room, and a question over its story."""

import asyncio
import logging
import time
from typing import Any

from livekit import rtc
from livekit.agents import Agent, AgentSession
from livekit.agents.voice import io
from livekit.plugins.openai.realtime import RealtimeModel
from microphone import Microphone
from openai.types.realtime import AudioTranscription
from scenario import Log, arguments, report, typed
from talk import ADAPTER, DETECTION, RATE

logging.basicConfig(level=logging.WARNING)

STORY = "Tell me a long story about a ship and its captain."


class Ear(io.AudioInput):
    def __init__(self) -> None:
        super().__init__(label="ear")
        self._frames: asyncio.Queue[rtc.AudioFrame] = asyncio.Queue()

    async def hear(self, pcm: bytes) -> None:
        self._frames.put_nowait(rtc.AudioFrame(pcm, RATE, 1, len(pcm) // 2))

    async def __anext__(self) -> rtc.AudioFrame:
        return await self._frames.get()


class Loudspeaker(io.AudioOutput):
    """Plays in real time, by the clock, and reports how much of each segment was heard."""

    def __init__(self) -> None:
        super().__init__(label="loudspeaker", capabilities=io.AudioOutputCapabilities(pause=False), sample_rate=RATE)
        self.positions: list[tuple[float, bool]] = []
        self._pushed = 0.0
        self._started = 0.0
        self._ending: asyncio.Task[None] | None = None

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        if not self._pushed:
            self._started = time.monotonic()
            self.on_playback_started(created_at=time.time())
        self._pushed += frame.duration

    def flush(self) -> None:
        super().flush()
        if self._pushed and self._ending is None:
            left = self._started + self._pushed - time.monotonic()
            self._ending = asyncio.create_task(self._end(max(0.0, left)))

    def clear_buffer(self) -> None:
        if self._pushed:
            if self._ending is not None:
                self._ending.cancel()
            self._finish(min(self._pushed, time.monotonic() - self._started), True)

    async def _end(self, left: float) -> None:
        await asyncio.sleep(left)
        self._finish(self._pushed, False)

    def _finish(self, position: float, interrupted: bool) -> None:
        self._pushed, self._ending = 0.0, None
        self.positions.append((position, interrupted))
        self.on_playback_finished(playback_position=position, interrupted=interrupted)


async def main() -> None:
    given = arguments()
    model = RealtimeModel(
        base_url=given["base_url"],
        api_key="sk-none",
        model="talkover",
        turn_detection=DETECTION[given["turn_detection"]](),
        input_audio_transcription=AudioTranscription(model="whisper-1"),
    )
    session: AgentSession[None] = AgentSession(llm=model, vad=None, aec_warmup_duration=None)
    ear, loudspeaker = Ear(), Loudspeaker()
    session.input.audio, session.output.audio = ear, loudspeaker
    raw: Log[dict[str, Any]] = Log()
    sent: list[dict[str, Any]] = []
    invalid: list[str] = []
    errors: list[str] = []
    said: Log[Any] = Log()

    def received(event: dict[str, Any]) -> None:
        try:
            ADAPTER.validate_python(event)
        except ValueError as error:
            invalid.append(f"{event.get('type')}: {str(error)[:500]}")
        raw.add(dict(event))

    def added(event: Any) -> None:
        if event.item.type == "message":
            said.add(event.item)

    session.on("conversation_item_added", added)
    session.on("error", lambda event: errors.append(f"{event.error.error} {event.error.error.body}"[:2000]))
    microphone = Microphone(ear.hear, RATE)
    agent = Agent(instructions="You are a helpful AI assistant named SmolLM, trained by Hugging Face")
    await session.start(agent, record=False)
    link = agent.realtime_llm_session
    link.on("openai_server_event_received", received)
    link.on("openai_client_event_queued", sent.append)
    try:
        microphone.open()
        session.generate_reply(user_input=STORY)
        first = await raw.wait(typed("response.output_audio.delta"), what="audio")
        await asyncio.sleep(1.5)
        mark = len(raw)
        await microphone.say(given["question"])
        story = await said.wait(lambda item: item.role == "assistant", what="story")
        heard = await said.wait(lambda item: item.role == "user" and item.text_content != STORY, what="question")
        done = await raw.wait(
            lambda event: event["type"] == "response.done" and event["response"]["id"] == first["response_id"], mark
        )
        answer = await said.wait(lambda item: item.role == "assistant" and item.id != story.id, what="answer")
        truncations = [event for event in sent if event["type"] == "conversation.item.truncate"]
        report(
            {
                "errors": errors,
                "invalid": invalid,
                "types": [event["type"] for event in raw.entries],
                "sent": [event["type"] for event in sent if event["type"] != "input_audio_buffer.append"],
                "status": done["response"]["status"],
                "reason": done["response"]["status_details"]["reason"],
                "story": story.id,
                "interrupted": story.interrupted,
                "truncated": [event["item_id"] for event in truncations],
                "truncated_ms": [event["audio_end_ms"] for event in truncations],
                "played_ms": int(loudspeaker.positions[0][0] * 1000),
                "heard": heard.text_content,
                "answer": answer.text_content,
            }
        )
    finally:
        await microphone.close()
        await session.aclose()
        await model.aclose()


asyncio.run(main())
