"""A Pipecat bot with fake models, to be loaded as Talkover is: `python serve.py --setting bot --reply-s 3`.

Speech detection is Pipecat's own analyzer with the Silero model; a turn ends with it, as with `server_vad`. The model
that answers is a tone, another one for each reply, handed over as fast as the pipeline takes it. Runs in Pipecat's own
environment and imports nothing of Talkover. Prints its port.

Settings: `bot` is the pipeline that Pipecat's generator writes for a telephone or browser bot, with services in it that
take no time, and everything at its defaults but turns: speech begins one and silence ends it. In `smart-turn` they are
at their defaults too, and a model of Pipecat's own ends them. `bare` has nothing but transport, speech detection, turns
and the tone. `fastest` is `bare` at 8 kHz for a telephone call, so that nothing is resampled, with pieces of 20 ms, and
takes a tenth of a second of speech for an interruption.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass

import uvicorn
from bot import TONES, pipeline_of, tone
from fastapi import FastAPI, Request, WebSocket
from loguru import logger
from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.audio.vad.vad_analyzer import VADParams
from pipecat.frames.frames import (
    Frame,
    InterruptionFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    UserStoppedSpeakingFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.audio.vad_processor import VADProcessor
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.serializers.twilio import TwilioFrameSerializer
from pipecat.transports.base_transport import BaseTransport, TransportParams
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection
from pipecat.transports.smallwebrtc.request_handler import SmallWebRTCRequest, SmallWebRTCRequestHandler
from pipecat.transports.smallwebrtc.transport import SmallWebRTCTransport
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams, FastAPIWebsocketTransport
from pipecat.turns.user_start import VADUserTurnStartStrategy
from pipecat.turns.user_stop import SpeechTimeoutUserTurnStopStrategy
from pipecat.turns.user_turn_processor import UserTurnProcessor
from pipecat.turns.user_turn_strategies import UserTurnStrategies
from pipecat.workers.runner import WorkerRunner


@dataclass(frozen=True)
class Setting:
    vad: VADParams
    chunks: int
    phone_rates: tuple[int, int] | None
    bot: bool = False
    """All of a bot, and not only what makes it speak."""
    smart: bool = False
    """Whether Pipecat's own model ends turns."""


SETTINGS = {
    "bot": Setting(VADParams(), 4, (8000, 8000), bot=True),
    "smart-turn": Setting(VADParams(), 4, (8000, 8000), bot=True, smart=True),
    "bare": Setting(VADParams(), 4, None),
    "fastest": Setting(VADParams(start_secs=0.1), 2, (8000, 8000)),
}


class Tones(FrameProcessor):
    """Answers each turn with a tone of its own."""

    def __init__(self, seconds: float, rate: int) -> None:
        super().__init__()
        self._replies = itertools.cycle(TONES)
        self._seconds, self._rate = seconds, rate
        self._speaking: asyncio.Task[None] | None = None

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, InterruptionFrame) and self._speaking is not None:
            self._speaking.cancel()
            self._speaking = None
        await self.push_frame(frame, direction)
        if isinstance(frame, UserStoppedSpeakingFrame):
            if self._speaking is not None:
                self._speaking.cancel()
            self._speaking = asyncio.create_task(self._speak(next(self._replies)))

    async def _speak(self, hertz: int) -> None:
        await self.push_frame(TTSStartedFrame())
        async for pcm in tone(hertz, self._seconds, self._rate):
            await self.push_frame(TTSAudioRawFrame(pcm, self._rate, 1))
        await self.push_frame(TTSStoppedFrame())


async def converse(transport: BaseTransport, setting: Setting, rates: tuple[int, int] | None, reply_s: float) -> None:
    """One call, until it is over."""
    named = {} if rates is None else {"audio_in_sample_rate": rates[0], "audio_out_sample_rate": rates[1]}
    params = PipelineParams(**named, enable_metrics=setting.bot, enable_usage_metrics=setting.bot)
    silence = UserTurnStrategies(
        start=[VADUserTurnStartStrategy()],
        stop=[SpeechTimeoutUserTurnStopStrategy(user_speech_timeout=0.0, wait_for_transcript=setting.bot)],
    )
    if setting.bot:
        pipeline = pipeline_of(transport, setting.vad, UserTurnStrategies() if setting.smart else silence, reply_s)
    else:
        pipeline = Pipeline(
            [
                transport.input(),
                VADProcessor(vad_analyzer=SileroVADAnalyzer(params=setting.vad)),
                UserTurnProcessor(user_turn_strategies=silence),
                Tones(reply_s, params.audio_out_sample_rate),
                transport.output(),
            ]
        )
    worker = PipelineWorker(pipeline, params=params, idle_timeout_secs=None)

    @transport.event_handler("on_client_disconnected")
    async def gone(transport: BaseTransport, client: object) -> None:
        await worker.cancel()

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await runner.run()


async def messages(websocket: WebSocket) -> AsyncIterator[dict[str, object]]:
    while True:
        yield json.loads(await websocket.receive_text())


def app(setting: Setting, reply_s: float) -> FastAPI:
    application = FastAPI()
    requests = SmallWebRTCRequestHandler()
    running: set[asyncio.Task[None]] = set()

    @application.websocket("/twilio")
    async def twilio(websocket: WebSocket) -> None:
        await websocket.accept()
        async for message in messages(websocket):
            if message["event"] == "start":
                break
        start = message["start"]
        assert isinstance(start, dict)
        serializer = TwilioFrameSerializer(
            start["streamSid"], start["callSid"], params=TwilioFrameSerializer.InputParams(auto_hang_up=False)
        )
        transport = FastAPIWebsocketTransport(
            websocket,
            FastAPIWebsocketParams(
                audio_in_enabled=True,
                audio_out_enabled=True,
                audio_out_10ms_chunks=setting.chunks,
                serializer=serializer,
            ),
        )
        await converse(transport, setting, setting.phone_rates, reply_s)

    @application.post("/offer")
    async def offer(request: Request) -> dict[str, str] | None:
        async def connected(connection: SmallWebRTCConnection) -> None:
            transport = SmallWebRTCTransport(
                connection,
                TransportParams(audio_in_enabled=True, audio_out_enabled=True, audio_out_10ms_chunks=setting.chunks),
            )
            task = asyncio.create_task(converse(transport, setting, None, reply_s))
            running.add(task)
            task.add_done_callback(running.discard)

        body = await request.json()
        return await requests.handle_web_request(SmallWebRTCRequest(sdp=body["sdp"], type=body["type"]), connected)

    return application


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--setting", choices=tuple(SETTINGS), default="bot")
    parser.add_argument("--reply-s", type=float, default=3.0, metavar="S")
    options = parser.parse_args()
    logger.remove()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1024)
        print("port", listening.getsockname()[1], flush=True)
        config = uvicorn.Config(app(SETTINGS[options.setting], options.reply_s), log_level="error", loop="uvloop")
        uvicorn.Server(config).run([listening])


if __name__ == "__main__":
    main()
