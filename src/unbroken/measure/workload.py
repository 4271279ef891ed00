"""The embedded workload: counts of many keys, and the answer that must come out.

    input   due TIMESTAMP, k INT        each row carries the time at which it was due
    output  how often each key came so far, and when its newest row was due

* The first tick has every key once, so that the state holds all of them from the beginning.
* Upstream backup computes the state again from kept epochs, which needs state that ends: for it
  the keys are counted within windows of `WINDOW_S`, under a watermark.  `text` says which one ran.
* Rows are due in the order in which they are sent, so no watermark ever drops one, and the answer
  follows from the sent epochs alone, without Spark: a model that is checked against nothing but
  the definition.

>>> made = Counts(keys=3, rate=20)
>>> sent = [made.tables(tick, due_s=tick / 10)["input"] for tick in (0, 1)]
>>> [table.num_rows for table in sent]
[5, 2]
>>> [answer["n"].to_pylist() for answer in made.answers(Upstream(), {"input": sent})["output"]]
[[1, 2, 2], [4]]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from unbroken.policies import Policy, Restart, Upstream
from unbroken.query import FUTURE_S_MAX, Query

#: Rows are sent so often, and epochs are so long.
TICK_S, EPOCH_S = 0.1, 1.0
WINDOW_S, WATERMARK_S = 10, 1
DDL = "due TIMESTAMP, k INT"
_TIME = pa.timestamp("us", tz="UTC")
_OUTPUT = pa.schema([("w", _TIME), ("k", pa.int32()), ("n", pa.int64()), ("due", _TIME)])


class Workload(Protocol):
    """What a contender is given to do."""

    @property
    def due(self) -> str | None:
        """The column of the results that carries the scheduled time, if one does."""

    def text(self, policy: Policy | None) -> str:
        """The workload in words, as this policy has it."""

    def query(self, policy: Policy | None) -> Query:
        """The query with every fragment under `policy`; None is: as it is written."""

    def tables(self, tick: int, due_s: float) -> Mapping[str, pa.Table]:
        """The rows that are due at a tick, by source."""

    def answers(
        self, policy: Policy | None, sent: Mapping[str, Sequence[pa.Table]]
    ) -> Mapping[str, Sequence[pa.Table]]:
        """What an undisturbed run gives, by sink and epoch; `sent` are the sources' epochs."""


def counted(rows: Any) -> Any:
    """How often each key came so far, and when its newest row was due: state without end."""
    found = rows.groupBy("k").agg({"*": "count", "due": "max"})
    return found.selectExpr("k", "`count(1)` AS n", "`max(due)` AS due")


def counted_by_window(rows: Any) -> Any:
    """The same within windows: state that a watermark ends."""
    bounded = rows.withWatermark("due", f"{WATERMARK_S} seconds")
    placed = bounded.selectExpr(f"window(due, '{WINDOW_S} seconds') AS w", "k", "due")
    found = placed.groupBy("w", "k").agg({"*": "count", "due": "max"})
    return found.selectExpr("w.start AS w", "k", "`count(1)` AS n", "`max(due)` AS due")


@dataclass(frozen=True)
class Counts:
    """`rate` rows per second over `keys` keys.

    >>> from unbroken.policies import Active
    >>> Counts(keys=100_000, rate=5_000).text(Active())
    'count of 100,000 keys, 5,000 rows/s'
    """

    keys: int
    rate: int
    due: str | None = "due"

    def text(self, policy: Policy | None) -> str:
        """The workload in words.

        >>> Counts(keys=1000, rate=500).text(Upstream())
        'count of 1,000 keys in windows of 10 s, 500 rows/s'
        """
        windows = f" in windows of {WINDOW_S} s" if isinstance(policy, Upstream) else ""
        return f"count of {self.keys:,} keys{windows}, {self.rate:,} rows/s"

    def query(self, policy: Policy | None) -> Query:
        """One fragment; in windows if the policy needs state that ends."""
        made = Query("recovery", epoch=f"{EPOCH_S:g}s")
        source = made.source("input", DDL, event_time="due", future_s_max=FUTURE_S_MAX)
        function = counted_by_window if isinstance(policy, Upstream) else counted
        fragment = made.fragment(source, output_mode="update", policy=policy or Restart())
        made.sink(fragment(function, name="output"))
        # Errors name the line of the user's file, and here there is none.
        made.fragments["output"] = replace(made.fragments["output"], where="the built-in workload")
        return made

    def tables(self, tick: int, due_s: float) -> Mapping[str, pa.Table]:
        """The rows of a tick; keys by chance, the same ones for every contender.

        >>> Counts(keys=10, rate=50).tables(3, due_s=0.3)["input"].num_rows
        5
        """
        # The rate need not be a whole number of rows per tick.
        count = int(self.rate * (tick + 1) * TICK_S) - int(self.rate * tick * TICK_S)
        keys = np.random.default_rng(tick).integers(0, self.keys, count, dtype=np.int32)
        if tick == 0:
            keys = np.concatenate([np.arange(self.keys, dtype=np.int32), keys])
        due = pa.array(np.full(len(keys), round(due_s * 1e6)), _TIME)
        return {"input": pa.table({"due": due, "k": keys})}

    def answers(
        self, policy: Policy | None, sent: Mapping[str, Sequence[pa.Table]]
    ) -> Mapping[str, Sequence[pa.Table]]:
        """For every epoch the keys that came in it, with what was counted up to it."""
        return {"output": list(self._count(sent["input"], isinstance(policy, Upstream)))}

    def _count(self, sent: Sequence[pa.Table], by_window: bool) -> Iterator[pa.Table]:
        names = ["w", "k", "n", "due"] if by_window else ["k", "n", "due"]
        counts: dict[int, Any] = {}
        for table in sent:
            due_us = table["due"].cast(pa.int64()).to_numpy()
            keys = table["k"].to_numpy()
            # Without windows all rows are in one.
            length_us = WINDOW_S * 1_000_000 if by_window else 1 << 62
            windows = due_us // length_us
            parts = [_OUTPUT.empty_table()]
            for window in np.unique(windows):
                own = windows == window
                if window not in counts:
                    # Rows come in order: what is two windows old is over.
                    counts = {w: c for w, c in counts.items() if w >= window - 1}
                    counts[window] = np.zeros(self.keys, dtype=np.int64)
                np.add.at(counts[window], keys[own], 1)
                newest_us = np.zeros(self.keys, dtype=np.int64)
                np.maximum.at(newest_us, keys[own], due_us[own])
                came = np.unique(keys[own])
                columns = (
                    np.full(len(came), window * length_us), came, counts[window][came],
                    newest_us[came],
                )  # fmt: skip
                parts.append(pa.table([pa.array(c) for c in columns], _OUTPUT.names).cast(_OUTPUT))
            yield pa.concat_tables(parts).select(names)
