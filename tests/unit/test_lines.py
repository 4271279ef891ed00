"""A replica whose input is cut off: it parks a fork, goes on, and comes together again.

Everything is real except Spark: a thread asks the gate as Spark's sources do, passes all rows on,
and writes checkpoints by hand.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from layers_by_hand import commit, plan, work

from unbroken.checkpoints import fork
from unbroken.engine.source import _ENOUGH
from unbroken.epochs import TENTATIVE, Epoch, Header, digest_of_rows
from unbroken.errors import CheckpointLost, DiskError, FenceError, FragmentFailed
from unbroken.node import branch, lines, replica
from unbroken.node.inputs import AHEAD_EPOCHS
from unbroken.node.replica import Replica
from unbroken.policies import Restart
from unbroken.policies.traits import OperatorClass
from unbroken.streams import serve
from unbroken.streams.branch_log import BranchLog
from unbroken.streams.flight import Door
from unbroken.streams.giving_up import gap_fields
from unbroken.streams.log import EpochLog
from unbroken.streams.serve import StreamDoor
from unbroken.streams.served import Served
from unbroken.tentative.branch import CONVERGE, CORRECT, DELAY, PROCESS, Bound

X_S = 1.0
WAIT_S = 20.0
SCHEMA = pa.schema({"n": pa.int64()})


INPUTS = ("east", "west")


class Query:
    """As `engine.run.Run`: one thread that asks after n, computes, seals, commits.

    As Spark's readers do, those of several inputs ask at the same time, until one is told that
    nothing is to be planned ahead any more.
    """

    made: list[Query]
    #: Seconds that a new query takes to start, and an epoch.
    start_s, work_s = 0.1, 0.0

    def __init__(
        self, name: str, plan: Any, mode: str, start: fork.Start, seal: Any, take: Any, **how: Any
    ) -> None:
        self.term, self._checkpoint, self._seal = start.term, start.checkpoint, seal
        self.replica: Replica = seal.__self__
        self.lifted: list[list[str]] = []
        self._failure = ""
        self._stopped = False
        self._ahead, self._readers = True, ThreadPoolExecutor(len(INPUTS))
        Query.made.append(self)
        time.sleep(self.start_s)
        threading.Thread(target=self._live, daemon=True).start()

    def _live(self) -> None:
        try:
            while (first := self.replica.wait_released(self.term)) is None:
                pass
            commits = self._checkpoint.commits()
            after = commits[-1].epoch if commits else first - 1
            batch = commits[-1].batch + 1 if commits else 0
            started: set[str] = set()
            while not self._stopped:
                for stream in INPUTS:
                    if stream not in started:  # Its process starts when it is asked for first.
                        self.replica.wait_released(self.term)
                        started.add(stream)
                        self.replica.ask(stream, after, self.term, rows=True, ahead=True)
                ask = partial(self._ask, after=after)
                tables = list(self._readers.map(ask, INPUTS) if self._ahead else map(ask, INPUTS))
                after += 1
                plan(self._checkpoint, batch, after, after)
                time.sleep(self.work_s)
                rows = pa.concat_tables(tables).sort_by("n")
                self._seal(after, rows, digest_of_rows(rows))
                work(self._checkpoint, batch)
                commit(self._checkpoint, batch)
                batch += 1
        except FenceError:
            self._stopped = True
        finally:
            self._readers.shutdown(wait=False)

    def _ask(self, stream: str, after: int) -> pa.Table:
        while not self._stopped:
            if self._failure:
                raise FenceError("it has failed")
            table = self.replica.ask(stream, after, self.term, rows=True)
            if table is not None:
                self._ahead = self._ahead and not _ENOUGH.keys() <= table.schema.metadata.keys()
                return table.replace_schema_metadata(None)
        raise FenceError("stopped")

    def go_on_from(self, epoch: int | None) -> None: ...

    def restore_watermarks(self) -> None: ...

    def save_watermarks(self, epoch: int) -> None: ...

    def seal_with(self, seal: Any) -> None:
        self._seal = seal

    def lift_watermarks(self, missing: list[str]) -> None:
        self.lifted.append(missing)

    def fail(self) -> None:
        self._failure = "out of memory"

    def failure(self) -> FragmentFailed | None:
        return FragmentFailed(self._failure) if self._failure and not self._stopped else None

    def stop(self) -> None:
        self._stopped = True


class World:
    """Two producers and a replica that reads them."""

    def __init__(self, folder: Path, when_cut: str = PROCESS, when_healed: str = CORRECT) -> None:
        self.folder = folder
        self.door = Door()
        streams = StreamDoor(self.door)
        self.streams = streams.streams
        self.logs = {name: EpochLog(folder / name, name) for name in ("east", "west")}
        for name, log in self.logs.items():
            streams.streams[name] = Served(log, [], keep=0)
        #: What the western producer says while it is cut off itself.
        self.western = BranchLog(folder / "tentative", "west")
        streams.streams["west"].tentative = self.western
        self.fragment: Any = SimpleNamespace(
            name="alerts", policy=Restart(), inputs=("east", "west"), where="query.py:1",
            output_mode="append", bound=Bound(X_S, when_cut, when_healed),
        )  # fmt: skip
        self.start()

    def start(self) -> None:
        book: Any = SimpleNamespace(
            replicas=lambda stream: {"keeper": self.door.address},
            wait_for=lambda stream, timeout_s: {"first": 0, "next": 0},
        )
        known: Any = SimpleNamespace(
            traits=SimpleNamespace(operator_class=OperatorClass.DETERMINISTIC),
            notes_watermarks=False, fingerprint="f", event_time=None,
            inputs=dict.fromkeys(("east", "west"), SCHEMA), schema=SCHEMA,
        )  # fmt: skip
        self.replica = Replica(
            self.fragment, self.folder / "alerts", book, known, name="alerts@node-1"
        )
        self.replica.start(lambda term: known)

    def feed(self, stream: str, first: int, last: int) -> None:
        offset = 0 if stream == "east" else 1000
        for number in range(first, last + 1):
            table = pa.table({"n": [offset + number]}, SCHEMA)
            self.logs[stream].append(Epoch.of(stream, number, table))

    def say(self, number: int, waited_s: float) -> None:
        """The western producer says an epoch tentatively, and half of what is true."""
        table = pa.table({"n": [2000 + number]}, SCHEMA)
        self.western.append(
            Epoch.of("west", number, table, kind=TENTATIVE, branch="7@far", waited_s=waited_s)
        )

    def both(self, first: int, last: int) -> None:
        for number in range(first, last + 1):
            for stream in ("east", "west"):
                self.feed(stream, number, number)

    def until(self, what: Callable[[], object]) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while not what():
            assert time.monotonic() < deadline_s, self.replica.status()
            time.sleep(0.01)

    @property
    def said(self) -> list[int]:
        assert self.replica.said is not None
        return [header.number for header in self.replica.said.news("", 0, 0)[1]]

    def stable(self) -> list[list[int]]:
        log = self.replica.log
        return [log.read(n).table["n"].to_pylist()
                for n in range(log.first, log.next)]  # fmt: skip


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    Query.made = []
    monkeypatch.setattr(Query, "work_s", 0.0)
    monkeypatch.setattr(replica, "Run", Query)
    for module in (serve, lines, branch):
        monkeypatch.setattr(module, "POLL_S", 0.2)


Make = Callable[..., World]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Make]:
    made: list[World] = []

    def make(**how: str) -> World:
        made.append(World(tmp_path, **how))
        return made[-1]

    yield make
    for each in made:
        each.replica.stop()
        each.door.close()


def complete(count: int) -> list[list[int]]:
    return [[n, 1000 + n] for n in range(count)]


def test_a_failure_shorter_than_the_bound_gives_no_tentative_row(world: Make):
    """Masked wholly: nothing is parked, nothing is said."""
    w = world()
    w.both(0, 2)
    w.feed("east", 3, 3)
    time.sleep(0.5 * X_S)
    w.feed("west", 3, 3)
    w.until(lambda: w.replica.committed == 3)
    assert w.stable() == complete(4)
    assert w.replica.partition == ""
    assert len(Query.made) == 1


def test_results_go_on_within_the_bound_and_are_corrected_after(world: Make):
    """Both promises of DPC, availability and eventual consistency, with one replica."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    began_s = time.monotonic()
    w.feed("east", 3, 6)
    w.until(lambda: 3 in w.said)
    assert 0.85 * X_S < time.monotonic() - began_s < 1.3 * X_S
    w.until(lambda: w.said == [3, 4, 5, 6])
    status = w.replica.status()
    assert status["partition"] == "going tentative: west silent for 0.9 s"
    assert status["sentence"] == "tentative from epoch 3 on: 6 without west; stable to 2"
    assert (status["epoch"], status["tentative_to"], status["branch"]) == (2, 6, "1@node-1")
    header = w.replica.said.news("", 0, 0)[1][0]
    assert (header.kind, header.branch, header.stable_to) == ("tentative", "1@node-1", 2)
    assert header.waited_s == pytest.approx(0.9 * X_S, abs=0.2)
    assert w.replica.log.next == 3, "the stable stream knows nothing of it"
    assert w.replica.acks(0)[0][1]["processed"] == 2, "nor does any producer"

    w.feed("west", 3, 7)
    w.feed("east", 7, 7)
    w.until(lambda: w.replica.branch is None)
    w.until(lambda: w.replica.committed == 7)
    assert w.stable() == complete(8)
    assert w.replica.partition.startswith("stable again: corrected epochs 3 to ")
    assert [query.term for query in Query.made] == [1, 2]
    w.until(lambda: w.said == [])  # A moment after the branch is gone.
    w.until(lambda: fork.terms_in(w.folder / "alerts") == [2])
    w.both(8, 8)
    w.until(lambda: w.stable() == complete(9))


