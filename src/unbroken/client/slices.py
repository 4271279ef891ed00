"""Slices: how the rows of files are cut into epochs, decided before anything is sent.

    event time    0.0    0.7   1.2   0.9   2.5          length 1 s, t0 = 0.0
    slice         0      0     1     1     2            a late row (0.9) goes with its neighbours
    steps         send  send  close  send …  close …    all sources close each slice, in lock step

* A slice follows from the file alone, by event time or by row number: a second run cuts as the
  first one did, although it leaves out the rows that were sent before.
* The slices of a file never go back: rows are sent in the order of the file.

This module only decides.  It does no I/O and reads no clock.

>>> table = pa.table({"ts": pa.array([0, 700_000, 1_200_000, 900_000], pa.timestamp("us"))})
>>> cut = ByTime("ts", t0_us=0, length_us=1_000_000)
>>> [(p.slice, p.rows.num_rows, p.last_row) for p in pieces([Chunk(table, 0, [])], cut)]
[(0, 2, 1), (1, 2, 3)]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from unbroken.client.files import Chunk
from unbroken.errors import RowError

#: A jump in event time by more slices than this is a mistake in the file, not a quiet night.
JUMP_SLICES_MAX = 100_000

Ints = npt.NDArray[np.int64]
#: From rows and their numbers in the file to the slice of each, never falling.
Cut = Callable[[pa.Table, Ints], Ints]


class ByTime:
    """Slices of equal length in event time; late rows and rows without a time stay where we are.

    >>> cut = ByTime("ts", t0_us=10, length_us=5)
    >>> cut(pa.table({"ts": pa.array([10, 16, 11, None, 20], pa.timestamp("us"))}), np.arange(5))
    array([0, 1, 1, 1, 2])
    """

    def __init__(self, column: str, *, t0_us: int, length_us: int) -> None:
        self._column, self._t0_us, self._length_us = column, t0_us, length_us
        self._current = 0

    def __call__(self, table: pa.Table, numbers: Ints) -> Ints:
        times_us = pc.fill_null(micros(table, self._column), self._t0_us).to_numpy()
        slices = np.maximum((times_us - self._t0_us) // self._length_us, self._current)
        slices = np.maximum.accumulate(slices).astype(np.int64)
        jumps = np.diff(slices, prepend=self._current)
        worst = int(np.argmax(jumps))
        if jumps[worst] > JUMP_SLICES_MAX:
            when = table.column(self._column)[worst].as_py()
            raise RowError(
                f"row {numbers[worst]}: its time {when} leaves {jumps[worst]:,} epochs empty",
                hint="correct the row, use longer epochs, or replay without regard to time: "
                "--rows-per-epoch 10000",
            )
        self._current = int(slices[-1])
        return slices


class ByRows:
    """Slices of `count` rows of the file, bad rows included.

    >>> ByRows(2)(pa.table({"n": [5, 6, 7]}), np.array([0, 1, 4]))
    array([0, 0, 2])
    """

    def __init__(self, count: int) -> None:
        self._count = count

    def __call__(self, table: pa.Table, numbers: Ints) -> Ints:
        return numbers // self._count


@dataclass(frozen=True)
class Piece:
    """Consecutive good rows of a file that belong to one slice."""

    slice: int
    rows: pa.Table
    last_row: int


def row_numbers(chunk: Chunk) -> Ints:
    """The number in the file of each good row.

    >>> from unbroken.schemas import BadRow
    >>> row_numbers(Chunk(pa.table({"n": [1, 2]}), 4, [BadRow(5, "why", "")]))
    array([4, 6])
    """
    numbers = np.arange(chunk.first_row, chunk.first_row + chunk.table.num_rows + len(chunk.bad))
    bad = [row.row for row in chunk.bad]
    return np.asarray(numbers[~np.isin(numbers, bad)][: chunk.table.num_rows])


def pieces(chunks: Iterable[Chunk], cut: Cut, *, after: int = -1) -> Iterator[Piece]:
    """The rows after row `after`, cut into slices.  All rows are cut, so a slice has one number."""
    for chunk in chunks:
        if chunk.table.num_rows == 0:
            continue
        numbers = row_numbers(chunk)
        slices = cut(chunk.table, numbers)
        sent = int(np.searchsorted(numbers, after, side="right"))
        first = 0
        for end in [*(np.flatnonzero(np.diff(slices)) + 1).tolist(), len(slices)]:
            first = max(first, sent)
            if first < end:
                rows = chunk.table.slice(first, end - first)
                yield Piece(int(slices[end - 1]), rows, int(numbers[end - 1]))
            first = end


@dataclass(frozen=True)
class Send:
    """These rows of `source` belong to `slice`."""

    source: str
    slice: int
    rows: pa.Table
    last_row: int


@dataclass(frozen=True)
class Close:
    """Every source has sent all rows of `slice`."""

    slice: int


def steps(sources: Mapping[str, Iterator[Piece]]) -> Iterator[Send | Close]:
    """Sends and closes of all sources in lock step; a source that has ended closes on, empty.

    >>> piece = Piece(1, pa.table({"n": [1]}), 0)
    >>> [type(step).__name__ for step in steps({"a": iter([piece]), "b": iter([])})]
    ['Close', 'Send', 'Close']
    """
    ahead = {name: next(rest, None) for name, rest in sources.items()}
    number = 0
    while any(ahead.values()):
        for name, rest in sources.items():
            while (piece := ahead[name]) is not None and piece.slice <= number:
                yield Send(name, number, piece.rows, piece.last_row)
                ahead[name] = next(rest, None)
        yield Close(number)
        number += 1


def micros(table: pa.Table, column: str) -> Any:
    """A column of times as microseconds since 1970.

    >>> micros(pa.table({"ts": pa.array([7], pa.timestamp("us"))}), "ts").to_pylist()
    [7]
    """
    return table.column(column).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
