"""A partition that outlasts the log of a source, as the user chose: a real keeper, real doors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from unbroken.client.cluster import Cluster
from unbroken.epochs import FINAL, GAP, STABLE
from unbroken.errors import BackpressureError
from unbroken.node import keeper as keeper_module
from unbroken.node import setup
from unbroken.node.keeper import Keeper
from unbroken.query import Query
from unbroken.streams.ports import free_port

LIMIT, ROW_BYTES, EPOCHS = 20_000, 1_000, 50


def make_query(when_full: str) -> Query:
    """A fragment that no Spark will ever run."""
    query = Query("shop", epoch="manual")
    clicks = query.source("clicks", "text STRING", when_full=when_full)

    @query.fragment(clicks)
    def copy(clicks: Any) -> Any:
        return clicks

    query.sink(copy)
    return query


@pytest.fixture
def clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(keeper_module, "SEND_WAIT_S", 0.05)
    keepers: list[Keeper] = []

    def start(when_full: str) -> Cluster:
        port = free_port("127.0.0.1")
        setup.save(
            tmp_path, make_query(when_full),
            setup.Setup(
                query="shop", placement={"copy": ["node-1"]}, entry=f"grpc://127.0.0.1:{port}",
                control="grpc://127.0.0.1:1", manual=True, log_bytes_max=LIMIT,
            ),
        )  # fmt: skip
        keepers.append(Keeper(tmp_path, "127.0.0.1", port))
        return Cluster(f"grpc://127.0.0.1:{port}")

    yield start
    for keeper in keepers:
        keeper.door.close()
        for source in keeper.sources.values():
            source.close()


def send(cluster: Cluster, epochs: int) -> None:
    producer = cluster.producer("clicks")
    for _ in range(epochs):
        producer.send([{"text": "x" * ROW_BYTES}])
        producer.close_epoch()


def test_the_source_goes_on_and_whoever_was_cut_off_hears_what_was_lost(clusters: Any):
    """Invariants 2 and 7: a limit is never silent loss; a gap is delivered number by number."""
    cluster = clusters("give_up")
    present = cluster.follow("clicks")
    send(cluster, 5)
    heard = [next(present) for _ in range(5)]
    send(cluster, EPOCHS - 5)
    told = cluster.status()["sources"]["clicks"]
    given_up = told["given_up"]
    assert given_up["epochs"] == given_up["rows"] > 20
    assert told["bytes"] < LIMIT + 2 * ROW_BYTES, "the last send is taken as long as there is room"

    late = list(itertools.islice(cluster.follow("clicks", 0), EPOCHS))
    assert [epoch.number for epoch in late] == list(range(EPOCHS))
    assert all(epoch.kind in FINAL for epoch in late)
    gaps = [epoch for epoch in late if epoch.kind == GAP]
    assert [epoch.number for epoch in gaps] == list(range(given_up["epochs"]))
    assert [epoch.header.lost for epoch in gaps] == [1] * given_up["epochs"]
    assert {epoch.rows for epoch in late if epoch.kind == STABLE} == {1}
    assert {epoch.kind for epoch in heard} == {STABLE}, "whoever was there keeps what it has"


def test_without_the_choice_nothing_is_lost_and_the_sender_is_told(clusters: Any):
    cluster = clusters("wait")
    with pytest.raises(BackpressureError, match="copy@node-1"):
        send(cluster, EPOCHS)
    told = cluster.status()["sources"]["clicks"]
    assert told["given_up"] == {"epochs": 0, "rows": 0}
    assert told["first"] == 0
