"""Shapes of queries that are cut in two, as workloads: a union, a join and a chain.

    near sources ────────────────▶ ┌───────┐
                                   │ near  │ ─▶ (totals, in the chain) ─▶ client
    west ─▶ far, on another node ✂ └───────┘

* Only `far` lies behind the cable that is cut; other inputs come from the sources directly.  So a
  shape needs as few nodes as it can, and its cut is that of one input.
* Rows carry the time at which they were due and come in that order, so no watermark ever drops one,
  and the answer follows from the sent epochs alone, without Spark: a model that is checked against
  nothing but the definition.

>>> made = shape("union", "process", x_s=3.0, rate=30)
>>> [fragment.name for fragment in made.query(None).fragments.values()], made.nodes
(['far', 'near'], 2)
>>> sent = {name: [table] for name, table in made.tables(0, due_s=1.0).items()}
>>> [answer.num_rows for answer in made.answers(None, sent)["near"]]
[3]
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from unbroken.measure.workload import DDL, EPOCH_S, TICK_S, Counts, counted
from unbroken.policies import Policy
from unbroken.query import FUTURE_S_MAX, Query

UNION, JOIN, CHAIN = SHAPES = ("union", "join", "chain")
#: The fragment that is cut off, and the one that reads it.
FAR, NEAR, TOTALS = "far", "near", "totals"
WEST = "west"
KEYS = 200
#: Rows of one key join that are due within so many seconds.
WITHIN_S, WATERMARK_S = 2, 5
_TIME = pa.timestamp("us", tz="UTC")
_PAIRS = pa.schema([("k", pa.int32()), ("east", _TIME), ("west", _TIME)])


def shape(name: str, when_cut: str, *, x_s: float, rate: int) -> Shape:
    """The shape called `name`; a new result may wait `x_s` seconds for missing input.

    >>> shape("chain", "delay", x_s=3.0, rate=300).sink
    'totals'
    """
    return {UNION: Union, JOIN: Join, CHAIN: Chain}[name](when_cut, x_s, rate)


def passed(rows: Any) -> Any:
    """What the far fragment does: a filter that keeps everything."""
    return rows.where("k >= 0")


def united(*inputs: Any) -> Any:
    """All rows of all inputs."""
    found = inputs[0]
    for rows in inputs[1:]:
        found = found.union(rows)
    return found


def paired(east: Any, west: Any) -> Any:
    """Rows of one key that are due at about the same time."""
    one, other = (
        rows.withWatermark("due", f"{WATERMARK_S} seconds").selectExpr("k", f"due AS {name}")
        for name, rows in (("east", east), ("west", west))
    )
    within = f"INTERVAL {WITHIN_S} SECONDS"
    return one.join(other, "k").where(f"west BETWEEN east - {within} AND east + {within}")


@dataclass(frozen=True)
class Shape:
    """A query with one input that can be cut off; `rate` rows per second over all sources."""

    when_cut: str
    x_s: float
    rate: int
    #: Sources that are read directly, how many nodes it needs, and its result.
    near: ClassVar[tuple[str, ...]] = ("east",)
    nodes: ClassVar[int] = 2
    sink: ClassVar[str] = NEAR
    #: Results carry no scheduled time; when their rows were sealed is in their headers.
    due: str | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """All sources."""
        return (*self.near, WEST)

    def text(self, policy: Policy | None) -> str:
        """The workload in words."""
        raise NotImplementedError

    def query(self, policy: Policy | None) -> Query:
        """The query; `policy` is not for this workload."""
        made = Query(self.__class__.__name__.lower(), epoch=f"{EPOCH_S:g}s")
        sources = {
            name: made.source(name, DDL, event_time="due", future_s_max=FUTURE_S_MAX)
            for name in self.sources
        }
        made.fragment(sources[WEST])(passed, name=FAR)
        self._define(made, {"max_delay": f"{self.x_s:g}s", "when_cut": self.when_cut})
        made.sink(self.sink)
        made.fragments = {
            # Errors name the line of the user's file, and here there is none.
            name: replace(fragment, where="the built-in workload")
            for name, fragment in made.fragments.items()
        }
        return made

    def _define(self, query: Query, bound: Mapping[str, Any]) -> None:
        query.fragment(*self.near, FAR, **bound)(united, name=NEAR)

    def tables(self, tick: int, due_s: float) -> Mapping[str, pa.Table]:
        """The rows of a tick, the same number for every source; the same ones in every run."""
        share = self.rate / len(self.sources)
        count = int(share * (tick + 1) * TICK_S) - int(share * tick * TICK_S)
        made = {}
        for i, name in enumerate(self.sources):
            keys = np.random.default_rng((tick, i)).integers(0, KEYS, count, dtype=np.int32)
            due = pa.array(np.full(count, round(due_s * 1e6)), _TIME)
            made[name] = pa.table({"due": due, "k": keys})
        return made

    def answers(
        self, policy: Policy | None, sent: Mapping[str, Sequence[pa.Table]]
    ) -> Mapping[str, Sequence[pa.Table]]:
        """What an undisturbed run gives."""
        return {self.sink: list(self._answer(sent))}

    def _answer(self, sent: Mapping[str, Sequence[pa.Table]]) -> Iterator[pa.Table]:
        for tables in zip(*(sent[name] for name in self.sources), strict=True):
            yield pa.concat_tables(table.select(["due", "k"]) for table in tables)


@dataclass(frozen=True)
class Union(Shape):
    """Three inputs, all of their rows: no state, so it shows the waiting alone.

    >>> Union("process", 3.0, 300).text(None)
    'union of three inputs, 300 rows/s'
    """

    near: ClassVar[tuple[str, ...]] = ("east", "north")

    def text(self, policy: Policy | None) -> str:
        """The workload in words."""
        return f"union of three inputs, {self.rate:,} rows/s"


@dataclass(frozen=True)
class Join(Shape):
    """Two inputs, rows of one key that are due at about the same time.

    >>> made = Join("process", 3.0, 300)
    >>> east, west = (pa.table({"due": pa.array([at], _TIME), "k": [7]}) for at in (0, 1_500_000))
    >>> none = east.slice(0, 0)
    >>> answer = made.answers(None, {"east": [east, none], "west": [none, west]})["near"]
    >>> [table.num_rows for table in answer]
    [0, 1]
    """

    def text(self, policy: Policy | None) -> str:
        """The workload in words."""
        return f"join of two inputs within {WITHIN_S} s, {self.rate:,} rows/s"

    def _define(self, query: Query, bound: Mapping[str, Any]) -> None:
        query.fragment(*self.near, FAR, **bound)(paired, name=NEAR)

    def _answer(self, sent: Mapping[str, Sequence[pa.Table]]) -> Iterator[pa.Table]:
        """A pair comes out in the epoch in which the later of the two came in."""
        seen: dict[str, dict[int, list[int]]] = {
            name: defaultdict(list) for name in self.sources
        }  # Invariant: in order, because rows are.
        within_us = WITHIN_S * 1_000_000
        for epoch in zip(*(sent[name] for name in self.sources), strict=True):
            pairs: list[tuple[int, int, int]] = []
            for name, table in zip(self.sources, epoch, strict=True):
                other = seen[WEST if name != WEST else self.near[0]]
                keys, dues = table["k"].to_pylist(), table["due"].cast(pa.int64()).to_pylist()
                for k, due in zip(keys, dues, strict=True):
                    first = bisect_left(other[k], due - within_us)
                    for met in other[k][first : bisect_right(other[k], due + within_us)]:
                        pairs.append((k, met, due) if name == WEST else (k, due, met))
                    seen[name][k].append(due)
            columns = list(zip(*pairs, strict=True)) or [(), (), ()]
            yield pa.table(
                [pa.array(c, pa.int64()) for c in columns], names=_PAIRS.names
            ).cast(_PAIRS)  # fmt: skip


@dataclass(frozen=True)
class Chain(Shape):
    """A union, and one level further on a count that never forgets.

    >>> Chain("process", 3.0, 300).nodes
    3
    """

    nodes: ClassVar[int] = 3
    sink: ClassVar[str] = TOTALS

    def text(self, policy: Policy | None) -> str:
        """The workload in words."""
        return f"union of two inputs, then a count of {KEYS} keys, {self.rate:,} rows/s"

    def _define(self, query: Query, bound: Mapping[str, Any]) -> None:
        super()._define(query, bound)
        query.fragment(NEAR, output_mode="update", **bound)(counted, name=TOTALS)

    def _answer(self, sent: Mapping[str, Sequence[pa.Table]]) -> Iterator[pa.Table]:
        level = list(super()._answer(sent))
        yield from Counts(KEYS, self.rate).answers(None, {"input": level})["output"]
