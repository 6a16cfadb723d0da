"""Replies that the application asks for: it waits for each by the metadata that it gave along."""

import asyncio
import time
from pathlib import Path

from scenario import arguments, report
from talk import Talk, talking


async def main() -> None:
    given = arguments()
    async with talking(Talk(given["base_url"], "semantic_vad")) as talk:
        await talk.session.update_instructions("You are a helpful AI assistant named SmolLM, trained by Hugging Face")
        await talk.write("What is the capital of France?")
        before = time.monotonic()
        first = talk.session.generate_reply()
        created = await first
        waited = time.monotonic() - before
        generation = await talk.generation()
        await generation.done()
        done = await talk.wait("response.done")
        Path(given["reply"]).write_bytes(bytes(generation.audio))

        mark, spoke = len(talk.raw), len(talk.generations)
        second = await talk.session.generate_reply(instructions="Answer in one word.")
        await (await talk.generation(spoke)).done()
        briefly = await talk.wait("response.done", mark)
        asked = [event for event in talk.sent if event["type"] == "response.create"]
        report(
            {
                **talk.verdict(),
                "waited_s": waited,
                "user_initiated": [created.user_initiated, second.user_initiated],
                "metadata": [response["response"]["metadata"] for response in (done, briefly)],
                "asked": [event["response"]["metadata"] for event in asked],
                "instructions": [event["response"].get("instructions") for event in asked],
                "said": generation.text,
                "items": talk.items(),
            }
        )


asyncio.run(main())
