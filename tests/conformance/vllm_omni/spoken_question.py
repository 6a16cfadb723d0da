"""A spoken question; the reply is acknowledged while it plays, as this client does, and the session closed by word."""

import asyncio
from pathlib import Path

from client import RATE, AudioFormat, Observed, SessionConfig
from scenario import arguments, report


async def main() -> None:
    given = arguments()
    pcm = AudioFormat("pcm16", RATE)
    config = SessionConfig(input_audio=pcm, output_audio=pcm, turn_detection={"type": "server_vad"})
    async with Observed(given["url"], config) as client:
        # The client's own session.update asks for no transcripts.
        await client.configure({"audio": {"input": {"transcription": {"model": "whisper-1"}}}})
        client.microphone.open()
        await asyncio.sleep(0.5)
        await client.microphone.say(given["question"])
        response = await asyncio.wait_for(anext(client.responses()), 45)
        audio = bytearray()
        async for chunk in response.audio():
            audio += chunk
            await client.ack_playback(response.played_ms, response_id=response.response_id)
        # More than was ever sent, while it may still be playing.
        await client.ack_playback(response.played_ms + 5000, response_id=response.response_id)
        heard = await client.seen("conversation.item.input_audio_transcription.completed")
        done = response.done_event.raw["response"]
        await client.send({"type": "session.heartbeat"})
        await client.seen("session.heartbeat_ack")
        await client.microphone.close()
        # The ledger closes when the last of it has been heard; what is reported later is answered with its last word.
        await asyncio.sleep(1)
        mark = len(client.raw)
        await client.ack_playback(response.played_ms, item_id=done["output"][0]["id"])
        settled = await client.seen("playback.acknowledged", mark)
        Path(given["reply"]).write_bytes(bytes(audio))
        await client.close(timeout_s=20)
        acknowledged = [event["event"] for event in client.raw.entries if event["type"] == "playback.acknowledged"]
        report(
            {
                "session": client.session_id,
                "heard": heard["transcript"],
                "decision": response.decision,
                "said": response.transcript,
                "status": done["status"],
                "said_at_end": done["output"][0]["content"][0]["transcript"],
                "played_ms": response.played_ms,
                "playback": [event["playback"] for event in acknowledged],
                "settled": settled["event"],
                "item": done["output"][0]["id"],
                "numbers": client.numbers(),
                "sent": sorted({payload["type"] for payload in client.sent}),
                "refused": client.refused(),
                "closed": [event["reason"] for event in client.raw.entries if event["type"] == "session.closed"],
            }
        )


asyncio.run(main())
