"""The service runs a tool that the model calls, gives the result back, and the result is spoken."""

import asyncio

from bot import Bot, running
from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import BotStartedSpeakingFrame, BotStoppedSpeakingFrame, LLMRunFrame, TTSTextFrame
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.services.llm_service import FunctionCallParams
from pipecat.services.openai.realtime import events
from scenario import arguments, report

CALLED: list[str] = []


async def get_weather(params: FunctionCallParams) -> None:
    CALLED.append(params.arguments["city"])
    await params.result_callback({"weather": "sunny"})


WEATHER = FunctionSchema(
    name="get_weather",
    description="Tell the weather in a city.",
    properties={"city": {"type": "string", "description": "Name of the city"}},
    required=["city"],
)


async def main() -> None:
    given = arguments()
    session = events.SessionProperties(
        instructions="You tell the weather.",
        audio=events.AudioConfiguration(input=events.AudioInput(turn_detection=events.TurnDetection())),
    )
    question = {"role": "user", "content": "What is the weather in Paris?"}
    context = LLMContext([question], tools=ToolsSchema(standard_tools=[WEATHER]))
    bot = Bot(given["url"], session, context)
    bot.service.register_function("get_weather", get_weather)
    async with running(bot):
        await bot.worker.queue_frame(LLMRunFrame())
        await bot.wait(BotStartedSpeakingFrame)
        await bot.wait(BotStoppedSpeakingFrame)
        await asyncio.sleep(0.3)
        report(
            {
                **bot.verdict(),
                "called": CALLED,
                "told": "".join(frame.text for frame in bot.frames.entries if isinstance(frame, TTSTextFrame)),
                "items": [item.type for item in bot.items],
            }
        )


asyncio.run(main())
