"""Directory sinks: each epoch exactly once, whatever happens to the process (scenario 30)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unbroken.client.sinks import NOTE, DirectorySink, SinkThread
from unbroken.epochs import HEADER_KEY, Epoch, Header
from unbroken.errors import DivergenceError, EpochGone, UnbrokenError, Unreachable
from unbroken.streams import disk

WAIT_S = 20.0


def epoch(number: int, rows: int = 2, stream: str = "alerts", **fields: Any) -> Epoch:
    return Epoch.of(stream, number, pa.table({"n": list(range(number, number + rows))}), **fields)


def sink(folder: Path) -> DirectorySink:
    return DirectorySink(folder, "intrusion", "alerts")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def numbers(folder: Path) -> list[int]:
    return [int(name[6:18]) for name in names(folder) if name.startswith("epoch-")]


def test_an_epoch_is_one_parquet_file_with_its_header(tmp_path: Path):
    written = sink(tmp_path / "out")
    assert written.write(epoch(0, rows=3, fingerprint="f1"))
    assert names(tmp_path / "out") == [NOTE, "epoch-000000000000.parquet"]
    table = pq.read_table(written.path(0))
    assert table.column("n").to_pylist() == [0, 1, 2]
    assert Header.from_json(table.schema.metadata[HEADER_KEY]).fingerprint == "f1"
    note = json.loads((tmp_path / "out" / NOTE).read_bytes())
    assert note == {
        "query": "intrusion", "stream": "alerts", "next": 1, "rows": 3, "lost": 0,
        "lost_rows": 0,
        "fingerprint": "f1",
    }  # fmt: skip


def test_an_empty_epoch_is_a_file_too(tmp_path: Path):
    written = sink(tmp_path)
    written.write(epoch(0, rows=0))
    assert written.next == 1
    assert sink(tmp_path).next == 1


def test_a_process_that_dies_between_file_and_note_repeats_and_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Scenario 30: the file name is the position, the note is a cache."""
    first = sink(tmp_path)
    first.write(epoch(0))

    def die(self: DirectorySink) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DirectorySink, "_write_note", die)
        with pytest.raises(KeyboardInterrupt):
            first.write(epoch(1, rows=5))
    assert json.loads((tmp_path / NOTE).read_bytes())["next"] == 1
    again = sink(tmp_path)
    assert (again.next, again.rows) == (2, 7)
    assert not again.write(epoch(1, rows=5))
    assert again.write(epoch(2))
    assert numbers(tmp_path) == [0, 1, 2]


def test_a_process_that_dies_before_the_rename_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    written = sink(tmp_path)
    (tmp_path / f"epoch-000000000000.parquet{disk.TEMPORARY}").write_bytes(b"PAR1 half")
    again = sink(tmp_path)
    assert again.next == 0
    assert names(tmp_path) == [NOTE]
    assert written.write(epoch(0))


@pytest.mark.parametrize("note", [None, b"", b"{}", b"[1]", b'{"query": "intrusion"}'])
def test_a_lost_or_spoilt_note_is_written_anew(tmp_path: Path, note: bytes | None):
    written = sink(tmp_path)
    for number in range(3):
        written.write(epoch(number))
    (tmp_path / NOTE).unlink()
    if note is not None:
        (tmp_path / NOTE).write_bytes(note)
    again = sink(tmp_path)
    assert (again.next, again.rows) == (3, 6)


def test_a_note_that_runs_ahead_of_the_files_is_not_believed(tmp_path: Path):
    written = sink(tmp_path)
    for number in range(3):
        written.write(epoch(number))
    written.path(2).unlink()
    again = sink(tmp_path)
    assert (again.next, again.rows) == (2, 4)


def test_old_files_may_be_moved_away_but_no_hole_may_be_left(tmp_path: Path):
    written = sink(tmp_path)
    for number in range(4):
        written.write(epoch(number))
    written.path(0).unlink()
    assert (sink(tmp_path).next, sink(tmp_path).rows) == (4, 8)
    written.path(2).unlink()
    with pytest.raises(UnbrokenError, match="epoch 2 is missing before 3"):
        sink(tmp_path)


