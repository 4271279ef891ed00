"""A source: every row whose send returned is there exactly once, wherever it is killed."""

from __future__ import annotations

import json
import resource
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from unbroken.errors import BackpressureError, DefinitionError, DiskError
from unbroken.streams import source_log
from unbroken.streams.source_log import BAD_ROWS_KEPT_MAX, PRODUCERS_MAX, Receipt, SourceLog

SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("n", pa.int64())])
NOW_S = 1_700_000_000.0


_opened: list[SourceLog] = []


@pytest.fixture(autouse=True)
def _close_files():
    """A killed process closes its files; a test that plays one must do so itself."""
    yield
    while _opened:
        _opened.pop()._close_journal()


def opened(folder: Path, **options: object) -> SourceLog:
    _opened.append(SourceLog(folder, "s", SCHEMA, event_time="ts", **options))
    return _opened[-1]


def rows(*values: int, ahead_s: float = 0.0) -> pa.Table:
    times = [int((NOW_S + ahead_s) * 1e6)] * len(values)
    return pa.table({"ts": pa.array(times, pa.int64()).cast(SCHEMA[0].type), "n": values},
                    schema=SCHEMA)  # fmt: skip


def send(source: SourceLog, sequence: int, *values: int, producer: str = "p", wait_s: float = 0.0,
         ahead_s: float = 0.0) -> Receipt:  # fmt: skip
    return source.send(rows(*values, ahead_s=ahead_s), producer, sequence, now_s=NOW_S,
                       wait_s=wait_s)  # fmt: skip


def sealed(source: SourceLog) -> list[list[int]]:
    log = source.log
    return [log.read(n).table.column("n").to_pylist() for n in range(log.first, log.next)]


def test_a_send_that_is_repeated_is_a_no_op(tmp_path: Path):
    """Scenario 12: in the same epoch, in a later one, and after a restart."""
    source = opened(tmp_path)
    assert send(source, 0, 1, 2) == Receipt(epoch=0, rows=2, set_aside=0, repeated=False)
    assert send(source, 0, 1, 2).repeated
    source.seal()
    assert send(source, 0, 1, 2).repeated
    source.seal()
    assert send(opened(tmp_path), 0, 1, 2).repeated
    assert sealed(source) == [[1, 2], []]


def die_before_the_journals_go(source: SourceLog, folder: Path) -> None:
    source.seal()
    kept = {path: path.read_bytes() for path in folder.glob("*.journal")}
    source.sync()
    for path, data in kept.items():
        path.write_bytes(data)


def die_after_all(source: SourceLog, folder: Path) -> None:
    source.seal()
    source.sync()


CRASHES: dict[str, Callable[[SourceLog, Path], object]] = {
    "after the journal has the rows": lambda source, folder: None,
    "after the epoch is sealed": lambda source, folder: source.seal(),
    "after the sync, before the journals go": die_before_the_journals_go,
    "after the journals went": die_after_all,
}


@pytest.mark.parametrize("moment", CRASHES)
def test_rows_are_there_once_wherever_the_process_was_killed(tmp_path: Path, moment: str):
    """Goal: no row lost, none twice, sequences known, at each step from send to removal."""
    source = opened(tmp_path)
    send(source, 0, 1)
    source.seal()
    source.sync()
    send(source, 1, 2, 3)
    CRASHES[moment](source, tmp_path)
    again = opened(tmp_path)
    assert again.sequence("p") == 1
    assert send(again, 1, 2, 3).repeated
    send(again, 2, 4)
    again.seal()
    assert [row for epoch in sealed(again) for row in epoch] == [1, 2, 3, 4]


