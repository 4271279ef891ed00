"""Spark in a rig, for the suite that all engines pass: one session, one door, many queries."""

from __future__ import annotations

import datetime as dt
import functools
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F

import unbroken as ub
from unbroken.checkpoints import fork
from unbroken.checkpoints.layers import Checkpoint
from unbroken.engine import plan as plans
from unbroken.engine.session import session
from unbroken.engine.source import READ_BY_PLANNER, EpochSource
from unbroken.epochs import Epoch
from unbroken.node import replica as replica_module
from unbroken.streams.flight import Door
from unbroken.testing.epochs import Rows
from unbroken.testing.operators import CLOSE_MS, DELAY_MS, QUIET_MS, WINDOW_MS
from unbroken.testing.patches import patched
from unbroken.testing.trial import Fed, Feed, Rig

DDL = "ts TIMESTAMP, k INT, v BIGINT"
SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.int32()), ("v", pa.int64())])
WAIT_S_MAX = 60.0
#: Longer than a batch without data would take to come.
REST_S = 0.4
#: The suite counts milliseconds from here on.
T0 = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
T0_MS = int(T0.timestamp() * 1000)


def _marked(rows: Any) -> Any:
    return rows.withWatermark("ts", f"{DELAY_MS} milliseconds")


def repeatable(*inputs: Any) -> Any:
    """`map`."""
    rows = inputs[0] if len(inputs) == 1 else inputs[0].union(inputs[1])
    return rows.where("(v + k) % 4 != 0").selectExpr("ts", "k", "v * 31 % 10007 AS v")


def window(rows: Any) -> Any:
    """`window`."""
    grouped = _marked(rows).groupBy(F.window("ts", f"{WINDOW_MS} milliseconds"), "k")
    return grouped.agg(F.sum("v").alias("v")).selectExpr("window.end AS ts", "k", "v % 10007 AS v")


def union(left: Any, right: Any) -> Any:
    """`union`."""
    both = _marked(left).union(_marked(right))
    grouped = both.groupBy(F.window("ts", f"{WINDOW_MS} milliseconds"), "k")
    return grouped.agg(F.sum("v").alias("v")).selectExpr("window.end AS ts", "k", "v % 10007 AS v")


def sessions(rows: Any) -> Any:
    """`session`."""
    grouped = _marked(rows).groupBy(F.session_window("ts", f"{QUIET_MS} milliseconds"), "k")
    return grouped.agg(F.sum("v").alias("v")).selectExpr(
        "session_window.end AS ts",
        "k",
        f"(unix_millis(session_window.start) - {T0_MS} + v) % 10007 AS v",
    )


def join(left: Any, right: Any) -> Any:
    """`join`."""
    a, b = _marked(left).alias("a"), _marked(right).alias("b")
    near = (
        f"a.k = b.k AND b.ts >= a.ts - INTERVAL {CLOSE_MS} MILLISECONDS "
        f"AND b.ts <= a.ts + INTERVAL {CLOSE_MS} MILLISECONDS"
    )
    return a.join(b, F.expr(near)).selectExpr(
        "greatest(a.ts, b.ts) AS ts", "a.k AS k", "(a.v * 101 + b.v) % 10007 AS v"
    )


def count(rows: Any) -> Any:
    """`count`."""
    return rows.groupBy("k").agg(F.max("ts").alias("ts"), F.count("*").alias("v"))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "map": repeatable, "window": window, "union": union, "session": sessions, "join": join,
    "count": count,
}  # fmt: skip


