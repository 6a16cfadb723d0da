"""Run a recording's events through the core again and compare every effect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..core.effects import Effect
from ..core.records import Plain, to_plain
from ..core.timeline import TICK_RATE, Ticks
from ..recording.events_file import read_chapters
from ..recording.format import EVENTS, JournalError, software
from ..recording.line_reader import LineReader, parsed
from ..recording.lines import Writer
from ..recording.redaction import Redactor, may_tell, same_but_for_secrets
from .reader import Manifest, Recording, Step

ADDED: Final = frozenset({("StageReached", "elapsed")})
"""Fields that records of earlier programs lack, although what they tell of is the same: compared where they are there.
"""

__all__ = ["Difference", "JournalError", "Rerun", "rerun"]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where the re-run went another way. `index` counts the effects of event number `number`."""

    number: int
    event: Plain
    index: int
    recorded: Plain
    rerun: Plain
    cause: str

    def __str__(self) -> str:
        return (
            f"event {self.number}: {json.dumps(self.event)}\n"
            f"  effect {self.index} recorded: {json.dumps(self.recorded)}\n"
            f"  effect {self.index} re-run:   {json.dumps(self.rerun)}\n"
            f"  cause: {self.cause}"
        )


@dataclass(frozen=True, slots=True)
class Rerun:
    """`events` were run; `difference` is None when every effect was the recorded one. `length`: session time."""

    events: int
    difference: Difference | None
    length: Ticks = 0

    @property
    def identical(self) -> bool:
        return self.difference is None


def rerun(folder: Path) -> Rerun:
    """Re-run the recording in `folder`. Raises JournalError when it cannot be read."""
    recording = Recording(folder)
    if recording.manifest.version > 1:
        swift = _swift(recording)
        if swift is not None:
            return swift
    return rerun_steps(recording.manifest, recording.steps())


def _swift(recording: Recording) -> Rerun | None:
    """Compare effects as text, without reading them; None where that finds a difference, or anything unusual."""
    session = recording.manifest.session_core()
    reader, writer, redactor = LineReader(), Writer(), Redactor()
    events = 0
    pending: list[Effect] = []
    try:
        for chapter in read_chapters(recording.folder / EVENTS):
            if chapter.lost:
                return None
            for line in chapter.lines():
                if line.startswith(b'{"effects":'):
                    if not pending:
                        return None
                    again = writer.effects(pending)
                    if may_tell(pending):
                        again = redactor.line(again)
                    if again.encode("utf-8", "backslashreplace")[:-1] != line:
                        return None
                    pending = []
                    continue
                if pending:
                    return None
                if line.startswith(b'{"n":'):
                    writer.chapter()
                read = reader.line(parsed(line))
                if read.event is None or read.number != events + 1:
                    return None
                pending = session.handle(read.event, read.now)
                events += 1
            if chapter.fault:
                return None
    except (OSError, ValueError, RecursionError):
        return None
    return Rerun(events, None, session.state.now)


def rerun_steps(manifest: Manifest, steps: Iterator[Step]) -> Rerun:
    """Run the events of `steps` and compare effects one by one, to find the first that differs. Raises JournalError."""
    session = manifest.session_core()
    redactor = Redactor()
    events = 0
    pending: tuple[Step, list[Effect]] | None = None
    for step in steps:
        if pending is not None:
            difference = _difference(manifest, redactor, *pending)
            if difference is not None:
                return Rerun(events, difference, session.state.now)
        if step.now < session.state.now:
            raise JournalError(
                f"{manifest.session}: event {step.number} is damaged: time goes back from {session.state.now} to "
                f"{step.now}"
            )
        if step.number != events + 1:
            raise JournalError(
                f"{manifest.session}: event {step.number} stands where event {events + 1} should; what is between is "
                "missing"
            )
        pending = (step, session.handle(step.event, step.now))
        events += 1
    if pending is not None and pending[0].effects:
        return Rerun(events, _difference(manifest, redactor, *pending), session.state.now)
    return Rerun(events, None, session.state.now)


def _difference(manifest: Manifest, redactor: Redactor, step: Step, effects: list[Effect]) -> Difference | None:
    if effects == step.effects:
        return None
    ours = [redactor.plain({"effect": to_plain(effect)})["effect"] for effect in effects]
    theirs = [to_plain(effect) for effect in step.effects]
    for index in range(max(len(ours), len(theirs))):
        other = theirs[index] if index < len(theirs) else None
        one = _as_known(ours[index], other) if index < len(ours) else None
        if not same_but_for_secrets(one, other):
            cause = _cause(manifest, step, other, one)
            return Difference(step.number, to_plain(step.event), index, other, one, cause)
    return None


def _as_known(rerun: Plain, recorded: Plain) -> Plain:
    """`rerun` without fields that the program that recorded did not know."""
    if not isinstance(rerun, dict) or not isinstance(recorded, dict):
        return rerun
    kind = rerun.get("type")
    return {
        name: _as_known(value, recorded.get(name))
        for name, value in rerun.items()
        if name in recorded or (kind, name) not in ADDED
    }


def _cause(manifest: Manifest, step: Step, recorded: Plain, rerun: Plain) -> str:
    """What differs, in words, and what that can come from."""
    place = f"{type(step.event).__name__} at {step.now / TICK_RATE:.3f} s"
    if not isinstance(recorded, dict):
        what = f"{place} now also makes {_name(rerun)}"
    elif not isinstance(rerun, dict):
        what = f"{place} no longer makes {_name(recorded)}"
    elif recorded.get("type") != rerun.get("type"):
        what = f"{place} now makes {_name(rerun)} where it made {_name(recorded)}"
    else:
        fields = ", ".join(
            f"{path} was {json.dumps(one)} and is {json.dumps(other)}" for path, one, other in _fields(recorded, rerun)
        )
        what = f"{place} makes another {_name(recorded)}: {fields}"
    if manifest.software and manifest.software != software():
        return f"{what}; recorded by version {manifest.software}, run by {software()}: the core decides otherwise now"
    return f"{what}; the core decides otherwise than the one that recorded it, or the recording was changed"


def _name(effect: Plain) -> str:
    if not isinstance(effect, dict):
        return "nothing"
    notice = effect.get("notice")
    inner = f" {notice.get('type')}" if isinstance(notice, dict) else ""
    return f"{effect.get('type')}{inner}"


def _fields(recorded: Plain, rerun: Plain, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(recorded, dict) and isinstance(rerun, dict):
        for key in dict.fromkeys((*recorded, *rerun)):
            yield from _fields(recorded.get(key), rerun.get(key), f"{path}.{key}" if path else key)
    elif recorded != rerun:
        yield path, recorded, rerun
