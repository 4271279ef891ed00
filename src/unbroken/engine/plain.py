"""A query on Structured Streaming alone, with Spark's defaults: what Unbroken is measured against.

Nothing of ours is in its way: files in, `foreachBatch` out, a checkpoint, and that is all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from unbroken.engine.java import check_java


def run_plain(
    folder: Path,
    ddl: str,
    function: Callable[[Any], Any],
    take: Callable[[pa.Table, int], None],
    *,
    ready: Callable[[], None],
) -> None:
    """Runs `function` over the Parquet files in `folder`/input until the process ends.

    `take` is given the rows and the number of every batch.
    """
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # What all contenders have in common: cores, memory, partitions of the state.
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(folder / "scratch"))
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    rows = spark.readStream.schema(ddl).parquet(str(folder / "input"))

    def each(frame: DataFrame, batch: int) -> None:
        take(frame.toArrow(), batch)

    query = (
        function(rows)
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(each)
        .start()
    )
    ready()
    query.awaitTermination()
