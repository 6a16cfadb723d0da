"""The pipeline of a bot as Pipecat's own generator lays it out, with models that take no time.

Recognition, language model and speech are services of Pipecat's own kinds, so that everything around them is what a bot
really has: contexts, aggregators, sentences, metrics. Turns end as the caller of `pipeline_of` says.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator

import numpy as np
from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.audio.vad.vad_analyzer import VADParams
from pipecat.frames.frames import (
    Frame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    LLMContextAggregatorPair,
    LLMUserAggregatorParams,
)
from pipecat.processors.frame_processor import FrameDirection
from pipecat.services.llm_service import LLMService
from pipecat.services.stt_service import SegmentedSTTService
from pipecat.services.tts_service import TTSService
from pipecat.transports.base_transport import BaseTransport
from pipecat.turns.user_turn_strategies import UserTurnStrategies
from pipecat.utils.time import time_now_iso8601

TONES = tuple(range(400, 2300, 100))


class SameWords(SegmentedSTTService):
    """Hears something that asks for an answer in every utterance."""

    async def run_stt(self, audio: bytes) -> AsyncGenerator[Frame | None, None]:
        yield TranscriptionFrame("please go on", "", time_now_iso8601())


class OneSentence(LLMService):
    """Answers with one sentence."""

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if not isinstance(frame, LLMContextFrame):
            await self.push_frame(frame, direction)
            return
        await self.push_frame(LLMFullResponseStartFrame())
        await self._push_llm_text("This is a tone.")
        await self.push_frame(LLMFullResponseEndFrame())


class ToneVoice(TTSService):
    """Says every sentence as a tone of its own."""

    def __init__(self, seconds: float) -> None:
        super().__init__(push_start_frame=True, push_stop_frames=True)
        self._replies = itertools.cycle(TONES)
        self._seconds = seconds

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        async for pcm in tone(next(self._replies), self._seconds, self.sample_rate):
            yield TTSAudioRawFrame(pcm, self.sample_rate, 1, context_id=context_id)


async def tone(hertz: int, seconds: float, rate: int) -> AsyncGenerator[bytes, None]:
    """PCM16, 200 ms at a time at four times real time: a talker that runs faster than speech but is no flood."""
    size = rate // 5
    for at in range(0, round(seconds * rate), size):
        phase = 2 * np.pi * hertz * (at + np.arange(size)) / rate
        yield (8000 * np.sin(phase)).astype("<i2").tobytes()
        await asyncio.sleep(0.05)


def pipeline_of(transport: BaseTransport, vad: VADParams, turns: UserTurnStrategies, reply_s: float) -> Pipeline:
    """One call's pipeline; every reply lasts `reply_s` seconds."""
    user, assistant = LLMContextAggregatorPair(
        LLMContext(),
        user_params=LLMUserAggregatorParams(vad_analyzer=SileroVADAnalyzer(params=vad), user_turn_strategies=turns),
    )
    return Pipeline(
        [
            transport.input(),
            SameWords(),
            user,
            OneSentence(),
            ToneVoice(reply_s),
            transport.output(),
            assistant,
        ]
    )
