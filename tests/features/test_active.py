"""Active replicas on real Spark: nodes and the control plane are killed and frozen, and the answer
is the one of an undisturbed run, row by row."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import active_query
import pyarrow as pa
import pytest
from active_query import make

import unbroken as ub

WAIT_S = 150.0


def rows(epoch: int) -> pa.Table:
    return pa.table(
        {
            "k": [(epoch * 7 + i * i) % 40 for i in range(60)],
            "v": [((epoch + 1) * (i + 1) % 97) / 7 for i in range(60)],
        }
    )


def until(condition: Callable[[], object], what: str) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.05)


class Driven:
    """A cluster that is fed epoch by epoch, and what came out of it."""

    def __init__(self, cluster: ub.LocalCluster) -> None:
        self.cluster = cluster
        self._producer = cluster.producer("numbers")
        self._epochs: Iterator[ub.Epoch] = cluster.follow("large")
        self.got: list[ub.Epoch] = []
        self._sent = 0

    def feed(self, count: int) -> None:
        for _ in range(count):
            self._producer.send(rows(self._sent))
            self._producer.close_epoch()
            self._sent += 1

    def take_all(self) -> None:
        while len(self.got) < self._sent:
            self.got.append(next(self._epochs))

    def step(self, count: int) -> None:
        self.feed(count)
        self.take_all()

    def survives(self) -> dict[str, int | None]:
        told = self.cluster.status()
        return {name: fragment["survives"] for name, fragment in told["fragments"].items()}

    def wait_whole(self) -> None:
        until(lambda: self.survives() == {"sums": 1, "large": 1}, "repaired by itself")


def join(cluster: ub.LocalCluster, folder: Path) -> subprocess.Popen[bytes]:
    """Adds a node as a user would, from another process."""
    command = [str(Path(sys.executable).parent / "unbroken"), "node", active_query.__file__]
    command += ["--join", cluster.address, "--name", "late", "--dir", str(folder / "late")]
    return subprocess.Popen(command)


@pytest.mark.timeout(600)
def test_killed_and_frozen_nodes_change_nothing_and_are_replaced(tmp_path: Path):
    """Goal: with two active replicas on three nodes any node may be killed or frozen, again and
    again as soon as `survives` is back at 1, and the control plane too: no epoch is lost, repeated
    or changed.

    Method: feed epochs; kill -9 one node and go on at once; when the system has repaired itself on
    the others, freeze one that was repaired onto, let a new node join, kill control meanwhile, and
    wake the frozen one up.  Compare with `ub.run` on one node without a policy.
    """
    with ub.LocalCluster(make(ub.Active(replicas=2)), nodes=3) as cluster:
        driven = Driven(cluster)
        driven.step(4)
        driven.wait_whole()

        # A node is killed: consumers have the other copy, and the spare gets one.
        cluster.kill("node-1")
        driven.step(4)
        driven.wait_whole()
        driven.step(2)

        # A node that was repaired onto freezes; its place is taken by one that joins from outside.
        # Control is killed in the middle of it: data flows on, and it finds its records again.
        joining = join(cluster, tmp_path)
        cluster.pause("node-3")
        driven.step(4)
        cluster.kill("control")
        until(lambda: set(driven.survives().values()) == {None}, "nobody guesses what survives")
        driven.step(2)
        cluster.restart("control", wait=False)
        driven.wait_whole()
        assert cluster.status()["nodes"]["late"]["fragments"], "the late node has got work"

        # It wakes up replaced: its word is refused, and it becomes a spare.
        cluster.resume("node-3")
        until(
            lambda: not cluster.status()["nodes"]["node-3"]["fragments"], "node-3 becomes a spare"
        )
        driven.step(3)
        got = driven.got
        joining.send_signal(signal.SIGINT)
        assert joining.wait(60) == 130

    expected = ub.run(make(), {"numbers": [rows(n) for n in range(len(got))]})["large"]
    assert [e.number for e in got] == list(range(len(got)))
    assert [e.digest for e in got] == [e.digest for e in expected]
    assert [e.table.to_pylist() for e in got] == [e.table.to_pylist() for e in expected]
    assert sum(e.rows for e in expected) > 100, "there is something to compare"
