"""Copying a log through a real door, also into one that is served at the same time."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from shipping import Node, epoch, rows

from unbroken.epochs import Epoch
from unbroken.errors import CheckpointLost, DivergenceError, EpochGone, UnbrokenError
from unbroken.streams.copy_log import copy_log, extend_log
from unbroken.streams.flight import Command, Peer
from unbroken.streams.log import EpochLog
from unbroken.streams.served import Served


def test_a_log_goes_on_from_what_is_there(node: Node, peer: Peer, there: Path):
    """A delta here too; the epochs that both have are compared by their digests."""
    copy_log(peer, "alerts", there, last=99)
    node.log.trim(90)
    fetched: list[int] = []
    honest = node.door._get["epoch"]
    node.door.on_get("epoch", lambda c: fetched.append(c["number"]) or honest(c))
    log = copy_log(peer, "alerts", there, last=105)
    assert fetched == list(range(100, 106))
    assert (log.first, log.next) == (80, 106)


def test_a_gap_is_shipped_as_a_gap(node: Node, peer: Peer, there: Path):
    """Scenario 13: recorded once; whoever takes the log takes the hole with it."""
    node.log.append(Epoch.gap("alerts", 106, epoch(0).table.schema, lost=7, fingerprint="f1"))
    log = copy_log(peer, "alerts", there, last=106)
    assert log.read(106) == node.log.read(106)
    assert (log.header(106).kind, log.header(106).lost) == ("gap", 7)


def test_other_content_under_a_number_is_never_silent(node: Node, peer: Peer, there: Path):
    """Invariant 1: a former replica that diverged is told, not overwritten."""
    own = EpochLog(there, "alerts")
    own.start_at(95)
    for number in range(95, 100):
        own.append(epoch(number, value=int(number == 97)))
    with pytest.raises(DivergenceError, match="alerts: epoch 97 has digest"):
        copy_log(peer, "alerts", there, last=105)
    assert rows(EpochLog(there, "alerts"))[97] == [97, 1]


@pytest.mark.parametrize(("first", "after"), [(10, 20), (10, 79), (90, 95), (81, 106)])
def test_a_log_with_a_hole_before_what_is_owed_begins_anew(
    node: Node, peer: Peer, there: Path, first: int, after: int
):
    """It lacks what consumers may ask for, or has only what none of them will."""
    own = EpochLog(there, "alerts")
    own.start_at(first)
    for number in range(first, after):
        own.append(epoch(number))
    assert rows(copy_log(peer, "alerts", there, last=105)) == rows(node.log)


def test_what_a_power_cut_tore_is_copied_again(node: Node, peer: Peer, there: Path):
    """Logs of fragments are not synced: the checksum in the name tells."""
    log = copy_log(peer, "alerts", there, last=105)
    log.path(100).write_bytes(b"")
    assert rows(copy_log(peer, "alerts", there, last=105)) == rows(node.log)


def test_the_giver_trims_while_its_log_is_copied(node: Node, peer: Peer, there: Path):
    """Its consumers have gone on: less is owed, and the newcomer begins later."""
    honest = node.door._get["epoch"]

    def trimming(command: Command) -> pa.Table | None:
        if command["number"] == 85:
            node.log.trim(95)
        return honest(command)

    node.door.on_get("epoch", trimming)
    log = copy_log(peer, "alerts", there, last=105)
    assert rows(log) == {n: [n, 0] for n in range(95, 106)}


def test_a_giver_that_trims_faster_than_anybody_copies_is_told(
    node: Node, peer: Peer, there: Path, monkeypatch
):
    """Invariant 7: attempts have a limit."""

    def gone(command: Command) -> None:
        raise EpochGone("trimmed")

    node.door.on_get("epoch", gone)
    with pytest.raises(EpochGone, match="faster than it can be copied"):
        copy_log(peer, "alerts", there, last=105)


@pytest.mark.parametrize(
    "answer",
    [None, pa.table({"n": [1]}), epoch(99).stamped(), epoch(80).stamped().slice(0, 1),
     Epoch.of("clicks", 80, pa.table({"n": [1]})).stamped(),
     epoch(80).with_header(kind="tentative").stamped(),
     epoch(80).with_header(kind="gap").stamped()],
    ids=["nothing", "no header", "another number", "fewer rows", "another stream", "tentative",
         "rows that are lost"],
)  # fmt: skip
def test_what_is_not_the_epoch_that_was_asked_for_is_refused(
    node: Node, peer: Peer, there: Path, answer: pa.Table | None
):
    """Shipments know stable epochs only, each under its number."""
    node.door.on_get("epoch", lambda command: answer)
    with pytest.raises(UnbrokenError, match="what came is not epoch 80"):
        copy_log(peer, "alerts", there, last=105)
    assert EpochLog(there, "alerts").next == 0


def living(folder: Path, first: int, after: int) -> EpochLog:
    log = EpochLog(folder, "alerts")
    log.start_at(first)
    for number in range(first, after):
        log.append(epoch(number))
    return log


def test_a_living_log_is_extended_while_it_is_read_and_trimmed(node: Node, peer: Peer, there: Path):
    """A standby serves its log: consumers wait for epochs, read them, and ack them at once."""
    log = living(there, 80, 81)
    served, seen = Served(log, ["client"], keep=0), []

    def follow() -> None:
        for number in range(80, 106):
            assert log.wait(number, 30.0)
            seen.append(log.read(number).number)
            served.ack("client", term=1, processed=number, need=number + 1)

    reader = threading.Thread(target=follow)
    reader.start()
    for last in (85, 86, 86, 99, 105):
        extend_log(peer, log, last=last)
    reader.join(30.0)
    assert seen == list(range(80, 106))
    assert (log.first, log.next) == (105, 106)
    assert rows(EpochLog(there, "alerts")) == {105: [105, 0]}


def test_acks_for_epochs_that_have_not_come_yet(node: Node, peer: Peer, there: Path):
    """Consumers read them from the primary and told both: here they go as soon as they come."""
    log = living(there, 80, 90)
    served = Served(log, ["client"], keep=0)
    served.ack("client", term=1, processed=103, need=104)
    assert (log.first, log.next) == (89, 90), "the last one stays"
    extend_log(peer, log, last=105)
    served.trim()
    assert (log.first, log.next) == (104, 106)


def test_a_living_log_jumps_over_what_nobody_owes(node: Node, peer: Peer, there: Path):
    """The primary's consumers have acked faster than the standby copies: the usual case."""
    log = living(there, 80, 90)
    node.log.trim(100)
    extend_log(peer, log, last=103)
    assert rows(log) == {n: [n, 0] for n in range(100, 104)}
    assert rows(EpochLog(there, "alerts")) == rows(log), "no hole on the disk"
    with pytest.raises(EpochGone, match="was trimmed; the log begins at 100"):
        log.headers(95)


def test_a_living_log_does_not_begin_anew_where_it_was_trimmed(node: Node, peer: Peer, there: Path):
    """Acks arrive here first: what the primary still has is not copied again."""
    log = living(there, 95, 100)
    extend_log(peer, log, last=105)
    assert (log.first, log.next) == (95, 106)


def test_nothing_is_asked_when_nothing_is_lacking(node: Node, peer: Peer, there: Path):
    """Nor is it an error if the peer has less: it was started again and computes."""
    log = living(there, 80, 120)
    with Peer("grpc://127.0.0.1:1") as nobody:
        extend_log(nobody, log, last=119)
    assert log.next == 120
    with pytest.raises(CheckpointLost, match="ends before epoch 106, 120 is needed"):
        extend_log(peer, log, last=120)


def test_an_empty_log_begins_where_the_peers_does_also_the_second_time(
    node: Node, peer: Peer, there: Path
):
    """The first attempt found nothing that could be had; the peer has trimmed since."""
    log = living(there, 60, 60)
    extend_log(peer, log, last=81)
    assert (log.first, log.next) == (80, 82)
