"""Run a journal's events through the core again and compare every effect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

from ..core.config import SessionConfig
from ..core.events import Event
from ..core.records import Plain, Reader, RecordError, read_as, to_plain
from ..core.session import Session
from ..core.state import Abilities
from ..journal import EVENTS, MANIFEST, VERSION


class JournalError(ValueError):
    """A folder that is no readable journal; says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where the re-run went another way. `index` counts the effects of event number `number`."""

    number: int
    event: Plain
    index: int
    recorded: Plain
    rerun: Plain

    def __str__(self) -> str:
        return (
            f"event {self.number}: {json.dumps(self.event)}\n"
            f"  effect {self.index} recorded: {json.dumps(self.recorded)}\n"
            f"  effect {self.index} re-run:   {json.dumps(self.rerun)}"
        )


@dataclass(frozen=True, slots=True)
class Rerun:
    """`events` were run; `difference` is None when every effect was the recorded one."""

    events: int
    difference: Difference | None

    @property
    def identical(self) -> bool:
        return self.difference is None


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a journal. Raises JournalError."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise JournalError(f"{folder} holds no {MANIFEST}; give the folder of one recorded session") from None
    except ValueError as error:
        raise JournalError(f"{folder / MANIFEST} is damaged: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("version") != VERSION:
        raise JournalError(f"{folder} is not a journal of version {VERSION}; it was written by another version")
    return cast("dict[str, Any]", manifest)


def read_lines(folder: Path) -> Iterator[dict[str, Any]]:
    """The records of a journal, in order. A last line cut short by a crash is left out. Raises JournalError."""
    with (folder / EVENTS).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith("\n"):
                return
            try:
                record = json.loads(line)
            except ValueError as error:
                raise JournalError(f"{folder / EVENTS} line {number} is damaged: {error}") from None
            yield record


def rerun(folder: Path) -> Rerun:
    """Re-run the journal in `folder`. Raises JournalError when it cannot be read."""
    manifest = read_manifest(folder)
    reader = Reader(get_args(Event))
    try:
        session = Session(
            manifest["session"],
            manifest["incarnation"],
            read_as(SessionConfig, manifest["config"]),
            read_as(Abilities, manifest["abilities"]),
        )
        events = 0
        pending: tuple[int, Plain, list[Plain]] | None = None
        for record in read_lines(folder):
            if "event" in record:
                if pending is not None and (difference := _compare(*pending, [])) is not None:
                    return Rerun(events, difference)
                effects = session.handle(reader.read(record["event"]), record["now"])
                events += 1
                pending = (record["n"], record["event"], [to_plain(effect) for effect in effects])
            elif pending is not None:
                difference = _compare(*pending, record["effects"])
                if difference is not None:
                    return Rerun(events, difference)
                pending = None
    except (RecordError, KeyError, ValueError) as error:
        if isinstance(error, JournalError):
            raise
        raise JournalError(f"{folder}: {error}") from error
    return Rerun(events, None)


def _compare(number: int, event: Plain, rerun_effects: list[Plain], recorded: list[Plain]) -> Difference | None:
    for index in range(max(len(rerun_effects), len(recorded))):
        ours = rerun_effects[index] if index < len(rerun_effects) else None
        theirs = recorded[index] if index < len(recorded) else None
        if ours != theirs:
            return Difference(number, event, index, theirs, ours)
    return None
