"""A fragment of every kind that keeps state in another way, and epochs to feed them."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.state import GroupStateTimeout

import unbroken as ub

query = ub.Query("kinds", epoch="manual")
left = query.source("left", "ts TIMESTAMP, k INT, v DOUBLE", event_time="ts")
right = query.source("right", "ts TIMESTAMP, k INT, w STRING", event_time="ts")


@query.fragment(left)
def stateless(left):
    return left.where("v > 0").select("ts", "k", (F.col("v") * 2).alias("twice"))


@query.fragment(left, output_mode="update")
def windowed_update(left):
    windows = left.withWatermark("ts", "10 seconds").groupBy(F.window("ts", "10 seconds"), "k")
    return windows.agg(F.count("*").alias("n"), F.sum("v").alias("total"))


@query.fragment(left, state="memory")
def windowed_append(left):
    windows = left.withWatermark("ts", "10 seconds").groupBy(F.window("ts", "10 seconds"), "k")
    return windows.agg(F.count("*").alias("n"), F.avg("v").alias("mean"))


@query.fragment(left)
def sessions(left):
    """Gaps that differ from row to row, and an order-sensitive sum."""
    marked = left.withWatermark("ts", "10 seconds")
    gap = F.when(F.col("k") < 2, "1500 milliseconds").otherwise("4 seconds")
    sessions = marked.groupBy(F.session_window("ts", gap), "k")
    return sessions.agg(F.count("*").alias("n"), F.sum("v").alias("total"))


@query.fragment(left, output_mode="update", state="memory")
def unbounded(left):
    return left.groupBy("k").agg(F.sum("v").alias("total"), F.first("v").alias("first"))


@query.fragment(left, right)
def joined(left, right):
    a = left.withWatermark("ts", "10 seconds").alias("a")
    b = right.withWatermark("ts", "20 seconds").alias("b")
    near = F.expr("a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 8 SECONDS")
    return a.join(b, near, "leftOuter").select("a.ts", "a.k", "a.v", "b.w")


@query.fragment(left, right)
def union_windows(left, right):
    a = left.withWatermark("ts", "5 seconds").select("ts", "k")
    b = right.withWatermark("ts", "15 seconds").select("ts", "k")
    return a.union(b).groupBy(F.window("ts", "10 seconds"), "k").count()


@query.fragment(right)
def distinct(right):
    return right.dropDuplicates(["k", "w"])


@query.fragment(left, output_mode="update")
def per_key_pandas(left):
    """The highest value so far, per key, in update mode."""

    def highest(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        best = state.get[0] if state.exists else float("-inf")
        for frame in frames:
            best = max(best, float(frame["v"].max()))
        state.update((best,))
        yield pd.DataFrame({"k": [key[0]], "best": [best]})

    return left.groupBy("k").applyInPandasWithState(
        highest, "k INT, best DOUBLE", "best DOUBLE", "update", GroupStateTimeout.NoTimeout
    )


class Counter(StatefulProcessor):
    """Counts rows per key and tells each count once its event-time timer fires."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n LONG")

    def handleInputRows(self, key, rows, timerValues) -> Iterator[pd.DataFrame]:
        n = self.count.get()[0] if self.count.exists() else 0
        latest = 0
        for frame in rows:
            n += len(frame)
            latest = max(latest, int(frame["ts"].max().timestamp() * 1000))
        self.count.update((n,))
        self.handle.registerTimer(latest + 12_000)
        yield pd.DataFrame({"k": [key[0]], "n": [n], "fired": [False]})

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo) -> Iterator[pd.DataFrame]:
        yield pd.DataFrame({"k": [key[0]], "n": [self.count.get()[0]], "fired": [True]})

    def close(self) -> None:
        pass


@query.fragment(left)
def per_key_processor(left):
    marked = left.withWatermark("ts", "10 seconds")
    return marked.groupBy("k").transformWithStateInPandas(
        Counter(), "k INT, n LONG, fired BOOLEAN", "append", "EventTime"
    )


@query.fragment(stateless, output_mode="update")
def chained(stateless):
    """Order-sensitive on purpose: the output of `stateless` must come in one order."""
    grouped = stateless.groupBy("k")
    return grouped.agg(F.last("twice").alias("last"), F.sum("twice").alias("total"))


@query.fragment(union_windows, output_mode="update", state="memory")
def totals(union_windows):
    """What all closed windows have counted so far: one that is missing or wrong shows for ever."""
    return union_windows.groupBy("k").agg(F.sum("count").alias("n"), F.count("*").alias("windows"))


for fragment in list(query.fragments.values()):
    query.sink(fragment)

T0 = dt.datetime(2026, 1, 1)
#: As many epochs as the longest test feeds.
COUNT = 17


def epochs(count: int, seed: int = 7) -> dict[str, list[list[dict[str, Any]]]]:
    """Rows with gaps, late rows, empty epochs, and epochs with rows on one side only."""
    random.seed(seed)
    fed: dict[str, list[list[dict[str, Any]]]] = {"left": [], "right": []}
    for n in range(count):
        base = T0 + dt.timedelta(seconds=4 * n)

        def row(base: dt.datetime = base) -> dict[str, Any]:
            late = random.choice([0, 0, 0, 0, 18])
            at = (
                base
                + dt.timedelta(milliseconds=random.randrange(4000))
                - dt.timedelta(seconds=late)
            )
            return {"ts": at, "k": random.randrange(4)}

        on_left = 0 if n % 5 == 3 else 12
        on_right = 0 if n % 4 == 2 else 9
        fed["left"].append([{**row(), "v": random.gauss(1, 3)} for _ in range(on_left)])
        fed["right"].append([{**row(), "w": random.choice("xyz")} for _ in range(on_right)])
    return fed
