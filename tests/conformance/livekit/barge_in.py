"""A question over a reply; the application then does what AgentSession does: it interrupts and truncates."""

import asyncio
import time

from scenario import arguments, report, typed
from talk import Talk, talking


async def main() -> None:
    given = arguments()
    async with talking(Talk(given["base_url"], given["turn_detection"])) as talk:
        interrupted: list[float] = []

        def speech_started(_: object) -> None:
            interrupted.append(time.monotonic())
            # The generation is still there: its response.done comes behind this event.
            talk.session.interrupt()

        talk.microphone.open()
        await talk.session.update_instructions("You are a helpful AI assistant named SmolLM, trained by Hugging Face")
        await talk.write("Tell me a long story about a ship and its captain.")
        await talk.session.generate_reply()
        story = await talk.generation()
        await story.speaks()
        begun = time.monotonic()
        await asyncio.sleep(1.5)
        mark = len(talk.raw)
        talk.session.on("input_speech_started", speech_started)
        await talk.microphone.say(given["question"])
        await story.done()
        cancelled = await talk.wait("response.done", mark)
        played_ms = int((interrupted[0] - begun) * 1000)
        talk.session.truncate(message_id=story.items[0], modalities=["audio"], audio_end_ms=played_ms // 2)
        truncated = await talk.wait("conversation.item.truncated", mark)
        heard = await talk.final()
        answer = await talk.generation(1)
        await answer.done()
        answered = await talk.raw.wait(
            lambda event: event["type"] == "response.done" and event["response"]["id"] == answer.id, mark
        )
        cut = next(
            n for n, event in enumerate(talk.raw.entries) if n >= mark and event["type"].endswith("speech_started")
        )
        late = [
            event
            for event in talk.raw.entries[cut:]
            if typed("response.output_audio.delta")(event) and event["response_id"] == story.id
        ]
        report(
            {
                **talk.verdict(),
                "status": cancelled["response"]["status"],
                "reason": cancelled["response"]["status_details"]["reason"],
                "late_deltas": len(late),
                "played_ms": played_ms,
                "truncated_ms": truncated["audio_end_ms"],
                "heard": heard.transcript,
                "answer_status": answered["response"]["status"],
                "answer": answer.text,
            }
        )


asyncio.run(main())
