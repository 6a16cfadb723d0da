"""Line charts as SVG, written by hand: nothing is needed to make them, and they can be looked at anywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 40, 48
COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#57606a")

Line = Sequence[tuple[float, float]]


def chart(title: str, x_label: str, y_label: str, lines: Mapping[str, Line], bound: float | None = None) -> str:
    """An SVG document with a line for each of `lines`, from the origin on; `bound`: a level that is not to be passed.

    Points with a coordinate that is no number are left out.
    """
    kept = {
        name: [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)] for name, points in lines.items()
    }
    every = [point for points in kept.values() for point in points]
    across = _round_up(max((x for x, _ in every), default=1.0))
    up = _round_up(max([*(y for _, y in every), bound or 0.0], default=1.0))

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            LEFT + x / across * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - y / up * (HEIGHT - TOP - BOTTOM),
        )

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{escape(title)}</text>',
    ]
    for step in range(6):
        x, y = across * step / 5, up * step / 5
        (at_x, _), (_, at_y) = place(x, 0), place(0, y)
        parts += [
            f'<line x1="{LEFT}" y1="{at_y:.1f}" x2="{WIDTH - RIGHT}" y2="{at_y:.1f}" stroke="#d8dee4"/>',
            f'<text x="{LEFT - 6}" y="{at_y + 4:.1f}" text-anchor="end">{y:g}</text>',
            f'<text x="{at_x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{x:g}</text>',
        ]
    parts += [
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 12}" text-anchor="end">{escape(x_label)}</text>',
        f'<text x="6" y="{TOP - 8}">{escape(y_label)}</text>',
    ]
    if bound is not None:
        (x1, y1), (x2, _) = place(0, bound), place(across, bound)
        parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y1:.1f}" stroke="#57606a" stroke-dasharray="4"/>'
        )
    for number, (name, points) in enumerate(kept.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
        parts += [
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
            f'<text x="{WIDTH - RIGHT - 4}" y="{TOP + 14 + 16 * number}" text-anchor="end" fill="{colour}">'
            f"{escape(name)}</text>",
        ]
    return "\n".join([*parts, "</svg>", ""])


def shares(values: Sequence[float]) -> Line:
    """`values` as a line of the share of them (in percent) that is not above."""
    ordered = sorted(values)
    return [(value, 100 * (place + 1) / len(ordered)) for place, value in enumerate(ordered)]


def _round_up(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * 0.999)
