"""A client of a cluster: what it says to those who serve a stream."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from unbroken.client import cluster
from unbroken.epochs import Epoch
from unbroken.errors import UnbrokenError
from unbroken.streams.flight import Door
from unbroken.streams.log import EpochLog
from unbroken.streams.serve import StreamDoor
from unbroken.streams.served import Served


def log_of(folder: Path) -> EpochLog:
    log = EpochLog(folder, "s")
    for number in range(3):
        log.append(Epoch.of("s", number, pa.table({"n": [number]})))
    return log


def test_a_producer_that_was_started_again_hears_what_its_client_has(tmp_path: Path, monkeypatch):
    """Its log is full: there is no next epoch whose ack could tell it that it may trim."""
    monkeypatch.setattr(cluster, "POLL_S", 0.05)
    with Door() as door:
        served = StreamDoor(door)
        served.streams["s"] = Served(log_of(tmp_path / "one"), [], keep=0)
        door.on_act("book", lambda command: {"streams": {"s": {"s@n": door.address}}, "alone": {}})
        door.on_act("status", lambda command: {"nodes": {}})
        taken = cluster.Cluster(door.address).follow("s", consumer="sink", tentative=False)
        for number in range(3):
            assert next(taken).number == number
        before = served.streams["s"]
        waiting = threading.Thread(target=lambda: next(taken), daemon=True)
        waiting.start()
        again = served.streams["s"] = Served(log_of(tmp_path / "again"), ["sink"], keep=0)
        deadline_s = time.monotonic() + 10.0
        while again.needs.processed["sink"] < 2 and time.monotonic() < deadline_s:
            time.sleep(0.01)
        heard = again.needs.processed
        for each in (before, again):
            each.log.append(Epoch.of("s", 3, pa.table({"n": [3]})))
        waiting.join(20.0)
        taken.close()
    assert heard == {"sink": 2}


def test_what_nobody_will_ever_serve_is_refused_at_once():
    with Door() as door:
        door.on_act("status", lambda command: {"streams": ["clicks", "alerts"], "nodes": {}})
        client = cluster.Cluster(door.address)
        with pytest.raises(UnbrokenError, match="no stream 'alrets'") as caught:
            client.follow("alrets")
        assert caught.value.hint == "one of clicks, alerts"
        for start in (-5, 1.5, "x"):
            with pytest.raises(UnbrokenError, match="alerts from"):
                client.follow("alerts", start)  # type: ignore[arg-type]


def test_a_client_that_is_cut_off_from_the_entry_still_hears_the_nodes(
    tmp_path: Path, monkeypatch, capsys
):
    """The book that it has read names them, and nobody else is needed."""
    monkeypatch.setattr(cluster, "POLL_S", 0.05)
    monkeypatch.setattr(cluster, "AWAY_S", 0.0)
    log = log_of(tmp_path)
    with Door() as node:
        StreamDoor(node).streams["s"] = Served(log, [], keep=0)
        with Door() as entry:
            asked = threading.Event()
            book = {"streams": {"s": {"s@n": node.address}}, "alone": {}}
            entry.on_act("book", lambda command: book)
            entry.on_act("status", lambda command: asked.set() or {"nodes": {}})
            taken = cluster.Cluster(entry.address).follow("s", tentative=False)
            assert [next(taken).number for _ in range(3)] == [0, 1, 2]
            asked.clear()
            heard = []
            waiting = threading.Thread(target=lambda: heard.append(next(taken)), daemon=True)
            waiting.start()
            assert asked.wait(20.0), "it looks whether the fragment has failed"
        refused = threading.Event()
        monkeypatch.setattr(cluster, "raise_failure", lambda *what: None)
        act = cluster.Peer.act

        def noticed(peer, command, **how):
            try:
                return act(peer, command, **how)
            except cluster.Unreachable:
                refused.set()
                raise

        monkeypatch.setattr(cluster.Peer, "act", noticed)
        assert refused.wait(20.0), "nobody answers there any more"
        log.append(Epoch.of("s", 3, pa.table({"n": [3]})))
        waiting.join(20.0)
        taken.close()
    assert [epoch.number for epoch in heard] == [3]
    assert capsys.readouterr().err == f"no answer from {entry.address}; still trying\n", "once"