def test_a_directory_whose_files_are_all_gone_is_not_begun_again_silently(tmp_path: Path):
    written = sink(tmp_path)
    written.write(epoch(0))
    written.path(0).unlink()
    with pytest.raises(UnbrokenError, match="no file is there"):
        sink(tmp_path)


@pytest.mark.parametrize(("query", "stream"), [("intrusion", "scans"), ("other", "alerts")])
@pytest.mark.parametrize("keep_note", [True, False])
def test_the_directory_of_another_stream_is_refused(
    tmp_path: Path, query: str, stream: str, keep_note: bool
):
    DirectorySink(tmp_path, query, stream).write(epoch(0, stream=stream))
    if not keep_note:
        (tmp_path / NOTE).unlink()
    with pytest.raises(UnbrokenError, match="holds the stream"):
        sink(tmp_path)


def test_files_that_are_not_ours_are_told(tmp_path: Path):
    pq.write_table(pa.table({"n": [1]}), tmp_path / "epoch-000000000000.parquet")
    with pytest.raises(UnbrokenError, match="not an epoch that Unbroken wrote"):
        sink(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UnbrokenError, match="a file of that name"):
        sink(tmp_path / "file")


def test_only_the_next_stable_epoch_is_written(tmp_path: Path):
    written = sink(tmp_path)
    with pytest.raises(UnbrokenError, match="0 is next"):
        written.write(epoch(1))
    assert not written.write(epoch(0).with_header(kind="tentative"))
    assert written.write(epoch(0))
    with pytest.raises(DivergenceError, match="another run"):
        written.write(epoch(0, rows=9))
    with pytest.raises(UnbrokenError, match="'scans'"):
        written.write(epoch(1, stream="scans"))


def test_two_writers_of_one_directory_are_told(tmp_path: Path):
    one, other = sink(tmp_path), sink(tmp_path)
    one.write(epoch(0))
    with pytest.raises(UnbrokenError, match="two runs write"):
        other.write(epoch(0))


class Stream:
    """A cluster with one stream: what was acked may be trimmed."""

    def __init__(self, *epochs: Epoch) -> None:
        self.epochs = {e.number: e for e in epochs}
        #: What comes before the stable epoch of a number.
        self.said: dict[int, Epoch] = {}
        self.acked = -1
        self.first = 0
        self.consumers: list[str | None] = []
        self.positions: list[int] = []
        self.fail: list[Exception] = []
        self._news = threading.Condition()

    def add(self, *epochs: Epoch) -> None:
        with self._news:
            self.epochs |= {e.number: e for e in epochs}
            self._news.notify_all()

    def follow(
        self, stream: str, start: int, *, consumer: str | None = None, has: int = 0
    ) -> Iterator[Epoch]:
        self.consumers.append(consumer)
        self.positions.append(max(start, has))
        if self.fail:
            raise self.fail.pop()
        return self._follow(start)

    def _follow(self, number: int) -> Iterator[Epoch]:
        while True:
            if number < self.first:
                raise EpochGone("trimmed")
            if number in self.said:
                yield self.said[number]
            with self._news:
                if not self._news.wait_for(lambda n=number: n in self.epochs, WAIT_S):
                    raise Unreachable("the test is over")
            yield self.epochs[number]
            self.acked = number
            number += 1


def started(stream: Stream, folder: Path) -> SinkThread:
    thread = SinkThread(stream, sink(folder))  # type: ignore[arg-type]
    thread.start()
    return thread


