"""`talkover sessions`: the recordings on the disk."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from sessions.core.timeline import TICK_RATE
from sessions.recording.format import JournalError
from sessions.recording.policy import RecordingPolicy
from sessions.recording.retention import Entry, delete, entries, sweep
from sessions.replay.account import account
from sessions.replay.explain import explain
from sessions.replay.export import FORMATS
from sessions.replay.export.mcap import ExportError
from sessions.replay.reader import Recording, Step
from sessions.replay.statistics import figures


def sessions(options: Mapping[str, Any]) -> int:
    """Run the command; returns the exit status."""
    root = options["record"] or Path(os.environ.get("TALKOVER_RECORD") or options["default_root"])
    commands: Mapping[str, Callable[[Path, Mapping[str, Any]], int]] = {
        "list": _list,
        "show": _show,
        "rm": _remove,
        "export": _export,
        "stats": _stats,
    }
    try:
        return commands[options["what"]](root, options)
    except (JournalError, ExportError) as error:
        print(f"talkover sessions: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"talkover sessions: {error.filename or root}: {error.strerror}", file=sys.stderr)
        return 2


def find(root: Path, session: str) -> Path:
    """The folder of a session named by its id, the beginning of it, or a folder. Raises JournalError."""
    if os.sep in session or (Path(session) / "manifest.json").exists():
        return Path(session)
    found = [entry for entry in entries(root) if entry.session.startswith(session)] if session else []
    exact = [entry for entry in found if entry.session == session]
    if len(exact or found) != 1:
        names = ", ".join(entry.session for entry in found[:5]) or "none"
        raise JournalError(f"{session!r}: give the id of one recording below {root}; there are: {names}")
    return (exact or found)[0].folder


def _list(root: Path, options: Mapping[str, Any]) -> int:
    found = entries(root)
    if options["json"]:
        print(json.dumps([_plain(entry) for entry in found], ensure_ascii=False))
        return 0
    for entry in found:
        when = datetime.fromtimestamp(entry.began).astimezone().isoformat(sep=" ", timespec="seconds")
        length = "        -" if entry.length is None else f"{entry.length / TICK_RATE:7.1f} s"
        size = f"{entry.size / 1e6:8.2f} MB"
        ended = entry.ended or "open, or its process died"
        print(f"{entry.session}  {when}  {length}  {size}  {ended}  {entry.tenant}".rstrip())
    print(f"{len(found)} recordings, {sum(entry.size for entry in found) / 1e6:.1f} MB")
    return 0


def _plain(entry: Entry) -> dict[str, object]:
    return {
        "session": entry.session,
        "tenant": entry.tenant,
        "began": entry.began,
        "seconds": None if entry.length is None else entry.length / TICK_RATE,
        "bytes": entry.size,
        "ended": entry.ended,
    }


def _show(root: Path, options: Mapping[str, Any]) -> int:
    folder = find(root, options["session"])
    try:
        recording = Recording(folder)
    except JournalError as error:
        for name in ("version", "session", "began", "software", "tenant"):
            if name in error.known:
                print(f"{name:<12} {error.known[name]}")
        raise
    manifest = recording.manifest
    for name in ("session", "version", "software", "began", "tenant", "consent", "ended", "stopped"):
        value = getattr(manifest, name)
        if value:
            print(f"{name:<12} {value}")
    for track in recording.tracks().values():
        begins = f"from {track.starts / TICK_RATE:.3f} s"
        print(f"{track.name:<16} {track.length / TICK_RATE:8.1f} s at {track.rate} Hz, {begins}")
    faults: list[str] = []
    steps: list[Step] = list(recording.steps(faults))
    print(f"{len(steps)} events")
    print(explain(account(manifest.config, steps)).partition("\n")[0])
    for fault in faults:
        print(f"talkover sessions: {fault}", file=sys.stderr)
    return 2 if faults else 0


def _remove(root: Path, options: Mapping[str, Any]) -> int:
    given, days, tenant = options["session"], options["older_than"], options["tenant"]
    if bool(given) == (days is not None or tenant is not None):
        raise JournalError("give sessions to delete, or --older-than DAYS and --tenant NAME")
    gone: list[str] = []
    if given:
        for session in given:
            folder = find(root, session)
            delete(folder)
            gone.append(folder.name)
    elif tenant is None:
        gone = sweep(root, RecordingPolicy(keep_days=days), time.time())
    else:
        gone = sweep(root, RecordingPolicy(tenant_days={tenant: days or 0.0}), time.time())
    for session in gone:
        print(f"deleted {session}")
    return 0


def _export(root: Path, options: Mapping[str, Any]) -> int:
    folder = find(root, options["session"])
    suffix, write = FORMATS[options["format"]]
    out = options["out"] or Path(f"{folder.name}{suffix}")
    recording = Recording(folder)
    faults: list[str] = []
    for _ in recording.steps(faults):
        pass
    write(recording, out)
    print(out)
    for fault in faults:
        print(f"talkover sessions: {fault}", file=sys.stderr)
    return 2 if faults else 0


def _stats(root: Path, options: Mapping[str, Any]) -> int:
    total = figures(root)
    print(json.dumps(total.plain(), ensure_ascii=False) if options["json"] else total)
    return 0
