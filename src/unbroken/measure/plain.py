"""Plain Structured Streaming as a contender: Spark's defaults, and a supervisor.

    ticks ─▶ input/*.parquet ─▶ Spark, one process ─▶ output/BATCH-PROCESS.arrow ─▶ client
                                  └─ started again at once when it is gone

* A file appears once per epoch of ours, so that both have the same batches to do.
* A batch that Spark runs again after a restart comes out a second time: its rows are repeated.
* The client is told of a batch when its file has its name, and looks every hundredth of a second.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unbroken.measure import costs
from unbroken.measure.compare import Difference
from unbroken.measure.contender import Kill, until
from unbroken.measure.watch import Watch
from unbroken.measure.workload import DDL, EPOCH_S, TICK_S, Counts, counted
from unbroken.node.process import Tree, leave_with_parent

POLL_S = 0.01
TICKS_PER_FILE = round(EPOCH_S / TICK_S)
#: No result for so long after the last row: none will come.
SILENT_S_MAX = 60.0


class Plain:
    """The counts of `workload`, computed by Spark alone."""

    def __init__(self, workload: Counts) -> None:
        self.watch = Watch()
        self.folder = Path(tempfile.mkdtemp(prefix="unbroken-plain-"))
        (self.folder / "input").mkdir()
        (self.folder / "output").mkdir()
        self._sent = np.zeros(workload.keys, dtype=np.int64)
        self._counts = np.zeros(workload.keys, dtype=np.int64)
        self._waiting: list[pa.Table] = []
        self._files = 0
        self._batches: set[int] = set()
        self._repeated = 0
        self._kill: Kill | None = None
        self._tree: Tree | None = None
        self._lock = threading.Lock()
        self._closed = False

    @property
    def watches(self) -> Sequence[Watch]:
        """The one result."""
        return [self.watch]

    def start(self) -> None:
        """Starts Spark, its supervisor and its client."""
        self._spawn()
        threading.Thread(target=self._supervise, daemon=True, name="supervise").start()
        threading.Thread(target=self._collect, daemon=True, name="collect").start()
        until((self.folder / "ready").exists, "plain Spark to start", check=self.check)

    def _spawn(self) -> None:
        with self._lock:
            if not self._closed:
                log = self.folder / "plain.log"
                self._tree = Tree("unbroken.measure.plain", ["--folder", str(self.folder)], log)

    def _supervise(self) -> None:
        while not self._closed:
            if self._tree is not None and not self._tree.alive:
                if self._kill is not None:
                    self._kill.noticed_s = time.time()
                self._spawn()
            time.sleep(POLL_S)

    def _collect(self) -> None:
        while not self._closed:
            for path in sorted((self.folder / "output").glob("*.arrow")):
                table = pa.ipc.open_stream(path.read_bytes()).read_all()
                self._take(int(path.name.split("-")[0]), table)
                path.unlink()
            time.sleep(POLL_S)

    def _take(self, batch: int, table: pa.Table) -> None:
        at_s = time.time()
        if batch in self._batches:
            self._repeated += table.num_rows
        self._batches.add(batch)
        if table.num_rows:
            self._counts[table["k"].to_numpy()] = table["n"].to_numpy()
            due_us = table["due"].cast(pa.int64()).to_numpy()
            self.watch.take(at_s, float(max(due_us)) / 1e6)

    def send(self, tick: int, due_s: float, tables: Mapping[str, pa.Table]) -> None:
        """The rows wait for the next file."""
        self._waiting.append(tables["input"])
        if len(self._waiting) == TICKS_PER_FILE:
            self._write()

    def _write(self) -> None:
        if not self._waiting:
            return
        table = pa.concat_tables(self._waiting)
        self._waiting = []
        hidden = self.folder / "hidden"
        pq.write_table(table, hidden)
        os.rename(hidden, self.folder / "input" / f"{self._files:08}.parquet")
        self._files += 1
        np.add.at(self._sent, table["k"].to_numpy(), 1)

    def kill(self) -> Kill:
        """The one process, with its JVM."""
        assert self._tree is not None
        tree = self._tree
        self._kill = made = Kill("plain", time.time())
        os.kill(tree.pid, signal.SIGKILL)
        tree.kill()
        return made

    def whole(self) -> bool:
        """Whether results come again."""
        return self._kill is None or self.watch.came[-1][0] > self._kill.at_s + EPOCH_S

    def mend(self) -> None:
        """The supervisor has done it."""

    def check(self) -> None:
        """Whatever ends it, it is started again."""

    def cpu_s(self) -> float:
        """Of the one process tree."""
        return costs.cpu_s([] if self._tree is None else [self._tree.pid])

    def sent_bytes(self) -> int | None:
        """Nobody counts."""
        return None

    def kept_bytes(self) -> int:
        """Its checkpoint; its input is kept for ever, which is no choice of the method."""
        return costs.kept_bytes(self.folder / "checkpoint")

    def finish(self) -> Difference:
        """What was counted in the end against what was sent, key by key."""
        self._write()
        ended_s = time.time()
        until(
            lambda: (self._counts == self._sent).all()
            or time.time() - max(ended_s, self.watch.came[-1][0]) > SILENT_S_MAX,
            "the last rows", check=self.check,
        )  # fmt: skip
        return verdict(self._sent, self._counts, self._repeated)

    def close(self) -> None:
        """Ends the process; may be said twice."""
        with self._lock:
            self._closed = True
        if self._tree is not None:
            self._tree.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def verdict(sent: Any, counts: Any, repeated: int) -> Difference:
    """Rows that no key's count has, that some count has twice, and that came out again.

    >>> verdict(np.array([3, 5, 1]), np.array([3, 4, 3]), repeated=7)
    Difference(lost=1, repeated=7, wrong=2)
    """
    difference = counts - sent
    return Difference(
        lost=int(-difference[difference < 0].sum()), repeated=repeated,
        wrong=int(difference[difference > 0].sum()),
    )  # fmt: skip


def main() -> None:
    """The process of the query: writes the rows of each batch into a file."""
    parser = argparse.ArgumentParser(description="A plain Structured Streaming query.")
    parser.add_argument("--folder", type=Path, required=True)
    folder: Path = parser.parse_args().folder
    leave_with_parent()
    # Here and not above: the contender's side has no need for Spark.
    from unbroken.engine.plain import run_plain

    def take(table: pa.Table, batch: int) -> None:
        hidden = folder / f"hidden-{os.getpid()}"
        with pa.ipc.new_stream(hidden, table.schema) as writer:
            writer.write_table(table)
        os.rename(hidden, folder / "output" / f"{batch:08}-{os.getpid()}.arrow")

    run_plain(folder, DDL, counted, take, ready=(folder / "ready").touch)


if __name__ == "__main__":
    main()
