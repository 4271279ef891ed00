"""The three workloads of `overhead.py`: the same rows and the same PySpark for every contender."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

DDL = "ts TIMESTAMP, k INT, v DOUBLE, name STRING"
KEYS = 100_000
T0_US = 1_767_225_600_000_000


@dataclass(frozen=True)
class Workload:
    """A transformation and its output mode."""

    name: str
    mode: str
    transform: Callable[[DataFrame], DataFrame]


def _stateless(rows: DataFrame) -> DataFrame:
    return rows.where("v > 0.5").select("ts", "k", (F.col("v") * 2).alias("twice"))


def _keyed(rows: DataFrame) -> DataFrame:
    return rows.groupBy("k").count()


def _windowed(rows: DataFrame) -> DataFrame:
    marked = rows.withWatermark("ts", "10 seconds")
    return marked.groupBy(F.window("ts", "10 seconds"), (F.col("k") % 1000).alias("k")).count()


WORKLOADS = {
    w.name: w
    for w in (
        Workload("stateless", "append", _stateless),
        Workload("keyed", "update", _keyed),
        Workload("windowed", "update", _windowed),
    )
}


def rows(epoch: int, count: int) -> pa.Table:
    """The rows of one epoch: a second of event time, keys drawn from 100,000."""
    draw = np.random.default_rng(epoch)
    keys = draw.integers(0, KEYS, count, dtype=np.int32)
    columns: dict[str, Any] = {
        "ts": pa.array(
            T0_US + epoch * 1_000_000 + np.sort(draw.integers(0, 1_000_000, count)),
            pa.timestamp("us", tz="UTC"),
        ),
        "k": pa.array(keys),
        "v": pa.array(draw.random(count)),
        "name": pa.array(np.char.add("host-", (keys % 500).astype(str))),
    }
    return pa.table(columns)