def test_a_sink_thread_writes_what_comes_and_acks_after_the_file_is_there(tmp_path: Path):
    stream = Stream(epoch(0), epoch(1))
    thread = started(stream, tmp_path)
    assert thread.wait(2, WAIT_S)
    assert not thread.wait(3, 0.0)
    stream.add(epoch(2, sealed_us=time.time_ns() // 1000))
    assert thread.wait(3, WAIT_S)
    assert thread.delay_s is not None
    assert thread.delay_s < WAIT_S
    assert stream.consumers == ["sink_alerts"]
    thread.stop()


def test_a_sink_thread_goes_on_from_its_files(tmp_path: Path):
    sink(tmp_path).write(epoch(0))
    thread = started(Stream(epoch(0), epoch(1)), tmp_path)
    assert thread.wait(2, WAIT_S)
    assert numbers(tmp_path) == [0, 1]


def test_a_sink_thread_goes_on_although_its_newest_epoch_was_trimmed(tmp_path: Path):
    sink(tmp_path).write(epoch(0))
    stream = Stream(epoch(1))
    stream.first = 1
    assert started(stream, tmp_path).wait(2, WAIT_S)


def test_results_of_another_run_are_not_continued(tmp_path: Path):
    """The cluster's folder was removed, the directory of results was not."""
    sink(tmp_path).write(epoch(0, rows=7))
    with pytest.raises(DivergenceError, match="another run"):
        started(Stream(epoch(0), epoch(1)), tmp_path).wait(2, WAIT_S)
    assert numbers(tmp_path) == [0]


def test_a_directory_with_more_epochs_than_the_run_is_told(tmp_path: Path):
    for number in range(3):
        sink(tmp_path).write(epoch(number))
    with pytest.raises(DivergenceError, match="has 3 epochs, the query ended after 2"):
        started(Stream(epoch(0), epoch(1)), tmp_path).wait(2, WAIT_S)


def test_a_cluster_that_is_away_for_a_moment_is_asked_again(tmp_path: Path):
    stream = Stream(epoch(0))
    stream.fail = [Unreachable("starting"), UnbrokenError("nobody serves the stream")]
    assert started(stream, tmp_path).wait(1, WAIT_S)
    assert not stream.fail


def test_an_error_of_the_sink_reaches_whoever_waits(tmp_path: Path):
    stream = Stream(epoch(0))
    thread = started(stream, tmp_path)
    thread.wait(1, WAIT_S)
    stream.add(epoch(1, stream="scans"))
    with pytest.raises(UnbrokenError, match="'scans'"):
        thread.wait(2, WAIT_S)


WRITER = """
import sys
import pyarrow as pa
from unbroken.client.sinks import DirectorySink
from unbroken.epochs import Epoch
sink = DirectorySink(sys.argv[1], "intrusion", "alerts")
while True:
    table = pa.table({"n": list(range(sink.next, sink.next + 2))})
    sink.write(Epoch.of("alerts", sink.next, table))
    print(sink.next, flush=True)
"""


def test_a_real_process_killed_again_and_again_leaves_every_epoch_once(tmp_path: Path):
    """Scenario 30 with kill -9 at no particular moment."""
    for _ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        for _ in range(20):
            assert writer.stdout.readline()
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait(WAIT_S)
        writer.stdout.close()
        again = sink(tmp_path)
        assert numbers(tmp_path) == list(range(again.next))
        assert again.rows == 2 * again.next
    values = [pq.read_table(again.path(n)).column("n").to_pylist() for n in range(again.next)]
    assert values == [[n, n + 1] for n in range(again.next)]


def test_a_lost_epoch_is_a_file_that_says_so(tmp_path: Path):
    """Invariant 2: a gap is delivered as such, number by number."""
    written = sink(tmp_path)
    schema = epoch(0).table.schema
    written.write(epoch(0, rows=2))
    assert written.write(Epoch.gap("alerts", 1, schema, lost=12))
    assert written.write(Epoch.gap("alerts", 2, schema, lost=3))
    written.write(epoch(3, rows=0))
    kinds = [
        Header.from_json(pq.read_schema(written.path(n)).metadata[HEADER_KEY]).kind
        for n in range(4)
    ]
    assert kinds == ["stable", "gap", "gap", "stable"]
    assert pq.read_table(tmp_path).num_rows == 2, "readers of the directory meet one schema"
    assert (written.rows, written.lost) == (2, 2)
    assert json.loads((tmp_path / NOTE).read_bytes())["lost"] == 2
    assert (sink(tmp_path).rows, sink(tmp_path).lost) == (2, 2)
    (tmp_path / NOTE).unlink()
    assert (sink(tmp_path).rows, sink(tmp_path).lost) == (2, 2), "the note is only a cache"
    with pytest.raises(DivergenceError, match="has rows that are lost there, and other content"):
        written.write(epoch(1, rows=0))


def test_what_was_lost_on_the_way_is_in_the_newest_epoch(tmp_path: Path):
    """Each header has all of it: what was lost in epochs that came from elsewhere is not missed,
    and what comes twice is not counted twice."""
    written = sink(tmp_path)
    written.write(epoch(0))
    written.write(epoch(1).with_header(lost=3, lost_total=40, gaps_total=9))
    assert (written.lost, written.lost_rows) == (0, 40)
    assert not written.write(epoch(0, rows=0).with_header(lost_total=5, gaps_total=1)), (
        "made again of a gap: what is here stays"
    )
    assert sink(tmp_path).lost_rows == 40
    assert json.loads((tmp_path / NOTE).read_bytes())["lost_rows"] == 40


def test_a_sink_that_compares_its_newest_epoch_says_that_it_has_it(tmp_path: Path):
    """Or a hole would begin at an epoch that is in the directory already."""
    sink(tmp_path).write(epoch(0))
    stream = Stream(epoch(0), epoch(1))
    thread = started(stream, tmp_path)
    assert thread.wait(2, WAIT_S)
    assert stream.positions[:2] == [1, 1]
    thread.stop()


def test_tentative_results_lie_apart_until_they_are_replaced(tmp_path: Path):
    """A reader of the directory never sees a mixture; what was corrected goes."""
    sink = DirectorySink(tmp_path, "shop", "pages")
    said = tmp_path / "_tentative"
    table = pa.table({"page": ["home"]})
    assert sink.write(Epoch.of("pages", 0, table))
    assert not sink.write(Epoch.of("pages", 1, table, kind="tentative", branch="1@node-1"))
    assert sink.next == 1
    assert [path.name for path in said.iterdir()] == ["epoch-000000000001.tentative"]
    assert pq.read_table(said / "epoch-000000000001.tentative").num_rows == 1
    assert pq.read_table(tmp_path).num_rows == 1, "a reader of the directory"
    assert [*tmp_path.rglob("*.parquet")] == [sink.path(0)], "one that looks for files"
    assert sink.write(Epoch.of("pages", 1, table))
    assert list(said.iterdir()) == []
    assert not sink.write(Epoch.of("pages", 1, table, kind="tentative", branch="1@node-1"))
    assert list(said.iterdir()) == [], "said too late: the result is there"


def test_a_sink_that_follows_meets_tentative_epochs(tmp_path: Path):
    """They come, are replaced, and are neither counted nor acked as results."""
    stream, apart = Stream(epoch(0)), tmp_path / "_tentative" / "epoch-000000000001.tentative"
    stream.said[1] = epoch(1).with_header(kind="tentative", branch="1@node-1")
    thread = started(stream, tmp_path)
    deadline_s = time.monotonic() + WAIT_S
    while not apart.exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    assert (thread.sink.next, stream.acked) == (1, 0)
    stream.add(epoch(1, rows=1))
    stream.add(epoch(2))
    assert thread.wait(3, WAIT_S)
    thread.stop()
    assert numbers(tmp_path) == [0, 1, 2]
    assert pq.read_table(sink(tmp_path).path(1)).num_rows == 1, "the stable one"
    assert not [*tmp_path.rglob("*.tentative")]


def test_what_an_earlier_process_said_tentatively_goes(tmp_path: Path):
    """Its branch may be over, and nobody would ever replace it."""
    table = pa.table({"page": ["home"]})
    DirectorySink(tmp_path, "shop", "pages").write(Epoch.of("pages", 0, table, kind="tentative"))
    DirectorySink(tmp_path, "shop", "pages")
    assert not (tmp_path / "_tentative").exists()
