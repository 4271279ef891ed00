"""How epochs come into Spark: a Python data source that blocks until the gate opens.

    JVM ─ latestOffset(after n) ─▶ planner process ─ get gate ─▶ node's door ─▶ gate
        ◀─ n + 1 ─                                                                │
    JVM ─ partitions(n, n + 1) ──▶ waits           ◀─ epoch n + 1, complete on all inputs ─

* The offset is the epoch number.  A reader never answers "nothing new": it waits on its socket,
  which costs no CPU (scenario 23).
* The number of the next epoch is known before its rows are.  So Spark writes it to its offset log
  and plans while the rows are on their way, and waits where it needs them (docs/speed.md).  Whether
  that may be is asked once, with a reader's first question, which always waits for the answer:
  watermarks are put back before it.  A query that becomes a branch does so no more.
* `ExecutorReader` lets executors fetch their slices of an epoch through the door.  `LocalReader`,
  for a node of one machine, takes the rows of a small epoch along with the offset: no task in an
  executor's Python, which costs more than such rows are worth.
* How an epoch is split depends on its row count alone, never on cores (scenario 22).
* A reader waits in its constructor until its replica is released: Spark creates its sources before
  it reads its checkpoint, so a query can be started in advance, and held until layers are there.
* Reading an epoch again behind the gate's back is refused: every start is a fork at a commit, so
  Spark has nothing to repeat (scenario 5).

The code here runs in processes that Spark starts; all it knows comes in its options.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.types import StructType

from unbroken.epochs import header_of
from unbroken.errors import MisalignedBatch, Unreachable
from unbroken.streams.flight import Peer
from unbroken.streams.ports import refuses

FORMAT = "unbroken"
READ_BY_PLANNER, READ_BY_EXECUTORS = "planner", "executors"
#: An epoch is cut into slices of this many rows for the executors of a cluster.
SLICE_ROWS = 200_000
#: Epochs with more rows are read by executors on one machine too (docs/speed.md).
PLANNER_ROWS_MAX = 50_000
#: The gate's answer to whoever asks whether it may plan the next epoch ahead of its rows.
AHEAD = pa.table({}).replace_schema_metadata({b"unbroken.ahead": b"1"})
#: In the schema of an epoch after which nothing is planned ahead any more.
_ENOUGH = {b"unbroken.enough": b"1"}
#: Deadline of one question whether the replica is released; the door answers much sooner.
HELD_S_MAX = 60.0
#: After a question that a living node did not answer.
RETRY_S = 0.1


def last_planned_ahead(table: pa.Table) -> pa.Table:
    """The same epoch, and its reader plans none after it ahead of its rows.

    For a branch: from its second epoch on watermarks are lifted before an epoch is planned.
    """
    return table.replace_schema_metadata({**(table.schema.metadata or {}), **_ENOUGH})


class EpochSource(DataSource):
    """The streams of a node's fragments, as Spark sees them."""

    @classmethod
    def name(cls) -> str:
        """The name after `spark.readStream.format`."""
        return FORMAT

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Spark's name for what makes a reader."""
        kind = LocalReader if self.options["reader"] == READ_BY_PLANNER else ExecutorReader
        return kind(self.options)


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
        question = {**self._question, "do": "held"}
        return int(self._ask(lambda: self._peer.act(question, timeout_s=HELD_S_MAX)))

    def __getstate__(self) -> dict[str, Any]:
        # Spark pickles readers on their way to the executors; a connection cannot travel.
        return {**self.__dict__, "_connection": None}

    @property
    def _peer(self) -> Peer:
        if self._connection is None:
            self._connection = Peer(self._door)
        return self._connection

    def after(
        self, start: dict[str, int], *, rows_max: int, ahead: bool = False
    ) -> pa.Table | None:
        """The epoch after `start`, however long it takes; without its rows if there are more.

        `ahead`: None at once, if it may be planned ahead of its rows.
        """
        question = {**self._question, "after": start["epoch"], "rows": rows_max, "ahead": ahead}
        table = self._ask(lambda: self._peer.get(question))
        return None if table.schema.metadata == AHEAD.schema.metadata else table

    def slice(self, number: int, index: int, count: int) -> pa.Table:
        """One of `count` equal slices of a released epoch."""
        command = {**self._question, "do": "slice", "number": number, "index": index}
        return self._ask(lambda: self._peer.get({**command, "count": count}))

    def _ask(self, ask: Callable[[], Any]) -> Any:
        """The node's answer.  Each call has a deadline; the wait as a whole has none.

        A quiet stream is no fault.  Nor is a node that is silent: one that was frozen together with
        this process answers when both go on.  One that is gone refuses.
        """
        while True:
            try:
                answer = ask()
            except Unreachable:
                if refuses(self._door):
                    raise
                time.sleep(RETRY_S)
            else:
                if answer is not None:
                    return answer


