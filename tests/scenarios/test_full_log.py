"""Scenarios 17 and 19: a log is full for the sake of one replica; keeper and control are real
processes, the nodes are played by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from keepers import until

from unbroken.client.cluster import Cluster
from unbroken.client.producer import Producer
from unbroken.errors import BackpressureError, UnbrokenError
from unbroken.node import setup
from unbroken.node.process import Tree
from unbroken.policies import Active
from unbroken.query import Query
from unbroken.streams.flight import Door, Peer
from unbroken.streams.ports import free_port

LIMIT = 20_000
ROW_BYTES = 1_000


def make_query() -> Query:
    """A fragment that no Spark will ever run."""
    query = Query("shop", epoch="manual")
    clicks = query.source("clicks", "text STRING")

    @query.fragment(clicks, policy=Active(replicas=2))
    def copy(clicks: Any) -> Any:
        return clicks

    query.sink(copy)
    return query


class Played:
    """A node that beats and acks when it is told to."""

    def __init__(self, name: str, control: Peer, entry: Peer) -> None:
        self.name, self._control, self._entry, self.door = name, control, entry, Door()
        self._beats = 0

    def beat(self) -> None:
        told = {"copy": {"epoch": 0, "failed": ""}}
        self._beats += 1
        who: dict[str, Any] = {"node": self.name, "address": self.door.address}
        who |= {"state": setup.RUNNING, "life": 1, "beat": self._beats}
        self._control.act({"do": "beat", **who, "replicas": told, "lost": [], "full": {}})

    def fail(self, why: str) -> None:
        told = {"address": self.door.address, "state": setup.RUNNING, "streams": []}
        copy = {"copy": {"failed": why}}
        self._entry.act({"do": "report", "node": self.name, **told, "fragments": copy})

    def ack(self, processed: int) -> None:
        self._entry.act(
            {"do": "ack", "stream": "clicks", "consumer": f"copy@{self.name}", "term": 1,
             "processed": processed, "need": processed + 1}
        )  # fmt: skip


class World:
    """Keeper, control and two nodes."""

    def __init__(self, folder: Path) -> None:
        ports = [free_port("127.0.0.1") for _ in range(2)]
        entry, control = (f"grpc://127.0.0.1:{port}" for port in ports)
        (folder / "cluster").mkdir()
        setup.save(
            folder / "cluster", make_query(),
            setup.Setup(
                query="shop", placement={"copy": ["node-1", "node-2"]}, entry=entry,
                control=control, manual=True, log_bytes_max=LIMIT,
            ),
        )  # fmt: skip
        given = ["--folder", str(folder / "cluster")]
        self.trees = [
            Tree("unbroken.node.keeper", [*given, "--port", str(ports[0])], folder / "keeper.log"),
            Tree("unbroken.node.control", given, folder / "control.log"),
        ]
        self.cluster = Cluster(entry)
        until(lambda: self.answers(entry) and self.answers(control), "both answer")
        self.nodes = [Played(n, Peer(control), Peer(entry)) for n in ("node-1", "node-2")]
        self._stop = threading.Event()
        self._beating = threading.Thread(target=self._beat, daemon=True)
        self._beating.start()

    @staticmethod
    def answers(address: str) -> bool:
        try:
            with Peer(address) as peer:
                peer.act({"do": "status"})
        except UnbrokenError as error:
            return "does not know" in str(error)
        return True

    def _beat(self) -> None:
        while not self._stop.wait(0.1):
            for node in self.nodes:
                node.beat()

    def end(self) -> None:
        self._stop.set()
        self._beating.join(10)
        for tree in self.trees:
            tree.kill()

    def survives(self) -> int | None:
        told: dict[str, Any] = self.cluster.status()["fragments"].get("copy", {})
        return told.get("survives")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    try:
        until(lambda: made.survives() == 1, "both replicas count")
        yield made
    finally:
        made.end()


def fill(producer: Producer, epochs: int, after_each: Callable[[int], None]) -> None:
    for number in range(epochs):
        producer.send([{"text": "x" * ROW_BYTES}])
        producer.close_epoch()
        after_each(number)


def test_s17_a_laggard_is_removed_and_the_producer_goes_on(world: World, tmp_path: Path):
    """One of two replicas beats and does not work: for its sake alone the source is full."""
    fill(world.cluster.producer("clicks"), 3 * LIMIT // ROW_BYTES, world.nodes[0].ack)
    told = (tmp_path / "control.log").read_text()
    assert "copy: releasing node-2" in told
    assert "the log of clicks is full" in told


def test_s17_when_everybody_is_slow_nobody_is_removed(world: World, tmp_path: Path):
    """A load spike: removing a replica would free nothing, and cost the protection."""
    with pytest.raises(BackpressureError, match="copy@node"):
        fill(world.cluster.producer("clicks"), 3 * LIMIT // ROW_BYTES, lambda number: None)
    assert world.survives() == 1
    assert "releasing" not in (tmp_path / "control.log").read_text()


def test_s17_a_producer_is_told_that_whoever_holds_the_log_has_failed(world: World):
    """It waits for somebody who will not go on before people mend it: they should hear why."""
    for node in world.nodes:
        node.fail("ZeroDivisionError: division by zero\n  → look at copy")
    with pytest.raises(BackpressureError) as caught:
        fill(world.cluster.producer("clicks"), 3 * LIMIT // ROW_BYTES, lambda number: None)
    assert "which has failed: ZeroDivisionError: division by zero" in caught.value.what
