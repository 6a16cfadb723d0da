"""Text in, text out: no audio goes either way."""

import asyncio

from conversation import arguments, conversation, report, transcript


async def main() -> None:
    given = arguments()
    session = {"output_modalities": ["text"], "audio": {"input": {"turn_detection": None}}}
    async with conversation(given, session) as talk:
        content = [{"type": "input_text", "text": "What is the capital of France?"}]
        await talk.connection.conversation.item.create(item={"type": "message", "role": "user", "content": content})
        await talk.connection.response.create()
        done = await talk.wait("response.done")
        part = done.response.output[0].content[0]
        report(
            {
                "types": talk.types(),
                "said": transcript(talk, done.response.id),
                "part_type": part.type,
                "part_text": part.text,
                "status": done.response.status,
                "errors": talk.errors(),
            }
        )


asyncio.run(main())
