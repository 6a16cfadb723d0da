"""The connection drops in the middle of a reply; the client comes back to its session by itself and goes on with it."""

import asyncio

from client import RATE, AudioFormat, Observed, SessionConfig
from scenario import arguments, report


def words(text: str) -> dict:
    content = [{"type": "input_text", "text": text}]
    return {"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": content}}


async def main() -> None:
    given = arguments()
    pcm = AudioFormat("pcm16", RATE)
    async with Observed(given["url"], SessionConfig(input_audio=pcm, output_audio=pcm)) as client:
        session, token = client.session_id, client.resume_token
        await client.send(words("Tell me a long story about a ship and its captain."))
        await client.send({"type": "response.create"})
        first = await asyncio.wait_for(anext(client.responses()), 45)
        await asyncio.sleep(1)
        mark = len(client.raw)
        client._ws.transport.abort()
        await client.seen("connection.resumed", mark)
        resumed = await client.seen("session.resumed", mark)
        await first.wait(45)
        # What was to be written is written, in the place of what was being said.
        await client.configure({"output_modalities": ["text"]})
        await client.send(words("What is the capital of France?"))
        await client.send({"type": "response.create"})
        second = await asyncio.wait_for(anext(client.responses()), 45)
        await second.wait(45)
        late = client.raw.entries[mark:]
        report(
            {
                "same": client.session_id == session == resumed["session_id"],
                "token_rotated": token is not None and client.resume_token not in (None, token),
                "attachment": resumed["attachment_generation"],
                "status": first.done_event.raw["response"]["status"],
                "stale": [event["response_id"] for event in late if event["type"] == "response.output_audio.delta"],
                "said": second.text,
                "part": second.done_event.raw["response"]["output"][0]["content"][0],
                "numbers": client.numbers(),
                "refused": client.refused(),
            }
        )


asyncio.run(main())
