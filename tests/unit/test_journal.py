"""The journal of an open epoch: whole sends or none, cut off wherever it may be."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from unbroken.errors import DiskError
from unbroken.streams.journal import Frame, Journal

_opened: list[Journal] = []


@pytest.fixture(autouse=True)
def _close_files():
    """A killed process closes its files; a test that plays one must do so itself."""
    yield
    while _opened:
        _opened.pop().close()


def opened(path: Path) -> Journal:
    _opened.append(Journal(path))
    return _opened[-1]


Content = list[tuple[str, int, list[int]]]


def rows(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def content(journal: Journal) -> Content:
    def plain(frame: Frame) -> tuple[str, int, list[int]]:
        return frame.producer, frame.sequence, frame.table.column("n").to_pylist()

    return [plain(frame) for frame in journal.frames()]


def three_sends(path: Path) -> list[int]:
    """Writes three sends and tells the size of the file after each, from 0 on."""
    journal, sizes = opened(path), [0]
    for sequence in range(3):
        journal.append(rows(*range(sequence + 1)), "p", sequence)
        sizes.append(path.stat().st_size)
    journal.close()
    return sizes


ALL: Content = [("p", 0, [0]), ("p", 1, [0, 1]), ("p", 2, [0, 1, 2])]


def test_torn_at_any_byte_the_whole_sends_are_there_and_nothing_else(tmp_path: Path, monkeypatch):
    """Goal: a send that returned is there, one that did not is not, and sending goes on.

    Method: cut the file off at every possible length, open it, append, open it again.
    """
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # A thousand times would take long.
    sizes = three_sends(tmp_path / "full")
    data = (tmp_path / "full").read_bytes()
    for length in range(len(data) + 1):
        path = tmp_path / "torn"
        path.write_bytes(data[:length])
        whole = sum(size <= length for size in sizes) - 1
        journal = opened(path)
        assert content(journal) == ALL[:whole], f"cut off at byte {length}"
        journal.append(rows(7), "q", 0)
        journal.close()
        assert content(opened(path)) == [*ALL[:whole], ("q", 0, [7])], f"cut off at byte {length}"


@pytest.mark.parametrize("zeros", [1, 7, 8, 9, 4096])
def test_zeros_at_the_end_are_no_send(tmp_path: Path, zeros: int):
    """A power cut may leave a file longer than what was written, filled up with zeros."""
    three_sends(tmp_path / "j")
    with open(tmp_path / "j", "ab") as file:
        file.write(bytes(zeros))
    assert content(opened(tmp_path / "j")) == ALL


def test_a_flipped_bit_in_the_last_send_drops_it(tmp_path: Path):
    """Its checksum does not match: it is as torn as if it had been cut off."""
    sizes = three_sends(tmp_path / "j")
    for at in range(sizes[2], sizes[3]):
        data = bytearray((tmp_path / "j").read_bytes())
        data[at] ^= 0x10
        (tmp_path / "flipped").write_bytes(data)
        assert content(opened(tmp_path / "flipped")) == ALL[:2]


def test_a_failed_write_leaves_the_sends_before_it_and_the_next_one_is_taken(
    tmp_path: Path, monkeypatch
):
    """Scenario 29: the disk fails in the middle of a frame, then has room again."""
    journal = opened(tmp_path / "j")
    journal.append(rows(1), "p", 0)
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", no_space)
        for _ in range(2):
            with pytest.raises(DiskError, match="No space left on device"):
                journal.append(rows(2), "p", 1)
    journal.append(rows(3), "p", 1)
    assert content(journal) == content(opened(tmp_path / "j")) == [("p", 0, [1]), ("p", 1, [3])]


def test_a_cut_that_fails_as_well_is_made_up_for(tmp_path: Path, monkeypatch):
    """The torn frame cannot even be cut off: the next append does it, or nothing is taken."""
    journal = opened(tmp_path / "j")
    journal.append(rows(1), "p", 0)
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", no_space)
        broken.setattr(Journal, "_reopened", no_space)
        for _ in range(2):
            with pytest.raises(DiskError):
                journal.append(rows(2), "p", 1)
    journal.append(rows(3), "p", 1)
    assert content(journal) == content(opened(tmp_path / "j")) == [("p", 0, [1]), ("p", 1, [3])]


def no_space(*_: object) -> None:
    raise OSError(28, "No space left on device")
