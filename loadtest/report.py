"""Figures of loads as people read them, and as plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from loadtest.plot import chart, shares
from loadtest.scenarios import Outcome
from tests.bench.report import table

_SPREADS = {
    "first_audio": "first audio after the end of speech",
    "barge_in_stop": "barge-in: onset to last stale sample",
    "barge_in_clear": "barge-in: onset to clear",
    "backchannel_pause": "pause for a backchannel",
    "connect": "connect",
}
_COLUMNS = ("n", "p50", "p95", "p99", "max")
_SINGLE = {
    "cpu_ms_per_s_per_session": "server CPU per session, ms/s",
    "of_it_in_other_threads": "  of it in other threads than the event loop",
    "core_share": "server, share of its core",
    "stale_pieces": "stale pieces of 20 ms after a stop",
    "interruptions_missed": "interruptions that were not noticed",
    "backchannels": "backchannels said",
    "replies_lost_to_backchannels": "  replies that ended by them",
    "unanswered": "questions without an answer",
    "longest_gap_ms": "longest gap within a reply, ms",
    "gaps_over_200_ms": "gaps over 200 ms",
    "connections": "connections",
    "failures": "failures",
    "slow_readers_ended": "slow readers that the server ended",
    "loop_lag_ms_p99": "event loop lag of the server p99, ms",
    "resident_mb": "resident memory of the server, MB",
    "client_core_share": "this load, share of its own core",
    "late_sends": "frames that this load sent late",
}


def text(figures: Mapping[str, object]) -> str:
    """The figures of one load as tables."""
    rows = [
        [label, *(cast(Mapping[str, object], figures[name])[column] for column in _COLUMNS)]
        for name, label in _SPREADS.items()
        if isinstance(figures.get(name), Mapping)
    ]
    singles = [[label, str(figures[name])] for name, label in _SINGLE.items() if figures.get(name) is not None]
    head = f"{figures['carrier']}, {figures['scenario']}: {figures['sessions']} sessions, {figures['seconds']} s"
    parts = [head, table(rows, ("ms", *_COLUMNS)) if rows else "nothing was said", table(singles, ("", ""))]
    failed = figures.get("failed")
    if isinstance(failed, list) and failed:
        parts.append("first failures:\n" + "\n".join(f"  {one}" for one in failed))
    return "\n\n".join(parts)


def plot(outcome: Outcome, path: Path) -> None:
    """The share of answers and stops within a time, as SVG."""
    seen = outcome.seen
    lines = {"first audio": seen.first_audio, "barge-in stop": seen.stop, "barge-in clear": seen.clear}
    drawn = {name: shares([1000 * value for value in values]) for name, values in lines.items() if values}
    title = f"{outcome.carrier}, {outcome.scenario}, {outcome.sessions} sessions"
    path.write_text(chart(title, "ms", "% within", drawn))


def plot_saturation(steps: Sequence[Mapping[str, object]], bound_ms: float, path: Path) -> None:
    """First audio by the number of sessions, as SVG."""
    ordered = sorted(steps, key=lambda step: cast(int, step["sessions"]))
    lines = {
        share: [
            (cast(float, step["sessions"]), cast(float, first[share]))
            for step in ordered
            if isinstance(first := step.get("first_audio"), Mapping)
        ]
        for share in ("p50", "p95", "p99")
    }
    title = f"first audio by sessions on one core ({ordered[0]['carrier']})"
    path.write_text(chart(title, "sessions", "ms", lines, bound_ms))
