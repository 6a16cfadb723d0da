"""Everything but the audio as one JSON document, with every record complete."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from ...core.records import to_plain
from ..account import account
from ..reader import Recording, full_lines
from ..speech import speech


def write_json(recording: Recording, path: Path) -> None:
    """Write `path`: manifest, tracks, account, speech, and the events with their effects. Times in ticks."""
    manifest = recording.manifest
    faults: list[str] = []
    told = account(manifest.config, recording.steps([]))
    with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
        head = {
            "manifest": {**dataclasses.asdict(manifest), "config": to_plain(manifest.config)},
            "tracks": {name: dataclasses.asdict(track) for name, track in recording.tracks().items()},
            "input_clock": [dataclasses.asdict(stretch) for stretch in recording.input_clock.stretches],
            "account": dataclasses.asdict(told),
            "speech": [dataclasses.asdict(said) for said in speech(recording)],
        }
        file.write(json.dumps(head, ensure_ascii=False)[:-1] + ', "events": [')
        for number, line in enumerate(full_lines(recording, faults)):
            file.write((",\n" if number else "\n") + json.dumps(line, ensure_ascii=False))
        file.write('\n], "faults": ' + json.dumps(faults) + "}\n")
