"""The picture: waits by percentile, one curve for each rival, as SVG. Pure."""

import math
from collections.abc import Sequence
from html import escape
from itertools import cycle
from typing import Final

from bench.compare.account import Result

WIDTH, HEIGHT = 960, 520
LEFT, RIGHT, TOP, BOTTOM = 70, 330, 50, 60
OURS: Final = ("#0b5394", "#6fa8dc", "#134f5c", "#76a5af")
THEIRS: Final = ("#cc0000", "#e69138", "#38761d", "#a64d79", "#674ea7", "#444444", "#7f6000")
PARTS: Final = (0.0, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
LEAST_S: Final = 0.001
"""Shorter waits are drawn as this one."""


def picture(title: str, results: Sequence[Result]) -> str:
    """Both axes are logarithmic: the horizontal one in the share that waits longer."""
    drawn = [one for one in results if one.waiting.sorted_s]
    most_s = max((one.waiting.sorted_s[-1] for one in drawn), default=1.0)
    top_s = 10 ** math.ceil(math.log10(max(most_s, 10 * LEAST_S)))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="13" role="img" aria-label="{escape(title)}">'
    )
    lines = [
        head,
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="28" font-size="15">{escape(title)}</text>',
        *_grid(top_s),
    ]
    ours, theirs = cycle(OURS), cycle(THEIRS)
    for number, one in enumerate(drawn):
        color = next(ours) if one.is_ours else next(theirs)
        width = 3 if one.is_ours else 1.5
        dash = ' stroke-dasharray="6 3"' if "no affinity" in one.rival else ""
        style = f'fill="none" stroke="{color}" stroke-width="{width}"{dash}'
        y = TOP + 10 + 22 * number
        legend = WIDTH - RIGHT + 20
        lines += [
            f'<polyline points="{_points(one.waiting.sorted_s, top_s)}" {style}/>',
            f'<line x1="{legend}" y1="{y}" x2="{legend + 28}" y2="{y}" {style}/>',
            f'<text x="{legend + 36}" y="{y + 4}">{escape(one.rival)}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


def _grid(top_s: float) -> list[str]:
    lines = []
    for part in PARTS:
        x, floor = f"{_x(part):.1f}", HEIGHT - BOTTOM
        lines += [
            f'<line x1="{x}" y1="{TOP}" x2="{x}" y2="{floor}" stroke="#ddd"/>',
            f'<text x="{x}" y="{floor + 20}" text-anchor="middle">{100 * part:g} %</text>',
        ]
    value_s = LEAST_S
    while value_s <= top_s * 1.001:
        y = _y(value_s, top_s)
        lines += [
            f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>',
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{1000 * value_s:g} ms</text>',
        ]
        value_s *= 10
    middle = (LEFT + WIDTH - RIGHT) / 2
    label = f'<text x="{middle:.0f}" y="{HEIGHT - 12}" text-anchor="middle">'
    return [*lines, f"{label}share of requests that wait no longer</text>"]


def _points(sorted_s: Sequence[float], top_s: float) -> str:
    count = len(sorted_s)
    last = min(PARTS[-1], 1 - 1 / count)
    steps = [1 - 10 ** (math.log10(1 - last) * step / 120) for step in range(121)]
    return " ".join(
        f"{_x(part):.1f},{_y(sorted_s[min(count - 1, int(part * count))], top_s):.1f}"
        for part in steps
    )


def _x(part: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * math.log10(1 - part) / math.log10(1 - PARTS[-1])


def _y(value_s: float, top_s: float) -> float:
    share = math.log(max(value_s, LEAST_S) / LEAST_S) / math.log(top_s / LEAST_S)
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share
