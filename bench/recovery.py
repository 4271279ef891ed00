"""What a killed node costs: active replicas and a restarted plain query, side by side in one run.

    .venv/bin/python bench/recovery.py [--kills 10] [--rate 5000] [--quick]

Rows are offered open-loop: each carries the time at which it was due, whether or not anybody keeps
up.  The process that holds the state is ended with kill -9 (or frozen with SIGSTOP) at a random
phase, again and again.  The *output gap* of a kill is the longest silence after it, less the usual
time between two outputs; *latency* is from due to in the client's hands.  In the end every key's
count must be the number of rows that were sent.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import queue
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from overhead import tree_cpu_s
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import unbroken as ub

HERE = Path(__file__).parent
DDL = "due TIMESTAMP, k INT"
KEYS = 100_000
TICK_S = 0.5
WAIT_S = 240.0


def counted(rows: DataFrame) -> DataFrame:
    """The workload: unbounded counts, and when the newest row of each key was due."""
    return rows.groupBy("k").agg(F.count("*").alias("n"), F.max("due").alias("due"))


def due_rows(tick: int, count: int, due_s: float) -> pa.Table:
    keys = np.random.default_rng(tick).integers(0, KEYS, count, dtype=np.int32)
    due = np.full(count, int(due_s * 1e6))
    return pa.table({"due": pa.array(due, pa.timestamp("us", tz="UTC")), "k": keys})


class Watch:
    """When results came, how late they were, and the latest count of every key."""

    def __init__(self) -> None:
        self.came: list[tuple[float, float]] = []
        self.counts = np.zeros(KEYS, dtype=np.int64)

    def take(self, table: pa.Table) -> None:
        now_s = time.time()
        if table.num_rows:
            newest_s = max(table["due"].cast(pa.int64()).to_numpy()) / 1e6
            self.came.append((now_s, now_s - newest_s))
            self.counts[table["k"].to_numpy()] = table["n"].to_numpy()

    def after(self, kill_s: float, until_s: float) -> dict[str, float]:
        """What one kill did: gap, peak latency, and when latency was as before again."""
        usual = [b - a for (a, _), (b, _) in pairwise(self.came) if b < kill_s][-40:]
        before = statistics.median([late for at, late in self.came if at < kill_s][-40:])
        spans = [(b, b - a) for (a, _), (b, _) in pairwise(self.came) if kill_s < b < until_s]
        late = [(at, late) for at, late in self.came if kill_s < at < until_s]
        slow = [at for at, latency in late if latency > 1.1 * before + 0.05]
        return {
            "gap_s": max(0.0, max(span for _, span in spans) - statistics.median(usual)),
            "peak_latency_s": float(max(latency for _, latency in late)),
            "back_s": (max(slow) - kill_s) if slow else 0.0,
        }


class Active:
    """Two active replicas on three nodes; a node that was killed comes back as a spare."""

    name = "active"

    def __init__(self, watch: Watch) -> None:
        query = ub.Query("recovery", epoch=f"{int(TICK_S * 1000)}ms")
        source = query.source("input", DDL, future_s_max=1e9)
        policy = ub.Active(replicas=2)
        made = query.fragment(source, output_mode="update", policy=policy)(counted, name="output")
        query.sink(made)
        self._cluster = ub.LocalCluster(query, nodes=3)
        self._cluster.start()
        self._producer = self._cluster.producer("input")
        self._frozen: str | None = None
        self._down: str | None = None
        epochs = self._cluster.follow("output")

        def follow() -> None:
            # Until the cluster is gone.
            with contextlib.suppress(ub.errors.Unreachable):
                for number, epoch in enumerate(epochs):
                    assert epoch.number == number, "in order, none skipped"
                    watch.take(epoch.table)

        threading.Thread(target=follow, daemon=True).start()

    def send(self, tick: int, table: pa.Table) -> None:
        self._producer.send(table)

    def _holder(self) -> str:
        nodes: list[str] = self._cluster.status()["fragments"]["output"]["nodes"]
        return random.choice(nodes)

    def kill(self) -> None:
        self._down = self._holder()
        self._cluster.kill(self._down)

    def freeze(self) -> None:
        self._frozen = self._holder()
        self._cluster.pause(self._frozen)

    def mend(self) -> None:
        """Waits until it survives a failure again; then what was lost comes back as a spare."""
        until(lambda: self._cluster.status()["fragments"]["output"]["survives"] == 1)
        if self._frozen:
            self._cluster.resume(self._frozen)
            self._frozen = None
        if self._down:
            self._cluster.restart(self._down)
            self._down = None

    def pids(self) -> list[int]:
        return [self._cluster.pid(n) for n in ("keeper", "control", "node-1", "node-2", "node-3")]

    def close(self) -> None:
        self._cluster.close()


class Plain:
    """Structured Streaming with its defaults, and a supervisor that starts it again at once."""

    name = "plain"

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._folder = Path(tempfile.mkdtemp(prefix="bench-plain-"))
        (self._folder / "input").mkdir()
        self._lines: queue.Queue[str] = queue.Queue()
        self._closed = False
        self._process = self._spawn()
        threading.Thread(target=self._supervise, daemon=True).start()
        until(lambda: not self._lines.empty())

    def _spawn(self) -> subprocess.Popen[str]:
        command = [sys.executable, __file__, "--plain-query", str(self._folder)]
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True,
        )  # fmt: skip

    def _supervise(self) -> None:
        while not self._closed:
            assert self._process.stdout is not None
            for line in self._process.stdout:
                self._lines.put(line)
                if line.startswith("rows"):
                    path = line.split()[1]
                    self._watch.take(pa.ipc.open_stream(Path(path).read_bytes()).read_all())
            self._process.wait()
            if not self._closed:
                self._process = self._spawn()

    def send(self, tick: int, table: pa.Table) -> None:
        hidden = self._folder / f"{tick}.hidden"
        pq.write_table(table, hidden)
        os.rename(hidden, self._folder / "input" / f"{tick:08}.parquet")

    def kill(self) -> None:
        root = psutil.Process(self._process.pid)
        for process in [*root.children(recursive=True), root]:
            process.kill()

    def mend(self) -> None:
        seen = len(self._watch.came)
        until(lambda: len(self._watch.came) > seen + 3)

    def pids(self) -> list[int]:
        return [self._process.pid]

    def close(self) -> None:
        self._closed = True
        self.kill()


def plain_query(folder: Path) -> None:
    """The plain contender's process: prints where each batch's rows are."""
    from spark_alone import session_of_plain

    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    spark = session_of_plain(2)
    numbers = itertools.count()
    rows = spark.readStream.schema(DDL).parquet(str(folder / "input"))

    def take(frame: DataFrame, batch: int) -> None:
        table = frame.toArrow()
        path = folder / f"out-{os.getpid()}-{next(numbers)}.arrow"
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table)
        print("rows", path, file=out)

    query = (
        counted(rows)
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(take)
        .start()
    )
    print("ready", file=out)
    sys.stdin.read()
    query.stop()


def until(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, "waited too long"
        time.sleep(0.05)


def cpu_s(pids: list[int]) -> float:
    return sum(tree_cpu_s(pid) for pid in pids)


def measure(make: Any, faults: list[str], rate: int, settle_s: float) -> dict[str, Any]:
    """Runs one contender through all faults."""
    watch = Watch()
    contender = make(watch)
    stop = threading.Event()
    sent = np.zeros(KEYS, dtype=np.int64)
    count = int(rate * TICK_S)

    def offer() -> None:
        began_s = time.time()
        for tick in itertools.count():
            due_s = began_s + tick * TICK_S
            if stop.wait(max(0.0, due_s - time.time())):
                return
            table = due_rows(tick, count, due_s)
            contender.send(tick, table)
            np.add.at(sent, table["k"].to_numpy(), 1)

    sender = threading.Thread(target=offer, daemon=True)
    try:
        sender.start()
        until(lambda: len(watch.came) > 40)
        cpu_before_s, at_s = cpu_s(contender.pids()), time.monotonic()
        stop.wait(settle_s)
        cpu_per_s = (cpu_s(contender.pids()) - cpu_before_s) / (time.monotonic() - at_s)
        effects = []
        for fault in faults:
            stop.wait(random.uniform(1.0, 1.0 + 2 * TICK_S))
            fault_s = time.time()
            getattr(contender, fault)()
            contender.mend()
            until(lambda: watch.came[-1][1] < 3.0)
            stop.wait(3.0)
            effects.append({"fault": fault, **watch.after(fault_s, time.time())})
            print(f"  {contender.name} {effects[-1]}", file=sys.stderr, flush=True)
        stop.set()
        sender.join()
        until(lambda: watch.counts.sum() >= sent.sum())
        difference = watch.counts - sent
        return {
            "contender": contender.name, "effects": effects, "cpu_per_s": cpu_per_s,
            "rows": int(sent.sum()), "lost": int(-difference[difference < 0].sum()),
            "repeated": int(difference[difference > 0].sum()),
        }  # fmt: skip
    finally:
        stop.set()
        contender.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--freezes", type=int, default=5)
    parser.add_argument("--rate", type=int, default=5000, help="rows per second")
    parser.add_argument("--quick", action="store_true", help="2 kills, 1 freeze")
    parser.add_argument("--contenders", default="active,plain")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--plain-query", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.plain_query:
        plain_query(given.plain_query)
        return
    kills, freezes = (2, 1) if given.quick else (given.kills, given.freezes)
    settle_s = 10.0 if given.quick else 30.0
    runs = {
        "active": (Active, ["kill"] * kills + ["freeze"] * freezes),
        "plain": (Plain, ["kill"] * min(kills, 5)),
    }
    found = [measure(*runs[name], given.rate, settle_s) for name in given.contenders.split(",")]
    given.results.mkdir(exist_ok=True)
    (given.results / "recovery.json").write_text(json.dumps(found, indent=1))
    show(found)


def show(found: list[dict[str, Any]]) -> None:
    print(f"{'':8} {'fault':7} {'n':>3} {'output gap s (min–max)':>26} {'peak latency s':>15} "
          f"{'back after s':>13}")  # fmt: skip
    gaps: dict[str, float] = {}
    for one in found:
        for fault in dict.fromkeys(e["fault"] for e in one["effects"]):
            effects = [e for e in one["effects"] if e["fault"] == fault]
            gap = [e["gap_s"] for e in effects]
            gaps[f"{one['contender']} {fault}"] = statistics.median(gap)
            spread = f"{statistics.median(gap):.2f} ({min(gap):.2f}–{max(gap):.2f})"
            peak = statistics.median(e["peak_latency_s"] for e in effects)
            back = statistics.median(e["back_s"] for e in effects)
            print(f"{one['contender']:8} {fault:7} {len(gap):3} {spread:>26} {peak:15.2f} "
                  f"{back:13.1f}")  # fmt: skip
        print(f"{one['contender']:8} rows {one['rows']:,}: lost {one['lost']}, repeated "
              f"{one['repeated']}; CPU {one['cpu_per_s']:.2f} s per second")  # fmt: skip
    if {"plain kill", "active kill"} <= gaps.keys():
        # A gap below a hundredth of a second cannot be told from none.
        ratio = gaps["plain kill"] / max(gaps["active kill"], 0.01)
        print(f"plain's gap after a kill / active's: {ratio:.0f}")


if __name__ == "__main__":
    main()
