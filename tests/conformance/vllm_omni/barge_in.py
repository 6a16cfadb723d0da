"""A question over a reply; the client then cancels and clears, which composes a barge-in forced by the client."""

import asyncio

from client import RATE, AudioFormat, Observed, SessionConfig
from scenario import arguments, report


async def main() -> None:
    given = arguments()
    pcm = AudioFormat("pcm16", RATE)
    config = SessionConfig(input_audio=pcm, output_audio=pcm, turn_detection={"type": "server_vad"})
    async with Observed(given["url"], config) as client:
        await client.configure(
            {
                "instructions": "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
                "audio": {"input": {"transcription": {"model": "whisper-1"}}},
            }
        )
        client.microphone.open()
        await asyncio.sleep(0.5)
        story = "Tell me a long story about a ship and its captain."
        content = [{"type": "input_text", "text": story}]
        await client.send(
            {"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": content}}
        )
        await client.send({"type": "response.create"})
        first = await client.seen("response.output_audio.delta")
        await asyncio.sleep(1.5)
        mark = len(client.raw)
        await client.microphone.say(given["question"])
        cancelled = await client.seen("response.done", mark)
        heard = await client.seen("conversation.item.input_audio_transcription.completed", mark)
        answer = await client.raw.wait(
            lambda event: (
                event["type"] == "response.output_audio.delta" and event["response_id"] != first["response_id"]
            ),
            mark,
            what="answer",
        )
        await client.cancel_response(answer["response_id"])
        await client.clear_input()
        stopped = await client.raw.wait(
            lambda event: event["type"] == "response.done" and event["response"]["id"] == answer["response_id"],
            mark,
            what="end of the answer",
        )
        cleared = await client.seen("input_audio_buffer.cleared", mark)
        # The client's own way to commit carries a field of its own.
        await client.microphone.close()
        place = len(client.raw)
        await client.configure({"audio": {"input": {"turn_detection": None}}})
        await client.append_audio(bytes(RATE))
        await client.commit(create_response=False)
        committed = await client.seen("input_audio_buffer.committed", place)
        handle = await asyncio.wait_for(anext(client.responses()), 5)
        await client.close()
        report(
            {
                "status": cancelled["response"]["status"],
                "reason": cancelled["response"]["status_details"]["reason"],
                "heard": heard["transcript"],
                "first": handle.response_id == first["response_id"],
                "stopped": stopped["response"]["status_details"]["reason"],
                "cleared": cleared["type"],
                "committed": committed["item_id"],
                "refused": client.refused(),
            }
        )


asyncio.run(main())
