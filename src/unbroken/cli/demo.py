"""`unbroken demo`: an example query on made-up data whose answer is known."""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from rich.table import Table

from unbroken.cli import arguments, demo_partition
from unbroken.cli.load import load
from unbroken.cli.made import Made
from unbroken.cli.meter import Meter
from unbroken.cli.view import View
from unbroken.client.cluster import Cluster
from unbroken.client.progress import Progress, Status
from unbroken.client.replay import Pace, Replay
from unbroken.demo import queries
from unbroken.demo.check_intrusion import Intrusion
from unbroken.demo.check_wordcount import WordCount
from unbroken.epochs import GAP, Epoch
from unbroken.errors import UnbrokenError, Unreachable
from unbroken.local import LocalCluster

RETRY_S = 0.2
WARM_EPOCHS = 10
SEED = 7
#: The example with a world of its own.
PARTITION = "partition"


class Check(Protocol):
    """An example: its data, and whether the answer is right."""

    source: str
    result: str
    pace: Pace

    def tables(self) -> Iterator[pa.Table]:
        """The rows, about a table per second."""

    def take(self, epoch: Epoch, at_s: float) -> None:
        """An epoch of results came `at_s` seconds after the first row was sent."""

    def verdict(self) -> dict[str, Any]:
        """right: whether it is the known answer; words: a sentence; rows: a table."""


EXAMPLES: dict[str, Callable[[int, int], Check]] = {"intrusion": Intrusion, "wordcount": WordCount}