def test_new_results_go_on_while_the_stable_line_catches_up(
    world: Make, monkeypatch: pytest.MonkeyPatch
):
    """Where rollback-and-redo designs stall."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 12)
    w.until(lambda: 12 in w.said)
    monkeypatch.setattr(Query, "work_s", 0.15)  # Of the second query, which has much to do.
    Query.made[0].work_s = 0.0
    w.feed("west", 3, 12)
    w.until(lambda: w.replica.log.next > 4)
    w.both(13, 13)
    w.until(lambda: 13 in w.said)
    assert w.replica.log.next < 10, "said long before the stable line is there"
    w.until(lambda: w.replica.branch is None)
    w.until(lambda: w.replica.committed == 13)
    assert w.stable() == complete(14)


def test_a_second_partition_during_the_correction(world: Make):
    """The stable line waits, the branch goes on, and they meet all the same."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 6)
    w.until(lambda: 6 in w.said)
    w.feed("west", 3, 4)
    w.until(lambda: w.replica.log.next == 5)
    w.feed("east", 7, 9)
    w.until(lambda: 9 in w.said)
    w.feed("west", 5, 9)
    w.until(lambda: w.replica.branch is None)
    w.until(lambda: w.stable() == complete(10))


def test_a_crash_in_the_middle_loses_only_tentative_results(world: Make):
    """The parked fork is what a restart goes on from, not what the branch has committed."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 6)
    w.until(lambda: 6 in w.said)
    w.replica.stop()
    w.start()
    assert w.replica.committed == 2
    assert w.said == []
    w.until(lambda: 6 in w.said)  # Still cut off: it parts again.
    w.feed("west", 3, 6)
    w.until(lambda: w.replica.branch is None and w.stable() == complete(7))


def test_a_branch_that_fails_is_given_up_and_the_stable_line_goes_on(world: Make):
    """Still cut off, it parts again after the bound."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 5)
    w.until(lambda: 5 in w.said)
    Query.made[0].fail()
    w.until(lambda: w.replica.status()["branch"] != "1@node-1")
    w.until(lambda: w.said == [3, 4, 5])
    assert w.replica.branch is not None
    assert w.replica.branch.name == "2@node-1"
    w.feed("west", 3, 5)
    w.until(lambda: w.replica.branch is None and w.stable() == complete(6))


