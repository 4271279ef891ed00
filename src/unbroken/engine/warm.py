"""Warming up: Spark's first micro-batch takes ten times as long as its tenth.

A spare has nothing to do until it is given a replica, and then everybody waits for it.  So it runs
a small stateful query first: classes are loaded, state stores and their native code are there,
plans and Arrow conversions are compiled.
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

WARM_S_MAX = 60.0
BATCHES = 3


def warm_up(spark: SparkSession, scratch: Path) -> None:
    """Runs a few batches of a stateful query and throws them away."""
    folder = scratch / "warm-up"
    warm = threading.Event()

    def take(batch: DataFrame, number: int) -> None:
        batch.toArrow()
        if number >= BATCHES:
            warm.set()

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
    counted = rows.groupBy((F.col("value") % 10).alias("k")).agg(F.count("*"), F.max("timestamp"))
    query = (
        counted.writeStream.outputMode("update")
        .option("checkpointLocation", str(folder))
        .foreachBatch(take)
        .start()
    )
    warm.wait(WARM_S_MAX)
    query.stop()
    shutil.rmtree(folder, ignore_errors=True)
