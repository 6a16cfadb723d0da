"""The model must call a tool; its result is given back and spoken about."""

import asyncio
import json

from conversation import arguments, conversation, report, transcript

TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "Tell the weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "Name of the city"}},
        "required": ["city"],
    },
}


async def main() -> None:
    given = arguments()
    session = {"tools": [TOOL], "tool_choice": "required", "audio": {"input": {"turn_detection": None}}}
    async with conversation(given, session) as talk:
        items, response = talk.connection.conversation.item, talk.connection.response
        content = [{"type": "input_text", "text": "What is the weather in Paris?"}]
        await items.create(item={"type": "message", "role": "user", "content": content})
        await response.create()
        arguments_done = await talk.wait("response.function_call_arguments.done")
        called = await talk.wait("response.done")
        call = next(item for item in called.response.output if item.type == "function_call")
        deltas = [e.delta for e in talk.events if e.type == "response.function_call_arguments.delta"]
        mark = len(talk.events)
        await items.create(
            item={"type": "function_call_output", "call_id": call.call_id, "output": json.dumps({"weather": "sunny"})}
        )
        await talk.wait("conversation.item.done", mark)
        await response.create(response={"tool_choice": "none", "metadata": {"purpose": "tell"}})
        told = await talk.wait("response.done", mark)
        report(
            {
                "name": call.name,
                "arguments": call.arguments,
                "arguments_done": arguments_done.arguments,
                "deltas": "".join(deltas),
                "status": called.response.status,
                "told_status": told.response.status,
                "told": transcript(talk, told.response.id),
                "metadata": told.response.metadata,
                "audio_bytes": len(talk.audio.get(told.response.id, b"")),
                "errors": talk.errors(),
            }
        )


asyncio.run(main())
