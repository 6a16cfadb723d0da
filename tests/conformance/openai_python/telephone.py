"""G.711 in both directions, coded and decoded by Python's own audioop."""

import asyncio
import audioop
from pathlib import Path

from conversation import arguments, conversation, report, save, transcript

CODERS = {
    "audio/pcmu": (audioop.lin2ulaw, audioop.ulaw2lin),
    "audio/pcma": (audioop.lin2alaw, audioop.alaw2lin),
}


async def main() -> None:
    given = arguments()
    encode, decode = CODERS[given["format"]]
    form = {"type": given["format"]}
    session = {
        "audio": {
            "input": {
                "format": form,
                "turn_detection": {"type": "server_vad"},
                "transcription": {"model": "whisper-1"},
            },
            "output": {"format": form},
        }
    }
    async with conversation(given, session) as talk:
        talk.open_microphone(bytes_per_second=8000, silence=encode(b"\0\0", 2))
        await asyncio.sleep(0.5)
        await talk.say(encode(Path(given["question_8k"]).read_bytes(), 2))
        heard = await talk.wait("conversation.item.input_audio_transcription.completed")
        done = await talk.wait("response.done")
        audio = decode(bytes(talk.audio.get(done.response.id, b"")), 2)
        updated = next(event for event in talk.events if event.type == "session.updated")
        report(
            {
                "heard": heard.transcript,
                "said": transcript(talk, done.response.id),
                "status": done.response.status,
                "audio": save(audio, given["reply"]),
                "formats": [updated.session.audio.input.format.type, updated.session.audio.output.format.type],
                "errors": talk.errors(),
            }
        )


asyncio.run(main())
