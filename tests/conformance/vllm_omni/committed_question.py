"""The client as its own documentation uses it: 16 kHz, streamed and committed; the reply is taken as it comes."""

import asyncio
from pathlib import Path

from client import Observed, SessionConfig
from scenario import arguments, report


async def main() -> None:
    given = arguments()
    question = Path(given["question"]).read_bytes()
    async with Observed(given["url"], SessionConfig()) as client:
        await client.stream_pcm(question, realtime=False)
        await client.commit()
        audio = bytearray()
        async for response in client.responses():
            async for chunk in response.audio():
                audio += chunk
                await client.ack_playback(response.played_ms)
            break
        Path(given["reply"]).write_bytes(bytes(audio))
        report(
            {
                "said": response.transcript,
                "status": response.done_event.raw["response"]["status"],
                "input": client.session_info["audio"]["input"]["format"],
                "resume_token": client.resume_token,
                "refused": client.refused(),
            }
        )


asyncio.run(main())
