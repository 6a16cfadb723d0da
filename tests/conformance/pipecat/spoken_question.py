"""A question is spoken to a bot; it is heard, answered aloud, and both stand in the bot's own context."""

import asyncio
from pathlib import Path

from bot import Bot, running
from pipecat.frames.frames import BotStartedSpeakingFrame, BotStoppedSpeakingFrame, TranscriptionFrame
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
    session = events.SessionProperties(audio=events.AudioConfiguration(input=hears))
    async with running(Bot(given["url"], session, LLMContext())) as bot:
        bot.microphone.open()
        await asyncio.sleep(0.5)
        await bot.microphone.say(given["question"])
        heard = await bot.wait(TranscriptionFrame)
        await bot.wait(BotStartedSpeakingFrame)
        await bot.wait(BotStoppedSpeakingFrame)
        await asyncio.sleep(0.5)
        assistant = next(item for item in bot.items if item.role == "assistant")
        kept = await bot.service.retrieve_conversation_item(assistant.id)
        Path(given["reply"]).write_bytes(bytes(bot.loudspeaker.played))
        report(
            {
                **bot.verdict(),
                "heard": heard.text,
                "kept": kept.content[0].transcript,
                "context": [f"{message['role']}: {message['content']}" for message in bot.context.get_messages()],
            }
        )


asyncio.run(main())
