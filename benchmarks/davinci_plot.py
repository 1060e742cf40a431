"""Predicted against measured times as an SVG picture, both axes logarithmic."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10

SIZE, EDGE = 560, 60
COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#8d5fb5", "#c77800", "#3d3d3d", "#0f8b8d")


def plot(points: Sequence[tuple[str, float, float]]) -> str:
    """`points`: (family, measured, predicted). Lines mark ±25 %."""
    values = [v for _, *both in points for v in both]
    low, high = floor(log10(min(values))), ceil(log10(max(values)))

    def at(v: float) -> float:
        return EDGE + (log10(v) - low) / (high - low) * (SIZE - 2 * EDGE)

    def xy(x: float, y: float) -> str:
        return f"{at(x):.1f},{SIZE - at(y):.1f}"

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE + 170} {SIZE}"'
           ' font-family="sans-serif" font-size="12">']  # fmt: skip
    ends = (10.0**low, 10.0**high)
    for factor, dash in ((0.8, "4 4"), (1.0, ""), (1.25, "4 4")):
        start, end = max(ends[0], ends[0] / factor), min(ends[1], ends[1] / factor)
        line = f"{xy(start, start * factor)} {xy(end, end * factor)}"
        out.append(
            f'<polyline points="{line}" stroke="#999" fill="none" stroke-dasharray="{dash}"/>'
        )
    for power in range(low, high + 1):
        v = 10.0**power
        out.append(
            f'<text x="{at(v):.0f}" y="{SIZE - EDGE + 20}" text-anchor="middle">{v:g}</text>'
        )
        out.append(f'<text x="{EDGE - 8}" y="{SIZE - at(v):.0f}" text-anchor="end">{v:g}</text>')
    out.append(f'<text x="{SIZE / 2}" y="{SIZE - 10}" text-anchor="middle">measured</text>')
    out.append(f'<text x="14" y="{SIZE / 2}" transform="rotate(-90 14 {SIZE / 2})"'
               ' text-anchor="middle">predicted</text>')  # fmt: skip
    families = list(dict.fromkeys(f for f, *_ in points))
    for n, family in enumerate(families):
        colour = COLOURS[n % len(COLOURS)]
        for _, x, y in (p for p in points if p[0] == family):
            cx, _, cy = xy(x, y).partition(",")
            out.append(f'<circle cx="{cx}" cy="{cy}" r="3.5" fill="{colour}" fill-opacity="0.75"/>')
        y = EDGE + 18 * n
        out.append(f'<circle cx="{SIZE - 40}" cy="{y - 4}" r="4" fill="{colour}"/>')
        out.append(f'<text x="{SIZE - 30}" y="{y}">{family}</text>')
    return "\n".join([*out, "</svg>", ""])
