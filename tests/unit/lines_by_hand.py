"""A replica with two inputs and a bound of a second, without Spark.

Everything is real except Spark and the clock: a thread asks the gate as Spark's sources do, passes
all rows on, and writes checkpoints by hand.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from layers_by_hand import commit, plan, work

from unbroken.checkpoints import fork
from unbroken.engine.source import _ENOUGH
from unbroken.epochs import TENTATIVE, Epoch, digest_of_rows
from unbroken.errors import FenceError, FragmentFailed
from unbroken.node.replica import Replica
from unbroken.policies import Restart
from unbroken.policies.traits import OperatorClass
from unbroken.streams.branch_log import BranchLog
from unbroken.streams.flight import Door
from unbroken.streams.log import EpochLog
from unbroken.streams.serve import StreamDoor
from unbroken.streams.served import Served
from unbroken.tentative.branch import CORRECT, PROCESS, Bound

X_S = 1.0
WAIT_S = 20.0
SCHEMA = pa.schema({"n": pa.int64()})


INPUTS = ("east", "west")
STEP_S = 0.01


class Clock:
    """What time it is for the two lines: it goes on only while the test waits.

    A machine that stands still for seconds, or writes to its disk that long, makes no input silent.
    """

    def __init__(self) -> None:
        self._owner, self._now_s = threading.current_thread(), 1_000.0

    def monotonic(self) -> float:
        return self._now_s

    def sleep(self, seconds: float) -> None:
        """The test moves it by waiting; whoever else waits, waits for the test."""
        until_s = self._now_s + seconds
        while self._now_s < until_s:
            time.sleep(STEP_S)
            if threading.current_thread() is self._owner:
                self._now_s += STEP_S


class Query:
    """As `engine.run.Run`: one thread that asks after n, computes, seals, commits.

    As Spark's readers do, those of several inputs ask at the same time, until one is told that
    nothing is to be planned ahead any more.
    """

    made: list[Query]
    clock: Clock
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
                self.clock.sleep(self.work_s)
                rows = pa.concat_tables(tables).sort_by("n")
                self._seal(after, rows, digest_of_rows(rows))
                work(self._checkpoint, batch)
                commit(self._checkpoint, batch)
                batch += 1
        except FenceError:
            self._stopped = not self._failure  # Who failed says so until it is stopped.
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
        clock = Query.clock
        deadline_s = clock.monotonic() + WAIT_S
        while not what():
            assert clock.monotonic() < deadline_s, self.replica.status()
            clock.sleep(STEP_S)

    def stable_line_asks(self) -> bool:
        """Whether the parked line's own query has started and waits for input.

        Its sentence does not tell: the query that became the branch may have said the same.
        """
        with self.replica._changed:
            arrivals = self.replica._arrivals
            return self.replica.branch is not None and arrivals is not None and arrivals.asked

    @property
    def said(self) -> list[int]:
        assert self.replica.said is not None
        return [header.number for header in self.replica.said.news("", 0, 0)[1]]

    def stable(self) -> list[list[int]]:
        log = self.replica.log
        return [log.read(n).table["n"].to_pylist()
                for n in range(log.first, log.next)]  # fmt: skip


Make = Callable[..., World]


def complete(count: int) -> list[list[int]]:
    return [[n, 1000 + n] for n in range(count)]


def came(replica: Replica, stream: str) -> int:
    """The newest epoch that its branch has of an input, and has looked at."""
    with replica._changed:
        assert replica.branch is not None
        return replica.branch._gate._offered[stream]
