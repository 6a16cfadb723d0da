"""A reply with tools of its own, which the session does not have: the model may call them in that reply alone."""

import asyncio

from livekit.agents import function_tool
from scenario import arguments, report
from talk import Talk, talking


@function_tool
async def get_weather(city: str) -> str:
    """Tell the weather in a city.

    Args:
        city: Name of the city
    """
    raise AssertionError("the scenario answers by itself")


async def main() -> None:
    given = arguments()
    async with talking(Talk(given["base_url"], None)) as talk:
        await talk.write("What is the weather in Paris?")
        refused = ""
        try:
            await talk.session.generate_reply(tools=[get_weather], tool_choice="required")
            generation = await talk.generation()
            await generation.done()
            called = [(call.name, call.arguments) for call in generation.calls]
        except Exception as error:
            refused, called = str(error), []
        report({**talk.verdict(), "refused": refused, "called": called})


asyncio.run(main())
