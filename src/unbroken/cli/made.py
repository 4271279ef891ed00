"""Rows that are made up as they are needed, fed to a source as if they were in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from unbroken.client.files import Chunk
from unbroken.client.replay import Trace
from unbroken.client.slices import micros


@dataclass
class Made(Trace):
    """A trace without a file; `tables` begins anew with every call."""

    tables: Callable[[], Iterator[pa.Table]] = lambda: iter(())

    def first_us(self) -> int | None:
        """The first event time."""
        column = self.source.event_time
        return None if column is None else int(micros(next(self.tables()), column)[0].as_py())

    def chunks(self) -> Iterator[Chunk]:
        """The tables with their row numbers."""
        first = 0
        for table in self.tables():
            yield Chunk(table, first, [])
            first += table.num_rows
