"""A bot as applications build it: a pipeline around OpenAIRealtimeLLMService, with an ear and a loudspeaker."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from loguru import logger
from microphone import Microphone
from pipecat.frames.frames import (
    Frame,
    InputAudioRawFrame,
    OutputAudioRawFrame,
    OutputTransportReadyFrame,
    StartFrame,
)
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.services.openai.realtime import events
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.transports.base_input import BaseInputTransport
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import TransportParams
from pipecat.workers.runner import WorkerRunner
from scenario import Log

RATE = 24_000

logger.remove()
logger.add(sys.stderr, level="WARNING")


class Ear(BaseInputTransport):
    """Input of a pipeline."""

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def hear(self, pcm: bytes) -> None:
        await self.push_audio_frame(InputAudioRawFrame(audio=pcm, sample_rate=RATE, num_channels=1))


class Loudspeaker(BaseOutputTransport):
    """Output of a pipeline; plays in real time and keeps what it played."""

    def __init__(self, params: TransportParams) -> None:
        super().__init__(params)
        self.played = bytearray()
        self._due = 0.0

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        self.played += frame.audio
        self._due = max(self._due, time.monotonic()) + len(frame.audio) / (2 * RATE)
        await asyncio.sleep(max(0.0, self._due - time.monotonic()))
        return True


class Service(OpenAIRealtimeLLMService):
    """The service as it is; it also keeps what it sent."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.sent: list[events.ClientEvent] = []

    async def send_client_event(self, event: events.ClientEvent) -> None:
        self.sent.append(event)
        await super().send_client_event(event)


class Frames(BaseObserver):
    """Every frame that a processor pushed, once each."""

    def __init__(self) -> None:
        super().__init__()
        self.log: Log[Frame] = Log()
        self._seen: set[int] = set()

    async def on_push_frame(self, data: FramePushed) -> None:
        if data.frame.id not in self._seen:
            self._seen.add(data.frame.id)
            self.log.add(data.frame)


class Bot:
    """A running pipeline and everything that came out of it."""

    def __init__(self, url: str, session: events.SessionProperties, context: LLMContext | None = None) -> None:
        self.service = Service(
            api_key="sk-none",
            base_url=url.partition("?")[0],
            settings=OpenAIRealtimeLLMService.Settings(model="talkover", session_properties=session),
        )
        self.context = context
        self.items: list[events.ConversationItem] = []
        self.service.add_event_handler("on_conversation_item_created", self._item)
        params = TransportParams(
            audio_in_enabled=True,
            audio_in_sample_rate=RATE,
            audio_out_enabled=True,
            audio_out_sample_rate=RATE,
            audio_out_10ms_chunks=2,
        )
        self.ear, self.loudspeaker = Ear(params), Loudspeaker(params)
        self.microphone = Microphone(self.ear.hear, RATE)
        self._frames = Frames()
        self.frames = self._frames.log
        stages: list[Any] = [self.ear, self.service, self.loudspeaker]
        if context is not None:
            pair = LLMContextAggregatorPair(context)
            stages = [self.ear, pair.user(), self.service, self.loudspeaker, pair.assistant()]
        self.worker = PipelineWorker(
            Pipeline(stages),
            params=PipelineParams(audio_in_sample_rate=RATE, audio_out_sample_rate=RATE),
            observers=[self._frames],
            idle_timeout_secs=None,
        )

    async def _item(self, service: OpenAIRealtimeLLMService, item_id: str, item: events.ConversationItem) -> None:
        self.items.append(item)

    async def wait(self, *kinds: type[Frame], after: int = 0, within: float = 45.0) -> Any:
        """The first frame of one of these kinds from index `after` on."""
        names = " or ".join(kind.__name__ for kind in kinds)
        return await self.frames.wait(lambda frame: isinstance(frame, kinds), after, within, names)

    def verdict(self) -> dict[str, Any]:
        # An event that the service's models refuse ends its reading with an exception, and nothing is heard any more.
        task = self.service._receive_task
        return {
            "errors": [frame.error for frame in self.frames.entries if type(frame).__name__ == "ErrorFrame"],
            "reading": task is not None and not task.done(),
            "sent": [event.type for event in self.service.sent if event.type != "input_audio_buffer.append"],
        }


@asynccontextmanager
async def running(bot: Bot) -> AsyncIterator[Bot]:
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(bot.worker)
    task = asyncio.create_task(runner.run())
    try:
        await bot.wait(OutputTransportReadyFrame, within=15)
        yield bot
    finally:
        await bot.microphone.close()
        await runner.cancel()
        await asyncio.wait_for(task, 15)
