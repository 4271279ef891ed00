"""A user's own query as a workload: its sources replayed from files, round and round, at a rate.

    file a   a1 a2 a3 a4      all files in one order, by event time    a1 b1 a2 a3 b2 a4 | a1 b1 …
    file b   b1       b2      (or by their share of the file)          ◀ rate × tick ▶      next lap

* A tick is so many rows of that order, so that files stay in step and the rate is what was asked
  for.  Rows of one file keep their order.
* When the files end they begin again, with event times that go on where they ended: a watermark
  would drop rows of the past.
* No row is set aside for an event time in the future, because laps may well lead there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unbroken.client import files
from unbroken.client.slices import micros
from unbroken.errors import DefinitionError
from unbroken.measure.own import Own
from unbroken.measure.workload import TICK_S
from unbroken.policies import Policy
from unbroken.query import Query, Source

#: All rows are held in memory: so many per file, the rest is left out, and told.
ROWS_MAX = 2_000_000


class Replayed(Own):
    """`query` with the files of its sources, `rate` rows per second in all."""

    def __init__(
        self,
        query: Query,
        paths: Mapping[str, Path],
        rate: int,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        _check(query, paths)
        super().__init__(query, rate)
        self._tables = {name: _read(query.sources[name], path, say) for name, path in paths.items()}
        self._times = {
            name: _times(table, column)
            for name, table in self._tables.items()
            if (column := query.sources[name].event_time) is not None
        }
        self._order = self._in_one_order()
        self._firsts = np.cumsum([0, *(table.num_rows for table in self._tables.values())])
        ends = [times.max() for times in self._times.values()]
        starts = [times.min() for times in self._times.values()]
        #: How much later the rows of the next lap are.
        self._lap_us = int(max(ends) - min(starts)) + 1_000_000 if ends else 0

    def text(self, policy: Policy | None) -> str:
        """The workload in words."""
        return f"{self._query.name} from {len(self._tables)} files, {self._rate:,} rows/s"

    def _in_one_order(self) -> Any:
        """Places of all rows, file after file, in the order in which they are sent."""
        keys = []
        for name, table in self._tables.items():
            if len(self._times) == len(self._tables):
                # Never backwards, so that a file's rows keep their order.
                keys.append(np.maximum.accumulate(self._times[name]))
            else:
                keys.append(np.arange(table.num_rows) / table.num_rows)
        return np.argsort(np.concatenate(keys), kind="stable")

    def tables(self, tick: int, due_s: float) -> Mapping[str, pa.Table]:
        """The rows of a tick, by source; a tick may reach over the end of a lap."""
        begin, end = int(self._rate * tick * TICK_S), int(self._rate * (tick + 1) * TICK_S)
        parts: dict[str, list[pa.Table]] = {}
        while begin < end:
            lap, first = divmod(begin, len(self._order))
            places = self._order[first : first + end - begin]
            for i, (name, table) in enumerate(self._tables.items()):
                own = places[(places >= self._firsts[i]) & (places < self._firsts[i + 1])]
                if len(own):
                    rows = table.take(pa.array(own - self._firsts[i]))
                    parts.setdefault(name, []).append(self._later(name, rows, lap))
            begin += len(places)
        return {name: pa.concat_tables(given) for name, given in parts.items()}

    def _later(self, name: str, rows: pa.Table, lap: int) -> pa.Table:
        column = self._query.sources[name].event_time
        if column is None or lap == 0:
            return rows
        place = rows.schema.get_field_index(column)
        kind = rows.schema.field(place)
        moved = pc.add(rows[column], pa.scalar(lap * self._lap_us, pa.duration("us")))
        return rows.set_column(place, kind, moved.cast(kind.type))


def _times(table: pa.Table, column: str) -> Any:
    """Event times in microseconds; a row without one takes the first."""
    given = micros(table, column)
    first = pc.min(given).as_py() or 0
    return given.fill_null(first).to_numpy()


def _check(query: Query, paths: Mapping[str, Path]) -> None:
    without = [name for name in query.sources if name not in paths]
    if without:
        raise DefinitionError(
            f"source {without[0]!r} of query {query.name!r} has no file",
            hint=f"every source is replayed from one: --source {without[0]}=FILE",
        )


def _read(source: Source, path: Path, say: Callable[[str], None]) -> pa.Table:
    parts: list[pa.Table] = []
    count = 0
    for chunk in files.read(path, source.schema):
        parts.append(chunk.table)
        count += chunk.table.num_rows
        if count >= ROWS_MAX:
            say(f"only the first {ROWS_MAX:,} rows of {path} are used")
            break
    if not count:
        raise DefinitionError(f"{path}: no rows", hint="a file to replay has at least one row")
    return pa.concat_tables(parts).slice(0, ROWS_MAX).combine_chunks()