class _Slice(InputPartition):
    def __init__(self, number: int, index: int, count: int) -> None:
        self.number, self.index, self.count = number, index, count


class _Reader:
    """What both readers have in common: the gate, and rows that are fetched slice by slice."""

    #: Rows that may come with the epoch.
    _rows_max = 0

    def __init__(self, options: Any) -> None:
        self._gate = _Gate(options)
        #: The newest epoch that Spark was told of, and the newest that has come; its rows.
        self._told = self._newest = self._rows = -1
        #: Whether Spark may plan ahead; None before the first question.
        self._ahead: bool | None = None
        #: The epoch that is on its way.
        self._coming: Future[pa.Table] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_coming": None}

    def initialOffset(self) -> dict[str, int]:
        """Where a fresh query starts: before its first epoch."""
        return self._gate.first

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        """The epoch after `start`; if it may not be planned ahead, waits for it."""
        table = None
        if not self._ahead:
            first = self._ahead is None
            table = self._gate.after(start, rows_max=self._rows_max, ahead=first)
            self._ahead = table is None
        self._told = start["epoch"] + 1
        if table is not None:
            self._came(table)
        else:
            self._coming = self._fetch(start)
        return {"epoch": self._told}

    def _fetch(self, start: dict[str, int]) -> Future[pa.Table]:
        """Asks for the epoch after `start` in a thread that nobody has to wait for in the end."""
        answer: Future[pa.Table] = Future()

        def run() -> None:
            try:
                answer.set_result(self._gate.after(start, rows_max=self._rows_max))
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=run, daemon=True, name="fetch").start()
        return answer

    def _came(self, table: pa.Table) -> None:
        """The epoch that Spark was told of, with its rows if no more than may come with it."""
        self._newest, self._rows = self._told, header_of(table.schema).rows
        if _ENOUGH.keys() <= table.schema.metadata.keys():
            self._ahead = False

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """How the epoch is split: by its row count alone.  Waits for it, if it was only told of."""
        if end["epoch"] == self._told == start["epoch"] + 1 and self._coming is not None:
            self._came(self._coming.result())
            self._coming = None
        if not end["epoch"] == self._told == self._newest:
            raise MisalignedBatch(
                f"Spark repeats epochs {start['epoch'] + 1} to {end['epoch']} behind the gate's "
                "back",
                hint="start the fragment through a fork of its checkpoint",
            )
        count = max(1, -(-self._rows // SLICE_ROWS))
        return [_Slice(self._newest, index, count) for index in range(count)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Runs in an executor."""
        assert isinstance(partition, _Slice)
        table = self._gate.slice(partition.number, partition.index, partition.count)
        return _batches(table)


class ExecutorReader(_Reader, DataSourceStreamReader):
    """Rows are fetched by the executors, slice by slice, through the node's door."""


class LocalReader(_Reader, _SimpleStreamReaderWrapper):
    """Rows of a small epoch come with the offset, in the planner's process.

    Spark asks readers of this class, and no others, for rows that they have already; it is not
    public, and the version of Spark is pinned.  If they say that they have none, executors read.
    """

    _rows_max = PLANNER_ROWS_MAX
    #: Spark looks at it to find out whether it can be asked to end by itself; it cannot.
    simple_reader = None  # type: ignore[assignment]

    def __init__(self, options: Any) -> None:
        _Reader.__init__(self, options)
        self._at_hand: list[pa.RecordBatch] | None = None

    def _came(self, table: pa.Table) -> None:
        super()._came(table)
        small = self._rows <= PLANNER_ROWS_MAX
        self._at_hand = list(_batches(table)) if small else None

    def getCache(self, start: dict[str, int], end: dict[str, int]) -> Iterator[Any] | None:
        """The rows of the newest epoch, if they came with it."""
        return None if self._at_hand is None else iter(self._at_hand)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing: what is kept here is the newest epoch alone."""


def _batches(table: pa.Table) -> Iterator[Any]:
    bare = table.replace_schema_metadata(None).combine_chunks()
    return iter([batch for batch in bare.to_batches() if batch.num_rows])
