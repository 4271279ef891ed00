"""A long run uses bounded disk and memory: 2,000 small epochs, flat disk and flat RSS.

    .venv/bin/python bench/soak.py [--epochs 2000]

Feeds a windowed count and a directory-like consumer that acks, and looks at the cluster's folder
and at the resident memory of every process now and then.  The first quarter is warm-up: code is
compiled, the heap finds its size, the log of the sink fills up to what is kept for late followers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import functions as F
from workloads import DDL, rows

import unbroken as ub

SAMPLES = 40
AHEAD = 20
#: What "flat" allows between the second quarter and the last.
GROWTH_MAX = 1.10


def windowed(events: Any) -> Any:
    marked = events.withWatermark("ts", "10 seconds")
    return marked.groupBy(F.window("ts", "10 seconds"), (F.col("k") % 10).alias("k")).count()


def folder_bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # Trimmed while we looked.
            continue
    return total


def resident_bytes(pid: int) -> int:
    root = psutil.Process(pid)
    total = 0
    for process in [root, *root.children(recursive=True)]:
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def soak(epochs: int) -> list[dict[str, float]]:
    """Runs the epochs; samples of disk and memory on the way."""
    query = ub.Query("soak", epoch="manual")
    source = query.source("input", DDL, event_time="ts")
    query.sink(query.fragment(source, output_mode="update")(windowed, name="counts"))
    samples = []
    with ub.LocalCluster(query) as cluster:
        producer = cluster.producer("input")
        results = cluster.follow("counts", consumer="soak")
        room = threading.Semaphore(AHEAD)
        failed: list[BaseException] = []

        def feed() -> None:
            try:
                for number in range(epochs):
                    room.acquire()
                    producer.send(rows(number, 50))
                    producer.close_epoch()
            except BaseException as error:
                failed.append(error)

        threading.Thread(target=feed, daemon=True).start()
        began = time.monotonic()
        for number in range(epochs):
            assert not failed, failed
            assert next(results).number == number
            room.release()
            if number % max(1, epochs // SAMPLES) == 0:
                sample = {
                    "epoch": number,
                    "seconds": time.monotonic() - began,
                    "disk_mb": folder_bytes(cluster.folder) / 1e6,
                    "keeper_mb": resident_bytes(cluster.pid("keeper")) / 1e6,
                    "node_mb": resident_bytes(cluster.pid("node-1")) / 1e6,
                }
                samples.append(sample)
                text = "  ".join(f"{k} {v:,.1f}" for k, v in sample.items())
                print(text, file=sys.stderr, flush=True)
    return samples


def growth(samples: list[dict[str, float]], what: str) -> float:
    """The last quarter's median over the second quarter's."""
    quarter = len(samples) // 4
    early = statistics.median(s[what] for s in samples[quarter : 2 * quarter])
    late = statistics.median(s[what] for s in samples[-quarter:])
    return late / early


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=2000)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args()
    samples = soak(given.epochs)
    given.results.mkdir(exist_ok=True)
    (given.results / "soak.json").write_text(json.dumps(samples, indent=1))
    grown = {what: growth(samples, what) for what in ("disk_mb", "keeper_mb", "node_mb")}
    for what, ratio in grown.items():
        print(f"{what}: last quarter / second quarter = {ratio:.2f}")
    sys.exit(any(ratio > GROWTH_MAX for ratio in grown.values()))


if __name__ == "__main__":
    main()