@pytest.mark.parametrize("keep_bytes", [0, 1, 100, 500])
@pytest.mark.parametrize("torn", [1, 2, 3])
def test_a_power_cut_that_tears_sealed_files_changes_no_epoch(
    tmp_path: Path, keep_bytes: int, torn: int
):
    """Invariant 1: consumers may have seen the epochs, so the same ones must come back.

    Method: three sealed epochs that are not synced (one of them empty); tear one of them, and
    leave later ones whole: the journals are there.
    """
    source = opened(tmp_path)
    for number in range(4):
        if number != 2:
            send(source, 2 * number, number)
            send(source, 2 * number + 1, -number, number, producer="q")
        source.seal()
        if number == 0:
            source.sync()
    send(source, 90, 99)
    digests = [source.log.header(n).digest for n in range(4)]
    sequences = [source.log.header(n).sequences for n in range(4)]
    path = source.log.path(torn)
    path.write_bytes(path.read_bytes()[:keep_bytes])
    again = opened(tmp_path)
    assert [again.log.header(n).digest for n in range(again.open_number)] == digests
    assert [again.log.header(n).sequences for n in range(again.open_number)] == sequences
    assert again.open_rows == 1
    assert again.sequence("p") == 90


@pytest.mark.parametrize("full", [False, True])
def test_a_power_cut_that_tears_all_that_was_kept_changes_no_number(tmp_path: Path, full: bool):
    """Consumers keep up, so that only the newest epochs are kept, which are not on disk yet.

    Who has sent what is in the epoch before them, which is kept for that; unless it is full.
    """
    source = opened(tmp_path)
    for number in range(40, 46):
        send(source, number, number)
        send(source, number, number, producer=f"q{number}")
        source.seal()
        if number == 43:
            source.sync()
    send(source, 46, 46)
    if full:
        source._log_bytes_max = 1
    source.trim(5)
    assert (source.log.first, source.log.next) == (5 if full else 3, 6)
    for number in range(4, 6):
        if number >= source.log.first:
            source.log.path(number).write_bytes(b"")
    again = opened(tmp_path)
    assert (again.log.first, again.log.next) == (4 if full else 3, 6)
    assert sealed(again)[-2:] == [[44, 44], [45, 45]]
    assert (again.sequence("p"), again.sequence("q45"), again.open_rows) == (46, 45, 1)
    assert again.sequence("q43") == (-1 if full else 43)


def test_a_recovery_that_is_killed_itself_can_be_done_again(tmp_path: Path, monkeypatch):
    """Method: die after each file that the recovery removes; then let it run to its end."""
    source = opened(tmp_path / "original")
    for number in range(4):
        send(source, number, number)
        source.seal()
    path = source.log.path(0)
    path.write_bytes(path.read_bytes()[:50])
    unlink = Path.unlink
    for killed_after in range(4):
        folder, removed = tmp_path / f"copy-{killed_after}", []
        shutil.copytree(tmp_path / "original", folder)

        def die(path: Path, missing_ok: bool = False, *, limit=killed_after, done=removed):
            if len(done) == limit:
                raise KeyboardInterrupt
            done.append(path)
            unlink(path, missing_ok)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "unlink", die)
            with pytest.raises(KeyboardInterrupt):
                opened(folder)
        assert sealed(opened(folder)) == [[0], [1], [2], [3]]


def test_damage_in_a_synced_epoch_is_told_and_not_dropped(tmp_path: Path):
    """Its journal is gone: nobody could seal it again, so nobody may throw it away."""
    source = opened(tmp_path)
    for number in range(3):
        send(source, number, number)
        source.seal()
        source.sync()
    path = source.log.path(1)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(DiskError, match=path.name):
        opened(tmp_path)
    assert path.exists()


def test_journals_of_trimmed_epochs_are_passed_over(tmp_path: Path):
    """A power cut may bring a removed journal back; its epoch was taken by everybody."""
    source = opened(tmp_path)
    for number in range(3):
        send(source, number, number)
        source.seal()
    old = (tmp_path / "open-000000000000.journal").read_bytes()
    source.sync()
    source.trim(2)
    (tmp_path / "open-000000000000.journal").write_bytes(old)
    again = opened(tmp_path)
    assert sealed(again) == [[2]]
    assert [p.name for p in tmp_path.glob("*.journal")] == ["open-000000000003.journal"]


