"""The report on partitions: a table in words, the same for programs, and the figure of the papers.

    longest wait                        tentative rows
      │      ╱ suspend                    │        ╱ process
      │    ╱                              │      ╱  ╱ delay
      │  ╱─────── process, delay          │  __╱_╱_____ suspend
      └────────── length of the cut       └──────────── length of the cut

One line per cut.  A figure that nobody tells is `–`, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from unbroken.measure import svg
from unbroken.measure.course import MEASURED
from unbroken.measure.partition import Cell, Found
from unbroken.measure.report import columns, seconds

_HEADS = (
    "", "cut s", "longest wait s", "usual s", "tentative rows", "per s of cut", "stable again s",
    "said", "confirmed", "corrected", "open", "lost", "repeated", "wrong",
)  # fmt: skip
PANEL, HEIGHT = 420, 300
LEFT, RIGHT, TOP, BOTTOM = 60, 80, 40, 50
_COLOURS = {"process": "#1b7837", "delay": "#2166ac", "suspend": "#d6604d"}
#: Labels closer than this, in pixels, would be written over each other.
_NEAR = 14


def words(found: Sequence[Found], x_s: float) -> str:
    """The table, what was promised and not kept, and what came to no end.

    >>> print(words([Found("join", "delay", "a join", outcome="failed: no room")], x_s=3.0))
    join, delay: failed: no room
    """
    cells = [(each, cell) for each in found for cell in each.cells]
    lines = columns([_HEADS, *(_line(each, cell) for each, cell in cells)]) if cells else []
    lines += [f"{each.shape}: {each.workload}" for each in _first_of_each(found) if each.cells]
    for each in found:
        if each.differs:
            lines.append(f"{each.shape}, {each.when_cut}: the stable rows are not those of an "
                         f"undisturbed run: {each.difference}")  # fmt: skip
        lines += [f"{each.shape}, {each.when_cut}: {text}" for text in each.broken(x_s)]
        if each.outcome != MEASURED:
            lines.append(f"{each.shape}, {each.when_cut}: {each.outcome}")
    return "\n".join(lines)


def to_json(found: Sequence[Found], **given: Any) -> dict[str, Any]:
    """The whole result; `given` is what was asked for.

    >>> to_json([Found("union", "process", "a union")], x_s=3.0)["x_s"]
    3.0
    """
    return {**given, "runs": [each.to_json() for each in found]}


def draw(found: Sequence[Found], x_s: float) -> str:
    """Two panels per shape, over the length of the cut; one line per choice.

    >>> draw([], 3.0).startswith("<svg")
    True
    """
    shapes = [each.shape for each in _first_of_each(found) if each.cells]
    parts = svg.opening(2 * PANEL, TOP + HEIGHT * max(1, len(shapes)))
    parts.append(svg.words(LEFT, 26, "What a client sees of a network partition", 15))
    for i, name in enumerate(shapes):
        own = [each for each in found if each.shape == name and each.cells]
        top = TOP + i * HEIGHT
        parts += _panel(own, 0, top, f"{name}: longest wait of a new result, s", _wait, x_s)
        parts += _panel(own, PANEL, top, f"{name}: tentative rows", _rows, None)
    return "\n".join([*parts, "</svg>", ""])


def _panel(
    found: Sequence[Found],
    left: float,
    top: float,
    title: str,
    value: Callable[[Cell], float],
    bound: float | None,
) -> list[str]:
    cells = [cell for each in found for cell in each.cells]
    width, height = PANEL - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    longest = max(cell.length_s for cell in cells)
    highest = _round_up(max([*map(value, cells), bound or 0.0]))

    def x(length_s: float) -> float:
        return left + LEFT + length_s / longest * width

    def y(height_of: float) -> float:
        return top + TOP + height - height_of / highest * height

    parts = [svg.words(left + LEFT, top + TOP - 10, title)]
    for quarter in range(5):
        at = y(highest * quarter / 4)
        parts.append(svg.rule(x(0), at, x(longest), at))
        parts.append(svg.words(x(0) - 6, at + 4, f"{highest * quarter / 4:g}", anchor="end"))
    for length_s in sorted({cell.length_s for cell in cells}):
        at = x(length_s)
        parts.append(svg.words(at, y(0) + 16, f"{length_s:g}", anchor="middle", size=10))
    middle = x(longest / 2)
    parts.append(svg.words(middle, y(0) + 34, "length of the cut, s", anchor="middle"))
    if bound is not None:
        parts.append(svg.rule(x(0), y(bound), x(longest), y(bound), "#999999"))
        parts.append(svg.words(x(longest) + 8, y(bound) + 4, f"X = {bound:g}", colour="#999999"))
    taken = [] if bound is None else [y(bound) + 4]
    for each in found:
        colour = _COLOURS.get(each.when_cut, "black")
        points = sorted((cell.length_s, value(cell)) for cell in each.cells)
        places = [(x(length_s), y(high)) for length_s, high in points]
        for (x1, y1), (x2, y2) in pairwise(places):
            parts.append(svg.rule(x1, y1, x2, y2, colour, 2))
        parts += [svg.mark(*place, colour, 4) for place in places]
        label = places[-1][1] + 4
        while any(abs(label - other) < _NEAR for other in taken):
            label -= 1.0
        taken.append(label)
        parts.append(svg.words(places[-1][0] + 8, label, each.when_cut, colour=colour))
    return parts


def _wait(cell: Cell) -> float:
    return cell.effect.wait_s or 0.0


def _rows(cell: Cell) -> float:
    return float(cell.effect.tentative_rows)


def _round_up(value: float) -> float:
    """To one, two or five of the next lower power of ten, or ten of it.

    >>> _round_up(63.0), _round_up(2.9), _round_up(0.0)
    (100.0, 5.0, 1.0)
    """
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


def _first_of_each(found: Sequence[Found]) -> list[Found]:
    return list({each.shape: each for each in reversed(found)}.values())[::-1]


def _line(found: Found, cell: Cell) -> tuple[str, ...]:
    told, rows = cell.effect, ["–"] * 3
    if cell.difference is not None:
        wrong = cell.difference
        rows = [f"{count:,}" for count in (wrong.lost, wrong.repeated, wrong.wrong)]
    return (
        f"{found.shape}, {found.when_cut}", f"{cell.length_s:g}", seconds(told.wait_s),
        seconds(told.usual_s), f"{told.tentative_rows:,}", f"{cell.rows_per_s:,.1f}",
        seconds(told.stable_s), str(told.said), str(told.confirmed), str(told.replaced),
        str(told.open), *rows,
    )  # fmt: skip
