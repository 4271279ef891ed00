"""All recovery methods in one query on real Spark: nodes and the control plane are killed and
frozen, and the answer is the one of an undisturbed run, row by row; what a gap loses is told."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import answers
import kinds
import pytest
import recovery_query
from waiting import until

import unbroken as ub
from unbroken.streams.flight import Peer

PRECISE = ("chained", "joined", "totals")
WHOLE = {
    "stateless": 1, "chained": 1, "joined": 1, "union_windows": 1, "totals": 1, "distinct": 0,
    "noisy": 1, "heard": 1,
}  # fmt: skip


class Driven:
    """A cluster that is fed epoch by epoch, and what came out of it."""

    def __init__(self, cluster: ub.LocalCluster) -> None:
        self.cluster = cluster
        self.fed = kinds.epochs(kinds.COUNT)
        self._producers = {name: cluster.producer(name) for name in self.fed}
        names = (*PRECISE, "distinct", "noisy", "heard")
        self.got: dict[str, list[ub.Epoch]] = {name: [] for name in names}
        self._failed: list[BaseException] = []
        self.sent = 0
        for name in names:
            threading.Thread(target=self._follow, args=(name,), daemon=True, name=name).start()

    def _follow(self, name: str) -> None:
        try:
            for epoch in self.cluster.follow(name):
                self.got[name].append(epoch)
        except Exception as error:  # Also that of a cluster that is over: nobody asks then.
            self._failed.append(error)

    def feed(self, count: int) -> None:
        for n in range(self.sent, self.sent + count):
            for name, producer in self._producers.items():
                producer.send(self.fed[name][n])
                producer.close_epoch()
        self.sent += count

    def step(self, count: int) -> None:
        self.feed(count)
        until(lambda: self._failed or not self.lacking(), self.lacking)
        assert not self._failed, self._failed

    def lacking(self) -> dict[str, str]:
        """The streams that have not come as far as what was sent."""
        return {
            name: f"{len(epochs)} of {self.sent}"
            for name, epochs in self.got.items()
            if len(epochs) < self.sent
        }

    def protection(self) -> dict[str, dict[str, Any]]:
        told: dict[str, dict[str, Any]] = self.cluster.status()["fragments"]
        return told

    def survives(self) -> dict[str, int | None]:
        return {name: fragment["survives"] for name, fragment in self.protection().items()}

    def wait_whole(self) -> None:
        until(lambda: self.survives() == WHOLE, lambda: f"not whole again: {self.survives()}")

    def node_of(self, fragment: str) -> str:
        until(lambda: self.protection()[fragment]["nodes"], f"somebody serves {fragment}")
        told = self.protection()[fragment]
        node: str = told["writer"] or told["nodes"][0]
        return node

    def kill(self, node: str) -> None:
        """Kills it -9; the one from outside too, which whoever started it starts again."""
        if node in self.cluster.nodes:
            self.cluster.kill(node)
        else:
            os.kill(self.cluster.status()["nodes"][node]["pid"], signal.SIGKILL)

    def acked(self, fragment: str) -> int:
        """What all consumers of a fragment have processed, as its replica knows."""
        told = self.cluster.status()["nodes"][self.node_of(fragment)]["fragments"][fragment]
        return min(told["output"]["consumers"].values())

    def seed(self, fragment: str, stream: str) -> int:
        """Where a successor would begin, as a source knows."""
        consumer = f"{fragment}@{self.node_of(fragment)}"
        with Peer(self.cluster.address) as peer:
            told = peer.act({"do": "seed", "stream": stream, "consumer": consumer})
        return int(told["need"] or 0)

    def log(self) -> str:
        return "".join(path.read_text() for path in sorted(self.cluster.folder.glob("*.log")))


@contextlib.contextmanager
def told_if_it_fails(cluster: ub.LocalCluster, late: Path) -> Iterator[None]:
    """What everybody says, and what every thread does, when a run does not end as it should."""
    try:
        yield
    except BaseException:
        for name in ("node-1", "node-2", "node-3", "control", "keeper"):
            with contextlib.suppress(OSError, ub.UnbrokenError):
                os.kill(cluster.pid(name), signal.SIGUSR1)
        for path in (*cluster.folder.glob("*.log"), *late.glob("*.log")):
            print(f"--- {path.name}\n{path.read_text()[-4000:]}")
        with contextlib.suppress(ub.UnbrokenError):
            print(json.dumps(cluster.status(), indent=1))
        raise


@contextlib.contextmanager
def joined(cluster: ub.LocalCluster, folder: Path) -> Iterator[None]:
    """Adds a node as a user would, from another process; it ends with Ctrl-C."""
    command = [str(Path(sys.executable).parent / "unbroken"), "node", recovery_query.__file__]
    command += ["--join", cluster.address, "--name", "late", "--dir", str(folder / "late")]
    process = subprocess.Popen(command)
    try:
        yield
    finally:
        assert process.poll() is None, "the node from outside is still there"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


def first_seen(fed: list[list[dict[str, Any]]], start: int, end: int) -> list[set[tuple[int, str]]]:
    """What `distinct` gives per epoch when it starts empty at `start`."""
    seen: set[tuple[int, str]] = set()
    given = []
    for rows in fed[start:end]:
        new = {(row["k"], row["w"]) for row in rows} - seen
        seen |= new
        given.append(new)
    return given


@pytest.mark.timeout(900)
def test_whoever_dies_is_replaced_and_the_answer_stays_the_same(
    tmp_path: Path, undisturbed: dict[str, list[answers.Answer]]
):
    """Goal: active replicas, passive standby and upstream backup recover precisely, in chains, with
    a join and two watermarks; a gap is told, with the rows that it cost; all of it as often as
    `survives` is back, with the control plane killed too (scenarios 1 to 4, 13, 15, 16).

    Method: feed epochs and go on feeding while one node after another is killed -9 or frozen: the
    one with the gap; a writer that is frozen, while a node joins from outside and control is
    killed; the one with the upstream backup.  Compare with `ub.run` on one node without policies.
    """
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(
            ub.LocalCluster(recovery_query.query, nodes=3, folder=tmp_path / "cluster")
        )
        stack.enter_context(told_if_it_fails(cluster, tmp_path / "late"))
        driven = Driven(cluster)
        driven.step(3)
        driven.wait_whole()

        # A node is killed: others take over, and everything is whole on the two that are left.
        driven.feed(1)
        driven.kill(driven.node_of("distinct"))
        driven.step(2)
        driven.wait_whole()

        # A writer freezes; a node joins from outside.  When others have taken over, control is
        # killed: data flows on without it, and it finds its records again.
        stack.enter_context(joined(cluster, tmp_path))
        frozen = driven.node_of("joined")
        cluster.pause(frozen)
        driven.step(2)
        cluster.kill("control")
        until(lambda: set(driven.survives().values()) == {None}, "nobody guesses what survives")
        driven.step(2)
        cluster.restart("control", wait=False)
        driven.wait_whole()

        # It wakes up replaced: its word is refused, and it becomes a spare, or holds for others.
        cluster.resume(frozen)
        until(
            lambda: "joined" not in cluster.status()["nodes"][frozen]["fragments"],
            "the former writer finds itself replaced",
        )
        assert driven.node_of("joined") != frozen
        driven.step(4)

        # When its consumers have acked, the windows' history no longer begins at the beginning.
        until(lambda: driven.acked("union_windows") == driven.sent - 1, "all acks are in")
        driven.step(1)
        until(lambda: driven.seed("union_windows", "left") > 0, "a seed is kept at the source")
        driven.feed(1)
        driven.kill(driven.node_of("union_windows"))
        driven.step(1)
        driven.wait_whole()
        holes = driven.protection()["distinct"]["holes"]
        log = driven.log() + (tmp_path / "late" / "late.log").read_text()

    assert driven.sent == kinds.COUNT
    for name in PRECISE:
        epochs = driven.got[name]
        assert [e.number for e in epochs] == list(range(kinds.COUNT)), name
        assert {e.kind for e in epochs} == {"stable"}
        answers.check(name, epochs, undisturbed[name])
        assert sum(e.rows for e in epochs) > 10, "there is something to compare"
    # Two runs differ, so there is nothing to compare with; but everybody has seen one version.
    assert [e.number for e in driven.got["noisy"]] == list(range(kinds.COUNT))
    for said, got in zip(driven.got["noisy"], driven.got["heard"], strict=True):
        assert said.rows == len(driven.fed["left"][said.number])
        assert said.table.sort_by("id").equals(got.table.sort_by("id"))
    assert "joined: " in log
    assert "takes over from" in log
    rebuilt = re.findall(r"union_windows is rebuilt from epoch (\d+) on", log)
    # The first time from the beginning; the last time from a seed with watermarks.
    assert any(int(first) > 0 for first in rebuilt), rebuilt
    check_gap(driven.got["distinct"], driven.fed["right"], holes)


def check_gap(epochs: list[ub.Epoch], fed: list[list[dict[str, Any]]], holes: list[str]) -> None:
    """Every number is delivered; what is lost is told, and in between it is as if begun anew."""
    assert [e.number for e in epochs] == list(range(kinds.COUNT))
    lost = [e.number for e in epochs if e.kind == "gap"]
    assert lost
    assert holes
    for number in lost:
        assert epochs[number].rows == 0
        assert epochs[number].header.lost == len(fed[number])
    starts = [0, *(number + 1 for number in lost)]
    for start, end in zip(starts, [*lost, kinds.COUNT], strict=True):
        for epoch, expected in zip(epochs[start:end], first_seen(fed, start, end), strict=True):
            assert {(r["k"], r["w"]) for r in epoch.table.to_pylist()} == expected
