"""A question over a reply, and the answer to it: the SDK truncates and retrieves by itself."""

import asyncio

from agents.realtime import RealtimeAgent
from session import arguments, report, talk_with

AGENT = RealtimeAgent(
    name="Assistant", instructions="You are a helpful AI assistant named SmolLM, trained by Hugging Face"
)


async def main() -> None:
    given = arguments()
    settings = {
        "model_name": "talkover",
        "output_modalities": ["audio"],
        "audio": {
            "input": {
                "format": "pcm16",
                "transcription": {"model": "whisper-1"},
                "turn_detection": given["turn_detection"],
            },
            "output": {"format": "pcm16", "voice": "default"},
        },
    }
    async with talk_with(given, AGENT, settings) as talk:
        talk.open_microphone()
        await asyncio.sleep(0.5)
        await talk.session.send_message("Tell me a long story about a ship and its captain.")
        first = await talk.wait("response.output_audio.delta")
        await asyncio.sleep(1.5)
        mark = len(talk.raw)
        await talk.say(given["question"])
        cancelled = await talk.wait(
            lambda raw: raw["type"] == "response.done" and raw["response"]["id"] == first["response_id"]
        )
        truncated = await talk.wait("conversation.item.truncated", mark)
        retrieved = await talk.wait("conversation.item.retrieved", mark)
        answered = await talk.wait(
            lambda raw: raw["type"] == "response.done" and raw["response"]["id"] != first["response_id"], mark
        )
        heard = await talk.wait("conversation.item.input_audio_transcription.completed", mark)
        cut = next(i for i, raw in enumerate(talk.raw) if i >= mark and raw["type"].endswith("speech_started"))
        late = [
            raw
            for raw in talk.raw[cut:]
            if raw["type"] == "response.output_audio.delta" and raw["response_id"] == first["response_id"]
        ]
        report(
            {
                **talk.verdict(),
                "status": cancelled["response"]["status"],
                "reason": cancelled["response"]["status_details"]["reason"],
                "truncated_ms": truncated["audio_end_ms"],
                "kept": retrieved["item"]["content"][0]["transcript"],
                "sent": "".join(
                    raw["delta"]
                    for raw in talk.raw
                    if raw["type"] == "response.output_audio_transcript.delta"
                    and raw["response_id"] == first["response_id"]
                ),
                "heard": heard["transcript"],
                "answer_status": answered["response"]["status"],
                "late_deltas": len(late),
            }
        )


asyncio.run(main())
