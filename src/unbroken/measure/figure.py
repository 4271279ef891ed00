"""The trade-off figure: how long a failure is heard, against what protection costs all the time.

    CPU, times restart
     2 │  ●─ active
       │        ●── passive
     1 │            ●── upstream       ──●── restart
       └───────────────────────────────────── output gap, seconds (each step ten times the last)

The gap has a logarithmic axis, because it spans from hundredths of a second to half a minute; the
line through a mark goes from the shortest gap to the longest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from unbroken.measure import svg
from unbroken.measure.recovery import Found
from unbroken.measure.report import BASE, GAP_S_MIN

WIDTH, HEIGHT = 720, 440
LEFT, RIGHT, TOP, BOTTOM = 70, 90, 50, 60
_COLOURS = {
    "active": "#1b7837", "passive": "#2166ac", "upstream": "#8073ac", "gap": "#b8860b",
    "restart": "#d6604d", "plain": "#4d4d4d",
}  # fmt: skip
#: Labels closer than this, in pixels, would be written over each other.
_NEAR_X, _NEAR_Y = 75, 15


def draw(found: Sequence[Found]) -> str:
    """The figure as text; marks for those that were killed at least once.

    >>> draw([]).startswith("<svg")
    True
    """
    shown = [each for each in found if each.ran and each.effects]
    base = next((each.cpu_s_per_s for each in shown if each.name == BASE), None)
    heights = {each.name: (each.cpu_s_per_s or 0.0) / (base or 1.0) for each in shown}
    gaps = [max(gap, GAP_S_MIN) for each in shown for gap in each.values("gap_s")]
    first = math.floor(math.log10(min(gaps, default=GAP_S_MIN)))
    last = max(first + 1, math.ceil(math.log10(max(gaps, default=1.0))))
    top = math.ceil(max([*heights.values(), 1.0]) * 1.15 * 2) / 2

    def x(gap_s: float) -> float:
        share = (math.log10(max(gap_s, GAP_S_MIN)) - first) / (last - first)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(height: float) -> float:
        return HEIGHT - BOTTOM - height / top * (HEIGHT - TOP - BOTTOM)

    parts = [
        *svg.opening(WIDTH, HEIGHT),
        svg.words(LEFT, 26, "What a kill -9 costs, and what protection costs without one", 15),
    ]
    for power in range(first, last + 1):
        at = x(10.0**power)
        parts.append(svg.rule(at, TOP, at, HEIGHT - BOTTOM))
        parts.append(svg.words(at, HEIGHT - BOTTOM + 18, f"{10.0**power:g} s", anchor="middle"))
    for half in range(int(top * 2) + 1):
        parts.append(svg.rule(LEFT, y(half / 2), WIDTH - RIGHT, y(half / 2)))
        parts.append(svg.words(LEFT - 8, y(half / 2) + 4, f"{half / 2:g}", anchor="end"))
    middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
    parts.append(
        svg.words(middle, HEIGHT - 16, "output gap (line: shortest to longest)", anchor="middle")
    )
    meaning = f"CPU, times that of {BASE}" if base else "CPU seconds per second"
    parts.append(svg.upright(20, HEIGHT / 2, meaning))
    labels: list[tuple[float, float]] = []
    for each in sorted(shown, key=lambda one: -heights[one.name]):
        colour = _COLOURS.get(each.name, "black")
        values = each.values("gap_s")
        at_x, at_y = x(each.median("gap_s") or 0.0), y(heights[each.name])
        parts.append(svg.rule(x(min(values)), at_y, x(max(values)), at_y, colour, 2))
        parts.append(svg.mark(at_x, at_y, colour))
        label_x, label_y = _free(labels, x(max(values)) + 12, at_y + 4)
        labels.append((label_x, label_y))
        parts.append(svg.words(label_x, label_y, each.name, colour=colour))
    return "\n".join([*parts, "</svg>", ""])


def _free(taken: Sequence[tuple[float, float]], x: float, y: float) -> tuple[float, float]:
    """A place for a label: the wanted one, or the next below that is free."""
    while any(abs(x - a) < _NEAR_X and abs(y - b) < _NEAR_Y for a, b in taken):
        y += 1.0
    return x, y
