"""`unbroken cut`, `slow` and `heal`: another process pulls the cables of a cluster that runs.

The processes of the cluster are doors here: an entry that says who holds the cables, and two nodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

import unbroken as ub
from unbroken.cli.main import main
from unbroken.errors import UnbrokenError, Unreachable
from unbroken.local import LocalCluster
from unbroken.node.book import BookReader
from unbroken.node.setup import Setup
from unbroken.streams.cables import Cables
from unbroken.streams.flight import Door, Peer

NODES = ["node-1", "node-2", "node-3"]
WAIT_S = 10.0


class Wired:
    """An entry and three nodes, with cables between them."""

    def __init__(self, *, cables: bool = True) -> None:
        self.doors = {name: Door() for name in ("keeper", *NODES)}
        for name, door in self.doors.items():
            door.on_act("who", lambda command, name=name: name)
        self.cables = Cables("127.0.0.1", NODES, lambda name: self.doors[name].address)
        self.entry = self.doors["keeper"]
        held_at = self.cables.address if cables else ""
        made = Setup("shop", {}, self.entry.address, "", manual=True, cables_held_at=held_at)
        self.entry.on_act("setup", lambda command: asdict(made))
        status = {"query": "shop", "sources": {}, "nodes": {}, "fragments": {}}
        self.entry.on_act("status", lambda command: status)

    def reaches(self, reader: str, served: str, timeout_s: float = WAIT_S) -> bool:
        """Whether one reaches the other through its cable."""
        with Peer(self.cables.doors[reader][served]) as peer:
            try:
                return bool(peer.act({"do": "who"}, timeout_s=timeout_s) == served)
            except Unreachable:
                return False

    def is_silent(self, reader: str, served: str) -> bool:
        """Whether one waits for the other in vain, for a moment."""
        return not self.reaches(reader, served, timeout_s=0.5)

    def close(self) -> None:
        self.cables.close()
        for door in self.doors.values():
            door.close()


@pytest.fixture
def wired(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wired]:
    # The command sets signal handlers; the test run keeps its own.
    monkeypatch.setattr("unbroken.cli.main._end_on_sigterm", lambda: None)
    made = Wired()
    yield made
    made.close()


def test_two_nodes_are_cut_off_and_nobody_else(wired: Wired, capsys: pytest.CaptureFixture[str]):
    at = ("--at", wired.entry.address)
    assert wired.reaches("node-3", "node-2")
    assert main(["cut", "node-2", "node-3", *at]) == 0
    assert capsys.readouterr().out == "node-2 and node-3 are cut off from each other\n"
    assert wired.is_silent("node-3", "node-2")
    assert wired.is_silent("node-2", "node-3")
    assert wired.reaches("node-3", "node-1")
    assert wired.reaches("node-3", "keeper")
    # Whoever cuts more hears of what is cut already.
    assert main(["cut", "keeper", "node-1", *at]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert wired.is_silent("node-1", "keeper")
    assert main(["heal", *at]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "not any more: node-2 and node-3 are cut off from each other",
        "not any more: keeper and node-1 are cut off from each other",
    ]
    assert wired.reaches("node-3", "node-2")
    assert wired.reaches("node-1", "keeper")
    assert main(["heal", *at]) == 0
    assert capsys.readouterr().out == "nothing was pulled\n"


def test_one_way_the_question_arrives_and_the_answer_does_not(
    wired: Wired, capsys: pytest.CaptureFixture[str]
):
    asked: list[object] = []
    wired.doors["node-2"].on_act("ask", asked.append)
    with Peer(wired.cables.doors["node-3"]["node-2"]) as peer:
        assert peer.act({"do": "who"}) == "node-2"
        # What node-2 sends is lost: the answers to node-3's questions.
        assert main(["cut", "node-2", "node-3", "--one-way", "--at", wired.entry.address]) == 0
        assert capsys.readouterr().out == "nothing that node-2 sends reaches node-3\n"
        with pytest.raises(Unreachable):
            peer.act({"do": "ask"}, timeout_s=0.5)
        assert len(asked) == 1
        wired.cables.heal()
        assert peer.act({"do": "ask"}, timeout_s=WAIT_S) is None
        # And the other way round the question itself does not arrive.
        assert main(["cut", "node-3", "node-2", "--one-way", "--at", wired.entry.address]) == 0
        with pytest.raises(Unreachable):
            peer.act({"do": "ask"}, timeout_s=0.5)
        assert len(asked) == 2


def test_a_slow_cable_is_told(wired: Wired, capsys: pytest.CaptureFixture[str]):
    at = ("--at", wired.entry.address)
    assert main(["slow", "node-1", "node-2", "0.7", *at]) == 0
    assert capsys.readouterr().out == "node-1 and node-2 hear of each other 0.7 s late\n"
    assert wired.is_silent("node-1", "node-2"), "half a second is too short now"
    assert main(["heal", *at]) == 0
    assert wired.reaches("node-1", "node-2")


def test_status_tells_what_is_pulled(wired: Wired, capsys: pytest.CaptureFixture[str]):
    """Whoever comes to a cluster that another has cut need not look for a broken network."""
    at = ("--at", wired.entry.address)
    assert main(["status", *at]) == 0
    assert "until unbroken heal" not in capsys.readouterr().out
    wired.cables.cut("node-2", "node-3")
    assert main(["status", *at]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[-1] == "node-2 and node-3 are cut off from each other, until unbroken heal"
    assert main(["status", "--json", *at]) == 0
    assert json.loads(capsys.readouterr().out)["pulled"] == wired.cables.pulled


@pytest.mark.parametrize(
    ("arguments", "what", "way_out"),
    [
        (["cut", "node-1", "node-9"], "no cable leads to 'node-9'", "keeper, node-1, node-2, node"),
        (["cut", "node-1", "control"], "no cable leads to 'control'", "keeper, node-1"),
        (["cut", "node-1", "node-1"], "needs no cable to itself", "name two"),
        (["slow", "node-1", "node-2", "nan"], "slow by nan s", "up to 60"),
        (["slow", "node-1", "node-2", "0"], "slow by 0 s", "heal for less"),
    ],
)
def test_what_cannot_be_pulled_is_told(
    wired: Wired, capsys: pytest.CaptureFixture[str], arguments: list[str], what: str, way_out: str
):
    assert main([*arguments, "--at", wired.entry.address]) == 1
    told = capsys.readouterr().err
    assert what in told.splitlines()[0]
    assert way_out in told.splitlines()[1]
    assert wired.cables.pulled == []


def test_a_cluster_without_cables_says_how_to_get_some(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("unbroken.cli.main._end_on_sigterm", lambda: None)
    bare = Wired(cables=False)
    assert main(["status", "--at", bare.entry.address]) == 0
    for arguments in (["cut", "node-1", "node-2"], ["slow", "node-1", "node-2", "1"], ["heal"]):
        assert main([*arguments, "--at", bare.entry.address]) == 1
        told = capsys.readouterr().err
        assert "has no cables to pull" in told
        assert "unbroken run FILE.py --cables" in told
    bare.close()


def test_whoever_started_a_cluster_without_cables_hears_the_same(tmp_path: Path):
    query = ub.Query("shop")
    query.sink(query.source("clicks", "page STRING"))
    with pytest.raises(UnbrokenError, match="no cables to pull"):
        LocalCluster(query, folder=tmp_path).cut("node-1", "keeper")


def test_shipments_go_through_cables_too(wired: Wired):
    """Control names a door; whoever takes a checkpoint there calls at its own cable."""
    page = {"a": {"a@node-2": wired.doors["node-2"].address}}
    wired.entry.on_act("book", lambda command: {"streams": page, "alone": {}})
    with Peer(wired.entry.address) as entry:
        book = BookReader(entry, cables=wired.cables.doors["node-3"])
        door = book.through(wired.doors["node-2"].address)
        assert book.through("grpc://127.0.0.1:1") == "grpc://127.0.0.1:1", "no cable leads there"
        assert BookReader(entry).through("grpc://127.0.0.1:1") == "grpc://127.0.0.1:1"
    with Peer(door) as giver:
        assert giver.act({"do": "who"}) == "node-2"
        wired.cables.cut("node-2", "node-3")
        with pytest.raises(Unreachable):
            giver.act({"do": "who"}, timeout_s=0.5)
