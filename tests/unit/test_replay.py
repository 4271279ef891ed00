"""Replay: how files are cut, and that a killed replay goes on without losing or repeating a row."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbroken.cli.pace import choose
from unbroken.client import replay as replay_module
from unbroken.client.files import Chunk
from unbroken.client.progress import Progress
from unbroken.client.replay import Pace, Replay, Trace
from unbroken.client.slices import ByRows, ByTime, Close, Piece, Send, pieces, row_numbers, steps
from unbroken.errors import BackpressureError, DefinitionError, RowError, Unreachable
from unbroken.query import Query
from unbroken.schemas import BadRow
from unbroken.streams.source_log import SourceLog

US = 1_000_000
Start: TypeAlias = "Callable[[Path], Keeper]"


def table(times_us: list[int | None]) -> pa.Table:
    return pa.table({"ts": pa.array(times_us, pa.timestamp("us", tz="UTC"))})


def cut_all(chunks: list[Chunk], cut: Any, after: int = -1) -> list[tuple[int, int, int]]:
    return [(p.slice, p.rows.num_rows, p.last_row) for p in pieces(chunks, cut, after=after)]


def test_late_rows_and_rows_without_a_time_go_into_the_current_slice():
    cut = ByTime("ts", t0_us=10 * US, length_us=US)
    first = cut(table([10 * US, 9 * US, 12 * US, 11 * US, None]), np.arange(5))
    assert first.tolist() == [0, 0, 2, 2, 2]
    assert cut(table([10 * US, 13 * US]), np.arange(5, 7)).tolist() == [2, 3]


def test_a_slice_that_spans_chunks_keeps_its_number():
    chunks = [Chunk(table([0, 1]), 0, []), Chunk(table([2, US]), 2, [])]
    assert cut_all(chunks, ByTime("ts", t0_us=0, length_us=US)) == [(0, 2, 1), (0, 1, 2), (1, 1, 3)]


def test_bad_rows_are_counted_in_row_numbers():
    chunk = Chunk(table([0, 1, 2]), 1, [BadRow(0, "", ""), BadRow(3, "", "")])
    assert row_numbers(chunk).tolist() == [1, 2, 4]
    assert cut_all([chunk], ByRows(3)) == [(0, 2, 2), (1, 1, 4)]


def test_a_row_of_next_year_is_an_error_that_names_it_not_a_million_empty_epochs():
    cut = ByTime("ts", t0_us=0, length_us=US)
    with pytest.raises(RowError, match="row 7: its time 1971"):
        cut(table([0, 400 * 86_400 * US]), np.array([6, 7]))


def test_sources_close_the_same_slices_in_lock_step():
    one = [Piece(0, table([0]), 0), Piece(3, table([0]), 1)]
    two = [Piece(1, table([0]), 0), Piece(1, table([0]), 1)]
    told = list(steps({"a": iter(one), "b": iter(two)}))
    shown = [s.slice if isinstance(s, Close) else f"{s.source}{s.last_row}" for s in told]
    assert shown == ["a0", 0, "b0", "b1", 1, 2, "a1", 3]


@given(
    times=st.lists(st.integers(0, 20 * US), min_size=1, max_size=60),
    chunk_rows=st.integers(1, 20),
    stopped_after=st.integers(-1, 60),
)
def test_what_is_left_after_a_stop_has_the_slices_it_would_have_had(
    times: list[int], chunk_rows: int, stopped_after: int
):
    """However the file is read and wherever the first run stopped."""

    def by_row(after: int, size: int) -> dict[int, int]:
        chunks = [Chunk(table(times[i : i + size]), i, []) for i in range(0, len(times), size)]
        found: dict[int, int] = {}
        for piece in pieces(chunks, ByTime("ts", t0_us=times[0], length_us=US), after=after):
            first = piece.last_row - piece.rows.num_rows + 1
            found |= dict.fromkeys(range(first, piece.last_row + 1), piece.slice)
        return found

    whole = by_row(-1, 1000)
    assert sorted(whole) == list(range(len(times)))
    rest = {row: number for row, number in whole.items() if row > stopped_after}
    assert by_row(stopped_after, chunk_rows) == rest


class Keeper:
    """Sources as the keeper has them, without sockets: each call may be the last."""

    def __init__(self, folder: Path, query: Query) -> None:
        self.logs = {
            name: SourceLog(folder / name, name, source.schema, event_time=source.event_time)
            for name, source in query.sources.items()
        }
        self.calls_left = 10**9
        self.full = 0

    def call(self) -> None:
        self.calls_left -= 1
        if self.calls_left < 0:
            raise KeyboardInterrupt

    def producer(self, source: str, *, name: str) -> Producer:
        return Producer(self, self.logs[source], name)

    def status(self) -> dict[str, Any]:
        sources = {n: {"next": log.open_number, "consumers": {}} for n, log in self.logs.items()}
        # Always caught up: AHEAD_EPOCHS_MAX holds nobody here.
        fragment = {"epoch": 10**9, "failed": "", "term": 1, "output": {"consumers": {}}}
        node = {"state": "running", "fragments": {"f": fragment}}
        return {"sources": sources, "nodes": {"n": node}}

    def close(self) -> None:
        for log in self.logs.values():
            log.close()

    def epochs(self, source: str) -> list[list[Any]]:
        log = self.logs[source].log
        return [log.read(number).table.column("n").to_pylist() for number in range(log.next)]


class Producer:
    def __init__(self, keeper: Keeper, log: SourceLog, name: str) -> None:
        self._keeper, self._log, self._name = keeper, log, name
        self.sequence = 1 + log.sequence(name)

    def send(self, rows: pa.Table, *, sequence: int) -> Any:
        self._keeper.call()
        if self._keeper.full > 0:
            self._keeper.full -= 1
            raise BackpressureError("full")
        return self._log.send(rows, self._name, sequence, now_s=time.time(), wait_s=0.0)

    def close_epoch(self) -> int:
        self._keeper.call()
        return self._log.seal().number


@pytest.fixture
def query() -> Query:
    made = Query("q", epoch="1s")
    made.source("a", "ts TIMESTAMP, n INT", event_time="ts")
    made.source("b", "ts TIMESTAMP, n INT", event_time="ts")
    return made


def make_traces(query: Query, folder: Path) -> list[Trace]:
    texts = {"a": [0, 0.5, 1.2, 0.9, 4.0, 4.1], "b": [1.0, 1.1, 1.9, 2.0]}
    for name, times in texts.items():
        lines = [f"{1000 + t},{n}" for n, t in enumerate(times)]
        (folder / f"{name}.csv").write_text("\n".join(["ts,n", *lines]))
    return [Trace(query.sources[name], folder / f"{name}.csv") for name in texts]


@pytest.fixture
def traces(query: Query, tmp_path: Path) -> list[Trace]:
    return make_traces(query, tmp_path)


EPOCHS = {"a": [[0, 1], [2, 3], [], [], [4, 5]], "b": [[], [0, 1, 2], [3], [], []]}


@pytest.fixture
def start(query: Query) -> Iterator[Callable[[Path], Keeper]]:
    """Starts keepers, and ends them with the test."""
    with contextlib.ExitStack() as ends:

        def start(folder: Path) -> Keeper:
            keeper = Keeper(folder, query)
            ends.callback(keeper.close)
            return keeper

        yield start


def play(keeper: Keeper, traces: list[Trace], pace: Pace | None = None) -> None:
    given = pace or Pace(epoch_s=1.0)
    Replay(keeper, traces, given, Progress(keeper.status)).run()  # type: ignore[arg-type]


def test_epochs_are_cut_by_event_time_over_all_files(
    start: Start, traces: list[Trace], tmp_path: Path
):
    keeper = start(tmp_path)
    play(keeper, traces)
    assert {name: keeper.epochs(name) for name in EPOCHS} == EPOCHS


def test_a_replay_killed_at_any_call_goes_on_to_the_same_epochs(
    query: Query, start: Start, tmp_path: Path
):
    """Scenario 12.  The process of the replay dies, or the whole machine with the keeper."""
    for calls in range(15):  # Five sends and ten closes.
        folder = tmp_path / f"killed-{calls}"
        folder.mkdir()
        traces = make_traces(query, folder)
        keeper = start(folder)
        keeper.calls_left = calls
        with pytest.raises(KeyboardInterrupt):
            play(keeper, traces)
        keeper.close()
        again = start(folder)
        play(again, make_traces(query, folder))
        for log in again.logs.values():
            log.seal_until(5)  # What `finish` does.
        assert {name: again.epochs(name) for name in EPOCHS} == EPOCHS, f"killed after {calls}"


def test_a_second_run_sends_nothing(start: Start, traces: list[Trace], tmp_path: Path):
    keeper = start(tmp_path)
    play(keeper, traces)
    before = {name: keeper.epochs(name) for name in EPOCHS}
    keeper.calls_left = 0
    play(keeper, traces)
    assert {name: keeper.epochs(name) for name in EPOCHS} == before


def test_a_full_source_is_waited_for_while_something_moves(
    start: Start, traces: list[Trace], tmp_path: Path
):
    keeper = start(tmp_path)
    keeper.full = 3
    play(keeper, traces)
    assert keeper.epochs("a") == EPOCHS["a"]


def test_a_full_source_in_a_cluster_that_stands_still_is_an_error(
    start: Start, traces: list[Trace], tmp_path: Path
):
    keeper = start(tmp_path)
    keeper.full = 10**9
    stuck = Progress(keeper.status, stall_s_max=0.0)
    stuck.check()
    with pytest.raises(BackpressureError):
        Replay(keeper, traces, Pace(epoch_s=1.0), stuck).run()  # type: ignore[arg-type]


def test_a_lost_answer_to_a_close_does_not_close_twice(
    start: Start, traces: list[Trace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    keeper = start(tmp_path)
    whole = Producer.close_epoch

    def lose(self: Producer) -> int:
        whole(self)
        raise Unreachable("the answer is lost")

    monkeypatch.setattr(Producer, "close_epoch", lose)
    play(keeper, traces)
    assert {name: keeper.epochs(name) for name in EPOCHS} == EPOCHS


def test_at_a_speed_rows_are_sent_when_due_into_the_same_epochs(
    start: Start, traces: list[Trace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Ten times as fast, an epoch of 0.1 s of wall time is a second of event time."""
    slept = 0.0

    class Clock:
        def monotonic(self) -> float:
            return slept

        def sleep(self, seconds: float) -> None:
            nonlocal slept
            slept += seconds

    monkeypatch.setattr(replay_module, "time", Clock())
    keeper = start(tmp_path)
    play(keeper, traces, Pace(epoch_s=0.1, speed=10.0))
    assert slept == pytest.approx(0.4)  # The last rows are due then; `finish` closes their epoch.
    for log in keeper.logs.values():
        log.seal_until(5)
    assert {name: keeper.epochs(name) for name in EPOCHS} == EPOCHS


