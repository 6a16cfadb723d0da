"""The connection drops in the middle of a reply; the bot begins its conversation anew."""

import asyncio

from bot import Bot, running
from pipecat.frames.frames import BotStartedSpeakingFrame, BotStoppedSpeakingFrame, LLMRunFrame, TranscriptionFrame
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.services.openai.realtime import events
from scenario import arguments, report


async def main() -> None:
    given = arguments()
    hears = events.AudioInput(
        transcription=events.InputAudioTranscription(model="whisper-1"), turn_detection=events.TurnDetection()
    )
    session = events.SessionProperties(audio=events.AudioConfiguration(input=hears))
    greeting = {"role": "user", "content": "Tell me a long story about a ship and its captain."}
    async with running(Bot(given["url"], session, LLMContext([greeting]))) as bot:
        bot.microphone.open()
        await asyncio.sleep(0.5)
        await bot.worker.queue_frame(LLMRunFrame())
        await bot.wait(BotStartedSpeakingFrame)
        # No closing handshake: a cable that is pulled.
        bot.service._websocket.transport.abort()
        await bot.wait(BotStoppedSpeakingFrame)
        mark, spoke = len(bot.frames), len(bot.items)
        await bot.service.reset_conversation()
        await asyncio.sleep(0.5)
        await bot.microphone.say(given["question"])
        heard = await bot.wait(TranscriptionFrame, after=mark)
        await bot.wait(BotStartedSpeakingFrame, after=mark)
        answer = next(item for item in bot.items[spoke:] if item.role == "assistant")
        await bot.wait(BotStoppedSpeakingFrame, after=mark)
        kept = await bot.service.retrieve_conversation_item(answer.id)
        report({**bot.verdict(), "heard": heard.text, "kept": kept.content[0].transcript})


asyncio.run(main())
