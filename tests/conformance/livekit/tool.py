"""The model calls a tool of the session; its output goes back as an item and is told."""

import asyncio

from livekit.agents import function_tool, llm
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
        await talk.session.update_tools([get_weather])
        await talk.write("What is the weather in Paris?")
        await talk.session.generate_reply(tool_choice="required")
        asking = await talk.generation()
        await asking.done()
        call = asking.calls[0]
        context = talk.session.chat_ctx.copy()
        context.items.append(
            llm.FunctionCallOutput(call_id=call.call_id, name=call.name, output='{"weather": "sunny"}', is_error=False)
        )
        await talk.session.update_chat_ctx(context)
        await talk.session.generate_reply(tool_choice="none")
        telling = await talk.generation(1)
        await telling.done()
        report(
            {
                **talk.verdict(),
                "called": [(entry.name, entry.arguments) for entry in asking.calls],
                "told": telling.text,
                "audio_bytes": len(telling.audio),
                "items": talk.items(),
            }
        )


asyncio.run(main())
