"""A fragment for every cell of the table class × policy that `recovery_query` lacks, a model."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import functions as F

import unbroken as ub
from unbroken.policies import Policy
from unbroken.policies.traits import OperatorClass

T0 = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
DELAY_S, WINDOW_S, EPOCH_S = 1, 4, 4
Row = dict[str, Any]
Answer = list[tuple[Any, ...]]


def repeatable(rows):
    """No state."""
    return rows.where("v > 3").select("k", "v")


def convergent(rows):
    """State that a watermark ends."""
    marked = rows.withWatermark("ts", f"{DELAY_S} seconds")
    counted = marked.groupBy(F.window("ts", f"{WINDOW_S} seconds"), "k").count()
    return counted.select("window.start", "k", "count")


def deterministic(rows):
    """State without end."""
    return rows.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total"))


def arbitrary(rows):
    """Other rows every time."""
    return rows.select("k", "v", F.rand().alias("r"))


FUNCTIONS: dict[OperatorClass, Callable[..., Any]] = {
    OperatorClass.REPEATABLE: repeatable,
    OperatorClass.CONVERGENT: convergent,
    OperatorClass.DETERMINISTIC: deterministic,
    OperatorClass.ARBITRARY: arbitrary,
}
#: By the name of its fragment.
CELLS: dict[str, tuple[OperatorClass, Policy]] = {
    "repeatable_passive": (OperatorClass.REPEATABLE, ub.Passive(interval="1s")),
    "repeatable_upstream": (OperatorClass.REPEATABLE, ub.Upstream()),
    "repeatable_gap": (OperatorClass.REPEATABLE, ub.Gap()),
    "convergent_active": (OperatorClass.CONVERGENT, ub.Active(replicas=2)),
    "convergent_gap": (OperatorClass.CONVERGENT, ub.Gap()),
    "arbitrary_gap": (OperatorClass.ARBITRARY, ub.Gap()),
}

query = ub.Query("cells", epoch="manual")
source = query.source("rows", "ts TIMESTAMP, k INT, v INT", event_time="ts")
for cell, (each, policy) in CELLS.items():
    mode = "update" if each is OperatorClass.DETERMINISTIC else "append"
    query.sink(query.fragment(source, output_mode=mode, policy=policy)(FUNCTIONS[each], name=cell))


def epochs(count: int) -> list[list[Row]]:
    """Rows in the order of their time: what a watermark drops is the subject of other tests."""
    drawn = random.Random(11)
    return [
        [
            {"ts": T0 + dt.timedelta(seconds=EPOCH_S * n + i / 4), "k": drawn.randrange(3),
             "v": drawn.randrange(10)}
            for i in range(12)
        ]
        for n in range(count)
    ]  # fmt: skip


def answer(each: OperatorClass, fed: Sequence[Sequence[Row]]) -> list[Answer]:
    """What a fragment gives, epoch by epoch, that begins empty with the first of `fed`.

    Of an arbitrary one what does not differ from run to run.
    """
    return [sorted(rows) for rows in _MODELS[each](fed)]


def _windows(fed: Sequence[Sequence[Row]]) -> list[Answer]:
    open_windows: Counter[tuple[dt.datetime, int]] = Counter()
    newest, given = -math.inf, []
    for rows in fed:
        # A batch closes windows by the watermark that the batches before it have made.
        for row in rows:
            since_s = (row["ts"] - T0).total_seconds()
            start = T0 + dt.timedelta(seconds=since_s // WINDOW_S * WINDOW_S)
            open_windows[start, row["k"]] += 1
        closed = [
            (start, k)
            for start, k in open_windows
            if (start - T0).total_seconds() + WINDOW_S <= newest - DELAY_S
        ]
        given.append([(start, k, open_windows.pop((start, k))) for start, k in closed])
        newest = max([newest, *((row["ts"] - T0).total_seconds() for row in rows)])
    return given


def _sums(fed: Sequence[Sequence[Row]]) -> list[Answer]:
    counts: Counter[int] = Counter()
    sums: Counter[int] = Counter()
    given = []
    for rows in fed:
        for row in rows:
            counts[row["k"]] += 1
            sums[row["k"]] += row["v"]
        given.append([(k, counts[k], sums[k]) for k in {row["k"] for row in rows}])
    return given


_MODELS: dict[OperatorClass, Callable[[Sequence[Sequence[Row]]], list[Answer]]] = {
    OperatorClass.REPEATABLE: lambda fed: [
        [(row["k"], row["v"]) for row in rows if row["v"] > 3] for rows in fed
    ],
    OperatorClass.CONVERGENT: _windows,
    OperatorClass.DETERMINISTIC: _sums,
    OperatorClass.ARBITRARY: lambda fed: [[(row["k"], row["v"]) for row in rows] for rows in fed],
}
