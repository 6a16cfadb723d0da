"""interrupt() and truncate() without a user's voice; a truncation to nothing deletes, so a message is gone."""

import asyncio

from scenario import arguments, report
from talk import Talk, talking


async def main() -> None:
    given = arguments()
    async with talking(Talk(given["base_url"], None)) as talk:
        await talk.session.update_instructions("You are a helpful AI assistant named SmolLM, trained by Hugging Face")
        await talk.write("Tell me a long story about a ship and its captain.")
        await talk.session.generate_reply()
        story = await talk.generation()
        await story.speaks()
        await asyncio.sleep(1.2)
        talk.session.interrupt()
        await story.done()
        cancelled = await talk.wait("response.done")
        item = story.items[0]

        talk.session.truncate(message_id=item, modalities=["audio"], audio_end_ms=400)
        truncated = await talk.wait("conversation.item.truncated")
        talk.session.send_event({"type": "conversation.item.retrieve", "item_id": item})
        kept = await talk.wait("conversation.item.retrieved")

        talk.session.truncate(message_id=item, modalities=["audio"], audio_end_ms=0)
        deleted = await talk.wait("conversation.item.deleted")

        # A future that is cancelled before its response is there.
        await talk.write("What is the capital of France?")
        mark, spoke = len(talk.raw), len(talk.generations)
        talk.session.generate_reply().cancel()
        await asyncio.sleep(0)  # the plugin sends its response.cancel from a callback
        await talk.session.generate_reply()
        answer = await talk.generation(spoke)
        await answer.done()
        report(
            {
                **talk.verdict(),
                "status": cancelled["response"]["status"],
                "reason": cancelled["response"]["status_details"]["reason"],
                "said": story.text,
                "truncated_ms": truncated["audio_end_ms"],
                "kept": kept["item"]["content"][0]["transcript"],
                "item": item,
                "deleted": deleted["item_id"],
                "answer": answer.text,
                "after": [event["type"] for event in talk.raw.entries[mark:]],
            }
        )


asyncio.run(main())
