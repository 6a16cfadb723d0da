"""A model of text alone."""

import asyncio

from scenario import arguments, report
from talk import Talk, talking


async def main() -> None:
    given = arguments()
    async with talking(Talk(given["base_url"], None, modalities=["text"])) as talk:
        await talk.write("What is the capital of France?")
        await talk.session.generate_reply()
        generation = await talk.generation()
        await generation.done()
        report({**talk.verdict(), "said": generation.text, "audio_bytes": len(generation.audio), "items": talk.items()})


asyncio.run(main())
