"""Figures as people and machines read them."""

from __future__ import annotations

import json
import math
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0..1) of `values` do not exceed (nearest rank); NaN for none."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def milliseconds(values: Sequence[float]) -> dict[str, float | int]:
    """Count, p50, p95 and worst of `values`, which are seconds, in milliseconds."""
    return {
        "n": len(values),
        "p50_ms": round(percentile(values, 0.5) * 1000, 1),
        "p95_ms": round(percentile(values, 0.95) * 1000, 1),
        "max_ms": round(max(values, default=math.nan) * 1000, 1),
    }


def table(rows: Sequence[Sequence[object]], head: Sequence[str]) -> str:
    """Rows under their heads, columns as wide as their widest cell, numbers to the right."""
    cells = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    numeric = [all(isinstance(row[column], int | float) for row in rows) for column in range(len(head))]
    lines = [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in cells
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _cell(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def stage_rows(stages: Mapping[str, Sequence[float]]) -> list[list[object]]:
    """One row per stage for `table` under `STAGE_HEAD`; values are seconds."""
    return [[name, *milliseconds(values).values()] for name, values in stages.items()]


STAGE_HEAD = ("", "n", "p50 ms", "p95 ms", "max ms")


def progress(text: str) -> None:
    """Say how far it is: over the last line on a terminal, one line each elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


def write(figures: Mapping[str, object], path: Path | None) -> None:
    """Write the figures as JSON, with the machine they are from."""
    if path is None:
        return
    machine = {"python": platform.python_version(), "machine": platform.machine(), "processor": _processor()}
    path.write_text(json.dumps({**figures, "on": machine}, indent=2, ensure_ascii=False) + "\n")
    print(f"figures written to {path}", file=sys.stderr)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else platform.processor()
