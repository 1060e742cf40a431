"""The roofline as an SVG picture: operations per byte across, operations per second up, both
logarithmic; lines are what memory, caches and instructions allow, dots are kernels."""

from __future__ import annotations

from html import escape
from math import ceil, floor, log10
from typing import Any

WIDTH, HEIGHT, EDGE, LEGEND = 640, 460, 60, 190
COLOURS = {"decode": "#1b6ca8", "prefill": "#d1495b"}


def plot(r: dict[str, Any]) -> str:
    """`r`: what `roofline.measure` returns. Kernels without operations are left out."""
    points = [
        (step["step"], k["part"], k["operations"] / k["bytes"], k["operations"] / k["us"] * 1e6)
        for step in r["steps"]
        for k in step["kernels"]
        if k["operations"] and k["us"]
    ]
    peaks = {"f32": r["f32_operations_per_s"], "int8": r["int8_operations_per_s"]}
    slopes = {"memory": r["stream_bytes_per_s"], "caches": r["cache_bytes_per_s"]}
    left, right = _decades([x for *_, x, _ in points])
    bottom, top = _decades([*(y for *_, y in points), *peaks.values()])

    def xy(x: float, y: float) -> tuple[float, float]:
        across = (log10(x) - left) / (right - left) * (WIDTH - 2 * EDGE)
        up = (log10(y) - bottom) / (top - bottom) * (HEIGHT - 2 * EDGE)
        return EDGE + across, HEIGHT - EDGE - up

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + LEGEND} {HEIGHT}"'
           ' font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="#fff"/>']  # fmt: skip
    for power in range(left, right + 1):
        x, y = xy(10.0**power, 10.0**bottom)
        out.append(
            f'<text x="{x:.0f}" y="{y + 18:.0f}" text-anchor="middle">{10.0**power:g}</text>'
        )
    for power in range(bottom, top + 1):
        x, y = xy(10.0**left, 10.0**power)
        label = f"{10.0 ** (power - 9):g}"
        out.append(f'<text x="{x - 6:.0f}" y="{y + 4:.0f}" text-anchor="end">{label}</text>')
    highest = max(peaks.values())
    for name, rate in slopes.items():
        start = max(10.0**left, 10.0**bottom / rate)
        end = min(10.0**right, highest / rate)
        out.append(_line(xy(start, start * rate), xy(end, end * rate), name))
    for name, rate in peaks.items():
        out.append(_line(xy(10.0**left, rate), xy(10.0**right, rate), name))
    out.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 16}" text-anchor="middle">operations per byte'
               f'</text><text x="14" y="{HEIGHT / 2}" text-anchor="middle"'
               f' transform="rotate(-90 14 {HEIGHT / 2})">GOP/s</text>')  # fmt: skip
    for n, (step, part, x, y) in enumerate(points):
        cx, cy = xy(x, y)
        at = EDGE + 16 * n
        colour = COLOURS[step]
        out.append(
            f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="8" fill="{colour}" fill-opacity="0.8"/>'
            f'<text x="{cx:.1f}" y="{cy + 4:.1f}" text-anchor="middle" fill="#fff" font-size="10">'
            f'{n + 1}</text><text x="{WIDTH}" y="{at}" fill="{colour}">{n + 1} {step}:'
            f" {escape(part)}</text>"
        )
    return "\n".join([*out, "</svg>", ""])


def _decades(values: list[float]) -> tuple[int, int]:
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    return low, max(high, low + 1)


def _line(a: tuple[float, float], b: tuple[float, float], name: str) -> str:
    return (
        f'<polyline points="{a[0]:.1f},{a[1]:.1f} {b[0]:.1f},{b[1]:.1f}" stroke="#777"/>'
        f'<text x="{b[0]:.0f}" y="{b[1] - 4:.0f}" text-anchor="end" fill="#555">{name}</text>'
    )
