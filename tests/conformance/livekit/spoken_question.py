"""A question is spoken; its transcript and a generation with text and audio come back."""

import asyncio
from pathlib import Path

from scenario import arguments, report
from talk import Talk, talking


async def main() -> None:
    given = arguments()
    async with talking(Talk(given["base_url"], given["turn_detection"])) as talk:
        talk.microphone.open()
        await asyncio.sleep(0.5)
        await talk.microphone.say(given["question"])
        heard = await talk.final()
        generation = await talk.generation()
        await generation.done()
        done = await talk.wait("response.done")
        Path(given["reply"]).write_bytes(bytes(generation.audio))
        report(
            {
                **talk.verdict(),
                "heard": heard.transcript,
                "said": generation.text,
                "user_initiated": generation.user_initiated,
                "status": done["response"]["status"],
                "items": talk.items(),
                "metrics": sorted({type(entry).__name__ for entry in talk.metrics}),
            }
        )


asyncio.run(main())
