"""What Spark's executors read and push: slices of the inputs, parts of the output.

epoch ─▶ slice 0 · slice 1 ─▶ executors ─▶ part 0 · part 1 (again: attempt 1) ─▶ epoch
"""

from __future__ import annotations

import threading

import pyarrow as pa


def nth_slice(table: pa.Table, index: int, count: int) -> pa.Table:
    """One of `count` slices of about the same size.

    >>> [nth_slice(pa.table({"n": [1, 2, 3]}), i, 2).num_rows for i in (0, 1)]
    [1, 2]
    """
    first, after = (table.num_rows * i // count for i in (index, index + 1))
    return table.slice(first, after - first)


class Parts:
    """Parts of one epoch's output, as tasks push them; Spark says afterwards which of them count.

    >>> parts = Parts()
    >>> for attempt in (0, 1):
    ...     parts.put(7, 0, attempt, pa.table({"n": [attempt]}))
    >>> [part.num_rows for part in parts.take(7, [(0, 1)])]
    [1]
    """

    def __init__(self) -> None:
        self._pushed: dict[tuple[int, int, int], pa.Table] = {}
        self._lock = threading.Lock()

    def put(self, epoch: int, part: int, attempt: int, table: pa.Table) -> None:
        """A task has pushed its part; it may turn out that another attempt counts."""
        with self._lock:
            self._pushed[epoch, part, attempt] = table

    def take(self, epoch: int, counted: list[tuple[int, int]]) -> list[pa.Table]:
        """The parts that count; what other attempts pushed is forgotten."""
        with self._lock:
            taken = [self._pushed[epoch, part, attempt] for part, attempt in counted]
            self._pushed.clear()
            return taken
