"""Keepers for tests: real ones in processes of their own, and ones in this process with a clock
that the test moves."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from unbroken.client.cluster import Cluster
from unbroken.errors import Unreachable
from unbroken.node import keeper as keeper_module
from unbroken.node import setup
from unbroken.node.keeper import Keeper
from unbroken.node.process import Tree
from unbroken.query import Query

SCHEMA = "ts TIMESTAMP, n BIGINT"


def make_query(epoch: str) -> Query:
    """Two sources and a fragment that no Spark will ever run."""
    query = Query("shop", epoch=epoch)
    left = query.source("left", SCHEMA, event_time="ts", future_s_max=60.0)
    query.source("right", SCHEMA)

    @query.fragment(left)
    def copy(left: Any) -> Any:
        return left

    query.sink("left")
    query.sink("right")
    query.sink(copy)
    return query


def prepare(folder: Path, *, epoch: str = "manual", port: int = 1, **options: Any) -> None:
    """Writes what a keeper reads when it starts."""
    folder.mkdir(parents=True, exist_ok=True)
    told = setup.Setup(
        query="shop", placement={"copy": ["node-1"]}, entry=f"grpc://127.0.0.1:{port}", control="grpc://127.0.0.1:1",
        manual=epoch == "manual", **options,
    )  # fmt: skip
    setup.save(folder, make_query(epoch), told)


def until(condition: Callable[[], object], what: str, *, timeout_s: float = 60.0) -> None:
    """Waits for a condition, never for ever."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"waited {timeout_s:.0f} s in vain: {what}"
        time.sleep(0.01)


class RealKeeper:
    """A keeper in a process of its own, killed and started again at one address."""

    def __init__(self, folder: Path, log: Path, *, epoch: str = "manual", **options: Any) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port: int = probe.getsockname()[1]
        self._folder, self._log = folder, log
        prepare(folder, epoch=epoch, port=self._port, **options)
        self.cluster = Cluster(f"grpc://127.0.0.1:{self._port}")
        self.start()

    def start(self) -> None:
        arguments = ["--folder", str(self._folder), "--port", str(self._port)]
        self._tree = Tree("unbroken.node.keeper", arguments, self._log)
        try:
            until(self._answers, "the keeper answers")
        except BaseException:
            self.kill()
            raise

    def _answers(self) -> bool:
        assert self._tree.alive, self._log.read_text()
        try:
            return bool(self.cluster.status())
        except Unreachable:
            return False

    def kill(self) -> None:
        self._tree.kill()


class HandTime:
    """The time of a keeper in this process, moved by hand."""

    def __init__(self) -> None:
        self.wall_s, self.monotonic_s = 1_700_000_000.0, 5000.0

    def time(self) -> float:
        return self.wall_s

    def monotonic(self) -> float:
        return self.monotonic_s

    def pass_(self, seconds: float) -> None:
        self.wall_s += seconds
        self.monotonic_s += seconds


class HandKeepers:
    """Keepers in this process, one after the other in one folder."""

    def __init__(self, folder: Path, hand_time: HandTime) -> None:
        self._folder, self.time = folder, hand_time
        self._running: list[Keeper] = []

    def start(self) -> Keeper:
        self.stop()
        self._running.append(Keeper(self._folder, "127.0.0.1", 0))
        return self._running[-1]

    def stop(self) -> None:
        while self._running:
            gone = self._running.pop()
            gone.door.close()
            for source in gone.sources.values():
                source._close_journal()

    def tick(self) -> None:
        self._running[-1].tick(self.time.monotonic_s)


@pytest.fixture
def hand_keepers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HandKeepers]:
    """With epochs of one second."""
    prepare(tmp_path, epoch="1s")
    hand_time = HandTime()
    monkeypatch.setattr(keeper_module, "time", hand_time)
    keepers = HandKeepers(tmp_path, hand_time)
    yield keepers
    keepers.stop()
