"""What a recording can be turned into for other programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ..reader import Recording
from .labels import write_labels
from .mcap import write_mcap
from .perfetto import write_perfetto
from .stereo import write_stereo
from .webvtt import write_webvtt
from .whole import write_json

FORMATS: Mapping[str, tuple[str, Callable[[Recording, Path], None]]] = {
    "wav": (".wav", write_stereo),
    "webvtt": (".vtt", write_webvtt),
    "audacity": (".txt", write_labels),
    "perfetto": (".perfetto-trace", write_perfetto),
    "mcap": (".mcap", write_mcap),
    "json": (".json", write_json),
}
"""By name: the usual ending of the file, and what writes it."""

__all__ = ["FORMATS"]
