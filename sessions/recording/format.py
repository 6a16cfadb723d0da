"""Names and versions of what lies in the folder of a recorded session (docs/recording.md)."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
from collections.abc import Mapping
from pathlib import Path

from ..core.records import Plain

VERSION = 2
READABLE = (1, 2)
MANIFEST = "manifest.json"
EVENTS = "events.jsonl.zst"
STATE = "state.json"
"""How the session stood when the recording began, of one that another process had begun."""
EVENTS_1 = "events.jsonl"
"""Of version 1, which also has WAV in place of FLAC."""
TRACKS = ("user_in", "agent_generated", "agent_sent", "agent_heard")


class JournalError(ValueError):
    """A folder that is no readable recording, or not to its end; says what is wrong with it.

    `known`: what its manifest says nevertheless, as far as it can be read.
    """

    def __init__(self, message: str, known: Mapping[str, Plain] | None = None) -> None:
        super().__init__(message)
        self.known: Mapping[str, Plain] = known or {}


@functools.cache
def software() -> str:
    """Version of the program that records or replays."""
    try:
        return importlib.metadata.version("talkover")
    except importlib.metadata.PackageNotFoundError:
        return "source tree"


def folder_name(session: str, incarnation: int, continued: bool) -> str:
    """Each owner of a session records its part in a folder of its own; all may lie below the same root."""
    return f"{session}-{incarnation}" if continued else session


def session_of(name: str) -> str:
    """The session of a recording, by the name of its folder."""
    return name.partition("-")[0]


def write_state(folder: Path, state: Mapping[str, Plain]) -> None:
    """Write `STATE`; before the manifest that tells of it."""
    (folder / STATE).write_text(json.dumps(state, separators=(",", ":")) + "\n", encoding="utf-8")


def write_manifest(folder: Path, manifest: dict[str, Plain]) -> None:
    """Write it whole or not at all."""
    new = folder / f".{MANIFEST}"
    new.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    os.replace(new, folder / MANIFEST)
