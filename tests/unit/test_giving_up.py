"""A source that is full gives up the oldest epochs: told exactly, and for good."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from unbroken.epochs import GAP, STABLE, Epoch, contradict, lost_since
from unbroken.errors import BackpressureError, DefinitionError
from unbroken.query import Query
from unbroken.streams.giving_up import too_old
from unbroken.streams.merge import Merge
from unbroken.streams.source_log import SourceLog

SCHEMA = pa.schema([("n", pa.int64())])
ROWS = 10
#: Room for ten epochs of ten rows.
LIMIT = 10 * ROWS * 8


@pytest.fixture
def source(tmp_path: Path) -> Iterator[SourceLog]:
    made = opened(tmp_path)
    yield made
    made.close()


def opened(folder: Path, when_full: str = "give_up") -> SourceLog:
    return SourceLog(folder, "clicks", SCHEMA, log_bytes_max=LIMIT, when_full=when_full)


def send(source: SourceLog, sequence: int, wait_s: float = 0.0) -> None:
    table = pa.table({"n": [sequence] * ROWS}, SCHEMA)
    source.send(table, "p", sequence, now_s=0.0, wait_s=wait_s, holder="counts@node-1")


def fill(source: SourceLog, epochs: range) -> None:
    for number in epochs:
        send(source, number)
        source.seal()


def kinds(source: SourceLog) -> list[str]:
    return [source.log.read(n).kind for n in range(source.log.first, source.log.next)]


def test_the_oldest_become_gaps_number_by_number_with_what_they_cost(source: SourceLog):
    """Nobody acks anything: everything is still owed to somebody."""
    fill(source, range(25))
    assert source.log.first == 0, "gaps are delivered, so they stay"
    told = kinds(source)
    first = told.index(STABLE)
    assert told == [GAP] * first + [STABLE] * (25 - first)
    assert 14 <= first < 20
    assert [source.log.header(n).lost for n in range(first)] == [ROWS] * first
    assert source.given_up == {"epochs": first, "rows": first * ROWS}
    assert source.log.read(24).table["n"].to_pylist() == [24] * ROWS, "the newest rows are there"


def test_without_the_choice_it_pushes_back(tmp_path: Path):
    source = opened(tmp_path, when_full="wait")
    with pytest.raises(BackpressureError, match=r"counts@node-1"):
        fill(source, range(25))
    assert kinds(source) == [STABLE] * 10
    source.close()


def test_senders_wait_once_so_that_a_laggard_can_be_removed_first(source: SourceLog):
    """Whoever waits for room gets it by a trim, if one comes in time: then nothing is given up."""
    fill(source, range(10))
    waiting = threading.Thread(target=send, args=(source, 10, 30.0))
    waiting.start()
    while not source._room._waiters:  # It has found the source full.
        threading.Event().wait(0.001)
    source.trim(5)
    waiting.join(30.0)
    assert source.given_up == {"epochs": 0, "rows": 0}
    source.seal()
    fill(source, range(11, 15))
    send(source, 15, wait_s=0.01)  # Waited in vain.
    assert source.given_up["epochs"] > 0
    assert source._waited
    # From now on nobody waits: this would take minutes.
    for number in range(16, 30):
        source.seal()
        send(source, number, wait_s=600.0)
    source.trim(16)
    assert not source._waited, "somebody has got on: the next one is worth waiting for"


def test_what_was_given_up_stays_so_after_a_restart(source: SourceLog, tmp_path: Path):
    fill(source, range(15))
    given_up, before = source.given_up, kinds(source)
    source.close()
    again = opened(tmp_path)
    assert kinds(again) == before
    assert again.given_up == given_up
    assert again.sequence("p") == 14
    fill(again, range(15, 16))
    again.close()


def test_a_crash_between_the_gap_and_the_end_of_the_rows_leaves_the_gap(tmp_path: Path):
    """Both files are there; whichever is found first in the folder, the gap counts."""
    source = opened(tmp_path)
    fill(source, range(9))
    for number in range(8):
        path = source.log.path(number)
        rows = path.read_bytes()
        assert source.log.give_up(number, SCHEMA) == ROWS
        path.write_bytes(rows)
    names = [path.name for path in sorted(tmp_path.glob("*.arrow"))]
    gaps = [source.log.path(number).name for number in range(8)]
    order = {names.index(gap) % 2 for gap in gaps}
    assert order == {0, 1}, "both orders occur"
    source.close()
    again = opened(tmp_path)
    assert kinds(again) == [GAP] * 8 + [STABLE]
    assert len(list(tmp_path.glob("*.arrow"))) == 9
    assert again.log.bytes == ROWS * 8
    again.close()


def test_the_open_epoch_is_not_given_up(source: SourceLog):
    for sequence in range(10):
        send(source, sequence)
    with pytest.raises(BackpressureError, match="open epoch 0"):
        send(source, 10)
    assert source.given_up["epochs"] == 0


def test_the_newest_epoch_stays_however_large_it_is():
    assert too_old({7: 900}, held=900, limit=100) == []
    assert too_old({6: 10, 7: 900}, held=910, limit=100) == [6]


def test_who_was_told_of_the_rows_before_takes_the_gap_and_nobody_calls_it_divergence():
    """Its header was announced, and its rows were given up before they were fetched."""
    whole = Epoch.of("clicks", 7, pa.table({"n": [1, 2]}, SCHEMA)).header
    gap = Epoch.gap("clicks", 7, SCHEMA, lost=2, gaps_total=1, lost_total=2).header
    assert not contradict(whole, gap)
    merge = Merge("clicks", start=7)
    merge.announced("keeper", [whole])
    merge.lost("keeper")
    merge.announced("keeper", [gap])
    told = merge.header(7)
    assert told is not None
    assert told.kind == GAP
    later = Epoch.of("clicks", 8, pa.table({"n": [3]}, SCHEMA)).header
    assert lost_since(gap, later) == 0, "what follows is whole"
    assert lost_since(None, gap) == 2


def test_a_reader_finds_the_gap_when_the_rows_go_under_its_hands(
    source: SourceLog, monkeypatch: pytest.MonkeyPatch
):
    fill(source, range(5))
    read_bytes = Path.read_bytes

    def late(path: Path) -> bytes:
        monkeypatch.undo()
        source.log.give_up(0, SCHEMA)
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", late)
    assert source.log.read(0).kind == GAP


def test_an_unknown_choice_is_told_with_the_known_ones():
    with pytest.raises(DefinitionError, match="when_full='drop'") as caught:
        Query("q").source("clicks", "n INT", when_full="drop")
    assert caught.value.hint == "one of wait, give_up"
