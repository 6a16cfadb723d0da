"""Recordings that clients bring along: a folder that lies on somebody's own machine, opened in the replay page.

The page cannot read the format by itself, and must not have to: what it is given here is looked into by the same code
as a recording of this server, shown to the client that brought it alone, and forgotten an hour after the last look.
Methods are called on the event loop.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sessions.core.timeline import TICK_RATE, Ticks, ticks_per_sample
from sessions.recording.flac import FlacFile, TrackError
from sessions.recording.format import EVENTS, EVENTS_1, MANIFEST

from .dialects.checks import Rejected

PREFIX: Final = "brought_"
"""Of their ids; those of sessions begin with `sess_`."""
KEPT_S: Final = 3600.0
"""Seconds after the last look until it is forgotten."""
MOST: Final = 8
TENANT_MOST: Final = 2
"""How many are held at a time, and of one tenant; its oldest makes room for its newest."""
MOST_BYTES: Final = 2 << 30
"""Of one recording: seven hours of four tracks that do not compress."""
ROOM: Final = 256 << 20
"""Bytes that stay free on the disk."""
PIECE: Final = 1 << 20
"""Bytes of a file that come at a time, so that a slow way needs no long request."""
SMALL: Final = 1 << 20
"""Bytes of a manifest."""
LONGEST_TRACK: Final[Ticks] = 12 * 3600 * TICK_RATE
"""A small file can say of itself that it is long, and looking at it costs by its length."""

_TRACK: Final = re.compile(r"[a-z0-9_]{1,64}\.(?:flac|wav)")


class NoRoom(Exception):
    """No more can be held at the moment."""


@dataclass(slots=True)
class _Held:
    tenant: str
    folder: Path
    used: float
    size: int = 0
    checked: int = 0
    writing: bool = False
    sizes: dict[str, int] = field(default_factory=dict)


class Brought:
    """What clients have brought. `remove` is called with a folder that is to be deleted, soon and without waiting."""

    def __init__(self, remove: Callable[[Path], None]) -> None:
        self._remove = remove
        self._held: dict[str, _Held] = {}
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def new(self, tenant: str) -> str:
        """The id of an empty one. Raises NoRoom."""
        self._sweep()
        if len(own := self.of(tenant)) >= TENANT_MOST:
            self.forget(own[0])
        if len(self._held) >= MOST:
            raise NoRoom(f"{MOST} recordings are looked at already; try again later")
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="talkover-brought-")
        name = PREFIX + secrets.token_hex(12)
        folder = Path(self._scratch.name) / name
        folder.mkdir(mode=0o700)
        self._held[name] = _Held(tenant, folder, self._now())
        self._plan()
        return name

    def of(self, tenant: str) -> list[str]:
        """The ids of what that tenant brought."""
        return [name for name, held in self._held.items() if held.tenant == tenant]

    def holds(self, name: str, tenant: str) -> bool:
        """Whether that tenant brought it. That it was looked at is noted."""
        held = self._held.get(name)
        if held is None or held.tenant != tenant:
            return False
        held.used = self._now()
        return True

    async def folder(self, name: str) -> Path:
        """Where it lies. Raises TrackError for a track that only claims to be as long as it says."""
        held = self._held[name]
        if held.checked != held.size:
            await asyncio.to_thread(_check, held.folder)
            held.checked = held.size
        return held.folder

    async def write(self, name: str, file: str, at: int, data: bytes) -> int:
        """Add `data` to a file, which has `at` bytes so far; returns how many it has then. Raises Rejected, NoRoom."""
        held = self._held[name]
        if file not in (MANIFEST, EVENTS, EVENTS_1) and not _TRACK.fullmatch(file):
            raise Rejected("invalid_value", f"{file[:80]!r} is no file of a recording; leave it out", "file")
        if held.writing or at != held.sizes.get(file, 0):
            there = held.sizes.get(file, 0)
            raise Rejected("invalid_value", f"{file} has {there} bytes so far; go on from there, one at a time", "at")
        most = SMALL if file == MANIFEST else MOST_BYTES
        if at + len(data) > most or held.size + len(data) > MOST_BYTES:
            raise Rejected(
                "recording_too_large", f"at most {MOST_BYTES >> 20} MB are taken; use `talkover` there", "file"
            )
        if shutil.disk_usage(held.folder).free < ROOM + len(data):
            raise NoRoom("the disk of this server is nearly full")
        held.writing = True
        try:
            await asyncio.to_thread(_append, held.folder / file, data, at)
        except OSError as error:  # the disk, or it was forgotten meanwhile
            raise NoRoom(f"{file} cannot be kept: {error.strerror}") from None
        finally:
            held.writing = False
        held.sizes[file] = at + len(data)
        held.size += len(data)
        held.used = self._now()
        return at + len(data)

    def without_path(self, message: str) -> str:
        """`message` without the place where these lie."""
        return message if self._scratch is None else message.replace(f"{self._scratch.name}/", "")

    def forget(self, name: str) -> bool:
        """Delete it; False where there is none."""
        held = self._held.pop(name, None)
        if held is None:
            return False
        self._remove(held.folder)
        return True

    def close(self) -> None:
        """Delete all; nothing may be open any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._held.clear()
        if self._scratch is not None:
            self._scratch.cleanup()

    # --- for how long ------------------------------------------------------------------------------------------------

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _plan(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._held:
            first = min(held.used for held in self._held.values())
            self._timer = asyncio.get_running_loop().call_at(first + KEPT_S, self._sweep)

    def _sweep(self) -> None:
        now = self._now()
        for name, held in list(self._held.items()):
            if now - held.used >= KEPT_S and not held.writing:
                self.forget(name)
        self._plan()


def _check(folder: Path) -> None:
    for path in sorted(folder.glob("*.flac")):
        file = FlacFile(path)
        try:
            if file.samples * ticks_per_sample(file.rate) > LONGEST_TRACK:
                hours = LONGEST_TRACK // TICK_RATE // 3600
                raise TrackError(f"{path} says that it is longer than {hours} hours; leave it out")
        finally:
            file.close()


def _append(path: Path, data: bytes, at: int) -> None:
    with path.open("ab") as file:
        # What a write that failed left behind is written over.
        file.truncate(at)
        file.write(data)
