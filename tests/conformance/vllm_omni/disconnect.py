"""The connection drops: without a token to resume with the client says so at once; a new one holds a conversation."""

import asyncio

from client import RATE, AudioFormat, DuplexProtocolError, Observed, SessionConfig
from scenario import arguments, report
from vllm_omni.clients.duplex import DuplexSessionClosedError


async def main() -> None:
    given = arguments()
    pcm = AudioFormat("pcm16", RATE)
    config = SessionConfig(input_audio=pcm, output_audio=pcm, turn_detection={"type": "server_vad"})
    first = Observed(given["url"], config)
    ended = ""
    try:
        async with first:
            first._ws.transport.abort()
            await asyncio.wait_for(first._closed.wait(), 10)
            await first.send({"type": "session.heartbeat"})
    except DuplexSessionClosedError as error:
        ended = str(error)
    async with Observed(given["url"], config) as client:
        await client.configure({"output_modalities": ["text"], "audio": {"input": {"turn_detection": None}}})
        content = [{"type": "input_text", "text": "What is the capital of France?"}]
        await client.send(
            {"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": content}}
        )
        await client.send({"type": "response.create"})
        while True:
            try:
                response = await asyncio.wait_for(anext(client.responses()), 45)
                break
            except DuplexProtocolError:
                continue
        await response.wait(45)
        await client.close(timeout_s=1)
        report(
            {
                "ended": ended,
                "anew": client.session_id != first.session_id,
                "said": response.text,
                "part": response.done_event.raw["response"]["output"][0]["content"][0],
                "audio": "response.output_audio.delta" in [event["type"] for event in client.raw.entries],
            }
        )


asyncio.run(main())