def test_a_fork_that_cannot_be_parked_is_tried_again_after_the_bound(
    world: Make, monkeypatch: pytest.MonkeyPatch
):
    """Also if the epoch has waited upstream for all of it: not at once, again and again."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    tries: list[float] = []
    park = fork.park

    def full(*given: Any, **how: Any) -> fork.Start:
        tries.append(time.monotonic())
        if len(tries) < 3:
            raise DiskError("no space left")
        return park(*given, **how)

    monkeypatch.setattr(lines.fork, "park", full)
    w.western.begin("7@far", after=2)
    w.feed("east", 3, 3)
    w.say(3, waited_s=0.9 * X_S)
    w.until(lambda: w.said == [3])
    assert [later - before > 0.8 * X_S for before, later in pairwise(tries)] == [True, True]


def test_a_branch_goes_on_without_what_its_stable_line_has_acked_before_it(world: Make):
    """It was trimmed: to the branch an input that is missing."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 4)
    w.until(lambda: w.said == [3, 4])
    assert w.replica.branch is not None
    w.replica.branch._inputs.error = CheckpointLost("west: epoch 3 was trimmed")
    w.feed("east", 5, 5)
    w.until(lambda: w.said == [3, 4, 5])
    assert w.replica.branch.failure() is None


def test_delay_waits_the_bound_for_every_epoch(world: Make):
    """Fewer tentative rows than with process: what comes in time is in it."""
    w = world(when_cut=DELAY)
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 3)
    w.until(lambda: 3 in w.said)
    began_s = time.monotonic()
    w.feed("east", 4, 4)
    w.until(lambda: 4 in w.said)
    assert time.monotonic() - began_s > 0.85 * X_S
    w.feed("west", 3, 4)
    w.until(lambda: w.replica.branch is None and w.stable() == complete(5))


