"""The connection drops in the middle of a reply: the plugin connects by itself and tells the conversation anew."""

import asyncio
from typing import Any

from scenario import arguments, report
from talk import Talk, talking


async def main() -> None:
    given = arguments()
    talk = Talk(given["base_url"], "semantic_vad")
    sockets: list[Any] = []
    connect = talk.session._create_ws_conn

    async def remembered() -> Any:
        sockets.append(await connect())
        return sockets[-1]

    talk.session._create_ws_conn = remembered
    reconnected = asyncio.Event()
    talk.session.on("session_reconnected", lambda _: reconnected.set())
    async with talking(talk):
        await talk.write("What is the capital of France?")
        await talk.session.generate_reply()
        first = await talk.generation()
        await first.done()
        await talk.wait("response.done")
        held = talk.items()

        await talk.write("Tell me a long story about a ship and its captain.")
        await talk.session.generate_reply()
        story = await talk.generation(1)
        await story.speaks()
        mark = len(talk.raw)
        # No closing handshake: a cable that is pulled.
        sockets[-1]._response.connection.transport.abort()
        await asyncio.wait_for(reconnected.wait(), 20)
        created = await talk.wait("session.created", mark)
        await asyncio.sleep(1)
        told_anew = [event["item"]["type"] for event in talk.raw.entries[mark:] if event["type"].endswith("item.added")]
        spoke = len(talk.generations)
        await talk.session.generate_reply()
        answer = await talk.generation(spoke)
        await answer.done()
        report(
            {
                **talk.verdict(),
                "connections": len(sockets),
                "sessions": [
                    event["session"]["id"] for event in talk.raw.entries if event["type"] == "session.created"
                ],
                "created": created["session"]["id"],
                "told_anew": told_anew,
                "held": held,
                "items": talk.items(),
                "answer": answer.text,
            }
        )


asyncio.run(main())
