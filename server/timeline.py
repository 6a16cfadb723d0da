"""What happened in a talk, told from its events on the client's clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from .client import RATE, Pcm, Received, Utterance

SILENCE_DB = -40.0
"""Below the loudest sample by this much, a recording counts as silent."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: `at` seconds since the talk began."""

    at: float
    side: str
    text: str

    def __str__(self) -> str:
        return f"{self.at:8.3f}  {self.side:<6} {self.text}"

    def plain(self) -> dict[str, object]:
        return {"at": round(self.at, 3), "side": self.side, "text": self.text}


@dataclass(frozen=True, slots=True)
class Latency:
    """One answer, seconds from the true end of what the user said. None where the stage was not seen."""

    turn_ended: float | None
    words: float | None
    first_token: float | None
    first_clause: float | None
    audio_made: float | None
    first_audio: float

    def __str__(self) -> str:
        stages = {
            "turn ended": self.turn_ended,
            "words": self.words,
            "first token": self.first_token,
            "first clause": self.first_clause,
            "audio made": self.audio_made,
            "first audio here": self.first_audio,
        }
        return ", ".join(f"{name} {value:.3f}" for name, value in stages.items() if value is not None)

    def plain(self) -> dict[str, float | None]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Figures:
    """Latencies of the answers; `user` and `agent` are what was said, as transcribed and as spoken."""

    latencies: tuple[Latency, ...]
    user: tuple[str, ...]
    agent: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"seconds from the end of speech: {latency}" for latency in self.latencies]
        return "\n".join(lines) if lines else "no answer was heard"

    def plain(self) -> dict[str, object]:
        return {
            "latencies": [latency.plain() for latency in self.latencies],
            "user": list(self.user),
            "agent": list(self.agent),
        }


def speech_end(pcm: Pcm) -> int:
    """The sample after the last one that is not silent."""
    level = np.abs(pcm.astype(np.int32))
    loud = np.nonzero(level > level.max() * 10 ** (SILENCE_DB / 20))[0]
    return int(loud[-1]) + 1 if len(loud) else len(pcm)


def timeline(events: Sequence[Received], said: Sequence[Utterance], began: float) -> list[Entry]:
    """All that is worth a line, in order of time."""
    entries: list[Entry] = []
    for utterance in said:
        if utterance.began.done():
            at = utterance.began.result() - began
            entries.append(Entry(at, "user", "begins to speak"))
            entries.append(Entry(at + speech_end(utterance.pcm) / RATE, "user", "stops speaking"))
    heard: set[str] = set()
    for event in events:
        at = event.at - began
        if event.type == "response.output_audio.delta":
            if event.response not in heard:
                heard.add(event.response)
                entries.append(Entry(at, "agent", f"first audio (epoch {_whole(event, 'x_epoch')})"))
            continue
        line = _line(event)
        if line is not None:
            entries.append(Entry(at, *line))
    return sorted(entries, key=lambda entry: entry.at)


def _whole(event: Received, *path: str) -> int:
    return int(event.number(*path) or 0)


def _line(event: Received) -> tuple[str, str] | None:
    match event.type:
        case "input_audio_buffer.speech_started":
            return "server", f"speech started at {_whole(event, 'audio_start_ms')} ms of input"
        case "input_audio_buffer.speech_stopped":
            return "server", f"speech stopped at {_whole(event, 'audio_end_ms')} ms of input"
        case "conversation.item.input_audio_transcription.completed":
            return "user", f'said: "{event.text("transcript")}"'
        case "x_talkover.held":
            return "server", f"hold, on speech at {_whole(event, 'at') // 48} ms of input"
        case "x_talkover.resumed":
            words = event.text("words")
            return "server", f'resumed after "{words}"' if words else "resumed"
        case "x_talkover.input_transcript_hypothesis":
            return "server", f'hears "{event.text("text")}"'
        case "x_talkover.turn_ended":
            return "server", f"turn ended by {event.text('by')}"
        case "x_talkover.epoch_began":
            return "server", f"epoch {_whole(event, 'epoch')} ({event.text('cause')})"
        case "x_talkover.playback_cleared":
            return "agent", f'cut at {_whole(event, "heard") // 48} ms; heard: "{event.text("text")}"'
        case "response.output_audio_transcript.done":
            return "agent", f'said: "{event.text("transcript")}"'
        case "response.done":
            return "server", f"response {event.text('response', 'status')}"
        case "error":
            return "server", f"error: {event.text('error', 'message')}"
        case _:
            return None


def figures(events: Sequence[Received], said: Sequence[Utterance]) -> Figures:
    """The figures of a talk."""
    latencies = []
    ends = [u.began.result() + speech_end(u.pcm) / RATE for u in said if u.began.done()]
    for index, end in enumerate(ends):
        until = ends[index + 1] if index + 1 < len(ends) else float("inf")
        latency = _latency([event for event in events if end - 1.0 <= event.at < until], end)
        if latency is not None:
            latencies.append(latency)
    return Figures(
        tuple(latencies),
        tuple(
            event.text("transcript")
            for event in events
            if event.type == "conversation.item.input_audio_transcription.completed"
        ),
        tuple(event.text("transcript") for event in events if event.type == "response.output_audio_transcript.done"),
    )


def _latency(events: Sequence[Received], end: float) -> Latency | None:
    created = next((event for event in events if event.type == "response.created" and event.at >= end), None)
    if created is None:
        return None
    response = created.response

    def first(kind: str, stage: str = "") -> float | None:
        for event in events:
            if event.type == kind and event.at >= end and (not stage or event.text("stage") == stage):
                owner = event.text("response") or event.response
                if not owner or owner == response:
                    return round(event.at - end, 3)
        return None

    audio = first("response.output_audio.delta")
    if audio is None:
        return None
    return Latency(
        first("x_talkover.turn_ended"),
        first("x_talkover.stage_reached", "words"),
        first("x_talkover.stage_reached", "first_token"),
        first("x_talkover.stage_reached", "first_clause"),
        first("x_talkover.stage_reached", "first_audio"),
        audio,
    )
