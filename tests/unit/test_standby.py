"""A standby whose writer is frozen, and one that wrote itself before."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from unbroken.checkpoints import fork
from unbroken.epochs import Epoch
from unbroken.errors import Unreachable
from unbroken.node import standby as standby_module
from unbroken.node.book import BookReader
from unbroken.node.standby import Standby
from unbroken.streams.flight import Door, Peer
from unbroken.streams.log import EpochLog
from unbroken.streams.serve import StreamDoor
from unbroken.streams.served import Served

WAIT_S = 10.0


def a_standby(folder: Path, giver: str = "", book: Any = None, **how: Any) -> Standby:
    replica: Any = SimpleNamespace(
        fragment=SimpleNamespace(name="ids", inputs=["s"]), name="ids@node-1", folder=folder,
        notes_watermarks=False, term=0, placed=1, holding=False, staged=None, **how,
    )  # fmt: skip
    nothing: Any = None
    return Standby(
        replica, nothing, rehearse=nothing, book=book, giver=giver, interval_s=0.05
    )  # fmt: skip


@pytest.mark.parametrize("question", ["consumers", "shipment"])
def test_a_take_over_does_not_wait_for_a_writer_that_is_frozen(tmp_path: Path, question: str):
    """It is connected and silent, as one that was stopped; a call may last two minutes."""
    asked, thaw = threading.Event(), threading.Event()

    def frozen(command: dict[str, Any]) -> list[str]:
        asked.set()
        assert thaw.wait(6 * WAIT_S)
        return ["sink_too_late"]

    expected: list[str] = []
    with Door() as writer, Door() as entry, Peer(entry.address) as peer:
        writer.on_act("shippable", lambda command: 7)
        writer.on_act("consumers", lambda command: [])
        writer.on_act(question, frozen)
        entry.on_act("book", lambda command: {"streams": {}, "alone": {}})
        log = EpochLog(tmp_path / "output", "ids")
        standby = a_standby(tmp_path, writer.address, BookReader(peer), log=log)
        standby._expect = expected.append
        standby.begin()
        assert asked.wait(WAIT_S)
        ending = threading.Thread(target=standby.end, daemon=True)
        ending.start()
        ending.join(WAIT_S)
        ended = not ending.is_alive()
        thaw.set()
        assert ended
        for thread in threading.enumerate():
            if thread.name == "hold-ids@node-1":
                thread.join(WAIT_S)
    assert expected == [], "what comes after the end is of no use"
    assert standby.shipments == 0


def test_one_that_ends_while_it_takes_changes_nothing_more(tmp_path: Path, monkeypatch):
    """The last call came back when another thread had gone on from what is here."""
    standby = a_standby(tmp_path, log=EpochLog(tmp_path / "output", "ids"))
    own = fork.empty(tmp_path).term

    def taken(*given: Any, **how: Any) -> Any:
        standby.replica.term = own + 1
        standby._stop.set()
        return SimpleNamespace(epoch=9, bytes_fetched=1)

    monkeypatch.setattr(standby_module, "take", taken)
    nobody: Any = None
    standby._take(nobody)
    assert (standby.epoch, fork.terms_in(tmp_path)) == (-1, [own])


def test_who_wrote_once_is_believed_as_a_standby_and_as_a_writer_again(tmp_path: Path):
    """Its disk is lost, or what it drew is forgotten: counting from 1 it would be an orphan."""
    log = EpochLog(tmp_path / "s", "s")
    for number in range(9):
        log.append(Epoch.of("s", number, pa.table({"n": [number]})))
    source = Served(log, {"ids@node-1": 1}, keep=0)
    source.ack("ids@node-1", term=4, processed=3, need=4, placed=1)
    with Door() as producer, Door() as entry, Peer(entry.address) as peer:
        StreamDoor(producer).streams["s"] = source
        page = {"s": {"s@keeper": producer.address}}
        entry.on_act("book", lambda command: {"streams": page, "alone": {}})
        standby = a_standby(tmp_path / "ids", book=BookReader(peer))
        standby.epoch = 5
        assert standby.acks() == [], "under which term is not known yet"
        assert standby._trimmed() == 4
        [(_, ack)] = standby.acks()
        source.ack(**{key: value for key, value in ack.items() if key != "do"})
    assert source.seed("ids@node-1")[0] == 6
    assert fork.empty(tmp_path / "ids").term == 5, "held, it speaks under a newer term"


def test_without_a_producer_that_answers_nothing_is_held(tmp_path: Path):
    with Door() as entry, Peer(entry.address) as peer:
        entry.on_act("book", lambda command: {"streams": {}, "alone": {}})
        standby = a_standby(tmp_path, book=BookReader(peer))
        standby.epoch = 5
        with pytest.raises(Unreachable, match="nobody who serves 's' answers"):
            standby._trimmed()
        standby._prepare()
        assert standby._preparation.thread is None
