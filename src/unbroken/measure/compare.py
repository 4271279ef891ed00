"""Compares what came out with what an undisturbed run gives: rows lost, repeated and wrong.

    undisturbed   (a, 3) (b, 1) (c, 7)
    came          (a, 3) (a, 3) (b, 2)        lost 1 (c), repeated 1 (a), wrong 1 (b)

Epochs are compared by number, rows as multisets: their order within an epoch means nothing.  Per
epoch, rows that are missing and rows that are too many are paired up: a pair is a wrong row, what
is left over was lost or repeated.  So the three figures count every row once.

>>> import pyarrow as pa
>>> first = pa.table({"k": ["a", "b", "c"], "n": [3, 1, 7]})
>>> rows(first, pa.table({"k": ["b", "a"], "n": [2, 3]}))
Difference(lost=1, repeated=0, wrong=1)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from unbroken.epochs import STABLE, Epoch


@dataclass(frozen=True)
class Difference:
    """Rows that are not as in the undisturbed run.

    >>> Difference(lost=2) + Difference(lost=1, wrong=4)
    Difference(lost=3, repeated=0, wrong=4)
    """

    lost: int = 0
    repeated: int = 0
    wrong: int = 0

    @property
    def rows(self) -> int:
        """All of them.

        >>> Difference(lost=2, wrong=4).rows
        6
        """
        return self.lost + self.repeated + self.wrong

    def __add__(self, other: Difference) -> Difference:
        return Difference(
            self.lost + other.lost, self.repeated + other.repeated, self.wrong + other.wrong
        )


def rows(expected: pa.Table, came: pa.Table) -> Difference:
    """How two tables differ, whatever the order of their rows.

    >>> rows(pa.table({"n": [1, 2]}), pa.table({"n": [2, 1]}))
    Difference(lost=0, repeated=0, wrong=0)
    """
    if _sorted(expected) == _sorted(came):
        return Difference()
    missing, surplus = _counted(expected), _counted(came)
    both = missing & surplus
    lost, more = (missing - both).total(), (surplus - both).total()
    wrong = min(lost, more)
    return Difference(lost - wrong, more - wrong, wrong)


def epochs(expected: Sequence[pa.Table], came: Sequence[Epoch]) -> Difference:
    """How a stream differs, epoch by epoch.

    An epoch that says that it is a gap has lost what it says; one
    that came a second time has repeated its rows.

    >>> table = pa.table({"n": [1, 2]})
    >>> epochs([table, table], [Epoch.of("s", 0, table), Epoch.of("s", 0, table)])
    Difference(lost=2, repeated=2, wrong=0)
    """
    found = Difference()
    seen: set[int] = set()
    for epoch in came:
        if epoch.number in seen or epoch.number >= len(expected):
            found += Difference(repeated=epoch.rows)
            continue
        seen.add(epoch.number)
        if epoch.kind == STABLE:
            found += rows(expected[epoch.number], epoch.table)
        else:
            found += Difference(lost=epoch.header.lost)
    for number, table in enumerate(expected):
        if number not in seen:
            found += Difference(lost=table.num_rows)
    return found


def untold(expected: Sequence[pa.Table], came: Sequence[Epoch], *, forgets: bool) -> Difference:
    """How a stream with gaps differs in what its gaps do not excuse.

    An epoch excuses what it lacks if it is a gap, or says that more was lost on the way than that
    before it.  With `forgets`, state went with the first of them: what follows is excused too.
    An epoch that comes twice, or never, is excused by nothing.

    >>> table = pa.table({"n": [1, 2]})
    >>> gap = Epoch.gap("s", 0, table.schema, lost=2).with_header(gaps_total=1)
    >>> later = Epoch.of("s", 1, table.slice(1)).with_header(gaps_total=1)
    >>> untold([table, table], [gap, later], forgets=False)
    Difference(lost=1, repeated=0, wrong=0)
    >>> untold([table, table], [gap, later], forgets=True)
    Difference(lost=0, repeated=0, wrong=0)
    """
    found, gaps, seen = Difference(), 0, set()
    for epoch in came:
        if epoch.number in seen or epoch.number >= len(expected):
            found += Difference(repeated=epoch.rows)
            continue
        seen.add(epoch.number)
        told = epoch.kind != STABLE or epoch.header.gaps_total > gaps
        gaps = max(gaps, epoch.header.gaps_total)
        if not told and not (forgets and gaps):
            found += rows(expected[epoch.number], epoch.table)
    missing = [table for number, table in enumerate(expected) if number not in seen]
    return found + Difference(lost=sum(table.num_rows for table in missing))


def between(
    expected: Sequence[pa.Table], came: Sequence[Epoch], first: int, after: int
) -> Difference:
    """How a stream differs in the epochs from `first` on and before `after`.

    >>> one, two = pa.table({"n": [1]}), pa.table({"n": [2]})
    >>> came = [Epoch.of("s", 0, two), Epoch.of("s", 1, two)]
    >>> between([one, two], came, 0, 1).wrong, between([one, two], came, 1, 2).wrong
    (1, 0)
    """
    own = [each for each in came if first <= each.number < after]
    moved = [each.with_header(number=each.number - first) for each in own]
    return epochs(expected[first:after], moved)


def _sorted(table: pa.Table) -> object:
    """A form that is equal for equal rows, if Arrow can sort them; if not, one that never is."""
    try:
        ordered = table.sort_by([(name, "ascending") for name in table.column_names])
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowInvalid, pa.ArrowKeyError):
        return object()
    return [column.combine_chunks() for column in ordered.itercolumns()]


def _counted(table: pa.Table) -> Counter[tuple[str, ...]]:
    # As texts: lists and maps cannot be counted, and a NaN is not even equal to itself.
    columns = [[repr(value) for value in column.to_pylist()] for column in table.itercolumns()]
    return Counter(zip(*columns, strict=True))
