"""What is fuzzed. A target takes bytes and must come back: whatever is wrong with them is answered, never raised.

Each makes the most of its bytes by its protocol's own words, so that a fuzzer need not find out what JSON is: a byte
chooses a whole message, a field to damage, or raw bytes.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import zstandard

from server.carriers.webrtc import sdp
from server.dialects.base import InputAudio, InputImage, ItemAudio
from server.dialects.realtime import RealtimeDialect
from server.dialects.realtime_duplex import RealtimeDuplexDialect
from server.dialects.telephony.vendors import VENDORS
from sessions.core.config import SessionConfig
from sessions.core.effects import AdmitFrame, FlushCarrier, Notify, StartResponse
from sessions.core.events import AudioArrived, CarrierAttached, EngineAudio, EngineDone, EngineWords, Event
from sessions.core.records import Plain
from sessions.core.session import Session
from sessions.core.state import Abilities
from sessions.core.timeline import Ticks, Word, from_ms
from sessions.keeper import recovered
from sessions.ownership import Lease, Taken
from sessions.ports import OutputFrame
from sessions.recording.events_file import read_chapters
from sessions.recording.format import EVENTS, JournalError
from sessions.replay.reader import Recording

Target = Callable[[bytes], None]


class Source:
    """Reads choices off bytes; zeros once they are used up."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> bool:
        return self._at < len(self._data)

    def byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def take(self, most: int) -> bytes:
        length = min(self.byte(), most)
        taken = self._data[self._at : self._at + length]
        self._at += length
        return taken

    def one_of(self, choices: Sequence[Any]) -> Any:
        return choices[self.byte() % len(choices)]


JUNK: Final[tuple[Any, ...]] = (
    None,
    True,
    -1,
    0,
    2**63,
    1e400,
    1e-9,
    "",
    "x",
    "ÿ\ud800",
    "0" * 300,
    [],
    [[]],
    {},
    {"type": None},
    {"a": {"a": {"a": []}}},
)


def damaged(message: Any, source: Source) -> Any:
    """`message` with some of its values replaced, dropped or doubled."""
    if isinstance(message, dict):
        result = {}
        for key, value in message.items():
            choice = source.byte()
            if choice < 10:
                continue
            result[key] = source.one_of(JUNK) if choice < 40 else damaged(value, source)
        return result
    if isinstance(message, list):
        return [damaged(value, source) for value in message] * (1 + (source.byte() == 1))
    if isinstance(message, str) and source.byte() < 8:
        return message + source.take(20).decode("utf-8", "replace")
    return message


MULAW: Final = base64.b64encode(b"\xff" * 160).decode()
AUDIO: Final = base64.b64encode(bytes(960)).decode()
REALTIME: Final[tuple[dict[str, Any], ...]] = (
    {
        "type": "session.update",
        "session": {"type": "realtime", "instructions": "be brief", "output_modalities": ["text"]},
    },
    {
        "type": "session.update",
        "session": {
            "type": "realtime",
            "audio": {
                "input": {
                    "format": {"type": "audio/pcmu"},
                    "turn_detection": {"type": "server_vad", "threshold": 0.5, "silence_duration_ms": 300},
                    "transcription": {"model": "whisper", "language": "en"},
                },
                "output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "default", "speed": 1.1},
            },
            "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
            "tool_choice": "auto",
            "max_output_tokens": 100,
        },
    },
    {"type": "session.update", "session": {"audio": {"input": {"turn_detection": None}}}},
    {"type": "input_audio_buffer.append", "audio": AUDIO},
    {"type": "input_audio_buffer.commit"},
    {"type": "input_audio_buffer.clear"},
    {
        "type": "conversation.item.create",
        "item": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]},
    },
    {
        "type": "conversation.item.create",
        "item": {"type": "message", "role": "user", "content": [{"type": "input_audio", "audio": AUDIO}]},
    },
    {"type": "conversation.item.create", "item": {"type": "function_call_output", "call_id": "c", "output": "42"}},
    {"type": "conversation.item.truncate", "item_id": "item_0001", "content_index": 0, "audio_end_ms": 10},
    {"type": "conversation.item.delete", "item_id": "item_0001"},
    {"type": "conversation.item.retrieve", "item_id": "item_0001"},
    {"type": "response.create", "response": {"instructions": "now", "conversation": "none", "metadata": {"a": "b"}}},
    {"type": "response.create"},
    {"type": "response.cancel", "response_id": "resp_0001"},
    {"type": "output_audio_buffer.clear"},
    {"type": "playback.ack", "played_ms": 10, "response_id": "resp_0001"},
    {"type": "session.event_ack", "server_event_seq": 1},
    {"type": "session.heartbeat"},
    {"type": "session.close"},
)


