"""An item that is not there is asked for: the one who asked is told, and the bot lives on."""

import asyncio

from bot import Bot, running
from pipecat.frames.frames import LLMFullResponseEndFrame, LLMRunFrame
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
        refused = ""
        try:
            await asyncio.wait_for(bot.service.retrieve_conversation_item("item_nowhere"), 5)
        except TimeoutError:
            refused = "never answered"
        except Exception as error:
            refused = str(error)
        report({**bot.verdict(), "refused": refused})


asyncio.run(main())
