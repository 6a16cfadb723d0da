"""Telephone serializers as pipecat has them: what they read of our messages, and what they write for us to read."""

import asyncio
import base64

from pipecat.frames.frames import InputAudioRawFrame, InputDTMFFrame, InterruptionFrame, OutputAudioRawFrame
from pipecat.serializers.genesys import GenesysAudioHookSerializer
from pipecat.serializers.plivo import PlivoFrameSerializer
from pipecat.serializers.telnyx import TelnyxFrameSerializer
from pipecat.serializers.twilio import TwilioFrameSerializer
from pipecat.serializers.vonage import VonageFrameSerializer
from scenario import arguments, report

RATE = 16_000


def made() -> dict[str, object]:
    found = {
        "twilio": TwilioFrameSerializer("MZ1", params=TwilioFrameSerializer.InputParams(auto_hang_up=False)),
        "telnyx": TelnyxFrameSerializer(
            "st", "PCMU", "PCMU", params=TelnyxFrameSerializer.InputParams(auto_hang_up=False)
        ),
        "plivo": PlivoFrameSerializer("MZ1", params=PlivoFrameSerializer.InputParams(auto_hang_up=False)),
        "vonage": VonageFrameSerializer(VonageFrameSerializer.InputParams()),
        "genesys": GenesysAudioHookSerializer(),
    }
    for one in found.values():
        one._sample_rate = RATE
    return found


def packed(message: object) -> list[str]:
    if isinstance(message, bytes):
        return ["bytes", base64.b64encode(message).decode()]
    return ["text", str(message)]


async def main() -> None:
    given = arguments()
    result: dict[str, object] = {}
    for name, serializer in made().items():
        for message in given["opening"].get(name, []):
            await serializer.deserialize(message)
        kinds, audio = [], 0
        for kind, body in given["caller"][name]:
            frame = await serializer.deserialize(base64.b64decode(body) if kind == "bytes" else body)
            kinds.append(type(frame).__name__)
            if isinstance(frame, InputAudioRawFrame):
                audio += len(frame.audio) // 2
            elif isinstance(frame, InputDTMFFrame):
                kinds[-1] += f" {frame.button.value}"
        bot = [
            await serializer.serialize(OutputAudioRawFrame(audio=bytes(960 * 20), sample_rate=24_000, num_channels=1)),
            await serializer.serialize(InterruptionFrame()),
        ]
        result[name] = {
            "kinds": kinds,
            "audio_s": audio / RATE,
            "bot": [packed(message) for message in bot if message is not None],
        }
    report(result)


asyncio.run(main())
