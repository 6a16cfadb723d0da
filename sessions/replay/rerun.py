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
    except (FileNotFoundError, NotADirectoryError):
        raise JournalError(f"{folder} holds no {MANIFEST}; give the folder of one recorded session") from None
    except OSError as error:
        raise JournalError(f"{folder / MANIFEST} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise JournalError(f"{folder / MANIFEST} is damaged: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("version") != VERSION:
        raise JournalError(f"{folder} is not a journal of version {VERSION}; it was written by another version")
    return cast("dict[str, Any]", manifest)


def read_lines(folder: Path) -> Iterator[dict[str, Any]]:
    """The records of a journal, one a line. A last line cut short by a crash is left out. Raises JournalError."""
    try:
        lines = (folder / EVENTS).open("rb")
    except OSError as error:
        raise JournalError(f"{folder / EVENTS} cannot be read: {error.strerror}") from None
    with lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                return
            try:
                record = json.loads(line)
            except ValueError as error:
                raise _damaged(folder, number, error) from None
            if not isinstance(record, dict):
                raise _damaged(folder, number, "it is not an object")
            yield record


def _damaged(folder: Path, line: int, why: Exception | str) -> JournalError:
    return JournalError(f"{folder / EVENTS} line {line} is damaged: {why}")


def rerun(folder: Path) -> Rerun:
    """Re-run the journal in `folder`. Raises JournalError when it cannot be read."""
    session = _session(folder)
    reader = Reader(get_args(Event))
    events = 0
    pending: tuple[int, Plain, list[Plain]] | None = None
    for line, record in enumerate(read_lines(folder), 1):
        try:
            number = read_as(int, record.get("n"), "n")
            if "event" in record:
                now = read_as(int, record.get("now"), "now")
                if now < session.state.now:
                    raise RecordError("now", f"time goes back from {session.state.now} to {now}")
                event, recorded = reader.read(record["event"]), None
            else:
                recorded = record.get("effects")
                if not isinstance(recorded, list):
                    raise RecordError("effects", "expected a list, or an event in its place")
                if pending is None or pending[0] != number:
                    raise RecordError("n", f"effects of event {number} do not follow it")
        except RecordError as error:
            raise _damaged(folder, line, error) from None
        if pending is not None and (difference := _compare(*pending, recorded or [])) is not None:
            return Rerun(events, difference)
        pending = None
        if recorded is None:
            effects = session.handle(event, now)
            events += 1
            pending = (number, record["event"], [to_plain(effect) for effect in effects])
    return Rerun(events, None)


def _session(folder: Path) -> Session:
    """The session as it began."""
    manifest = read_manifest(folder)

    def field(annotation: Any, name: str) -> Any:
        return read_as(annotation, manifest.get(name), name)

    try:
        return Session(
            field(str, "session"),
            field(int, "incarnation"),
            field(SessionConfig, "config"),
            field(Abilities, "abilities"),
        )
    except RecordError as error:
        raise JournalError(f"{folder / MANIFEST} is damaged: {error}") from None


def _compare(number: int, event: Plain, rerun_effects: list[Plain], recorded: list[Plain]) -> Difference | None:
    for index in range(max(len(rerun_effects), len(recorded))):
        ours = rerun_effects[index] if index < len(rerun_effects) else None
        theirs = recorded[index] if index < len(recorded) else None
        if ours != theirs:
            return Difference(number, event, index, theirs, ours)
    return None
