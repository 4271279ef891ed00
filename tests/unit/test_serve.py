"""A served stream: who holds it back is known after a restart, and nobody is trimmed away."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from unbroken.epochs import Epoch
from unbroken.errors import FenceError
from unbroken.streams import disk
from unbroken.streams.log import EpochLog
from unbroken.streams.serve import Served


def log_of(folder: Path, count: int) -> EpochLog:
    log = EpochLog(folder, "s")
    for number in range(log.next, count):
        log.append(Epoch.of("s", number, pa.table({"n": [number]})))
    return log


def test_a_restarted_producer_trims_nothing_until_all_have_spoken(tmp_path: Path):
    """Invariant 3, scenario 2: declared followers count after a restart, as fragments do."""
    served = Served(log_of(tmp_path, 10), ["counts"], keep=0)
    served.expect("sink")
    served.ack("counts", term=1, processed=4, need=5)
    again = Served(EpochLog(tmp_path, "s"), ["counts"], keep=0)
    again.ack("counts", term=1, processed=8, need=9)
    assert again.log.first == 0
    assert again.holder == "sink"
    again.ack("sink", term=1, processed=2, need=3)
    assert again.log.first == 3


def test_a_term_is_known_after_a_restart(tmp_path: Path):
    """Invariant 5, scenario 3: also by a producer that restarted."""
    Served(log_of(tmp_path, 3), ["counts"], keep=0).ack("counts", term=4, processed=0, need=1)
    with pytest.raises(FenceError, match="term 4 has begun"):
        Served(EpochLog(tmp_path, "s"), ["counts"], keep=0).ack(
            "counts", term=3, processed=2, need=3
        )


def test_a_released_follower_holds_nothing_also_after_a_restart(tmp_path: Path):
    """A removal is recorded."""
    served = Served(log_of(tmp_path, 5), ["counts"], keep=0)
    served.expect("sink")
    served.release("sink")
    again = Served(EpochLog(tmp_path, "s"), ["counts"], keep=0)
    again.ack("counts", term=1, processed=3, need=4)
    assert again.log.first == 4


def test_a_stream_that_nobody_acks_keeps_its_newest_epochs_and_no_more(tmp_path: Path):
    """Invariant 7: undeclared followers hold nothing back, and without acks somebody must trim."""
    served = Served(log_of(tmp_path, 30), [], keep=10)
    served.trim()
    assert (served.log.first, served.log.next) == (20, 30)


def test_whoever_is_promised_an_epoch_finds_it(tmp_path: Path):
    """Invariant 3 between threads: `expect` comes in while an ack is about to trim."""
    log = log_of(tmp_path, 10)
    trimming, expected = threading.Event(), threading.Event()

    def slow_trim(below: int) -> None:
        trimming.set()
        expected.wait(0.2)  # Long enough for the newcomer, were it let in.
        log.trim(below)

    served = Served(log, ["counts"], keep=0, trim=slow_trim)
    acking = threading.Thread(
        target=lambda: served.ack("counts", term=1, processed=7, need=8), daemon=True
    )
    acking.start()
    assert trimming.wait(30)
    served.expect("newcomer")
    promised = log.first
    expected.set()
    acking.join(30)
    assert log.first == promised


def test_status_can_be_read_while_consumers_come_and_go(tmp_path: Path, monkeypatch):
    """Two threads on one dictionary: neither may stumble."""
    monkeypatch.setattr(disk, "write_whole", lambda *given, **more: None)
    served, errors = Served(log_of(tmp_path, 2), [], keep=0), []
    stop = threading.Event()

    def look() -> None:
        try:
            while not stop.is_set():
                served.status()
        except Exception as error:
            errors.append(error)

    looking = threading.Thread(target=look)
    looking.start()
    for number in range(400):
        served.expect(f"c{number}")
    stop.set()
    looking.join(30)
    assert errors == []


def test_a_replica_that_was_removed_stays_barred_when_the_producer_restarts(tmp_path: Path):
    """Scenario 3: it was only paused; neither its acks nor the first placement let it in again."""
    served = Served(EpochLog(tmp_path, "s"), ["r@node-1", "r@node-2"], keep=0)
    served.ack("r@node-2", term=4, processed=8, need=9)
    served.expect("r@node-3", term=7, like="r@node-2")
    served.release("r@node-1", term=8)
    again = Served(EpochLog(tmp_path, "s"), ["r@node-1", "r@node-2"], keep=0)
    assert sorted(again.needs.processed) == ["r@node-2", "r@node-3"]
    with pytest.raises(FenceError):
        again.ack("r@node-1", term=9, processed=8, need=9)
    again.release("r@node-3", term=6)  # Late: it was expected under a newer term.
    assert "r@node-3" in again.needs.processed


def test_a_newcomer_learns_which_clients_are_waited_for(tmp_path: Path):
    """What a survivor keeps for a client that is away its new copy must keep too."""
    served = Served(EpochLog(tmp_path, "s"), ["r@node-1"], keep=0)
    served.expect("nightly")
    served.expect("r@node-3", term=7, like="r@node-1")
    assert served.clients == ["nightly"]
