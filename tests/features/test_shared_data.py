"""Real data with known answers, through `ub.run`: every row of the answer, exactly."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import unbroken as ub
from unbroken.client import files

NET = (
    "ts TIMESTAMP, uid STRING, orig_h STRING, orig_p INT, resp_h STRING, resp_p INT, service STRING"
)
TEXT = "number BIGINT, line STRING"
EPOCHS = 24

query = ub.Query("answers", epoch="manual")
events = query.source("events", NET, event_time="ts")
lines = query.source("lines", TEXT)


@query.fragment(events, output_mode="update")
def per_source(events):
    windows = events.withWatermark("ts", "30 minutes").groupBy(
        F.window("ts", "10 seconds"), "orig_h"
    )
    return windows.agg(
        F.count("*").alias("attempts"),
        F.size(F.collect_set("service")).alias("services"),
        F.size(F.collect_set("resp_p")).alias("ports"),
        F.size(F.collect_set("resp_h")).alias("hosts"),
    )


@query.fragment(lines)
def words(lines):
    found = F.expr("regexp_extract_all(lower(line), '([a-z]+)', 1)")
    return lines.select(F.explode(found).alias("word"))


@query.fragment(words, output_mode="update")
def counts(words):
    return words.groupBy("word").count()


query.sink(per_source)
query.sink(counts)


def cut(tables: Iterator[pa.Table], epochs: int) -> list[pa.Table]:
    """All rows in file order, in so many epochs of equal size."""
    whole = pa.concat_tables(tables)
    size = -(-whole.num_rows // epochs)
    return [whole.slice(at, size) for at in range(0, whole.num_rows, size)]


@pytest.mark.timeout(400)
def test_the_network_trace_and_the_text_are_answered_exactly(shared_data: Path):
    """Goal: nothing lost, nothing repeated, nothing wrong, on skewed real data.

    Method: the last update of each key is its answer; compare all of them with the known ones.
    """
    trace = shared_data / "net" / "wrccdc2018_events.csv.gz"
    text = shared_data / "text" / "collected-works.txt"
    fed = {
        "events": cut((c.table for c in files.read(trace, events.schema)), EPOCHS),
        "lines": cut((c.table for c in files.read(text, lines.schema)), EPOCHS),
    }
    results = ub.run(query, fed)
    with open(shared_data / "net" / "expected_tumbling10.csv") as file:
        expected: dict[Any, Any] = {
            (int(row["win_start"]), row["orig_h"]): tuple(
                int(row[k]) for k in ("attempts", "services", "ports", "hosts")
            )
            for row in csv.DictReader(file)
        }
    found: dict[Any, Any] = {}
    for epoch in results["per_source"]:
        for row in epoch.table.to_pylist():
            key = int(row["window"]["start"].timestamp()), row["orig_h"]
            found[key] = tuple(row[k] for k in ("attempts", "services", "ports", "hosts"))
    assert found == expected
    with open(shared_data / "text" / "expected_wordcount_total.tsv") as file:
        totals = {word: int(n) for word, n in csv.reader(file, delimiter="\t")}
    told = {}
    for epoch in results["counts"]:
        told.update(
            zip(epoch.table["word"].to_pylist(), epoch.table["count"].to_pylist(), strict=True)
        )
    assert told == totals