def test_watermarks_are_lifted_for_what_is_missing(world: Make):
    """Scenario 9: after every epoch of the branch, and never on the stable line."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 4)
    w.until(lambda: len(Query.made[0].lifted) == 2)
    assert Query.made[0].lifted == [["west"], ["west"]]
    w.feed("west", 3, 4)
    w.until(lambda: w.replica.branch is None)
    assert Query.made[1].lifted == []


def test_what_is_tentative_upstream_is_tentative_here_and_the_bound_counts_once(world: Make):
    """Scenario 10: the producer has waited; whoever reads it follows at once, and is corrected."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 5)
    w.western.begin("7@far", after=2)
    began_s = time.monotonic()
    w.say(3, waited_s=0.9 * X_S)
    for number in (4, 5):
        w.say(number, waited_s=0.0)
    w.until(lambda: w.said == [3, 4, 5])
    assert time.monotonic() - began_s < 0.6 * X_S, "it does not wait a second time"
    assert w.replica.partition == "going tentative: west tentative"
    assert w.replica.said is not None
    first = w.replica.said.read("1@node-1", 3)
    assert first.table["n"].to_pylist() == [3, 2003]
    assert first.header.waited_s >= 0.9 * X_S
    w.feed("west", 3, 5)
    w.western.end()
    w.until(lambda: w.replica.branch is None and w.stable() == complete(6))
    assert w.replica.partition == "stable again: corrected epochs 3 to 5 (6 rows changed)"


def test_a_stable_line_never_hears_what_is_tentative(world: Make):
    """The stable epoch comes before the bound runs out: nothing was ever tentative here."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.western.begin("7@far", after=2)
    w.feed("east", 3, 3)
    w.say(3, waited_s=0.2)
    time.sleep(0.3 * X_S)
    w.feed("west", 3, 3)
    w.until(lambda: w.stable() == complete(4))
    assert w.replica.partition == ""


def test_what_only_the_branch_has_read_does_not_count_for_a_hole(world: Make):
    """Scenario 13: should the producer lose everything, its hole begins after the stable line.

    That has a few epochs at hand itself, while it waits for the input that is cut off.
    """
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 6)
    w.until(lambda: len(Query.made) == 2)
    w.feed("east", 7, 20)
    w.until(lambda: 20 in w.said)
    assert w.streams["east"].hole() <= 3 + AHEAD_EPOCHS + 1
    w.feed("west", 3, 20)
    w.until(lambda: w.replica.branch is None and w.stable() == complete(21))
    w.until(lambda: w.streams["east"].hole() == 21)


def test_the_stable_line_starts_while_its_input_is_away(world: Make):
    """A start takes seconds; when the input is back nobody has to wait for it."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 4)
    w.until(lambda: len(Query.made) == 2)
    assert w.said == [3, 4], "not before the branch has said what was there"
    w.until(lambda: "waiting for epoch 3 of west" in w.replica.sentence)
    w.feed("east", 5, 5)
    w.until(lambda: 5 in w.said)
    assert w.replica.log.next == 3
    assert "correcting" not in w.replica.status()["sentence"]
    w.feed("west", 3, 5)
    w.until(lambda: w.replica.branch is None and w.stable() == complete(6))
    assert len(Query.made) == 2


