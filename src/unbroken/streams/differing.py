"""Two copies of an epoch that should be equal: which rows differ, for whoever has to find out why.

>>> ours = pa.table({"k": [1, 2], "r": [0.1, 0.2]})
>>> theirs = pa.table({"k": [2, 1], "r": [0.2, 0.9]})
>>> print(sample("r1", ours, "r2", theirs))
only at r1: {'k': 1, 'r': 0.1}; only at r2: {'k': 1, 'r': 0.9}
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa

#: Rows that are shown of each copy, and characters of each row.
ROWS_MAX = 3
CHARS_MAX = 200


def sample(one: str, ours: pa.Table, another: str, theirs: pa.Table) -> str:
    """A few rows that only one of two copies has, in a sentence; their order means nothing.

    >>> sample("r1", pa.table({"k": [1]}), "r2", pa.table({"k": [1]}))
    'the rows of r1 and r2 are the same'
    """
    parts = []
    for name, mine, other in ((one, ours, theirs), (another, theirs, ours)):
        rows = list((_counted(mine) - _counted(other)).elements())
        if rows:
            more = f" and {len(rows) - ROWS_MAX:,} more" if len(rows) > ROWS_MAX else ""
            parts.append(f"only at {name}: {', '.join(rows[:ROWS_MAX])}{more}")
    return "; ".join(parts) or f"the rows of {one} and {another} are the same"


def _counted(table: pa.Table) -> Counter[str]:
    # As texts: lists and maps cannot be counted, and a NaN is not even equal to itself.
    return Counter(_text(row) for row in table.to_pylist())


def _text(row: dict[str, Any]) -> str:
    text = repr(row)
    return text if len(text) <= CHARS_MAX else f"{text[:CHARS_MAX]}…"
