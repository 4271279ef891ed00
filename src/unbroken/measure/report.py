"""The report: a table in words, and the same for programs.

One line per contender.  Figures of kills are medians, the output gap with its lowest and highest;
costs are those of the undisturbed system.  A figure that nobody tells is `–`, never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unbroken.measure.course import MEASURED
from unbroken.measure.recovery import Found

#: Without any protection: what the cost of the others is measured against.
BASE = "restart"
PLAIN = "plain"
#: A gap below this cannot be told from none.
GAP_S_MIN = 0.01

_HEADS = (
    "", "kills", "detect s", "output gap s", "later s", "back s", "peak s", "lost",
    "repeated", "wrong", "CPU s/s", "sent/s", "kept",
)  # fmt: skip


def words(found: Sequence[Found]) -> str:
    """The table, what was not run and why, and how the gaps compare.

    >>> print(words([Found("gap", "counts", outcome="not run: it is not there yet")]))
    gap: not run: it is not there yet
    """
    ran = [each for each in found if each.ran]
    base = next((each for each in ran if each.name == BASE), None)
    lines = columns([_HEADS, *(_line(each, base) for each in ran)]) if ran else []
    if base is not None and len(ran) > 1:
        lines.append(f"sent and kept: what is more (+) or less than under {BASE}")
    silences = [f"{each.silence_s:.2f} ({each.name})" for each in ran if each.silence_s is not None]
    if silences:
        lines.append(f"the longest silence undisturbed, less the usual: {', '.join(silences)}")
    by_workload: dict[str, list[str]] = {}
    for each in ran:
        by_workload.setdefault(each.workload, []).append(each.name)
    lines += [f"workload of {', '.join(names)}: {text}" for text, names in by_workload.items()]
    lines += [f"{each.name}: {each.outcome}" for each in found if each.outcome != MEASURED]
    return "\n".join([*lines, *_ratios(ran)])


def to_json(found: Sequence[Found], **given: Any) -> dict[str, Any]:
    """The whole result; `given` is what was asked for.

    >>> to_json([Found("gap", "counts")], kills=2)["kills"]
    2
    """
    return {**given, "contenders": [each.to_json() for each in found]}


def size(count: float | None, *, more: bool = False) -> str:
    """Bytes for people; `more` is a difference, with its sign.

    >>> size(1_234_567), size(-2_048, more=True), size(7, more=True), size(None)
    ('1.2 MB', '-2.0 kB', '+7 B', '–')
    """
    if count is None:
        return "–"
    sign = "+" if more and count > 0 else ""
    for unit, length in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= length:
            return f"{sign}{count / length:.1f} {unit}"
    return f"{sign}{count:.0f} B"


def _line(found: Found, base: Found | None) -> tuple[str, ...]:
    gaps = found.values("gap_s")
    gap = "–"
    if gaps:
        gap = f"{found.median('gap_s'):.2f} ({min(gaps):.2f}–{max(gaps):.2f})"
    back = seconds(found.median("back_s"))
    if any(effect.back_s is None for effect in found.effects):
        back += "*"  # Not in time again before the next kill, at least once.
    rows = ["–"] * 3
    if found.difference is not None:
        wrong = found.difference
        rows = [f"{count:,}" for count in (wrong.lost, wrong.repeated, wrong.wrong)]
    own = base is None or base is found
    sent, kept = found.sent_bytes_per_s, found.kept_bytes
    if base is not None and not own:
        sent, kept = _beyond(sent, base.sent_bytes_per_s), _beyond(kept, base.kept_bytes)
    return (
        found.name, str(len(found.effects)), seconds(found.median("detect_s")), gap,
        seconds(found.median("later_s")), back, seconds(found.median("peak_s")),
        *rows, seconds(found.cpu_s_per_s), size(sent, more=not own), size(kept, more=not own),
    )  # fmt: skip


def _beyond(value: float | None, base: float | None) -> Any:
    return None if value is None or base is None else value - base


def seconds(value: float | None) -> str:
    """A time, or that nobody tells it.

    >>> seconds(1.234), seconds(None)
    ('1.23', '–')
    """
    return "–" if value is None else f"{value:.2f}"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table: the first column to the left, all others to the right.

    >>> columns([("", "s"), ("gap", "1.25")])
    ['        s', 'gap  1.25']
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _ratios(ran: Sequence[Found]) -> list[str]:
    plain = next((each.median("gap_s") for each in ran if each.name == PLAIN), None)
    if plain is None:
        return []
    gaps = {each.name: each.median("gap_s") for each in ran if each.name != PLAIN}
    told = [
        f"{plain / max(gap, GAP_S_MIN):.0f} ({name})"
        for name, gap in gaps.items()
        if gap is not None
    ]
    return [f"plain's output gap is longer by a factor of: {', '.join(told)}"] if told else []