def test_a_stable_line_that_cannot_start_early_starts_when_it_is_healed(
    world: Make, monkeypatch: pytest.MonkeyPatch
):
    """A full disk, say: the branch goes on meanwhile, and nobody calls the replica failed."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    tries: list[fork.Start] = []
    resume = Replica._resume

    def full(self: Replica, began: fork.Start) -> None:
        tries.append(began)
        if len(tries) == 1:
            raise DiskError("no space left")
        resume(self, began)

    monkeypatch.setattr(Replica, "_resume", full)
    w.feed("east", 3, 4)
    w.until(lambda: len(tries) == 1)
    w.feed("east", 5, 6)
    w.until(lambda: w.said == [3, 4, 5, 6])
    assert (len(tries), w.replica.failed) == (1, "")
    w.feed("west", 3, 6)
    w.until(lambda: w.replica.branch is None and w.stable() == complete(7))
    assert len(tries) == 2


def test_a_branch_does_not_wait_for_a_stable_line_that_has_failed(
    world: Make, monkeypatch: pytest.MonkeyPatch
):
    """People have to mend that; until then there are results, tentative ones."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 20)
    w.until(lambda: 20 in w.said and len(Query.made) == 2)
    Query.made[1].work_s = 0.1
    w.feed("west", 3, 60)
    w.until(lambda: w.replica.log.next > 5)
    Query.made[1].fail()
    monkeypatch.setattr(Query.made[1], "failure", lambda: FragmentFailed("out of memory"))
    w.feed("east", 21, 60)
    w.until(lambda: w.replica.status()["failed"] and 60 in w.said)
    assert w.replica.log.next < 20


class Core:
    """A machine that does an epoch and a half while one arrives, however slow the real one is."""

    def __init__(self) -> None:
        self._changed, self._halves = threading.Condition(), 0

    def arrives(self) -> None:
        """One more epoch arrives: there has been time for one and a half."""
        with self._changed:
            # Whoever has nothing to do leaves time unused.
            self._changed.wait_for(lambda: self._halves < 2, timeout=0.1)
            self._halves = min(self._halves, 2) + 3
            self._changed.notify_all()

    def is_quick(self) -> None:
        """From now on it does whatever there is to do."""
        with self._changed:
            self._halves = 1_000
            self._changed.notify_all()

    def does(self, before: Any) -> Any:
        """The same, which takes the time of an epoch."""

        def seal(sealed: Any, *given: Any) -> None:
            with self._changed:
                self._changed.wait_for(lambda: self._halves >= 2)
                self._halves -= 2
                self._changed.notify_all()
            before(sealed, *given)

        return seal


def test_two_lines_that_share_one_core_meet(world: Make, monkeypatch: pytest.MonkeyPatch):
    """Side by side they would never meet: each would do three epochs while four arrive."""
    core = Core()
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 12)
    w.until(lambda: 12 in w.said and len(Query.made) == 2)
    monkeypatch.setattr(branch.Branch, "seal", core.does(branch.Branch.seal))
    monkeypatch.setattr(replica.Replica, "_seal", core.does(replica.Replica._seal))
    Query.made[0].seal_with(w.replica.branch.seal)
    Query.made[1].seal_with(w.replica._seal)
    w.feed("west", 3, 12)
    number = 12
    while w.replica.branch is not None:
        number += 1
        assert number < 150, w.replica.status()
        w.both(number, number)
        core.arrives()
    core.is_quick()
    w.until(lambda: w.stable() == complete(number + 1))


def test_what_a_source_has_given_up_is_told_and_counted_once(world: Make):
    """A partition that outlasts the log: gaps are taken as empty epochs, and what follows says so.

    Later epochs of the source are whole, so it is the consumer that counts; also after a crash.
    """
    w = world()
    w.feed("west", 0, 2)
    for number in (3, 4):
        given_up = gap_fields(Header("west", number, rows=1))
        w.logs["west"].append(Epoch.gap("west", number, SCHEMA, **given_up))
    w.feed("west", 5, 5)
    w.feed("east", 0, 3)
    w.until(lambda: w.replica.committed == 3)
    w.replica.stop()
    w.start()
    w.feed("east", 4, 5)
    w.until(lambda: w.replica.committed == 5)
    assert w.stable() == [*complete(3), [3], [4], [5, 1005]]
    headers = w.replica.log.headers(0)
    assert [header.lost for header in headers] == [0, 0, 0, 1, 1, 0]
    assert [header.gaps_total for header in headers] == [0, 0, 0, 1, 2, 2]
    assert [header.lost_total for header in headers] == [0, 0, 0, 1, 2, 2]


def kinds(w: World) -> list[str]:
    return [header.kind for header in w.replica.log.headers(0)]


def came(replica: Replica, stream: str) -> int:
    """The newest epoch that its branch has of an input, and has looked at."""
    with replica._changed:
        assert replica.branch is not None
        return replica.branch._gate._offered[stream]


