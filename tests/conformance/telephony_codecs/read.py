"""Asterisk's formats as galcymedia and asterisk_ai_voice_agent write and read them: our messages in, theirs out."""

import asyncio
import base64
import json
import uuid

from asterisk_ai_voice_agent import audiosocket
from galcymedia import protocol
from scenario import arguments, report


async def frames_of(data: bytes) -> list[list[object]]:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    found: list[list[object]] = []
    while not reader.at_eof():
        frame = await audiosocket.Frame.read(reader)
        found.append([frame.type.name, len(frame.payload)])
    return found


def main() -> None:
    given = arguments()
    start = {
        "event": "MEDIA_START",
        "connection_id": "c",
        "channel": "WebSocket/c/0x1",
        "channel_id": "1.2",
        "format": "slin16",
        "optimal_frame_size": 640,
        "ptime": 20,
        "channel_variables": {"__INSTRUCTIONS": "be brief"},
    }
    parsed = protocol.parse_media_start(start)
    call = uuid.UUID("5a1e0000-0000-4000-8000-000000000001")
    stream = (
        audiosocket.Frame(audiosocket.FrameType.UUID, call.bytes).encode()
        + audiosocket.audio_frame(bytes(320)).encode()
        + audiosocket.hangup_frame().encode()
    )
    commands = {json.loads(message)["command"]: len(message.encode()) for message in given["commands"]}
    report(
        {
            "start": json.dumps(start),
            "silence": parsed.silence_byte,
            "rate": parsed.sample_rate,
            "known_commands": sorted(command.value for command in protocol.Command),
            "commands": commands,
            "longest": protocol.MAX_CONTROL_MESSAGE_BYTES,
            "same": [
                json.loads(
                    protocol.build_command(
                        protocol.Command(json.loads(message)["command"]),
                        **{name: value for name, value in json.loads(message).items() if name != "command"},
                    )
                )
                == json.loads(message)
                for message in given["commands"]
            ],
            "audiosocket": base64.b64encode(stream).decode(),
            "frames": asyncio.run(frames_of(base64.b64decode(given["audiosocket"]))),
        }
    )


main()
