"""Labels for Audacity, to lie beside the stereo file: start, end and text of each, parted by tabs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ...core.timeline import TICK_RATE, Ticks
from ..account import account
from ..reader import Recording
from ..speech import speech


def write_labels(recording: Recording, path: Path) -> None:
    """Write `path`: utterances as stretches; holds, interruptions and answers too."""
    first = recording.manifest.begins
    lines = [
        f"{_seconds(start - first)}\t{_seconds(end - first)}\t{_text(text)}"
        for start, end, text in sorted(_labels(recording))
    ]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", errors="replace")


def _labels(recording: Recording) -> Iterator[tuple[Ticks, Ticks, str]]:
    for said in speech(recording):
        yield said.start, said.end, f"{said.side}: {said.text}"
    told = account(recording.manifest.config, recording.steps([]))
    for cut in told.interruptions:
        since = cut.held if cut.held is not None else cut.decided
        yield since, cut.decided, f"interruption {cut.number} ({cut.cause}), epoch {cut.epoch}"
    for overlap in told.overlaps:
        yield overlap.held, overlap.resumed, f"hold, no interruption: {overlap.words or 'a sound'}"
    for answer in told.answers:
        if answer.speech_end is not None and answer.heard is not None:
            yield answer.speech_end, answer.heard, f"waiting for {answer.response}"


def _seconds(ticks: Ticks) -> str:
    return f"{max(0, ticks) / TICK_RATE:.6f}"


def _text(text: str) -> str:
    return re.sub(r"[\s\0]+", " ", text).strip()