def register(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = arguments.add_command(
        commands, "demo", run, "run an example on made-up data, and check its answer",
        "  unbroken demo\n"
        "  unbroken demo wordcount --nodes 2 --seconds 20\n"
        "  unbroken demo partition\n\n"
        "Half-way a node is killed (kill -9): the results go on, and a spare takes its place.\n"
        "partition: a cable is pulled and put back; the results go on, and are corrected.\n"
        "The exit code is 1 if the answer is not the known one.",
    )  # fmt: skip
    parser.add_argument("example", nargs="?", choices=(*EXAMPLES, PARTITION), default="intrusion",
                        help="which one (default: %(default)s)")  # fmt: skip
    parser.add_argument("--seconds", type=arguments.positive, default=60, metavar="N",
                        help="how long rows are sent (default: %(default)s)")  # fmt: skip
    parser.add_argument("--nodes", type=arguments.positive, default=3, metavar="N",
                        help="how many Spark nodes (default: %(default)s)")  # fmt: skip
    parser.add_argument("--seed", type=int, metavar="N",
                        help=f"other data for another seed (default: {SEED}; partition: "
                        f"{demo_partition.SEED})")  # fmt: skip
    parser.add_argument("--port", type=int, default=0, metavar="P",
                        help="port to listen at (default: any)")  # fmt: skip
    parser.add_argument(
        "--no-kill", action="store_true", help="harm nothing: let all nodes live, leave the cable"
    )
    arguments.add_json(parser, "a JSON line per second, then the verdict as the last line")


def run(given: argparse.Namespace) -> int:
    """Runs the example and compares its answer with the known one."""
    if given.example == PARTITION:
        return demo_partition.run(given)
    path = Path(queries.__file__).with_name(f"{given.example}.py")
    query = load(path)
    seed = SEED if given.seed is None else given.seed
    check = EXAMPLES[given.example](seed, given.seconds)
    made_of = Path(f"made up, seed {seed}")
    trace = Made(query.sources[check.source], made_of, tables=check.tables)
    meter = Meter(query.name, {check.source: trace})
    with tempfile.TemporaryDirectory(prefix="unbroken-demo-") as folder:
        # A temporary folder of our own, so that it goes also if the cluster cannot start.
        cluster = LocalCluster(query, given.nodes, folder=folder, port=given.port, manual=True)
        view = View(cluster.status, meter, json_lines=given.json)
        with contextlib.closing(cluster), view:
            view.say(f"{given.example} on {given.nodes} Spark nodes; the query: {path}")
            for warning in cluster.warnings:
                view.say(f"warning: {warning}")
            cluster.start()
            kill_at_s = None if given.no_kill or given.nodes < 2 else given.seconds / 2
            results = _feed(cluster, trace, check, view, kill_at_s)
    verdict = {**check.verdict(), **results.silence(), "lost": results.lost}
    if given.json:
        print(json.dumps({"state": "verdict", **verdict}), flush=True)
    view.console.print(_table(verdict["rows"]))
    view.say(verdict["words"])
    if verdict["lost"]:
        view.say(f"epochs of {check.result} that are lost: {verdict['lost']}")
    if verdict["killed"]:
        view.say(
            f"{verdict['killed']} was killed: the longest silence after it was "
            f"{verdict['silence_s']:.1f} s, before it {verdict['silence_before_s']:.1f} s"
        )
    return 0 if verdict["right"] else 1


def _feed(
    cluster: LocalCluster, trace: Made, check: Check, view: View, kill_at_s: float | None
) -> _Results:
    results = _Results(cluster, check)
    results.start()

    def look() -> Status:
        cluster.raise_start_error()
        results.check_error()
        return cluster.status()

    progress = Progress(look)
    # Spark's first batches take seconds: empty epochs go ahead of the rows until all are warm.
    producer = cluster.producer(check.source)
    for _ in range(WARM_EPOCHS):
        producer.close_epoch()
    progress.wait(lambda status: _lowest(status) >= WARM_EPOCHS - 1)
    view.state = "running"
    results.began_s = time.monotonic()
    if kill_at_s is not None:
        killer = threading.Timer(kill_at_s, _kill, (cluster, results, view))
        killer.daemon = True
        killer.start()
    Replay(cluster, [trace], check.pace, progress, base=WARM_EPOCHS).run()
    view.state = "finishing"
    last = cluster.finish()
    progress.wait(lambda status: results.next >= last)
    view.state = "done"
    return results


def _lowest(status: Status) -> int:
    """The newest epoch that all copies of all fragments have done."""
    told = [f["epoch"] for n in status["nodes"].values() for f in n["fragments"].values()]
    return min(told, default=-1)


def _kill(cluster: LocalCluster, results: _Results, view: View) -> None:
    """Ends a node without a word, in the middle of its work."""
    results.killed, results.killed_s = "node-1", time.monotonic()
    cluster.kill("node-1")
    view.say("kill -9 node-1")


class _Results(threading.Thread):
    """Follows the results and hands them to the check."""

    def __init__(self, cluster: Cluster, check: Check) -> None:
        super().__init__(name="results", daemon=True)
        self._cluster, self._check = cluster, check
        self._error: UnbrokenError | None = None
        self.began_s = time.monotonic()
        self.next = 0
        self.lost = 0
        self.killed, self.killed_s = "", float("inf")
        self._came_s: list[float] = []

    def run(self) -> None:
        """Follows; again from where it was if the keeper was away."""
        while self._error is None:
            try:
                result, start = self._check.result, self.next
                for epoch in self._cluster.follow(result, start, tentative=False):
                    self._came_s.append(time.monotonic())
                    self._check.take(epoch, self._came_s[-1] - self.began_s)
                    self.lost += epoch.kind == GAP
                    self.next = epoch.number + 1
            except Unreachable:
                time.sleep(RETRY_S)
            except UnbrokenError as error:
                self._error = error

    def silence(self) -> dict[str, Any]:
        """The longest time without an epoch while rows were sent, before and after the kill."""
        came_s = [at for at in self._came_s if at >= self.began_s]
        silences = [(at, at - before) for before, at in pairwise(came_s)]
        after = [gap for at, gap in silences if at >= self.killed_s]
        before = [gap for at, gap in silences if at < self.killed_s]
        return {
            "killed": self.killed,
            "silence_s": round(max(after, default=0.0), 3),
            "silence_before_s": round(max(before, default=0.0), 3),
        }

    def check_error(self) -> None:
        """Raises what ended the thread."""
        if self._error is not None:
            raise self._error


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in rows[0] if rows else ():
        table.add_column(column.replace("_", " "))
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    return table
