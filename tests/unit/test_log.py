"""The log of a stream: no holes, no second content, and clear words about damage."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbroken.epochs import Epoch
from unbroken.errors import DiskError, DivergenceError, EpochGone, UnbrokenError
from unbroken.streams.log import RECENT_EPOCHS, EpochLog, drop_torn_tail


def epoch(number: int, *values: int) -> Epoch:
    return Epoch.of("s", number, pa.table({"n": pa.array(values or (number,), pa.int64())}))


def filled(folder: Path, count: int) -> EpochLog:
    log = EpochLog(folder, "s")
    for number in range(count):
        log.append(epoch(number))
    return log


def values(log: EpochLog, number: int) -> list[int]:
    found: list[int] = log.read(number).table.column("n").to_pylist()
    return found


def test_a_log_is_found_again_as_it_was(tmp_path: Path):
    """Goal: a restart knows every epoch, header and byte count."""
    log = filled(tmp_path, 6)
    again = EpochLog(tmp_path, "s")
    assert (again.first, again.next, again.bytes) == (0, 6, log.bytes)
    assert again.headers(0) == log.headers(0)
    assert [values(again, n) for n in range(6)] == [[n] for n in range(6)]


def test_the_same_epoch_twice_is_one(tmp_path: Path):
    """Invariant 1: a copy that comes late is dropped, also after a restart."""
    log = filled(tmp_path, 2)
    assert log.append(epoch(1)) is False
    assert EpochLog(tmp_path, "s").append(epoch(1)) is False
    assert len(list(tmp_path.iterdir())) == 2


def test_other_content_under_a_taken_number_is_never_silent(tmp_path: Path):
    """Invariant 1: the error has both digests, and the first content stays."""
    log = filled(tmp_path, 2)
    with pytest.raises(DivergenceError, match=r"epoch 1 was 1 rows .* is 2 rows") as caught:
        log.append(epoch(1, 7, 8))
    assert log.header(1).digest in caught.value.what
    assert values(EpochLog(tmp_path, "s"), 1) == [1]


def test_a_number_cannot_be_skipped(tmp_path: Path):
    """Invariant 2 begins at the producer: no holes."""
    with pytest.raises(UnbrokenError, match="epoch 3 appended at 2"):
        filled(tmp_path, 2).append(epoch(3))


def test_a_missing_file_is_told_as_a_hole(tmp_path: Path):
    """Somebody deleted a file: the log names the number instead of skipping it."""
    filled(tmp_path, 4).path(2).unlink()
    with pytest.raises(UnbrokenError, match="epoch 2 is missing before 3"):
        EpochLog(tmp_path, "s")


def test_an_empty_log_may_begin_anywhere_a_filled_one_may_not(tmp_path: Path):
    """A replica that starts in the middle speaks from its first number on."""
    log = EpochLog(tmp_path, "s")
    log.start_at(7)
    assert log.append(epoch(7)) is True
    assert (log.first, log.next) == (7, 8)
    with pytest.raises(AssertionError, match="only an empty log"):
        log.start_at(9)


def test_trimming_keeps_the_last_epoch_and_says_what_is_gone(tmp_path: Path):
    """Goal: after a trim of everything, a restart still knows where to go on."""
    log = filled(tmp_path, 5)
    assert log.trim(99) == 4
    assert (log.first, log.next) == (4, 5)
    assert log.trim(99) == 0
    again = EpochLog(tmp_path, "s")
    assert (again.first, again.next, again.bytes) == (4, 5, log.bytes)
    with pytest.raises(EpochGone, match=r"epoch 1 was trimmed; the log begins at 4"):
        again.read(1)
    with pytest.raises(EpochGone, match="trimmed"):
        again.headers(1)
    with pytest.raises(EpochGone, match="epoch 5 is not there yet"):
        again.read(5)


def test_headers_are_remembered_for_a_while_after_their_epochs_were_trimmed(
    tmp_path: Path, monkeypatch
):
    """A hole that reaches back there can still be counted; the memory has a limit."""
    monkeypatch.setattr("unbroken.streams.log.TRIMMED_MAX", 3)
    log = filled(tmp_path, 8)
    log.trim(6)
    known = [log.remembered(n) for n in range(9)]
    assert [header and header.number for header in known] == [
        None, None, None, 3, 4, 5, 6, 7, None
    ]  # fmt: skip
    assert EpochLog(tmp_path, "s").remembered(5) is None, "not on disk"


def test_what_was_shown_stays_when_it_is_made_again_of_epochs_that_are_lost(tmp_path: Path):
    """Its replica was started again, and what it read before is lost meanwhile."""
    log = filled(tmp_path, 2)
    assert log.append(epoch(1, 7).with_header(gaps_total=1, lost_total=3)) is False
    assert values(log, 1) == [1]
    with pytest.raises(DivergenceError):
        log.append(epoch(1, 7))


def test_a_crash_in_the_middle_of_a_trim_leaves_no_hole(tmp_path: Path, monkeypatch):
    """Method: kill the trim after each number of deleted files, and load the log again."""
    for survivors in range(4):
        folder = tmp_path / str(survivors)
        log, deleted, unlink = filled(folder, 5), [], Path.unlink

        def die(path: Path, missing_ok: bool = False, *, limit=survivors, done=deleted, do=unlink):
            if len(done) == limit:
                raise KeyboardInterrupt
            done.append(path)
            do(path, missing_ok)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "unlink", die)
            with pytest.raises(KeyboardInterrupt):
                log.trim(4)
        assert EpochLog(folder, "s").next == 5
        assert EpochLog(folder, "s").first == survivors


def test_a_writer_that_died_before_its_rename_left_nothing(tmp_path: Path):
    """A torn temporary file is not an epoch, and goes (scenario 29)."""
    filled(tmp_path, 2)
    torn = tmp_path / "000000000002.00000000.arrow.tmp"
    torn.write_bytes(b"half")
    assert EpochLog(tmp_path, "s").next == 2
    assert not torn.exists()


@pytest.mark.parametrize("how", ["torn", "missing"])
@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_after_a_power_cut_nothing_counts_from_the_first_bad_epoch_on(
    tmp_path: Path, how: str, number: int
):
    """A disk writes in the order that it likes: what comes after may be whole, and goes too."""
    path = filled(tmp_path, 4).path(number)
    if how == "torn":
        path.write_bytes(path.read_bytes()[:-8])
    else:
        path.unlink()
    drop_torn_tail(tmp_path)
    log = EpochLog(tmp_path, "s")
    if (how, number) == ("missing", 0):
        assert (log.first, log.next) == (1, 4)  # As after a trim.
    else:
        assert (log.first, log.next) == (0, number)


def test_a_flipped_bit_is_found_when_the_epoch_is_read(tmp_path: Path):
    """Goal: checked when read.  Method: damage the rows, not the header, of an old file."""
    path = filled(tmp_path, 1).path(0)
    body = bytearray(path.read_bytes())
    body[-20] ^= 1
    path.write_bytes(body)
    with pytest.raises(DiskError, match="do not match its checksum"):
        EpochLog(tmp_path, "s").read(0)


@given(keep=st.integers(0, 300))
def test_a_file_cut_off_at_any_byte_is_told_by_name(tmp_path_factory, keep: int):
    """A power cut may leave any part of a file: the error names it, whatever is left."""
    folder = tmp_path_factory.mktemp("log")
    path = filled(folder, 1).path(0)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DiskError, match=path.name):
        EpochLog(folder, "s").read(0)


def test_recent_bodies_come_from_memory_and_old_ones_from_disk(tmp_path: Path):
    """Whoever follows closely costs no disk read; the others still get the same rows."""
    log = filled(tmp_path, RECENT_EPOCHS + 2)
    for path in tmp_path.iterdir():
        path.write_bytes(b"")
    assert values(log, log.next - 1) == [log.next - 1]
    with pytest.raises(DiskError):
        log.read(0)


def test_whoever_waits_is_woken_by_the_epoch_and_not_before(tmp_path: Path):
    """A follower's call ends with the news, or with "not yet" after its time."""
    log = filled(tmp_path, 1)
    assert log.wait(1, timeout_s=0.01) is False
    woken: list[bool] = []
    waiting = threading.Thread(target=lambda: woken.append(log.wait(1, timeout_s=30)))
    waiting.start()
    log.append(epoch(1))
    waiting.join(30)
    assert woken == [True]


