"""The client as it is, against a server that is not ours: an answer, its playback, a cancel, a lost connection."""

import asyncio
import math
import struct

from client import AudioFormat, Observed, SessionConfig
from scenario import arguments, report

RATE = 16_000


def tone(seconds: float) -> bytes:
    samples = (round(8000 * math.sin(2 * math.pi * 300 * n / RATE)) for n in range(round(seconds * RATE)))
    return b"".join(struct.pack("<h", sample) for sample in samples)


async def main() -> None:
    given = arguments()
    config = SessionConfig(input_audio=AudioFormat("pcm16", RATE), instructions="Be brief.")
    async with Observed(given["url"], config) as client:
        token = client.resume_token
        await client.stream_pcm(tone(1.0) + bytes(RATE), realtime=False)
        response = await asyncio.wait_for(anext(client.responses()), 20)
        length = 0
        async for chunk in response.audio():
            length += len(chunk)
            await client.ack_playback(response.played_ms, response_id=response.response_id)
        acknowledged = await client.seen("playback.acknowledged")
        await client.send({"type": "session.heartbeat"})
        await client.seen("session.heartbeat_ack")
        await client.stream_pcm(tone(1.0) + bytes(RATE), realtime=False)
        second = await asyncio.wait_for(anext(client.responses()), 20)
        await client.cancel_response(second.response_id)
        await asyncio.wait_for(second.wait(), 20)
        done = second.done_event.raw["response"]
        await client.close(timeout_s=20)
        report(
            {
                "session": client.session_id,
                "token": bool(token),
                "resumed": any(event["type"] == "session.resumed" for event in client.raw.entries),
                "capabilities": client.session_info["capabilities"],
                "decision": response.decision,
                "said": response.transcript,
                "length": length,
                "played_ms": response.played_ms,
                "status": response.done_event.raw["response"]["status"],
                "acknowledged": acknowledged["event"]["response_id"] == response.response_id,
                "cancelled": (done["status"], done["status_details"]["reason"]),
                "numbers": client.numbers(),
                "refused": client.refused(),
                "closed": [event["reason"] for event in client.raw.entries if event["type"] == "session.closed"],
            }
        )


asyncio.run(main())