def _text(vocabulary: Sequence[Mapping[str, Any]], source: Source) -> str:
    choice = source.byte()
    if choice < 20:
        return source.take(200).decode("utf-8", "replace")
    return json.dumps(damaged(source.one_of(vocabulary), source))


class Room:
    """A session of the core behind a dialect, with an engine that says two words; time goes on with each message."""

    def __init__(self, dialect: RealtimeDialect) -> None:
        self.dialect = dialect
        self.core = Session("sess_fuzz", 1, dialect.config, Abilities())
        self.now: Ticks = 0
        self.position: Ticks = 0
        self.handle(CarrierAttached())

    def handle(self, event: Event) -> None:
        for effect in self.core.handle(event, self.now):
            if isinstance(effect, Notify):
                for said in self.dialect.send(effect.notice):
                    json.loads(said)
            elif isinstance(effect, FlushCarrier):
                self.dialect.flush(effect.fence)
            elif isinstance(effect, AdmitFrame):
                pcm = bytes((effect.end - effect.start) // 2 * 2)
                frame = OutputFrame(
                    effect.fence,
                    effect.sequence,
                    effect.response,
                    effect.item,
                    effect.start,
                    effect.end,
                    effect.placed_at,
                    pcm,
                    24_000,
                )
                for said in self.dialect.send_frame(frame):
                    json.loads(said)
            elif isinstance(effect, StartResponse):
                self._speak = effect

    _speak: StartResponse | None = None

    def step(self, message: str | bytes, later: Ticks) -> None:
        self.now += later
        for received in self.dialect.receive(message):
            match received:
                case InputAudio(pcm, rate):
                    length = len(pcm) // 2 * (48_000 // rate)
                    if length:
                        self.position += length
                        self.handle(AudioArrived(self.position - length, self.position))
                case ItemAudio(create, _, _):
                    self.handle(create)
                case InputImage():
                    pass
                case _:
                    self.handle(received)
        asked, self._speak = self._speak, None
        if asked is not None:
            end = from_ms(60)
            self.handle(EngineWords(asked.fence, asked.response, (Word(" hi", 0, end),)))
            self.handle(EngineAudio(asked.fence, asked.response, 0, end))
            self.handle(EngineDone(asked.fence, asked.response))


def _converse(dialect: RealtimeDialect, data: bytes) -> None:
    source = Source(data)
    room = Room(dialect)
    for said in dialect.open("sess_fuzz"):
        json.loads(said)
    while source.left and not room.core.state.closed:
        message: str | bytes = _text(REALTIME, source)
        if source.byte() == 3:
            message = source.take(64)
        room.step(message, from_ms(source.byte() * 4))


def realtime(data: bytes) -> None:
    """The Realtime dialect with a session's core behind it."""
    _converse(RealtimeDialect("m", SessionConfig()), data)


def realtime_duplex(data: bytes) -> None:
    """The same with the duplex extensions."""
    config = SessionConfig(grace=from_ms(5000), acknowledge_playback=True)
    dialect = RealtimeDuplexDialect("m", config)
    dialect.attach("sess_fuzz", "token", 1)
    _converse(dialect, data)


PHONE: Final[Mapping[str, tuple[Any, ...]]] = {
    "twilio": (
        {"event": "connected", "protocol": "Call", "version": "1.0.0"},
        {
            "event": "start",
            "sequenceNumber": "1",
            "start": {
                "streamSid": "MZ1",
                "callSid": "CA1",
                "accountSid": "AC1",
                "tracks": ["inbound"],
                "customParameters": {"instructions": "hi"},
                "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
            },
            "streamSid": "MZ1",
        },
        {
            "event": "media",
            "sequenceNumber": "2",
            "media": {
                "track": "inbound",
                "chunk": "1",
                "timestamp": "20",
                "payload": MULAW,
            },
            "streamSid": "MZ1",
        },
        {"event": "dtmf", "streamSid": "MZ1", "dtmf": {"track": "inbound_track", "digit": "1"}},
        {"event": "mark", "streamSid": "MZ1", "mark": {"name": "1:0:1"}},
        {"event": "stop", "streamSid": "MZ1", "stop": {"callSid": "CA1"}},
    ),
    "telnyx": (
        {"event": "connected", "version": "1.0.0"},
        {
            "event": "start",
            "sequence_number": "1",
            "start": {
                "call_control_id": "v3:1",
                "media_format": {"encoding": "PCMU", "sample_rate": 8000},
            },
            "stream_id": "s1",
        },
        {
            "event": "media",
            "media": {"track": "inbound", "chunk": "2", "payload": MULAW},
        },
        {"event": "dtmf", "dtmf": {"digit": "#"}},
        {"event": "mark", "mark": {"name": "1:0:1"}},
        {"event": "stop"},
    ),
    "plivo": (
        {
            "event": "start",
            "start": {"callId": "c", "streamId": "s", "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000}},
        },
        {"event": "media", "media": {"track": "inbound", "payload": MULAW}},
        {"event": "playedStream", "name": "1:0:1"},
        {"event": "dtmf", "dtmf": {"digit": "5"}},
        {"event": "clearedAudio"},
    ),
    "vonage": (
        {"event": "websocket:connected", "content-type": "audio/l16;rate=16000"},
        {"event": "websocket:dtmf", "digit": "1"},
        {"event": "websocket:cleared"},
    ),
    "genesys": (
        {
            "version": "2",
            "id": "e160e428-53e2-487c-977d-96989bf5c99d",
            "type": "open",
            "seq": 1,
            "position": "PT0S",
            "serverseq": 0,
            "parameters": {
                "organizationId": "o",
                "conversationId": "c",
                "participant": {"ani": "+1", "dnis": "+2", "id": "p"},
                "media": [{"type": "audio", "format": "PCMU", "channels": ["external"], "rate": 8000}],
            },
        },
        {
            "version": "2",
            "id": "e",
            "type": "ping",
            "seq": 2,
            "position": "PT1S",
            "serverseq": 1,
            "parameters": {"rtt": "PT0.1S"},
        },
        {"version": "2", "id": "e", "type": "playback_started", "seq": 3, "serverseq": 1, "parameters": {}},
        {"version": "2", "id": "e", "type": "dtmf", "seq": 4, "serverseq": 1, "parameters": {"digit": "1"}},
        {"version": "2", "id": "e", "type": "close", "seq": 5, "serverseq": 1, "parameters": {"reason": "end"}},
    ),
    "jambonz": ({"sampleRate": 8000, "callSid": "c", "from": "1", "to": "2"}, {"event": "dtmf", "dtmf": "1"}),
    "asterisk": (
        {"event": "MEDIA_START", "connection_id": "c", "channel": "x", "format": "ulaw", "optimal_frame_size": 160},
        {"event": "MEDIA_XOFF"},
        {"event": "MEDIA_XON"},
        {"event": "DTMF_END", "digit": "1"},
        {"event": "MEDIA_MARK_PROCESSED", "correlation_id": "1:0:1"},
    ),
}
LINES: Final = (
    "MEDIA_START connection_id:c channel:x format:ulaw optimal_frame_size:160",
    "MEDIA_XOFF",
    "MEDIA_XON",
    "DTMF_END digit:1",
)


def _phone(vendor: str, data: bytes) -> None:
    source = Source(data)
    dialect = VENDORS[vendor]()
    vocabulary = PHONE.get(vendor) or PHONE["twilio"]
    while source.left:
        choice = source.byte()
        message: str | bytes
        if choice < 60:
            message = source.take(255)
        elif choice < 80:
            message = cast(str, source.one_of(LINES))
        else:
            message = _text(vocabulary, source)
        dialect.receive(message)


class RecordingFiles:
    """A recording on the disk, of which a target damages one file at a time.

    Its events are damaged packed, and unpacked too: what is packed again is no fault of the packing's, so that the
    reader of the lines gets to see it.
    """

    def __init__(self) -> None:
        # In memory where the system has such a folder: opening a file anew took a fifth of the time.
        memory = Path("/dev/shm")
        self._scratch = tempfile.TemporaryDirectory(prefix="fuzz", dir=memory if os.access(memory, os.W_OK) else None)
        self.folder = Path(self._scratch.name) / "sess_1"
        self._sound: dict[str, bytes] = {}
        self._make()

    def _make(self) -> None:
        from tests.fuzz.recorded import record

        record(self.folder)
        self._sound = {path.name: path.read_bytes() for path in sorted(self.folder.iterdir())}
        self._lines = b"".join(
            line + b"\n" for chapter in read_chapters(self.folder / EVENTS) for line in chapter.lines()
        )

    def __call__(self, data: bytes) -> None:
        source = Source(data)
        name = source.one_of([*self._sound, ""])
        content = bytearray(self._sound[name] if name else self._lines)
        while source.left:
            place = (source.byte() << 8 | source.byte()) % max(1, len(content))
            match source.byte() % 4:
                case 0:
                    del content[place:]
                case 1:
                    content[place : place + 1] = source.take(16)
                case 2 if content:
                    content[place % len(content)] ^= 1 + source.byte() % 255
                case _:
                    content.extend(source.take(64))
        if name:
            self._read(name, bytes(content))
        else:
            self._read(EVENTS, zstandard.ZstdCompressor(level=1).compress(bytes(content)))

    def _read(self, name: str, content: bytes) -> None:
        path = self.folder / name
        path.write_bytes(content)
        try:
            recording = Recording(self.folder)
            # What is sound beside it need not be read again each time.
            track = name.removesuffix(".flac")
            if track == name:
                recording.pieces("sent")  # reads every event
                track = "user_in"
            recording.samples(track, 0, 48_000)
        except JournalError:
            pass
        finally:
            path.write_bytes(self._sound[name])
            for left in self.folder.iterdir():
                if left.name not in self._sound:
                    shutil.rmtree(left) if left.is_dir() else left.unlink()


def snapshot(data: bytes) -> None:
    """What another process left in the directory of sessions."""
    source = Source(data)
    core = Session("sess_1", 1, SessionConfig(grace=1000), Abilities())
    core.handle(CarrierAttached(), 0)
    whole = damaged({"core": cast(Plain, core.snapshot()), "note": {"kind": "duplex"}}, source)
    entries = [json.dumps(damaged([5, {"type": "AudioArrived", "start": 0, "end": 960}], source)).encode()]
    if source.byte() < 30:
        entries.append(source.take(100))
    try:
        recovered(Taken(Lease("sess_1", 2), json.dumps(whole).encode(), tuple(entries)), "t")
    except ValueError:
        pass


def offer(data: bytes) -> None:
    """An SDP offer."""
    source = Source(data)
    lines = [
        "v=0", "o=- 1 1 IN IP4 127.0.0.1", "s=-", "t=0 0", "a=group:BUNDLE 0 1", "m=audio 9 UDP/TLS/RTP/SAVPF 111",
        "c=IN IP4 0.0.0.0", "a=mid:0", "a=sendrecv", "a=rtpmap:111 opus/48000/2", "a=fmtp:111 useinbandfec=1",
        "a=ice-ufrag:abcd", "a=ice-pwd:0123456789012345678901", "a=fingerprint:sha-256 " + ":".join(["AA"] * 32),
        "a=setup:actpass", "a=rtcp-mux", "m=application 9 UDP/DTLS/SCTP webrtc-datachannel", "a=mid:1",
    ]  # fmt: skip
    for _ in range(source.byte() % 8):
        place = source.byte() % len(lines)
        match source.byte() % 4:
            case 0:
                del lines[place]
            case 1:
                lines[place] = source.take(80).decode("utf-8", "replace")
            case 2:
                lines.insert(place, lines[source.byte() % len(lines)])
            case _:
                lines[place] += source.take(40).decode("utf-8", "replace")
        if not lines:
            break
    text = "\r\n".join(lines) + "\r\n"
    if source.byte() < 10:
        text = source.take(255).decode("utf-8", "replace")
    try:
        sdp.read_offer(text)
    except sdp.OfferRefused:
        pass


def targets() -> dict[str, Target]:
    """All, by name."""
    found: dict[str, Target] = {
        "realtime": realtime,
        "realtime-duplex": realtime_duplex,
        "snapshot": snapshot,
        "sdp": offer,
        "recording": RecordingFiles(),
    }
    for vendor in VENDORS:
        found[vendor] = lambda data, vendor=vendor: _phone(vendor, data)  # type: ignore[misc]
    return found
