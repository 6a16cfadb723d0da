"""The connection drops in the middle of a reply; a new one holds a conversation as if nothing had been."""

import asyncio
from pathlib import Path

from conversation import arguments, conversation, report, transcript


async def main() -> None:
    given = arguments()
    session = {"audio": {"input": {"turn_detection": {"type": "server_vad"}, "transcription": {"model": "whisper-1"}}}}
    question = Path(given["question"]).read_bytes()
    async with conversation(given, session) as talk:
        talk.open_microphone()
        await asyncio.sleep(0.3)
        await talk.say(question)
        await talk.wait("response.output_audio.delta")
        # No closing handshake: a cable that is pulled.
        talk.connection._connection.transport.abort()
        try:
            await talk.wait("never", within=5)
        except Exception as dropped:
            ended = type(dropped).__name__
    async with conversation(given, session) as talk:
        talk.open_microphone()
        await asyncio.sleep(0.3)
        await talk.say(question)
        heard = await talk.wait("conversation.item.input_audio_transcription.completed")
        done = await talk.wait("response.done")
        report(
            {
                "ended": ended,
                "heard": heard.transcript,
                "said": transcript(talk, done.response.id),
                "status": done.response.status,
                "errors": talk.errors(),
            }
        )


asyncio.run(main())
