"""What an epoch costs: Unbroken, plain Structured Streaming and our tuned session, side by side.

    .venv/bin/python bench/overhead.py [--quick] [--workloads keyed,windowed,stateless]

All contenders run at once and take turns, so that a noisy machine is noisy to all of them.
Latency is from the moment the rows are sealed (a file appears, an epoch is closed) until a client
holds the result as an Arrow table.  CPU is that of the contender's whole process tree.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from workloads import DDL, WORKLOADS, rows

import unbroken as ub
from unbroken.measure.costs import cpu_s

HERE = Path(__file__).parent
EPOCH_S_MAX = 120.0


class Alone:
    """A Spark query in a process of its own."""

    def __init__(self, name: str, workload: str, partitions: int) -> None:
        self.name = name
        self._folder = Path(tempfile.mkdtemp(prefix=f"bench-{name}-"))
        (self._folder / "input").mkdir()
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "spark_alone.py"), name, workload,
             "--folder", str(self._folder), "--partitions", str(partitions)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self._lines: queue.Queue[list[str]] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        assert self._lines.get(timeout=EPOCH_S_MAX)[0] == "ready"

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.split())

    def prepare(self, number: int, table: pa.Table) -> Path:
        path = self._folder / f"{number}.hidden"
        if self.name == "plain":
            pq.write_table(table, path)
        else:
            with pa.ipc.new_stream(path, table.schema) as writer:
                writer.write_table(table)
        return path

    def epoch(self, number: int, prepared: Path) -> tuple[float, int]:
        ending = "parquet" if self.name == "plain" else "arrow"
        began = time.monotonic()
        os.rename(prepared, self._folder / "input" / f"{number}.{ending}")
        word, batch, at, count = self._lines.get(timeout=EPOCH_S_MAX)
        assert (word, int(batch)) == ("done", number)
        return float(at) - began, int(count)

    def cpu_s(self) -> float:
        return cpu_s([self._process.pid])

    def close(self) -> None:
        for process in psutil.Process(self._process.pid).children(recursive=True):
            process.kill()
        self._process.kill()
        self._process.wait()


class Unbroken:
    """A cluster of one node, a producer and a follower."""

    def __init__(self, name: str, workload: str, partitions: int, state: str) -> None:
        self.name = name
        given = WORKLOADS[workload]
        query = ub.Query("bench", epoch="manual")
        source = query.source("input", DDL, event_time="ts")
        fragment = query.fragment(source, output_mode=given.mode, state=state)
        query.sink(fragment(given.transform, name="output"))
        settings = {"spark.sql.shuffle.partitions": str(partitions)}
        self._cluster = ub.LocalCluster(query, settings=settings)
        self._cluster.start()
        self._producer = self._cluster.producer("input")
        self._epochs = self._cluster.follow("output")

    def prepare(self, number: int, table: pa.Table) -> None:
        self._producer.send(table)

    def epoch(self, number: int, prepared: None) -> tuple[float, int]:
        began = time.monotonic()
        self._producer.close_epoch()
        epoch = next(self._epochs)
        took = time.monotonic() - began
        assert epoch.number == number
        return took, epoch.rows

    def cpu_s(self) -> float:
        # The client's own share is part of the price: send, follow, and what they cost here.
        own = time.process_time()
        return own + cpu_s(map(self._cluster.pid, ("keeper", "node-1")))

    def close(self) -> None:
        self._cluster.close()


def measure(workload: str, size: int, *, warm: int, rounds: int, per_round: int) -> dict[str, Any]:
    """Runs all contenders in turns; per contender the latencies and the CPU per epoch."""
    partitions = 2
    contenders: list[Any] = []
    try:
        contenders = [
            Alone("plain", workload, partitions),
            Alone("tuned", workload, partitions),
            Unbroken("unbroken", workload, partitions, "rocksdb"),
        ]
        if workload != "stateless":
            contenders.append(Unbroken("in memory", workload, partitions, "memory"))
        found: dict[str, Any] = {c.name: {"latency_ms": [], "cpu_ms": []} for c in contenders}
        counts: dict[int, int] = {}
        for turn in range(rounds + 1):
            n0 = 0 if turn == 0 else warm + (turn - 1) * per_round
            numbers = range(n0, n0 + (warm if turn == 0 else per_round))
            for contender in contenders:
                prepared = {}
                cpu_s = 0.0
                for number in numbers:
                    table = rows(number, size)
                    prepared[number] = contender.prepare(number, table)
                    before_s = contender.cpu_s()
                    took_s, count = contender.epoch(number, prepared[number])
                    cpu_s += contender.cpu_s() - before_s
                    assert counts.setdefault(number, count) == count, "contenders disagree"
                    if turn:
                        found[contender.name]["latency_ms"].append(took_s * 1000)
                if turn:
                    found[contender.name]["cpu_ms"].append(cpu_s * 1000 / per_round)
            print(f"  {workload}, {size:,} rows: turn {turn} of {rounds}", file=sys.stderr)
        return found
    finally:
        for contender in contenders:
            contender.close()


def summary(values: list[float]) -> dict[str, float]:
    low, _, high = statistics.quantiles(values, n=4)
    return {"median": statistics.median(values), "low": low, "high": high}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few epochs: a smoke test")
    parser.add_argument("--workloads", default="stateless,keyed,windowed")
    parser.add_argument("--sizes", default="2500,100000")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    given = parser.parse_args()
    table = []
    for workload in given.workloads.split(","):
        for size in map(int, given.sizes.split(",")):
            large = size > 10_000
            found = measure(
                workload, size, warm=8 if given.quick else 30 if large else 100,
                rounds=3 if given.quick else 5, per_round=4 if given.quick or large else 12,
            )  # fmt: skip
            for name, measured in found.items():
                row = {"workload": workload, "rows": size, "contender": name}
                for metric, values in measured.items():
                    row[metric] = summary(values)
                row["rows_per_s"] = size / row["latency_ms"]["median"] * 1000
                table.append(row)
            show(table[-len(found) :])
    given.results.mkdir(exist_ok=True)
    (given.results / "overhead.json").write_text(json.dumps(table, indent=1))
    draw(table, given.results / "overhead.png")


def show(table: list[dict[str, Any]]) -> None:
    by_name = {row["contender"]: row for row in table}
    first = table[0]
    print(f"\n{first['workload']}, {first['rows']:,} rows per epoch")
    print(f"{'':10} {'latency ms (quartiles)':>28} {'CPU ms':>8} {'rows/s':>10}")
    for row in table:
        latency = row["latency_ms"]
        spread = f"{latency['median']:.0f} ({latency['low']:.0f}–{latency['high']:.0f})"
        print(f"{row['contender']:10} {spread:>28} {row['cpu_ms']['median']:8.0f} "
              f"{row['rows_per_s']:10,.0f}")  # fmt: skip
    for name in ("unbroken", "in memory"):
        for other in ("plain", "tuned"):
            if name in by_name:
                latency, cpu = (
                    by_name[name][metric]["median"] / by_name[other][metric]["median"]
                    for metric in ("latency_ms", "cpu_ms")
                )
                print(f"{name} / {other}: latency {latency:.2f}, CPU {cpu:.2f}, "
                      f"rows per second {1 / latency:.2f}", flush=True)  # fmt: skip


def draw(table: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    groups = list(dict.fromkeys((row["workload"], row["rows"]) for row in table))
    names = list(dict.fromkeys(row["contender"] for row in table))
    figure, axes = plt.subplots(1, 2, figsize=(11, 4))
    for axis, metric, title in zip(
        axes, ("latency_ms", "cpu_ms"), ("latency per epoch, ms", "CPU per epoch, ms"), strict=True
    ):
        for i, name in enumerate(names):
            own = [row for row in table if row["contender"] == name]
            chosen = [row[metric] for row in own]
            medians = [m["median"] for m in chosen]
            spread = [
                [m["median"] - m["low"] for m in chosen],
                [m["high"] - m["median"] for m in chosen],
            ]
            # Not everybody runs everything.
            places = [groups.index((r["workload"], r["rows"])) + (i - 1.5) * 0.21 for r in own]
            axis.bar(places, medians, 0.2, yerr=spread, label=name)
        axis.set_xticks(range(len(groups)), [f"{w}\n{r:,}" for w, r in groups], fontsize=8)
        axis.set_title(title)
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    print(f"figure: {path}")


if __name__ == "__main__":
    main()
