"""A Spark query without Unbroken, driven over standard input: the contenders of `overhead.py`.

    plain   Spark's defaults, a Parquet file source with one file per batch, foreachBatch out
    tuned   our session settings and a simple Python source, but no log, transport or gate

Reads nothing; prints `ready`, then `done EPOCH MONOTONIC_SECONDS ROWS` for each epoch whose rows
are in the hands of foreachBatch as an Arrow table, as a client of ours would have them.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from workloads import DDL, WORKLOADS

POLL_S = 0.001


class FileReader(SimpleDataSourceStreamReader):
    """Waits for the next epoch's file: the least that a source can do."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def initialOffset(self) -> dict[str, int]:
        return {"epoch": -1}

    def read(self, start: dict[str, int]) -> tuple[Any, dict[str, int]]:
        number = start["epoch"] + 1
        path = Path(self._folder) / f"{number}.arrow"
        while not path.exists():
            time.sleep(POLL_S)
        table = pa.ipc.open_stream(path.read_bytes()).read_all()
        return iter(table.combine_chunks().to_batches()), {"epoch": number}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Any:
        raise NotImplementedError


class FileSource(DataSource):
    """Epochs from a folder."""

    @classmethod
    def name(cls) -> str:
        return "bench-files"

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:
        return FileReader(self.options["folder"])


def session_of_plain(partitions: int) -> SparkSession:
    """Spark's defaults, but for what both contenders must have in common."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.shuffle.partitions", str(partitions))
        .config("spark.driver.memory", "1g")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def plain(given: argparse.Namespace) -> DataFrame:
    spark = session_of_plain(given.partitions)
    reader = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(given.folder / "input"))


def tuned(given: argparse.Namespace) -> DataFrame:
    from unbroken.engine.session import session

    settings = {"spark.sql.shuffle.partitions": str(given.partitions)}
    scratch = given.folder / "scratch"
    spark = session("tuned", master="local[2]", scratch=scratch, settings=settings)
    spark.dataSource.register(FileSource)
    reader = spark.readStream.format("bench-files").schema(DDL)
    return reader.option("folder", str(given.folder / "input")).load()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("contender", choices=["plain", "tuned"])
    parser.add_argument("workload", choices=list(WORKLOADS))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--partitions", type=int, required=True)
    given = parser.parse_args()
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    workload = WORKLOADS[given.workload]
    frame = {"plain": plain, "tuned": tuned}[given.contender](given)

    epochs = itertools.count()

    def take(batch_frame: DataFrame, batch: int) -> None:
        table = batch_frame.toArrow()
        # Spark's defaults run extra batches without data when a watermark has moved.
        if table.num_rows:
            print("done", next(epochs), time.monotonic(), table.num_rows, file=out)

    query = (
        workload.transform(frame)
        .writeStream.outputMode(workload.mode)
        .option("checkpointLocation", str(given.folder / "checkpoint"))
        .foreachBatch(take)
        .start()
    )
    print("ready", file=out)
    sys.stdin.read()
    query.stop()


if __name__ == "__main__":
    main()
