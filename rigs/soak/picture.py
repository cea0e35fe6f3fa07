"""Draws a run as SVG: memory and latency over the requests. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rigs.soak.samples import Sample

WIDTH, PANEL, MARGIN_LEFT, MARGIN_RIGHT, GAP = 860, 190, 70, 20, 60
POINTS = 400
"""A longer run is thinned out."""
COLOURS = ("#1f77b4", "#d62728", "#7f7f7f", "#2ca02c")
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Line:
    """One curve of a panel."""

    name: str
    values: Sequence[float]


def draw(samples: Sequence[Sample]) -> str:
    """Two panels: resident memory in MiB, and latencies in milliseconds."""
    samples = samples[:: max(1, len(samples) // POINTS)]
    requests = [sample.requests for sample in samples]
    memory = [
        Line("picker", [sample.picker_bytes / MIB for sample in samples]),
        Line("Envoy", [sample.envoy_bytes / MIB for sample in samples]),
    ]
    latency = [
        Line("served, median", [sample.served_ms[0] for sample in samples]),
        Line("served, 99 %", [sample.served_ms[1] for sample in samples]),
        Line("no slot, median", [sample.probe_ms[0] for sample in samples]),
    ]
    height = 2 * (PANEL + GAP) + 10
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">'
        ),
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        *_panel(30, "resident memory, MiB", requests, memory),
        *_panel(30 + PANEL + GAP, "latency, ms", requests, latency),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _panel(top: float, title: str, x: Sequence[float], lines: Sequence[Line]) -> list[str]:
    steps = _ticks(max(max(line.values) for line in lines))
    highest, most = steps[-1], max(x) or 1
    width = WIDTH - MARGIN_LEFT - MARGIN_RIGHT

    def across(value: float) -> float:
        return MARGIN_LEFT + width * value / most

    def up(value: float) -> float:
        return top + PANEL * (1 - value / highest)

    parts = [f'<text x="{MARGIN_LEFT}" y="{top - 10}" font-weight="bold">{title}</text>']
    parts += [
        f'<line x1="{MARGIN_LEFT}" x2="{WIDTH - MARGIN_RIGHT}" y1="{up(step):.1f}" '
        f'y2="{up(step):.1f}" stroke="#dddddd"/>'
        f'<text x="{MARGIN_LEFT - 8}" y="{up(step) + 4:.1f}" text-anchor="end">{step:g}</text>'
        for step in steps
    ]
    for index in range(5):
        at = most * index / 4
        anchor = "end" if index == 4 else "middle"
        parts.append(
            f'<text x="{across(at):.1f}" y="{top + PANEL + 18}" text-anchor="{anchor}">'
            f"{at:,.0f}{' requests' if index == 4 else ''}</text>"
        )
    for index, line in enumerate(lines):
        points = " ".join(
            f"{across(a):.1f},{up(b):.1f}" for a, b in zip(x, line.values, strict=True)
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{COLOURS[index]}" '
            'stroke-width="1.5"/>'
            f'<text x="{WIDTH - MARGIN_RIGHT - 120 * (len(lines) - index)}" y="{top - 10}" '
            f'fill="{COLOURS[index]}">{line.name}</text>'
        )
    return parts


def _ticks(highest: float) -> list[float]:
    """Round numbers from 0 to at least `highest`."""
    step = 1.0
    while highest / step > 5:
        for factor in (2, 2.5, 2):
            step *= factor
            if highest / step <= 5:
                break
    return [step * index for index in range(int(highest / step) + 2)]
