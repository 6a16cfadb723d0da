"""One spoken question in each way that the SDK offers; every event passes the SDK's validator."""

import asyncio
from pathlib import Path

from agents.realtime import RealtimeAgent
from session import arguments, report, talk_with

AGENT = RealtimeAgent(name="Assistant", instructions="")


async def main() -> None:
    given = arguments()
    settings = {"model_name": "talkover", **given["settings"]}
    async with talk_with(given, AGENT, settings) as talk:
        if given.get("question"):
            talk.open_microphone()
            await asyncio.sleep(0.5)
            await talk.say(given["question"])
            heard = (await talk.wait("conversation.item.input_audio_transcription.completed"))["transcript"]
        else:
            await talk.session.send_message("What is the capital of France?")
            heard = ""
        done = await talk.wait("response.done")
        await asyncio.sleep(0.3)
        Path(given["reply"]).write_bytes(bytes(talk.audio))
        output = done["response"]["output"]
        item = output[0]["content"][0] if output else {}
        said = item.get("transcript") or item.get("text")
        report({**talk.verdict(), "heard": heard, "said": said, "status": done["response"]["status"]})


asyncio.run(main())
