"""One MCAP file (https://mcap.dev) with the audio of both sides and all events, for Foxglove and its tools."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from ...core.records import Plain
from ...core.timeline import TICK_RATE, Ticks, ticks_per_sample
from ...recording.format import software
from ..reader import Recording, full_lines
from ..speech import speech
from .stereo import blocks

PIECE: Ticks = TICK_RATE // 10
"""Audio in one message."""

_TIME = {"type": "object", "properties": {"sec": {"type": "integer"}, "nsec": {"type": "integer"}}}
_AUDIO = {
    "title": "foxglove.RawAudio",
    "type": "object",
    "properties": {
        "timestamp": {**_TIME, "title": "time"},
        "data": {"type": "string", "contentEncoding": "base64"},
        "format": {"type": "string"},
        "sample_rate": {"type": "integer"},
        "number_of_channels": {"type": "integer"},
    },
}
_EVENT = {"title": "talkover.Line", "type": "object"}
_SAID = {
    "title": "talkover.Said",
    "type": "object",
    "properties": {"side": {"type": "string"}, "text": {"type": "string"}, "seconds": {"type": "number"}},
}


class ExportError(ValueError):
    """What an export needs is not there; says what."""


def write_mcap(recording: Recording, path: Path) -> None:
    """Write `path`: topics /user/audio, /agent/audio (foxglove.RawAudio), /speech and /events. Raises ExportError."""
    try:
        from mcap.writer import CompressionType, Writer
    except ImportError:
        raise ExportError("MCAP needs the package mcap: pip install mcap") from None
    began = _began(recording)
    with path.open("wb") as file:
        writer = Writer(file, compression=CompressionType.ZSTD)
        writer.start(profile="", library=f"talkover {software()}")
        topics = {}
        for topic, schema in (
            ("/user/audio", _AUDIO),
            ("/agent/audio", _AUDIO),
            ("/speech", _SAID),
            ("/events", _EVENT),
        ):
            name = str(schema["title"])
            number = writer.register_schema(name, "jsonschema", json.dumps(schema).encode())
            topics[topic] = writer.register_channel(topic, "json", number)
        writer.add_metadata("session", {"session": recording.manifest.session, "began": recording.manifest.began})
        for sequence, (at, topic, message) in enumerate(_messages(recording, began)):
            writer.add_message(topics[topic], at, json.dumps(message).encode("utf-8", "backslashreplace"), at, sequence)
        writer.finish()  # type: ignore[no-untyped-call]


def _began(recording: Recording) -> int:
    """Beginning of the session in nanoseconds since the epoch; 0 where it is not known."""
    try:
        return int(datetime.fromisoformat(recording.manifest.began).timestamp() * 1000) * 1_000_000
    except ValueError:
        return 0


def _messages(recording: Recording, began: int) -> Iterator[tuple[int, str, dict[str, Any]]]:
    first_tick = recording.manifest.begins

    def when(ticks: Ticks) -> int:
        return began + max(0, ticks - first_tick) * 1_000_000_000 // TICK_RATE

    rate = recording.manifest.agent_rate
    count = PIECE // ticks_per_sample(rate)
    samples = first_tick // ticks_per_sample(rate)
    for both in blocks(recording):
        for first in range(0, len(both), count):
            at = when(samples * ticks_per_sample(rate))
            for side, topic in ((0, "/user/audio"), (1, "/agent/audio")):
                pcm = both[first : first + count, side].astype("<i2").tobytes()
                yield at, topic, _audio(at, pcm, rate)
            samples += len(both[first : first + count])
    for said in speech(recording):
        length = (said.end - said.start) / TICK_RATE
        yield when(said.start), "/speech", {"side": said.side, "text": said.text, "seconds": length}
    now: Plain = 0
    for line in full_lines(recording, []):
        now = line.get("now", now)
        yield when(now if isinstance(now, int) else 0), "/events", line


def _audio(at: int, pcm: bytes, rate: int) -> dict[str, Any]:
    return {
        "timestamp": {"sec": at // 1_000_000_000, "nsec": at % 1_000_000_000},
        "data": base64.b64encode(pcm).decode(),
        "format": "pcm-s16",
        "sample_rate": rate,
        "number_of_channels": 1,
    }