def test_an_outage_of_an_hour_is_sealed_with_few_open_files(tmp_path: Path):
    """Scenario 11: 3,600 epochs of one second were missed; a process may open 1,024 files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    source = opened(tmp_path)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        assert source.seal_until(400) == 400
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    source.sync()
    assert len(list(tmp_path.glob("*.journal"))) == 1


def test_rows_of_a_sealed_epoch_never_appear_in_the_next_one(tmp_path: Path, monkeypatch):
    """Scenario 29: there is no room for the next journal, so the epoch is not sealed at all.

    The next journal's name is what tells after a power cut that the epoch was closed.
    """
    source = opened(tmp_path)
    send(source, 0, 1)

    def full(path: Path) -> None:
        raise DiskError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(source_log, "Journal", full)
        with pytest.raises(DiskError):
            source.seal()
        assert source.log.next == 0
        assert not list(tmp_path.glob("*.arrow"))
    source.seal()
    send(source, 1, 2)
    source.seal()
    assert sealed(source) == sealed(opened(tmp_path)) == [[1], [2]]


def test_nobody_sees_an_epoch_before_its_end_is_on_disk(tmp_path: Path, monkeypatch):
    """Invariant 1: a power cut must not let more rows into an epoch that somebody has seen."""
    source = opened(tmp_path)
    send(source, 0, 1)
    seen_at_sync = []
    sync_folder = source_log.disk.sync_folder

    def noting(folder: Path) -> None:
        sync_folder(folder)
        seen_at_sync.append((source.log.next, (tmp_path / "open-000000000001.journal").exists()))

    monkeypatch.setattr(source_log.disk, "sync_folder", noting)
    source.seal()
    assert seen_at_sync == [(0, True)]
    assert source.log.next == 1


def test_a_sync_that_failed_is_done_again_and_keeps_its_journals(tmp_path: Path, monkeypatch):
    """The journal goes only when the epoch is known to be on disk."""
    source = opened(tmp_path)
    send(source, 0, 1)
    source.seal()

    def broken(handle: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(source_log.os, "fsync", broken)
        with pytest.raises(DiskError, match="Input/output error"):
            source.sync()
    assert (tmp_path / "open-000000000000.journal").exists()
    source.sync()
    assert not (tmp_path / "open-000000000000.journal").exists()


def test_an_impatient_client_that_sends_twice_while_both_wait_for_room_sends_once(tmp_path: Path):
    """Scenario 12 under backpressure: the second copy arrives while the first still waits."""
    source = opened(tmp_path, log_bytes_max=1)
    send(source, 0, 0)
    source.seal()
    source.seal()
    receipts: list[Receipt] = []
    waiting = [
        threading.Thread(target=lambda: receipts.append(send(source, 1, 7, wait_s=30)))
        for _ in range(2)
    ]
    for thread in waiting:
        thread.start()
    while len(source._room._waiters) < 2:  # Both found the source full, and wait.
        threading.Event().wait(0.001)
    source.trim(1)
    for thread in waiting:
        thread.join(30)
    assert sorted(receipt.repeated for receipt in receipts) == [False, True]
    source.seal()
    assert sealed(source)[-1] == [7]


def test_a_full_source_says_who_holds_it_and_takes_nothing(tmp_path: Path):
    """Invariant 7: a limit names its holder: a consumer, or the open epoch itself."""
    source = opened(tmp_path, log_bytes_max=100)
    send(source, 0, *range(20))
    with pytest.raises(BackpressureError, match="most of them are in the open epoch 0") as caught:
        send(source, 1, 1)
    assert "close the epoch" in caught.value.hint
    source.seal()
    with pytest.raises(BackpressureError, match="slowest consumer is counts"):
        source.send(rows(1), "p", 1, now_s=NOW_S, wait_s=0.0, holder="counts")
    with pytest.raises(BackpressureError, match="full for good: it needs all of it") as caught:
        source.send(
            rows(1), "p", 1, now_s=NOW_S, wait_s=0.0, standstill=lambda: "it needs all of it"
        )
    assert "a higher log_bytes_max" in caught.value.hint
    source.seal()
    source.trim(1)
    assert not send(source, 1, 1).repeated


def test_a_full_source_is_asked_why_by_nobody_who_holds_its_lock(tmp_path: Path):
    """Whoever knows why holds a lock of its own, under which acks are waiting to trim this log."""
    source = opened(tmp_path, log_bytes_max=100)
    send(source, 0, *range(20))
    source.seal()
    source.seal()

    def trimmed_meanwhile() -> str:
        ack = threading.Thread(target=source.trim, args=(1,), daemon=True)
        ack.start()
        ack.join(10)
        return "nobody could trim it" if ack.is_alive() else "it was trimmed"

    with pytest.raises(BackpressureError, match="it was trimmed"):
        source.send(rows(1), "p", 1, now_s=NOW_S, wait_s=0.0, standstill=trimmed_meanwhile)


def test_rows_far_in_the_future_are_set_aside_and_counted_also_after_a_restart(tmp_path: Path):
    """Scenario 18, and what is kept of them is bounded."""
    source = opened(tmp_path, future_s_max=60.0)
    assert send(source, 0, 1, ahead_s=59.0) == Receipt(0, 1, 0, repeated=False)
    assert send(source, 1, 2, 3, ahead_s=61.0) == Receipt(0, 0, 2, repeated=False)
    assert send(source, 1, 2, 3, ahead_s=61.0).repeated
    again = opened(tmp_path, future_s_max=60.0)
    assert again.set_aside == 2
    send(again, 2, *range(BAD_ROWS_KEPT_MAX), ahead_s=1e6)
    assert again.set_aside == BAD_ROWS_KEPT_MAX + 2
    kept = (tmp_path / "bad-rows.jsonl").read_text().splitlines()
    assert [json.loads(line)["n"] for line in kept[:3]] == [2, 3, 0]
    assert len(kept) == BAD_ROWS_KEPT_MAX
    again.seal()
    assert sealed(again) == [[1]]
    assert again.log.header(0).event_us_max == int((NOW_S + 59) * 1e6)


def test_a_source_does_not_change_its_schema_behind_its_rows(tmp_path: Path):
    """Rows of two schemas cannot be one epoch: said at the start, not at the first seal."""
    source = opened(tmp_path)
    send(source, 0, 1)
    other = pa.schema([("n", pa.string())])
    for _ in range(2):
        with pytest.raises(DefinitionError, match=r"rows of another schema .* ts TIMESTAMP, n BIG"):
            SourceLog(tmp_path, "s", other)
        source.seal()
        source.sync()
    assert sealed(opened(tmp_path))[0] == [1]


def test_the_producers_remembered_are_bounded_and_the_silent_forgotten_first(tmp_path: Path):
    """Invariant 7: headers carry every producer, so there is a limit to them."""
    source = opened(tmp_path)
    send(source, 5, 1, producer="old")
    for number in range(PRODUCERS_MAX - 1):
        send(source, 0, 1, producer=f"p{number}")
    send(source, 6, 1, producer="old")
    send(source, 0, 1, producer="one-more")
    source.seal()
    assert len(source.log.header(0).sequences) == PRODUCERS_MAX
    assert (source.sequence("old"), source.sequence("p0"), source.sequence("p1")) == (6, -1, 0)


def test_many_producers_and_a_sealing_clock_lose_and_repeat_nothing(tmp_path: Path):
    """Goal: rows sent from many threads while epochs are cut are each in one epoch."""
    source, done = opened(tmp_path), threading.Event()

    def produce(name: int) -> None:
        for sequence in range(40):
            send(source, sequence, name * 1000 + sequence, producer=str(name))

    def cut() -> None:
        while not done.is_set():
            source.seal()
            source.sync()

    cutter = threading.Thread(target=cut)
    producers = [threading.Thread(target=produce, args=(name,)) for name in range(4)]
    for thread in [cutter, *producers]:
        thread.start()
    for thread in producers:
        thread.join(60)
    done.set()
    cutter.join(60)
    source.seal()
    taken = [row for epoch in sealed(opened(tmp_path)) for row in epoch]
    assert sorted(taken) == [name * 1000 + n for name in range(4) for n in range(40)]
    for name in range(4):  # And each producer's rows in the order in which they were sent.
        own = [row for row in taken if row // 1000 == name]
        assert own == sorted(own)
