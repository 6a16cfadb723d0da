"""A spoken question; the reply is acknowledged while it plays, as this client does, and the session closed by word."""

import asyncio
import time
from pathlib import Path

from client import RATE, AudioFormat, DuplexProtocolError, Observed, SessionConfig
from scenario import arguments, report


async def main() -> None:
    given = arguments()
    pcm = AudioFormat("pcm16", RATE)
    config = SessionConfig(input_audio=pcm, output_audio=pcm, turn_detection={"type": "server_vad"})
    async with Observed(given["url"], config) as client:
        # Its own session.update has no type; whether that is taken shows in what is reported below.
        await client.configure({"audio": {"input": {"transcription": {"model": "whisper-1"}}}})
        client.microphone.open()
        await asyncio.sleep(0.5)
        await client.microphone.say(given["question"])
        while True:
            try:
                response = await asyncio.wait_for(anext(client.responses()), 45)
                break
            except DuplexProtocolError:
                continue
        audio = bytearray()
        async for chunk in response.audio():
            audio += chunk
            await client.ack_playback(response.played_ms, response_id=response.response_id)
        heard = await client.seen("conversation.item.input_audio_transcription.completed")
        done = response.done_event.raw["response"]
        await client.send({"type": "session.heartbeat"})
        await client.microphone.close()
        Path(given["reply"]).write_bytes(bytes(audio))
        before = time.monotonic()
        await client.close(timeout_s=2)
        report(
            {
                "session": client.session_id,
                "heard": heard["transcript"],
                "decision": response.decision,
                "said": response.transcript,
                "status": done["status"],
                "said_at_end": done["output"][0]["content"][0]["transcript"],
                "played_ms": response.played_ms,
                "resume_token": client.resume_token,
                "sequenced": any("server_event_seq" in event for event in client.raw.entries),
                "sent": sorted({payload["type"] for payload in client.sent}),
                "refused": client.refused(),
                "close_s": time.monotonic() - before,
                "closed": any(event["type"] == "session.closed" for event in client.raw.entries),
            }
        )


asyncio.run(main())
