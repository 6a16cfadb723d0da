"""A session that only transcribes, from a client secret to the words of a spoken question."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import numpy as np
import pytest
from openai import AsyncOpenAI
from openai.types.realtime.client_secret_create_response import ClientSecretCreateResponse
from openai.types.realtime.realtime_transcription_session_create_response import (
    RealtimeTranscriptionSessionCreateResponse,
)
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from codec.resample import Resampler
from tests.bench.words import word_error_rate
from tests.server.dialects.conftest import check
from tests.server.serving import served
from tests.servers import ServerProcess
from tests.speech import RATE, load

CLIP_RATE = 24_000
SESSION: Any = {"type": "transcription", "audio": {"input": {"turn_detection": None}}}


async def test_a_client_secret_of_a_transcription_session_opens_one() -> None:
    async with served() as place, place.http() as client:
        created = (await client.post("/v1/realtime/client_secrets", json={"session": SESSION})).json()
        parsed = ClientSecretCreateResponse.model_validate(created, strict=True)
        assert isinstance(parsed.session, RealtimeTranscriptionSessionCreateResponse)
        async with asyncio.timeout(20), place.socket(parsed.value) as peer:
            greeting = check(str(await peer.recv()))
    assert greeting["session"]["type"] == "transcription"
    assert greeting["session"]["audio"] == created["session"]["audio"]


async def test_an_intent_that_nobody_knows_is_refused_at_the_door() -> None:
    async with served() as place:
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"{place.realtime}&intent=dictation", proxy=None)
    assert refused.value.response.status_code == 400
    assert json.loads(refused.value.response.body or b"")["error"]["param"] == "intent"


def question(number: int) -> tuple[str, bytes]:
    """The text of a spoken question, and its sound as PCM16 at 24 kHz."""
    clip = load("questions", "test")[number]
    resampler = Resampler(RATE, CLIP_RATE)
    pcm = np.concatenate([resampler.process(clip.pcm), resampler.flush()])
    return clip.text, pcm.astype("<i2").tobytes()


@pytest.mark.models
@pytest.mark.parametrize("push_to_talk", [False, True])
async def test_spoken_questions_are_transcribed_and_not_answered(
    speaking_server: ServerProcess, push_to_talk: bool
) -> None:
    said, understood, kinds = [], [], set()
    sdk = AsyncOpenAI(api_key="none", base_url=speaking_server.base_url)
    async with (
        asyncio.timeout(120),
        sdk.realtime.connect(model="m", extra_query={"intent": "transcription"}) as connection,
    ):
        if push_to_talk:
            await connection.session.update(session=SESSION)
        for number in range(3):
            text, sound = question(number)
            said.append(text)
            quiet = b"" if push_to_talk else bytes(CLIP_RATE * 2)
            for start in range(0, len(sound + quiet), 9600):
                chunk = (sound + quiet)[start : start + 9600]
                await connection.input_audio_buffer.append(audio=base64.b64encode(chunk).decode())
            if push_to_talk:
                await connection.input_audio_buffer.commit()
            while True:
                event = check((await connection.recv_bytes()).decode())
                kinds.add(event["type"])
                if event["type"] == "conversation.item.input_audio_transcription.completed":
                    understood.append(event["transcript"])
                    assert event["usage"]["seconds"] > 0.5
                    break
    rate = word_error_rate(said, understood)
    print(f"word error rate of {len(said)} questions: {rate:.1%}")
    assert rate <= 0.1
    assert not [kind for kind in kinds if kind.startswith("response") or kind == "error"]
    assert ("input_audio_buffer.speech_started" in kinds) == (not push_to_talk)
