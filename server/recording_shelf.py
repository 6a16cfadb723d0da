"""The recordings below one folder, opened as they are asked for and kept open for a while.

What it does may take a while: it is called in a worker thread, one call at a time.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import soundfile
from numpy.typing import NDArray

from sessions.core.records import Plain
from sessions.core.timeline import TICK_RATE, Ticks, ticks_per_sample
from sessions.recording.flac import FlacFile, TrackError
from sessions.recording.format import MANIFEST
from sessions.replay.peaks import Peaks
from sessions.replay.view import View

OPEN_MOST: Final = 4
"""Recordings that are kept open. One of two hours holds about 30 MB of peaks."""
LONGEST: Final[Ticks] = 60 * TICK_RATE
"""Audio that is given at a time."""


class Audio(Protocol):
    """A track that can be read from anywhere in it."""

    rate: int
    samples: int

    def read(self, first: int, count: int) -> NDArray[np.int16]: ...

    def close(self) -> None: ...


class _Wav:
    """A WAV track of the first version of the format."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = soundfile.SoundFile(path)
        except soundfile.SoundFileError as error:
            raise TrackError(f"{path} is damaged: {error}") from None
        self.rate = int(self._file.samplerate)
        self.samples = int(self._file.frames)
        ticks_per_sample(self.rate)

    def read(self, first: int, count: int) -> NDArray[np.int16]:
        samples = np.zeros(max(0, count), np.int16)
        wanted = min(count, self.samples - first)
        if first >= 0 and wanted > 0:
            self._file.seek(first)
            read = self._file.read(wanted, dtype="int16")
            samples[: len(read)] = read
        return samples

    def close(self) -> None:
        self._file.close()


class Opened:
    """One recording. Raises JournalError where the folder holds none that can be read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.view = View(folder)
        self._audio: dict[str, tuple[int, Audio]] = {}
        self._peaks: dict[str, Peaks] = {}

    def manifest(self) -> dict[str, Plain]:
        """The manifest as it is now."""
        found = json.loads((self.folder / MANIFEST).read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}

    def tracks(self) -> list[Plain]:
        """The tracks that can be read: {"name", "rate", "starts", "length"}, times in ticks."""
        told = self.manifest().get("tracks")
        found: list[Plain] = []
        for name, track in (told if isinstance(told, dict) else {}).items():
            starts = track.get("starts", 0) if isinstance(track, dict) else 0
            try:
                audio = self.audio(name)
            except (KeyError, TrackError):
                continue
            length = audio.samples * ticks_per_sample(audio.rate)
            found.append({"name": name, "rate": audio.rate, "starts": starts, "length": length})
        return found

    def audio(self, name: str) -> Audio:
        """A track by its name. Raises KeyError where there is none, TrackError where it cannot be read."""
        path = next((one for one in files(self.folder) if one.stem == name and one.suffix in (".flac", ".wav")), None)
        if path is None:
            raise KeyError(name)
        size = path.stat().st_size
        kept = self._audio.get(name)
        if kept is not None:
            if kept[0] == size:
                return kept[1]
            kept[1].close()  # it has grown
        audio: Audio = FlacFile(path) if path.suffix == ".flac" else _Wav(path)
        self._audio[name] = (size, audio)
        return audio

    def peaks(self, name: str, level: int, first: int, count: int) -> bytes:
        """See `Peaks.read`: pairs of int8. Raises KeyError, TrackError and ValueError."""
        return self._peaks.setdefault(name, Peaks()).read(self.audio(name), level, first, count).tobytes()

    def samples(self, name: str, start: Ticks, end: Ticks) -> tuple[int, NDArray[np.int16]]:
        """[start, end) of a track, in ticks of its own positions: rate and samples. Raises KeyError and TrackError."""
        audio = self.audio(name)
        tick = ticks_per_sample(audio.rate)
        return audio.rate, audio.read(start // tick, max(0, end // tick - start // tick))

    def close(self) -> None:
        for _, audio in self._audio.values():
            audio.close()
        self.view.close()


class Shelf:
    """Opens recordings and closes those that were not looked at for the longest time."""

    def __init__(self) -> None:
        self._opened: OrderedDict[Path, Opened] = OrderedDict()

    def get(self, folder: Path) -> Opened:
        """The recording in `folder`, as far as it goes now. Raises JournalError."""
        opened = self._opened.pop(folder, None)
        if opened is None:
            opened = Opened(folder)
        else:
            opened.view.refresh()
        self._opened[folder] = opened
        while len(self._opened) > OPEN_MOST:
            self._opened.popitem(last=False)[1].close()
        return opened

    def forget(self, folder: Path) -> None:
        """Close a recording, before it is deleted."""
        opened = self._opened.pop(folder, None)
        if opened is not None:
            opened.close()

    def close(self) -> None:
        for folder in list(self._opened):
            self.forget(folder)


def files(folder: Path) -> list[Path]:
    """The files of a recording by name: only true files directly in it, nothing that is hidden. Raises OSError."""
    found = [path for path in folder.iterdir() if not path.name.startswith(".")]
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


def wav(rate: int, samples: NDArray[np.int16]) -> bytes:
    """Mono 16-bit samples as a WAV file."""
    data = samples.astype("<i2").tobytes()
    size = len(data).to_bytes(4, "little")
    head = b"RIFF" + (36 + len(data)).to_bytes(4, "little") + b"WAVEfmt \x10\0\0\0\x01\0\x01\0"
    return head + rate.to_bytes(4, "little") + (2 * rate).to_bytes(4, "little") + b"\x02\0\x10\0data" + size + data
