"""Which recordings there are, and which of them have to go."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from .format import EVENTS, EVENTS_1, MANIFEST
from .policy import DAY, RecordingPolicy

log = logging.getLogger(__name__)

WRITTEN_SECONDS: Final = 60.0
"""A recording without an end that was written to so lately is being written: by another process, perhaps."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One recording as its folder shows it. `touched`: when it was last written to, seconds since the epoch."""

    folder: Path
    session: str
    tenant: str
    began: float
    touched: float
    size: int
    length: int | None
    ended: str | None
    """Why it ended; None: it still runs, or its process died."""


def entries(root: Path) -> list[Entry]:
    """The recordings below `root`, oldest first. Folders that are none are passed over. Raises OSError."""
    found = [entry for entry in map(_entry, root.iterdir()) if entry is not None]
    return sorted(found, key=lambda entry: (entry.touched, entry.session))


def _entry(folder: Path) -> Entry | None:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        files = [path.stat() for path in folder.iterdir() if path.is_file()]
    except (OSError, ValueError):
        return None
    if not isinstance(manifest, dict) or not files:
        return None
    touched = max(stat.st_mtime for stat in files)
    config = manifest.get("config")
    tenant = manifest.get("tenant", config.get("tenant", "") if isinstance(config, dict) else "")
    ended = manifest.get("ended", manifest.get("stopped"))
    length = manifest.get("length")
    return Entry(
        folder,
        folder.name,
        tenant if isinstance(tenant, str) else "",
        _seconds(manifest.get("began"), min(stat.st_mtime for stat in files)),
        touched,
        sum(stat.st_size for stat in files),
        length if isinstance(length, int) else None,
        ended if isinstance(ended, str) else None,
    )


def _seconds(began: object, otherwise: float) -> float:
    try:
        return datetime.fromisoformat(str(began)).timestamp()
    except ValueError:
        return otherwise


def delete(folder: Path) -> None:
    """Remove a recording; only what a recording holds, so that a wrong folder is not emptied. Raises OSError."""
    if not (folder / MANIFEST).is_file() or not any((folder / name).is_file() for name in (EVENTS, EVENTS_1)):
        raise FileNotFoundError(2, "no recording", str(folder))
    shutil.rmtree(folder)


def expired(found: Collection[Entry], policy: RecordingPolicy, now: float) -> Iterator[Entry]:
    """Those of `found` (oldest first) that the policy wants gone at `now`, in seconds since the epoch."""
    kept: list[Entry] = []
    for entry in found:
        days = policy.days(entry.tenant)
        if days is not None and now - entry.touched > days * DAY:
            yield entry
        else:
            kept.append(entry)
    if policy.total_bytes is None:
        return
    total = sum(entry.size for entry in kept)
    for entry in kept:
        if total <= policy.total_bytes:
            return
        total -= entry.size
        yield entry


def sweep(root: Path, policy: RecordingPolicy, now: float, busy: Collection[str] = ()) -> list[str]:
    """Delete what the policy wants gone, but nothing that is being written, which `busy` names besides what shows it;
    returns the sessions that are gone."""
    gone = []
    for entry in list(expired(entries(root), policy, now)):
        if entry.session in busy or (entry.ended is None and now - entry.touched < WRITTEN_SECONDS):
            continue
        try:
            delete(entry.folder)
        except OSError as error:
            log.warning("recording %s cannot be deleted: %s", entry.session, error)
        else:
            gone.append(entry.session)
    return gone
