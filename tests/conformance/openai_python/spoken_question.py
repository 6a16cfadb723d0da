"""A question is spoken; its transcript, the reply's audio and the reply's transcript come back."""

import asyncio
from pathlib import Path

from conversation import arguments, conversation, report, save, transcript


async def main() -> None:
    given = arguments()
    detection = given.get("turn_detection", {"type": "server_vad"})
    session = {"audio": {"input": {"turn_detection": detection, "transcription": {"model": "whisper-1"}}}}
    async with conversation(given, session) as talk:
        talk.open_microphone()
        await asyncio.sleep(0.5)
        mark = len(talk.events)
        await talk.say(Path(given["question"]).read_bytes())
        if detection is None:
            await talk.connection.input_audio_buffer.commit()
            await talk.connection.response.create()
        heard = await talk.wait("conversation.item.input_audio_transcription.completed", mark)
        done = await talk.wait("response.done", mark)
        response = done.response.id
        item = done.response.output[0]
        await talk.connection.conversation.item.retrieve(item_id=item.id)
        kept = await talk.wait("conversation.item.retrieved", mark)
        report(
            {
                "types": talk.types(mark),
                "heard": heard.transcript,
                "said": transcript(talk, response),
                "said_at_end": item.content[0].transcript,
                "kept": kept.item.content[0].transcript,
                "status": done.response.status,
                "audio": save(bytes(talk.audio.get(response, b"")), given["reply"]),
                "errors": talk.errors(),
            }
        )


asyncio.run(main())
