"""How an epoch leaves Spark: collected by the driver, or pushed by the executors.

    local[n]      driver ◀─ toArrow ─ tasks
    spark://…     task ─ put part ─▶ node's door        driver ◀─ (part, attempt) ─ tasks
                                                        then the parts named there are the epoch

* Either way the user's DataFrame is evaluated exactly once.
* A task may run twice (lost executor, speculation).  Parts carry the attempt that pushed them, and
  only the attempts whose result reached the driver count: Spark lets one per part through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from unbroken.streams.flight import Peer

#: (part, attempt) pairs whose tables make up an epoch.
Parts = list[tuple[int, int]]


def collect(frame: DataFrame) -> pa.Table:
    """All rows, through the driver."""
    return frame.toArrow()


def push(frame: DataFrame, epoch: int, options: Mapping[str, str]) -> Parts:
    """All rows, from the executors to the door; tells which pushes count."""
    task = _pusher({**options, "epoch": str(epoch)})
    done = frame.mapInArrow(task, "part INT, attempt LONG").collect()
    return sorted((row.part, row.attempt) for row in done)


def _pusher(options: Mapping[str, str]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = list(batches)
        if not rows:
            return
        context = TaskContext.get()
        assert context is not None
        part, attempt = context.partitionId(), context.taskAttemptId()
        command = {
            "do": "part", "fragment": options["fragment"], "term": int(options["term"]),
            "epoch": int(options["epoch"]), "part": part, "attempt": attempt,
        }  # fmt: skip
        with Peer(options["door"]) as door:
            door.put(command, pa.Table.from_batches(rows), timeout_s=60.0)
        columns = [pa.array([part], pa.int32()), pa.array([attempt], pa.int64())]
        yield pa.RecordBatch.from_arrays(columns, names=["part", "attempt"])

    return task