class SparkRig(Rig):
    """One session; every replica has a query of its own in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "scratch").mkdir()
        self._spark = session("rig", master="local[2]", scratch=folder / "scratch")
        self._spark.dataSource.register(EpochSource)
        #: Planning takes a second, and a fragment that is started again is the same.
        self._defined = functools.cache(self._define)
        self._replicas: dict[str, Fed] = {}
        self._plans: dict[str, Callable[[int], plans.Plan]] = {}
        self._door = Door()
        self._door.on_act("held", lambda asked: self._asked(asked).wait_released(asked["term"]))
        self._door.on_get("gate", self._gate)

    def close(self) -> None:
        """Ends the session."""
        for replica in self._replicas.values():
            replica.stop()
        self._spark.stop()
        self._door.close()

    def _asked(self, command: dict[str, Any]) -> Fed:
        return self._replicas[command["fragment"]]

    def _gate(self, command: dict[str, Any]) -> Any:
        term, rows, ahead = command["term"], command["rows"], command["ahead"]
        return self._asked(command).ask(
            command["input"], command["after"], term, rows=rows, ahead=ahead
        )

    def replica(
        self, operator: str, inputs: Sequence[str], folder: str, feed: Feed,
        dies: tuple[str, int] | None,
    ) -> Fed:  # fmt: skip
        key = f"q{len(self._replicas)}"
        fragment, analyze, known = self._defined(operator, tuple(inputs))
        self._replicas[key] = made = Fed(fragment, self._folder / folder, known, feed, dies)

        def for_term(term: int) -> plans.Plan:
            options = {"door": self._door.address, "fragment": key, "term": str(term)}
            return analyze({**options, "reader": READ_BY_PLANNER}, traits=known.traits)

        self._plans[key] = for_term
        return made

    def _define(self, operator: str, inputs: tuple[str, ...]) -> tuple[Any, Any, plans.Plan]:
        """The fragment, how to plan it for a term, and its plan without one."""
        query = ub.Query("rig", epoch="manual")
        sources = [query.source(name, DDL, event_time="ts") for name in inputs]
        mode = "update" if operator == "count" else "append"
        fragment = query.fragment(*sources, output_mode=mode)(FUNCTIONS[operator], name=operator)
        schemas = {source.name: source.schema for source in sources}
        analyze = partial(plans.analyze, self._spark, query, fragment, schemas)
        return fragment, analyze, analyze()

    def _plan(self, replica: Fed) -> Callable[[int], plans.Plan]:
        (key,) = (key for key, each in self._replicas.items() if each is replica)
        return self._plans[key]

    def start(self, replica: Fed, *, forked: bool = True) -> None:
        changes = [] if forked else [(replica_module.fork, "start", _no_fork)]
        with patched(changes):
            replica.start(self._plan(replica))

    def hold(self, replica: Fed) -> None:
        replica.hold(self._plan(replica))
        replica.wait_held(WAIT_S_MAX)

    def fork(self, source: str, at: int, target: str) -> None:
        newest = self._newest(source)
        (commit,) = (commit for commit in newest.commits() if commit.epoch == at)
        shipped = self._folder / target / fork.SHIPPED / str(at)
        shipped.parent.mkdir(parents=True, exist_ok=True)
        fork.fork(newest, commit, shipped, boot=fork.boot_id())

    def _newest(self, folder: str) -> Checkpoint:
        path = self._folder / folder
        return Checkpoint(path / str(fork.terms_in(path)[0]))

    def epoch(self, stream: str, number: int, rows: Rows) -> Epoch:
        columns = [
            [T0 + dt.timedelta(milliseconds=row[0]) for row in rows],
            [row[1] for row in rows], [row[2] for row in rows],
        ]  # fmt: skip
        arrays = [pa.array(c, field.type) for c, field in zip(columns, SCHEMA, strict=True)]
        table = pa.Table.from_arrays(arrays, schema=SCHEMA)
        return Epoch.of(stream, number, table, event_time="ts", sealed_us=1)

    def rows(self, epoch: Epoch) -> Rows:
        table = epoch.table.to_pylist()
        millisecond = dt.timedelta(milliseconds=1)
        return tuple(sorted(((row["ts"] - T0) // millisecond, row["k"], row["v"]) for row in table))

    def commits(self, folder: str) -> list[int]:
        commits = self._newest(folder).commits()
        assert all(commit.batch == commit.epoch for commit in commits), "a batch without an epoch"
        return [commit.epoch for commit in commits]

    def wait(self, until: Callable[[], object], what: str) -> None:
        end_s = time.monotonic() + WAIT_S_MAX
        while not until():
            assert time.monotonic() < end_s, f"not within {WAIT_S_MAX:.0f} s: {what}"
            time.sleep(0.005)

    def rest(self) -> None:
        time.sleep(REST_S)


def _no_fork(folder: Path, *, with_watermarks: bool) -> fork.Start:
    """Starts where the last one was, as it is."""
    term = fork.terms_in(folder)[0]
    checkpoint = Checkpoint(folder / str(term))
    return fork.Start(checkpoint, term, checkpoint.commits()[-1].epoch)
