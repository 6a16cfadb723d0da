"""A bot that writes: text frames come, and no sound."""

import asyncio

from bot import Bot, running
from pipecat.frames.frames import LLMFullResponseEndFrame, LLMRunFrame, LLMTextFrame
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.services.openai.realtime import events
from scenario import arguments, report


async def main() -> None:
    given = arguments()
    session = events.SessionProperties(output_modalities=["text"])
    question = {"role": "user", "content": "What is the capital of France?"}
    async with running(Bot(given["url"], session, LLMContext([question]))) as bot:
        await bot.worker.queue_frame(LLMRunFrame())
        await bot.wait(LLMFullResponseEndFrame)
        assistant = next(item for item in bot.items if item.role == "assistant")
        kept = await bot.service.retrieve_conversation_item(assistant.id)
        report(
            {
                **bot.verdict(),
                "said": "".join(frame.text for frame in bot.frames.entries if isinstance(frame, LLMTextFrame)),
                "kept": kept.content[0].text,
                "part": kept.content[0].type,
                "played": len(bot.loudspeaker.played),
            }
        )


asyncio.run(main())
