"""What it costs to ask Spark's state for the oldest open session, beside the query that keeps it.

    .venv/bin/python bench/readings.py [--sessions 10000 100000]

All sessions come with the first batch and stay open; then 2,500 rows per second for random ones.
The query runs undisturbed, then with a reading every other second, ten times as often as a node
would at most; and undisturbed again, because a JVM gets faster for a minute.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import random
import statistics
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from unbroken.checkpoints.layers import Checkpoint
from unbroken.engine.session import session
from unbroken.node.oldest import reader

ROWS, TICK_S, PAUSE_S = 2_500, 1.0, 2.0
T0 = dt.datetime(2026, 1, 1)


class Batches(Checkpoint):
    """Of a query that reads files: every batch is an epoch."""

    def epoch_of(self, batch: int) -> int:
        return batch


class Fed:
    """A query over session windows that is fed every second, and what its batches took."""

    def __init__(self, spark: Any, folder: Path, sessions: int) -> None:
        self._inbox = folder / "in"
        self._inbox.mkdir()
        self._sessions = sessions
        self._ended = threading.Event()
        self.took_s: dict[int, tuple[float, float]] = {}
        self._put(0, [(second % 60, key) for second, key in enumerate(range(sessions))])
        rows = spark.readStream.schema("ts TIMESTAMP, k INT").option("maxFilesPerTrigger", 1)
        marked = rows.parquet(str(self._inbox)).withWatermark("ts", "10 seconds")
        self.running = Batches(folder / "1")
        self.query = (
            marked.groupBy(F.session_window("ts", "1 hour"), "k").count()
            .writeStream.option("checkpointLocation", str(self.running.spark))
            .foreachBatch(lambda batch, number: batch.count() and None)
            .start()
        )  # fmt: skip
        for work in (self._feed, self._watch):
            threading.Thread(target=work, daemon=True).start()

    def _put(self, number: int, rows: list[tuple[int, int]]) -> None:
        times = [T0 + dt.timedelta(seconds=second) for second, _ in rows]
        table = pa.table({
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
            "k": pa.array([key for _, key in rows], pa.int32()),
        })  # fmt: skip
        hidden = self._inbox / f".{number:05}"
        pq.write_table(table, hidden)
        os.rename(hidden, self._inbox / f"{number:05}.parquet")

    def _feed(self) -> None:
        number = 1
        while not self._ended.wait(TICK_S):
            keys = random.choices(range(self._sessions), k=ROWS)
            self._put(number, [(60 + number, key) for key in keys])
            number += 1

    def _watch(self) -> None:
        while not self._ended.wait(0.05):
            told = self.query.lastProgress
            if told and told["batchId"] not in self.took_s:
                took_s = told["durationMs"].get("triggerExecution", 0) / 1000
                self.took_s[told["batchId"]] = (time.monotonic(), took_s)

    def end(self) -> None:
        self._ended.set()
        self.query.stop()


def phase(name: str, fed: Fed, jvm: psutil.Process, length_s: float, read: Any = None) -> None:
    began_s, cpu_s, readings = time.monotonic(), sum(jvm.cpu_times()[:2]), []
    while time.monotonic() - began_s < length_s:
        asked_s = time.monotonic()
        if read is not None:
            read(-1)
            readings.append(time.monotonic() - asked_s)
        time.sleep(PAUSE_S)
    used = (sum(jvm.cpu_times()[:2]) - cpu_s) / (time.monotonic() - began_s)
    took = sorted(took_s for at_s, took_s in fed.took_s.values() if at_s > began_s)
    median_s, p90_s = statistics.median(took), took[int(len(took) * 0.9)]
    told = f"  reading: median {statistics.median(readings):.2f} s, " if readings else "  "
    told += f"most {max(readings):.2f} s of {len(readings)};" if readings else "no reading;"
    print(
        f"{name:14}{told} batch: median {median_s:.2f} s, p90 {p90_s:.2f} s, most {took[-1]:.2f} s;"
        f" {used:.2f} cores; {jvm.memory_info().rss >> 20} MB",
        flush=True,
    )


def measure(sessions: int) -> None:
    print(f"{sessions:,} open sessions, load of the machine {os.getloadavg()[0]:.1f}", flush=True)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        spark = session("readings", master="local[2]", scratch=folder / "scratch")
        fed = Fed(spark, folder, sessions)
        try:
            gateway: Any = spark.sparkContext._gateway
            jvm = psutil.Process(gateway.proc.pid)
            while len(fed.took_s) < 15:
                time.sleep(0.1)
            plan: Any = SimpleNamespace(frame=SimpleNamespace(sparkSession=spark))
            read = reader(plan, fed.running, folder / "reading")
            phase("the first", fed, jvm, 1.0, read)
            phase("undisturbed", fed, jvm, 15.0)
            phase("every 2 s", fed, jvm, 20.0, read)
            phase("undisturbed", fed, jvm, 15.0)
        finally:
            fed.end()
            spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description="What a reading of the oldest session costs.")
    parser.add_argument("--sessions", type=int, nargs="+", default=[10_000, 100_000])
    for sessions in parser.parse_args().sessions:
        measure(sessions)


if __name__ == "__main__":
    main()
