"""A reply is interrupted by a second question; then it is truncated and retrieved, as applications do."""

import asyncio
from pathlib import Path

from conversation import arguments, conversation, report, save, transcript


async def main() -> None:
    given = arguments()
    session = {
        "audio": {"input": {"turn_detection": given["turn_detection"], "transcription": {"model": "whisper-1"}}},
        "instructions": "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
    }
    async with conversation(given, session) as talk:
        talk.open_microphone()
        await asyncio.sleep(0.5)
        await talk.connection.conversation.item.create(
            item={
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "Tell me a long story about a ship and its captain."}],
            }
        )
        await talk.connection.response.create()
        first = await talk.wait("response.output_audio.delta")
        # By what arrived and not by a clock: a busy machine speaks with pauses.
        await talk.wait(lambda _: talk.sounded(first.response_id) >= given["interrupt_after"])
        mark = len(talk.events)
        await talk.say(Path(given["question"]).read_bytes())
        started = await talk.wait("input_audio_buffer.speech_started", mark)
        played_ms = int(talk.sounded(first.response_id) * 1000)
        cancelled = await talk.wait(lambda e: e.type == "response.done" and e.response.id == first.response_id)
        cut = talk.index(started)
        late = [
            event
            for event in talk.events[cut:]
            if event.type == "response.output_audio.delta" and event.response_id == first.response_id
        ]

        items = talk.connection.conversation.item
        await items.retrieve(item_id=first.item_id)
        before = (await talk.wait("conversation.item.retrieved")).item.content[0].transcript
        place = len(talk.events)
        await items.truncate(item_id=first.item_id, content_index=0, audio_end_ms=played_ms // 2)
        truncated = await talk.wait("conversation.item.truncated", place)
        await items.retrieve(item_id=first.item_id)
        after = (await talk.wait("conversation.item.retrieved", place)).item.content[0].transcript

        answered = await talk.wait(
            lambda e: e.type == "response.done" and e.response.id != first.response_id, cut, within=60
        )
        heard = [e.transcript for e in talk.events if e.type == "conversation.item.input_audio_transcription.completed"]
        report(
            {
                "types": talk.types(mark),
                "status": cancelled.response.status,
                "reason": cancelled.response.status_details.reason,
                "sent": transcript(talk, first.response_id),
                "kept": before,
                "kept_after_truncate": after,
                "played_ms": played_ms,
                "truncated_ms": truncated.audio_end_ms,
                "late_deltas": len(late),
                "heard": heard[-1],
                "answer_status": answered.response.status,
                "answer": transcript(talk, answered.response.id),
                "audio": save(bytes(talk.audio.get(answered.response.id, b"")), given["reply"]),
                "errors": talk.errors(),
            }
        )


asyncio.run(main())
