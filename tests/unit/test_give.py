"""What a giver makes for its takers, and gives them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from layers_by_hand import run_batches, write
from shipping import Node, taken, visible

from unbroken.checkpoints import give
from unbroken.checkpoints.take import take
from unbroken.errors import CheckpointLost, DiskError, UnbrokenError, Unreachable
from unbroken.streams.flight import Peer


def test_forks_are_removed_when_the_taker_is_done_or_has_failed(
    node: Node, peer: Peer, there: Path
):
    """A fork holds on to layers that Spark has trimmed: disk space."""
    taken(peer, there)
    assert node.shipments() == []
    with pytest.raises(ZeroDivisionError):
        taken(peer, there, before_seen=lambda number: 1 // 0)
    assert node.shipments() == []
    assert visible(there) == ["shipped"]
    assert peer.act({"do": "shipped", "shipment": "unknown"}) is None


def test_forks_of_takers_that_never_came_back_are_bounded(node: Node, peer: Peer):
    """Invariant 7: leftovers of an earlier process go, and of this one the quietest."""
    write(node.folder / "shipments" / "0123" / "spark" / "offsets" / "5")
    write(node.folder / "shipments" / "4567.tmp" / "boot")
    ask = {"do": "shipment", "fragment": "alerts", "with_watermarks": True}
    first, second, *_ = [peer.act(ask) for _ in range(give.SHIPMENTS_KEPT)]
    assert len(node.shipments()) == give.SHIPMENTS_KEPT
    layer = {"do": "layers", "parts": [["spark/commits/5", 0, 1]]}
    assert peer.get({**layer, "shipment": first["shipment"]}) is not None
    peer.act(ask)
    assert len(node.shipments()) == give.SHIPMENTS_KEPT
    assert peer.get({**layer, "shipment": first["shipment"]}) is not None, "it was used last"
    with pytest.raises(Unreachable, match="no longer here"):
        peer.get({**layer, "shipment": second["shipment"]})


def test_checksums_are_computed_once_per_layer(node: Node, peer: Peer, there: Path, monkeypatch):
    """A standby asks after every epoch: gigabytes are not read again for a few kilobytes."""
    ask = {"do": "shipment", "fragment": "alerts", "with_watermarks": True}
    read: list[str] = []
    for name in ("checksum", "ssts_named"):
        honest = getattr(give, name)
        monkeypatch.setattr(give, name, lambda path, f=honest: read.append(path.name) or f(path))
    peer.act(ask)
    assert len(read) > 10
    read.clear()
    peer.act(ask)
    assert read == []
    other = write(node.checkpoint.spark / "new", "other attempt")
    other.rename(node.checkpoint.spark / "state" / "0" / "0" / "6_0a1b-2c.changelog")
    run_batches(node.checkpoint, range(6, 7))
    peer.act(ask)
    assert sorted(read) == ["106", "6", "6", "6", "6_0a1b-2c", "6_0a1b-2c.changelog",
                            "7_0a1b-2c.changelog", "7_0a1b-2c.changelog"]  # fmt: skip


@pytest.mark.parametrize(
    "parts",
    [[["../../output/x", 0, 1]], [["/etc/passwd", 0, 1]], [["boot", 0, 1]], [[None, 0, 1]],
     [[[], 0, 1]], [["spark/commits/5", -1, 1]], [["spark/commits/5", 10**30, 1]],
     [["spark/commits/5", "x", 1]], [["spark/commits/5", 0]], [["spark/commits/5", 0, 0]],
     [["spark/commits/5", 0, -1]], [["spark/commits/5", 0, 10**30]], [["spark/commits/5", 20, 20]],
     [["spark/commits/5", 0, 1], ["boot", 0, 1]], ["spark/commits/5"], "x", None, 7],
)  # fmt: skip
def test_a_giver_gives_what_is_in_its_manifest_and_nothing_else(node: Node, peer: Peer, parts: Any):
    """A taker is a stranger too."""
    ask = {"do": "shipment", "fragment": "alerts", "with_watermarks": True}
    shipment = peer.act(ask)["shipment"]
    with pytest.raises(UnbrokenError):
        peer.get({"do": "layers", "shipment": shipment, "parts": parts})
    for strange in ("..", shipment + "/..", None, [], {}):
        with pytest.raises(UnbrokenError):
            peer.get({"do": "layers", "shipment": strange, "parts": [["spark/commits/5", 0, 1]]})


def test_an_answer_is_bounded(node: Node, peer: Peer, monkeypatch):
    """A taker that asks for everything at once would fill this node's memory."""
    monkeypatch.setattr(give, "CHUNK_BYTES_MAX", 30)
    ask = {"do": "shipment", "fragment": "alerts", "with_watermarks": True}
    shipment = peer.act(ask)["shipment"]
    part = ["spark/commits/5", 0, 20]
    assert peer.get({"do": "layers", "shipment": shipment, "parts": [part]}) is not None
    with pytest.raises(UnbrokenError, match="more than 30 bytes"):
        peer.get({"do": "layers", "shipment": shipment, "parts": [part, part]})


def test_what_cannot_be_given_is_said(node: Node, peer: Peer, there: Path):
    """No such replica, a bad name, nothing committed yet, lost in a reboot (scenario 28)."""
    with pytest.raises(UnbrokenError, match="no replica of 'clicks' here"):
        take(peer, "clicks", there, with_watermarks=False)
    with pytest.raises(UnbrokenError, match="is not a name"):
        take(peer, "../alerts", there, with_watermarks=False)
    (node.folder / "1" / "boot").write_text("an earlier boot")
    with pytest.raises(CheckpointLost, match="no committed epoch here"):
        taken(peer, there)
    assert visible(there) == []


def test_s29_full_at_the_giver(node: Node, peer: Peer, there: Path, monkeypatch):
    """The taker hears whose disk it is."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", full)
        with pytest.raises(DiskError, match=str(node.folder)):
            taken(peer, there)
    assert node.shipments() == []
    assert taken(peer, there).epoch == 105
