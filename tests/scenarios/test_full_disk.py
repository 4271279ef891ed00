"""Scenario 29: the disk is full.  Nothing half-written is visible, and it works again with room.

A disk that is really full (a tiny one in memory, for root), and a limit on the size of files.
"""

from __future__ import annotations

import contextlib
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from keepers import RealKeeper, until

from unbroken.errors import DiskError
from unbroken.schemas import fit, parse
from unbroken.streams.log import EpochLog
from unbroken.streams.served import Served
from unbroken.streams.source_log import SourceLog

SCHEMA = parse("n BIGINT")


class TinyDisk:
    """A file system of two megabytes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._ballast = folder, folder / "ballast"

    def fill(self) -> None:
        with contextlib.suppress(OSError), open(self._ballast, "ab", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    def free(self) -> None:
        self._ballast.unlink()


class SizeLimit:
    """No file of this process may grow: looks like a full disk to whoever writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, self._limits[1]))

    def free(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._limits)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[TinyDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "unbroken-test", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"cannot mount a disk of its own here: {error}")
    try:
        yield TinyDisk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(params=["tiny disk", "size limit"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TinyDisk | SizeLimit]:
    if request.param == "tiny disk":
        yield request.getfixturevalue("tiny_disk")
    else:
        limit = SizeLimit(tmp_path)
        yield limit
        limit.free()


Disk = TinyDisk | SizeLimit


def send(source: SourceLog, sequence: int, *values: int) -> None:
    table = fit([{"n": value} for value in values], SCHEMA)
    source.send(table, "p", sequence, now_s=0.0, wait_s=0.0)


def sealed(source: SourceLog) -> list[list[int]]:
    numbers = range(source.log.first, source.log.next)
    return [source.log.read(n).table.column("n").to_pylist() for n in numbers]


def names_the_disk(error: DiskError, disk: Disk) -> bool:
    mount = str(disk.folder) if isinstance(disk, TinyDisk) else "/"
    return f"(disk mounted at {mount}" in error.what and "free some room there" in error.hint


@contextlib.contextmanager
def source_on(folder: Path) -> Iterator[SourceLog]:
    source = SourceLog(folder, "s", SCHEMA)
    try:
        yield source
    finally:
        source._close_journal()


def test_s29_full_while_sending(disk: Disk):
    """The send is refused as a whole, earlier ones stay, and the same send is taken later."""
    folder = disk.folder / "s"
    with source_on(folder) as source:
        send(source, 0, 1, 2)
        disk.fill()
        for _ in range(3):
            with pytest.raises(DiskError) as caught:
                send(source, 1, *range(3000))
            assert names_the_disk(caught.value, disk)
        assert (source.open_rows, source.sequence("p")) == (2, 0)
        disk.free()
    with source_on(folder) as again:
        assert (again.open_rows, again.sequence("p")) == (2, 0), "nothing half-written"
        send(again, 1, 3)
        again.seal()
        assert sealed(again) == [[1, 2, 3]]


def test_s29_full_while_sending_and_free_again_without_a_restart(disk: Disk):
    """The running source goes on; each row once."""
    with source_on(disk.folder / "s") as source:
        send(source, 0, 1)
        disk.fill()
        with pytest.raises(DiskError):
            send(source, 1, *range(3000))
        disk.free()
        send(source, 1, 2)
        source.seal()
        assert sealed(source) == [[1, 2]]
    with source_on(disk.folder / "s") as again:
        assert sealed(again) == [[1, 2]]


def test_s29_full_while_sealing(disk: Disk):
    """No file of the epoch is visible, its rows wait in the journal, and are sealed later."""
    folder = disk.folder / "s"
    with source_on(folder) as source:
        send(source, 0, *range(500))
        disk.fill()
        with pytest.raises(DiskError) as caught:
            source.seal()
        assert names_the_disk(caught.value, disk)
        assert [path.suffix for path in folder.iterdir()] == [".journal"]
        assert (source.open_number, source.open_rows) == (0, 500)
        disk.free()
        source.seal()
        assert sealed(source) == [list(range(500))]


def test_s29_full_while_sealing_and_killed_then(disk: Disk):
    """A restart on the full disk, or after it: the rows are in the journal."""
    folder = disk.folder / "s"
    with source_on(folder) as source:
        send(source, 0, *range(500))
        disk.fill()
        with pytest.raises(DiskError):
            source.seal()
    with source_on(folder) as again:
        assert again.open_rows == 500
        disk.free()
        again.seal()
        assert sealed(again) == [list(range(500))]


@pytest.mark.parametrize("promise", ["expect", "ack"])
def test_s29_full_while_saving_who_reads_the_stream(disk: Disk, promise: str):
    """Invariants 3 and 5: a promise that is not on disk is refused, and made good for later.

    Method: the same promise again after room is made; then a restart must know it.
    """

    def say(served: Served, consumer: str) -> None:
        if promise == "expect":
            served.expect(consumer)
        else:
            served.ack(consumer, term=7, processed=0, need=1)

    def known(served: Served) -> set[str]:
        return set(served.needs.processed) if promise == "expect" else set(served.needs.terms)

    log = EpochLog(disk.folder / "s", "s")
    served = Served(log, [], keep=0)
    say(served, "early")
    disk.fill()
    with pytest.raises(DiskError) as caught:
        say(served, "late")
    assert names_the_disk(caught.value, disk)
    assert known(Served(log, [], keep=0)) == {"early"}, "the note from before is whole"
    disk.free()
    say(served, "late")
    assert known(Served(log, [], keep=0)) == {"early", "late"}


def test_s29_a_keeper_on_a_full_disk_says_so_waits_and_goes_on(tiny_disk: TinyDisk, tmp_path: Path):
    """Its clock cannot seal, its producers are refused; with room again every row is there once."""
    keeper = RealKeeper(tiny_disk.folder / "cluster", tmp_path / "keeper.log", epoch="50ms")
    try:
        producer = keeper.cluster.producer("right")
        producer.send([{"n": 1}])
        tiny_disk.fill()
        until(lambda: "No space left" in keeper.cluster.status()["trouble"], "the trouble is told")
        with pytest.raises(DiskError, match="No space left on device"):
            producer.send([{"n": n} for n in range(1000, 4000)])
        tiny_disk.free()
        until(lambda: not keeper.cluster.status()["trouble"], "the keeper seals again")
        producer.send([{"n": 2}])
        last = keeper.cluster.finish()
        follow = keeper.cluster.follow("right")
        taken = [row for _ in range(last) for row in next(follow).table.column("n").to_pylist()]
        follow.close()
        assert taken == [1, 2]
    finally:
        keeper.kill()
