"""The SDK runs a tool that the model calls, gives the result back and hears it told."""

import asyncio

from agents import function_tool
from agents.realtime import RealtimeAgent
from session import arguments, report, talk_with

CALLED: list[str] = []


@function_tool
def get_weather(city: str) -> str:
    """Tell the weather in a city."""
    CALLED.append(city)
    return '{"weather": "sunny"}'


AGENT = RealtimeAgent(name="Assistant", instructions="You tell the weather.", tools=[get_weather])


async def main() -> None:
    given = arguments()
    settings = {
        "model_name": "talkover",
        "tool_choice": "auto",
        "audio": {"input": {"turn_detection": None}, "output": {"voice": "default"}},
    }
    async with talk_with(given, AGENT, settings) as talk:
        await talk.session.send_message("What is the weather in Paris?")
        await talk.wait("response.function_call_arguments.done")
        first = await talk.wait("response.done")
        told = await talk.wait(
            lambda raw: raw["type"] == "response.done" and raw["response"]["id"] != first["response"]["id"]
        )
        kinds = [event.type for event in talk.events]
        report(
            {
                **talk.verdict(),
                "called": CALLED,
                "tool_events": [kind for kind in kinds if kind in ("tool_start", "tool_end")],
                "told_status": told["response"]["status"],
                "told": "".join(
                    raw["delta"] for raw in talk.raw if raw["type"] == "response.output_audio_transcript.delta"
                ),
            }
        )


asyncio.run(main())
