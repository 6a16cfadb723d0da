"""What was said as captions (WebVTT, https://www.w3.org/TR/webvtt1/)."""

from __future__ import annotations

import re
from pathlib import Path

from ...core.timeline import TICKS_PER_MS, Ticks
from ..reader import Recording
from ..speech import Said, speech

SPEAKERS = {"user": "User", "agent": "Agent"}


def write_webvtt(recording: Recording, path: Path) -> None:
    """Write `path`: a cue for each utterance of the user and each sentence of the agent that was heard."""
    first = recording.manifest.begins
    cues = [_cue(number, said, first) for number, said in enumerate(speech(recording), 1)]
    path.write_text("\n".join(["WEBVTT", "", *cues]), encoding="utf-8", errors="replace")


def _cue(number: int, said: Said, first: Ticks) -> str:
    """`first`: the session time that is the beginning of the captions."""
    end = max(said.end, said.start + TICKS_PER_MS)
    return (
        f"{number}\n{_time(said.start - first)} --> {_time(end - first)}\n<v {SPEAKERS[said.side]}>{_text(said.text)}\n"
    )


def _time(ticks: Ticks) -> str:
    ms = max(0, ticks) // TICKS_PER_MS
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}.{ms % 1000:03}"


def _text(text: str) -> str:
    """Of a cue: on one line, and without anything that would be markup."""
    plain = re.sub(r"\s+", " ", text.replace("\0", "")).strip()
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