def test_headers_come_in_bounded_portions(tmp_path: Path):
    """Invariant 7: a consumer far behind gets a page, not the whole log."""
    log = filled(tmp_path, 70)
    assert [h.number for h in log.headers(0)] == list(range(64))
    assert [h.number for h in log.headers(64)] == list(range(64, 70))
    assert log.headers(70) == []
    assert [h.number for h in log.held(8)] == list(range(8, 70))
    log.trim(60)
    assert [h.number for h in log.held(8)] == list(range(60, 70)), "what is gone is passed over"


def test_many_readers_and_a_trimmer_meet_only_whole_epochs(tmp_path: Path):
    """Goal: a reader gets the epoch it asked for, or hears that it is gone; nothing between."""
    log, stop, wrong = filled(tmp_path, 1), threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            number = log.first
            try:
                if values(log, number) != [number]:
                    wrong.append(number)
            except EpochGone:
                continue
            except Exception as error:
                wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(1, 200):
        log.append(epoch(number))
        log.trim(number - 5)
    stop.set()
    for reader in readers:
        reader.join(30)
    assert wrong == []


def test_epochs_that_come_from_two_sides_are_one(tmp_path: Path):
    """At take-over the copier and the replica may bring the same epoch at the same moment."""
    log = EpochLog(tmp_path, "s")
    added: list[bool] = []

    def bring() -> None:
        for number in range(40):
            added.append(log.append(epoch(number)))

    threads = [threading.Thread(target=bring) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (added.count(True), added.count(False)) == (40, 120)
    assert (EpochLog(tmp_path, "s").next, len(list(tmp_path.iterdir()))) == (40, 40)


def test_a_copy_skips_what_nobody_needs(tmp_path: Path):
    """Everything before goes, those who wait are woken, and the disk has no hole."""
    log = filled(tmp_path, 5)
    woken: list[bool] = []
    waiting = threading.Thread(target=lambda: woken.append(log.wait(7, 30.0)))
    waiting.start()
    log.skip_to(9)
    waiting.join(30.0)
    assert woken == [True]
    assert (log.first, log.next, log.bytes, list(tmp_path.iterdir())) == (9, 9, 0, [])
    with pytest.raises(EpochGone, match="was trimmed"):
        log.headers(7)
    log.append(epoch(9))
    assert (EpochLog(tmp_path, "s").first, values(log, 9)) == (9, [9])
    log.skip_to(10)
    assert (log.first, log.next) == (9, 10), "nothing is skipped, so nothing is forgotten"
