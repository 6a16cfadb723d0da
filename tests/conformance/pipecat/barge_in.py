"""A question over the bot's story: the service truncates by its own playout, the pipeline falls silent and answers."""

import asyncio

from bot import Bot, running
from pipecat.frames.frames import (
    BotStartedSpeakingFrame,
    BotStoppedSpeakingFrame,
    InterruptionFrame,
    LLMRunFrame,
    TranscriptionFrame,
    TTSStartedFrame,
)
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.services.openai.realtime import events
from scenario import arguments, report


async def main() -> None:
    given = arguments()
    kinds = {"server_vad": events.TurnDetection, "semantic_vad": events.SemanticTurnDetection}
    hears = events.AudioInput(
        transcription=events.InputAudioTranscription(model="whisper-1"),
        turn_detection=kinds[given["turn_detection"]](),
    )
    session = events.SessionProperties(
        instructions="You are a helpful AI assistant named SmolLM, trained by Hugging Face",
        audio=events.AudioConfiguration(input=hears),
    )
    story = {"role": "user", "content": "Tell me a long story about a ship and its captain."}
    async with running(Bot(given["url"], session, LLMContext([story]))) as bot:
        bot.microphone.open()
        await asyncio.sleep(0.5)
        await bot.worker.queue_frame(LLMRunFrame())
        await bot.wait(BotStartedSpeakingFrame)
        await asyncio.sleep(1.5)
        mark, spoke = len(bot.frames), len(bot.items)
        first = next(item for item in bot.items if item.role == "assistant")
        saying = asyncio.create_task(bot.microphone.say(given["question"]))
        await bot.wait(InterruptionFrame, after=mark)
        played = len(bot.loudspeaker.played)
        await saying
        heard = await bot.wait(TranscriptionFrame, after=mark)
        between = len(bot.loudspeaker.played) - played
        # The pipeline may say once more that the bot speaks, for the frame that it was playing when it was interrupted;
        # only audio that comes after the words of the question is the answer.
        asked = bot.frames.entries.index(heard)
        answer = await bot.wait(TTSStartedFrame, after=asked)
        await bot.wait(BotStoppedSpeakingFrame, after=bot.frames.entries.index(answer))
        kept = await bot.service.retrieve_conversation_item(first.id)
        truncations = [event for event in bot.service.sent if event.type == "conversation.item.truncate"]
        report(
            {
                **bot.verdict(),
                "truncated": [event.item_id for event in truncations],
                "truncated_ms": [event.audio_end_ms for event in truncations],
                "first": first.id,
                "kept": kept.content[0].transcript,
                "played_ms": played // 48,
                "played_after_ms": between // 48,
                "heard": heard.text,
                "answers": len([item for item in bot.items[spoke:] if item.role == "assistant"]),
            }
        )


asyncio.run(main())
