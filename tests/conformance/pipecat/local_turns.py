"""Turns are taken by the application: it clears, commits, asks and cancels; the server only listens."""

import asyncio
from pathlib import Path

from bot import Bot, running
from pipecat.frames.frames import (
    BotStartedSpeakingFrame,
    BotStoppedSpeakingFrame,
    InterruptionFrame,
    TranscriptionFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from pipecat.services.openai.realtime import events
from scenario import arguments, report


async def main() -> None:
    given = arguments()
    hears = events.AudioInput(transcription=events.InputAudioTranscription(model="whisper-1"), turn_detection=False)
    session = events.SessionProperties(audio=events.AudioConfiguration(input=hears))
    async with running(Bot(given["url"], session)) as bot:
        bot.microphone.open()
        await asyncio.sleep(0.5)
        # Nothing is to be cancelled yet; the service asks for it all the same.
        await bot.worker.queue_frames([InterruptionFrame(), UserStartedSpeakingFrame()])
        await asyncio.sleep(0.1)
        await bot.microphone.say(given["question"])
        await bot.worker.queue_frame(UserStoppedSpeakingFrame())
        heard = await bot.wait(TranscriptionFrame)
        await bot.wait(BotStartedSpeakingFrame)
        await bot.wait(BotStoppedSpeakingFrame)
        assistant = next(item for item in bot.items if item.role == "assistant")
        kept = await bot.service.retrieve_conversation_item(assistant.id)
        Path(given["reply"]).write_bytes(bytes(bot.loudspeaker.played))
        report({**bot.verdict(), "heard": heard.text, "kept": kept.content[0].transcript})


asyncio.run(main())
