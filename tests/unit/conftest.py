"""Fixtures of several tests: a replica, a node that gives, the folder of a newcomer; two lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from layers_by_hand import BOOT, run_batches, write
from lines_by_hand import Clock, Make, Query, World
from shipping import Liar, Node

from unbroken.checkpoints import fork
from unbroken.node import branch, lines
from unbroken.node import replica as replicas
from unbroken.streams import serve
from unbroken.streams.flight import Door, Peer


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    """A node that has a replica of `alerts`, and its door."""
    made = Node(tmp_path / "node-1" / "alerts", monkeypatch)
    with made.door:
        yield made


@pytest.fixture
def peer(node: Node) -> Iterator[Peer]:
    """That node, seen from another."""
    with Peer(node.door.address) as connected:
        yield connected


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The newcomer's folder."""
    return tmp_path / "node-2" / "alerts"


@pytest.fixture
def liar(node: Node) -> Iterator[Liar]:
    """A giver that says whatever a test wants."""
    with Door() as door:
        yield Liar(door, node)


@pytest.fixture
def replica(tmp_path: Path) -> Path:
    """A replica's folder whose first term has committed batches 0 to 5, epochs 100 to 105."""
    began = fork.start(tmp_path, with_watermarks=False, boot=BOOT)
    write(began.checkpoint.spark / "metadata", '{"id": "the first"}')
    run_batches(began.checkpoint, range(6))
    return tmp_path


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes two producers and a replica that reads them, without Spark."""
    Query.made, Query.clock = [], Clock()
    for module in (lines, branch):
        monkeypatch.setattr(module, "time", Query.clock)
    monkeypatch.setattr(Query, "work_s", 0.0)
    monkeypatch.setattr(replicas, "Run", Query)
    for module in (serve, lines, branch):
        monkeypatch.setattr(module, "POLL_S", 0.2)
    made: list[World] = []

    def make(**how: str) -> World:
        made.append(World(tmp_path, **how))
        return made[-1]

    yield make
    for each in made:
        each.replica.stop()
        each.door.close()