def given_up(world: Make) -> World:
    """Epochs 3 to 6 were said without west, which has come back."""
    w = world(when_healed=CONVERGE)
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 6)
    w.until(lambda: w.said == [3, 4, 5, 6])
    w.feed("west", 3, 5)
    w.until(lambda: came(w.replica, "west") == 5)
    assert w.replica.log.next == 3, "not all is back: nothing is given up yet"
    assert w.replica.acks(0)[0][1]["processed"] == 2
    w.feed("west", 6, 6)
    w.until(lambda: w.replica.log.next == 7)
    return w


def test_a_fragment_that_converges_gives_up_what_it_said_and_goes_on(world: Make):
    """Invariants 2 and 4: number by number, explicitly, and final."""
    w = given_up(world)
    w.both(7, 8)
    w.until(lambda: w.replica.branch is None and w.replica.committed == 8)
    assert kinds(w) == ["stable"] * 3 + ["gap"] * 4 + ["stable"] * 2
    assert w.stable() == [*complete(3), [], [], [], [], [7, 1007], [8, 1008]]
    headers = w.replica.log.headers(0)
    assert [header.lost for header in headers] == [0, 0, 0, 2, 2, 2, 2, 0, 0]
    assert [header.gaps_total for header in headers] == [0, 0, 0, 1, 2, 3, 4, 4, 4]
    assert [header.lost_total for header in headers] == [0, 0, 0, 2, 4, 6, 8, 8, 8]
    assert w.replica.acks(0)[0][1]["processed"] == 8
    assert w.replica.partition == "stable again: gave up epochs 3 to 6 (8 input rows)"
    w.until(lambda: w.said == [])
    assert [query.term for query in Query.made] == [1, 3], "what was parked first was not needed"
    w.until(lambda: fork.terms_in(w.folder / "alerts") == [3])


def test_what_was_given_up_stays_so_after_a_crash_in_the_middle(world: Make):
    """The fork was there, and half of the gaps: the log is completed from the fork."""
    w = given_up(world)
    w.replica.stop()
    for number in (5, 6):
        w.replica.log.path(number).unlink()
    w.start()
    assert kinds(w) == ["stable"] * 3 + ["gap"] * 4
    assert w.replica.committed == 6
    w.both(7, 7)
    w.until(lambda: w.replica.committed == 7)
    assert w.stable()[-1] == [7, 1007]
    assert w.replica.log.header(7).lost_total == 8


def test_a_crash_before_it_is_healed_corrects_nothing_and_gives_up_nothing(world: Make):
    """What was said is lost with the process; the parked fork takes the complete epochs."""
    w = world(when_healed=CONVERGE)
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 6)
    w.until(lambda: 6 in w.said)
    w.replica.stop()
    w.feed("west", 3, 6)
    w.start()
    w.until(lambda: w.replica.committed == 6)
    assert w.stable() == complete(7)


def test_without_room_for_the_later_fork_what_was_said_is_corrected(
    world: Make, monkeypatch: pytest.MonkeyPatch
):
    def full(*given: Any, **how: Any) -> fork.Start:
        raise DiskError("no space left")

    w = world(when_healed=CONVERGE)
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 4)
    w.until(lambda: w.said == [3, 4])
    monkeypatch.setattr(fork, "park_later", full)
    w.feed("west", 3, 4)
    w.until(lambda: w.replica.branch is None and w.stable() == complete(5))
    assert kinds(w) == ["stable"] * 5


def test_without_room_for_the_gaps_it_is_started_again_and_completes_them(
    world: Make, monkeypatch: pytest.MonkeyPatch
):
    """The fork is there, so that nothing can be corrected any more; half of the log is."""
    append, had_room = EpochLog.append, []

    def fills_up(log: EpochLog, epoch: Epoch, **how: Any) -> bool:
        if log.stream == "alerts" and epoch.kind == "gap":
            had_room.append(epoch.number)
            if len(had_room) == 2:
                raise DiskError("no space left")
        return append(log, epoch, **how)

    w = world(when_healed=CONVERGE)
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 5)
    w.until(lambda: w.said == [3, 4, 5])
    monkeypatch.setattr(EpochLog, "append", fills_up)
    w.feed("west", 3, 5)
    w.until(lambda: "no space left" in w.replica.stumbled)
    assert w.replica.failed == "", "a node starts again what has stumbled"
    w.replica.stop()
    w.start()
    w.both(6, 6)
    w.until(lambda: w.replica.committed == 6)
    assert kinds(w) == ["stable"] * 3 + ["gap"] * 3 + ["stable"]
    assert w.stable()[-1] == [6, 1006]
