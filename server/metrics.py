"""What the process tells about itself: event loop lag, memory, counters."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from sessions.counters import Counters

PERIOD = 0.04
"""Seconds between two looks at the loop. To wake a server where nothing else is to be done costs more than the look: at
10 ms it took a sixtieth of a core."""
KEPT = 1_500
"""Looks kept: the last minute."""
RECENT = 250
"""Looks of the last ten seconds; a loop that lags takes longer for them."""


class LoopLag:
    """How late the event loop gets to things: the delay of a timer beyond its due time."""

    def __init__(self) -> None:
        self._lags: deque[float] = deque(maxlen=KEPT)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._look_at(loop, loop.time() + PERIOD)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def reset(self) -> None:
        self._lags.clear()

    def _look_at(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._timer = loop.call_at(due, self._look, loop, due)

    def _look(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        now = loop.time()
        self._lags.append(max(0.0, now - due))
        # On the multiples to which sessions put their wakings off: no waking of its own where somebody speaks.
        self._look_at(loop, (round(now / PERIOD) + 1) * PERIOD)

    def quantile(self, share: float, looks: int = KEPT) -> float:
        """The lag in seconds that `share` of the last `looks` looks stayed within (nearest rank)."""
        if not self._lags:
            return 0.0
        ordered = sorted(itertools.islice(reversed(self._lags), looks))
        return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def resident_bytes() -> int:
    """Resident set size of this process (Linux; 0 elsewhere)."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * 4096


def prometheus(counters: Counters, lag: LoopLag, gauges: Mapping[str, int]) -> str:
    """Everything in Prometheus' text format, version 0.0.4."""
    lines = [
        *(
            line
            for name, value in gauges.items()
            for line in (f"# TYPE talkover_{name} gauge", f"talkover_{name} {value}")
        ),
        "# TYPE talkover_loop_lag_seconds summary",
        *(f'talkover_loop_lag_seconds{{quantile="{share}"}} {lag.quantile(share):.6f}' for share in (0.5, 0.99)),
        "# TYPE talkover_events_total counter",
        *(f'talkover_events_total{{event="{name}"}} {count}' for name, count in sorted(counters.snapshot().items())),
    ]
    return "\n".join(lines) + "\n"
