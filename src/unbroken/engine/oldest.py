"""The oldest open session, read from Spark's own state while the query runs.

    checkpoint, forked by links ─▶ Spark's reader of state stores ─▶ the least start of a session

* Spark's reader loads the state into stores of its own: it shares nothing with the running query
  but the immutable layers, and a fork has those for as long as it takes.
* One task reads all state partitions, one after the other: two would take both cores of a small
  node away from an epoch that comes meanwhile.

Measured on two cores beside a query with an epoch every 0.3 s: docs/upstream.md.
"""

from __future__ import annotations

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from unbroken.checkpoints.layers import Checkpoint, Commit

#: A pool of its own: fragments and readings take turns.
POOL = "readings"


def oldest_session_ms(spark: SparkSession, checkpoint: Checkpoint, at: Commit) -> int | None:
    """When the oldest session starts that is open after `at`, rounded down; None if none is.

    The query must have one operator with state, and that must be a session window.
    """
    # Of this thread alone.
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
    state = (
        spark.read.format("statestore")
        .option("path", str(checkpoint.spark))
        .option("batchId", at.batch)
        .load()
    )
    starts = state.select(_start(state.schema).alias("start")).coalesce(1)
    oldest_us = starts.agg(F.min("start")).collect()[0][0]
    # Spark rounds event times down, too, when it makes watermarks of them.
    return None if oldest_us is None else int(oldest_us) // 1000


def _start(schema: StructType) -> Column:
    """The start of a session, in microseconds: the last part of the key, after the user's keys."""
    key = schema["key"].dataType
    assert isinstance(key, StructType), key
    # By place: a key of the user's may have the same name.
    placed = [StructField(f"_{place}", each.dataType) for place, each in enumerate(key.fields)]
    return F.unix_micros(F.col("key").cast(StructType(placed))[placed[-1].name])
