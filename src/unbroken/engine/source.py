"""How epochs come into Spark: a Python data source that blocks until the gate opens.

    JVM ─ latestOffset(after n) ─▶ planner process ─ get gate ─▶ node's door ─▶ gate
                                                    ◀─ epoch n + 1, complete on all inputs ─

* The offset is the epoch number.  A reader never answers "nothing new": it waits on its socket,
  which costs no CPU (scenario 23).
* `PlannerReader` takes the rows along with the offset: one process, no task in an executor's
  Python; for epochs that fit into one batch of a local session.  `ExecutorReader` lets the
  executors of a Spark cluster fetch their slices through the door.
* How an epoch is split depends on its row count alone, never on cores (scenario 22).
* A reader waits in its constructor until its replica is released: Spark creates its sources before
  it reads its checkpoint, so a query can be started in advance, and held until layers are there.
* Reading an epoch again behind the gate's back is refused: every start is a fork at a commit, so
  Spark has nothing to repeat (scenario 5).

The code here runs in processes that Spark starts; all it knows comes in its options.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    SimpleDataSourceStreamReader,
)
from pyspark.sql.types import StructType

from unbroken.epochs import header_of
from unbroken.errors import MisalignedBatch
from unbroken.streams.flight import Peer

FORMAT = "unbroken"
READ_BY_PLANNER, READ_BY_EXECUTORS = "planner", "executors"
#: An epoch is cut into slices of this many rows for the executors of a cluster.
SLICE_ROWS = 200_000
#: Deadline of one question whether the replica is released; the door answers much sooner.
HELD_S_MAX = 60.0


class EpochSource(DataSource):
    """The streams of a node's fragments, as Spark sees them."""

    @classmethod
    def name(cls) -> str:
        """The name after `spark.readStream.format`."""
        return FORMAT

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Spark's name for the reader whose rows are read by executors."""
        if self.options["reader"] == READ_BY_PLANNER:
            return super().streamReader(schema)  # Not implemented: Spark takes the simple one.
        return ExecutorReader(self.options)

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        """Spark's name for the reader whose rows come with the offset."""
        return PlannerReader(self.options)


class _Gate:
    """One input of one fragment, asked through the node's door."""

    def __init__(self, options: Any) -> None:
        self._door = options["door"]
        self._connection: Peer | None = None
        self._question = {
            "do": "gate",
            "fragment": options["fragment"],
            "input": options["input"],
            "term": int(options["term"]),
        }
        self.first = {"epoch": self._wait_released() - 1}

    def _wait_released(self) -> int:
        """The first epoch, told when the replica is released, however long that takes."""
        while True:
            first = self._peer.act({**self._question, "do": "held"}, timeout_s=HELD_S_MAX)
            if first is not None:
                return int(first)

    def __getstate__(self) -> dict[str, Any]:
        # Spark pickles readers on their way to the executors; a connection cannot travel.
        return {**self.__dict__, "_connection": None}

    @property
    def _peer(self) -> Peer:
        if self._connection is None:
            self._connection = Peer(self._door)
        return self._connection

    def after(self, start: dict[str, int], *, rows: bool) -> pa.Table:
        """The epoch after `start`, however long it takes."""
        question = {**self._question, "after": start["epoch"], "rows": rows}
        while True:
            # Each call has a deadline; the wait as a whole has none: a quiet stream is no fault.
            table = self._peer.get(question)
            if table is not None:
                return table

    def slice(self, number: int, index: int, count: int) -> pa.Table:
        """One of `count` equal slices of a released epoch."""
        command = {**self._question, "do": "slice", "number": number, "index": index}
        table = self._peer.get({**command, "count": count})
        assert table is not None, "a released epoch is there"
        return table


class PlannerReader(SimpleDataSourceStreamReader):
    """Rows come with the offset, in the planner's process."""

    def __init__(self, options: Any) -> None:
        self._gate = _Gate(options)

    def initialOffset(self) -> dict[str, int]:
        """Where a fresh query starts: before its first epoch."""
        return self._gate.first

    def read(self, start: dict[str, int]) -> tuple[Iterator[Any], dict[str, int]]:
        """Waits for the epoch after `start`."""
        table = self._gate.after(start, rows=True)
        batches = table.replace_schema_metadata(None).combine_chunks().to_batches()
        # A list's iterator: Spark copies it before use.
        return iter([b for b in batches if b.num_rows]), {"epoch": start["epoch"] + 1}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[Any]:
        """Spark repeats a batch only in a checkpoint that was not forked."""
        raise MisalignedBatch(
            f"Spark repeats epochs {start['epoch'] + 1} to {end['epoch']} behind the gate's back",
            hint="start the fragment through a fork of its checkpoint",
        )


class _Slice(InputPartition):
    def __init__(self, number: int, index: int, count: int) -> None:
        self.number, self.index, self.count = number, index, count


class ExecutorReader(DataSourceStreamReader):
    """Rows are fetched by the executors, slice by slice, through the node's door."""

    def __init__(self, options: Any) -> None:
        self._gate = _Gate(options)
        self._rows: dict[int, int] = {}

    def initialOffset(self) -> dict[str, int]:
        """Where a fresh query starts: before its first epoch."""
        return self._gate.first

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        """Waits for the epoch after `start`."""
        table = self._gate.after(start, rows=False)
        header = header_of(table.schema)
        number = start["epoch"] + 1
        self._rows = {number: header.rows}
        return {"epoch": number}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """How the epoch is split: by its row count alone."""
        number = end["epoch"]
        count = max(1, -(-self._rows[number] // SLICE_ROWS))
        return [_Slice(number, index, count) for index in range(count)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Runs in an executor."""
        assert isinstance(partition, _Slice)
        table = self._gate.slice(partition.number, partition.index, partition.count)
        return iter([b for b in table.replace_schema_metadata(None).to_batches() if b.num_rows])
