"""How long things take, as measured: what a simulated node and worker are slow at."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTimes:
    """All in milliseconds (of CPU of a node's core unless it says otherwise).

    The defaults were measured with telephone calls (`python -m loadtest.simulate --calibrate`); docs/load.md has how.
    """

    base_per_s: float = 60.0
    """Of a node each second, whatever is on it: waking up for each piece of work; less where the core is full."""
    listening_per_s: float = 4.0
    """Of a session each second, for what it hears: media in, speech detection. Part of it is waking up as well."""
    speaking_per_s: float = 4.0
    """Of a session each second while the agent speaks."""
    turn: float = 6.0
    """Of each turn of a user, beside its media."""
    first_step: float = 3.0
    """Of the part of a turn that the first audio waits for."""
    interruption: float = 6.0
    """Of each interruption, beside its media: whether what is heard is the agent's own voice, and the stop."""
    takeover: float = 12.0
    """Of a session that comes from another node: connection, snapshot, events since, ports."""
    hearing: float = 12.0
    """From the arrival of a window of speech detection to what the core makes of it, on an empty node; no CPU."""
    queue: float = 5.0
    """What the same takes longer, in the mean, on a node whose core is half full; it grows as queues do."""
    echo: float = 10.0
    """What it takes longer while somebody speaks over the agent, and all is compared with what was played; no CPU."""
    words: float = 2.0
    """From the end of speech to its words; no CPU of the node."""
    engine: float = 2.0
    """From a request to its first audio, on a worker that has nothing else to do; no CPU of the node."""
    answer: float = 0.0
    """From the end of a turn to the first sound that leaves, beside the node's work; no CPU."""
    network: float = 1.0
    """One way."""

    @classmethod
    def read(cls, path: Path) -> ServiceTimes:
        """From a JSON object with some of the fields. Raises ValueError for others, OSError where it cannot be read."""
        given = json.loads(path.read_text())
        known = {one.name for one in fields(cls)}
        if not isinstance(given, dict) or not set(given) <= known:
            raise ValueError(f"{path} must be an object with fields among {', '.join(sorted(known))}")
        return cls(**{name: float(value) for name, value in given.items()})

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")