def test_bad_rows_are_skipped_with_counts_or_told(query: Query, start: Start, tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("ts,n\n1000,0\n1000,one\n1001,2\n")
    b = tmp_path / "b.csv"
    b.write_text("ts,n\n")
    traces = [Trace(query.sources["a"], path, "skip"), Trace(query.sources["b"], b)]
    keeper = start(tmp_path)
    play(keeper, traces)
    assert keeper.epochs("a") == [[0], [2]]
    assert traces[0].bad == 1
    assert "line 3" in traces[0].bad_shown[0].why
    with pytest.raises(RowError, match="line 3"):
        play(start(tmp_path / "raise"), [Trace(query.sources["a"], path), traces[1]])


class Looks:
    """A cluster whose status is a list of answers."""

    def __init__(self, answers: Iterator[Any]) -> None:
        self._answers = answers

    def __call__(self) -> Any:
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_keeper_that_is_away_for_a_moment_is_waited_for():
    status = {"sources": {}, "nodes": {}}
    progress = Progress(Looks(iter([Unreachable("away"), Unreachable("away"), status])))
    assert progress.wait(lambda told: True) is status


@pytest.mark.parametrize(
    ("speed", "rows", "files", "expected"),
    [
        (None, None, "ab", Pace(epoch_s=1.0)),
        ("max", None, "ab", Pace(epoch_s=1.0)),
        ("10", None, "ab", Pace(epoch_s=1.0, speed=10.0)),
        (None, 500, "ab", Pace(rows=500)),
        (None, None, "a", Pace(speed=1.0)),
        ("2", None, "a", Pace(speed=2.0)),
        (None, None, "", Pace(speed=1.0)),
    ],
)
def test_the_pace_follows_from_query_and_options(
    query: Query, speed: str | None, rows: int | None, files: str, expected: Pace
):
    given_files = [Trace(query.sources[name], Path(name)) for name in files]
    assert choose(query, given_files, speed=speed, rows_per_epoch=rows) == expected


@pytest.mark.parametrize(
    ("speed", "rows", "files", "told"),
    [
        ("max", None, "a", "'b' has no file"),
        (None, 5, "a", "'b' has no file"),
        ("fast", None, "ab", "--speed fast"),
        ("0", None, "ab", "--speed 0"),
    ],
)
def test_what_cannot_be_is_told(
    query: Query, speed: str | None, rows: int | None, files: str, told: str
):
    given_files = [Trace(query.sources[name], Path(name)) for name in files]
    with pytest.raises(DefinitionError, match=told):
        choose(query, given_files, speed=speed, rows_per_epoch=rows)


def test_a_source_without_event_time_is_replayed_by_rows():
    query = Query("q")
    trace = Trace(query.source("lines", "line STRING"), Path("x.txt"))
    assert choose(query, [trace], speed=None, rows_per_epoch=None) == Pace(rows=10_000)
    with pytest.raises(DefinitionError, match="no event time"):
        choose(query, [trace], speed="max", rows_per_epoch=None)


def test_send_steps_have_rows():
    [send, _] = steps({"a": iter([Piece(0, table([1]), 0)])})
    assert isinstance(send, Send)
    assert send.rows.num_rows == 1
