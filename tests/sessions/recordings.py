"""Recordings taken apart and put together again, so that tests can change what stands in them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from sessions.recording.events_file import EventsFile
from sessions.recording.format import EVENTS, EVENTS_1, MANIFEST
from sessions.replay.reader import Recording, full_lines

Line = dict[str, Any]


def lines_of(folder: Path) -> list[Line]:
    """Every event and its effects, complete."""
    return cast("list[Line]", list(full_lines(Recording(folder))))


def rewrite(folder: Path, lines: Iterable[Line], flush_every: int = 1_000_000) -> None:
    """Put `lines` in the place of those of a recording, in the version that it has; flushed after so many lines."""
    texts = [json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n" for line in lines]
    if (folder / EVENTS).exists():
        file = EventsFile(folder / EVENTS)
        for number, text in enumerate(texts, 1):
            file.write(text)
            if number % flush_every == 0:
                file.flush()
        file.close()
    else:
        (folder / EVENTS_1).write_bytes("".join(texts).encode("utf-8", "backslashreplace"))


def as_version_1(folder: Path) -> None:
    """Make the journal of a recording one of version 1."""
    lines = lines_of(folder)
    (folder / EVENTS).unlink()
    rewrite(folder, lines)
    change_manifest(folder, version=1)


def change_manifest(folder: Path, **fields: object) -> None:
    """Set fields of the manifest."""
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    (folder / MANIFEST).write_text(json.dumps({**manifest, **fields}), encoding="utf-8")
