"""Replay: the rows of files, sent into sources as if they happened now, or as fast as it goes.

    file ─▶ slices ─▶ steps ─┬─ clock off: send, close the epoch     slice k is epoch base + k
                             └─ clock on:  send when it is due       a slice is 50 ms of wall time

* By event time, slice k is [t0 + k E, t0 + (k + 1) E), t0 the lowest first event time of all files
  and E the length of an epoch.
* A replay is a named producer whose sequence is the row number of the last row sent.  A run that
  was killed goes on after that row: the open epoch has it in its journal, and the rest of the slice
  joins it there.  So no row is lost or repeated, and the epochs are the same (scenario 12).
* A source whose log is full is waited for, as long as something moves.

>>> Pace(speed=10.0).clock, Pace(rows_per_epoch=1000).clock
(True, False)
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from unbroken.client import files
from unbroken.client.cluster import Cluster
from unbroken.client.files import Chunk
from unbroken.client.producer import Producer
from unbroken.client.progress import Progress
from unbroken.client.slices import ByRows, ByTime, Cut, Send, micros, pieces, steps
from unbroken.errors import BackpressureError, DefinitionError, Unreachable
from unbroken.query import Source
from unbroken.schemas import BadRow

#: With the clock on, rows are sent this often per second of wall time.
TICKS_PER_S = 20
#: With the clock off, sources stay at most this many epochs ahead of the slowest fragment.
AHEAD_EPOCHS_MAX = 64
BAD_ROWS_SHOWN_MAX = 5


@dataclass(frozen=True)
class Pace:
    """How a replay is cut: exactly one of these is set."""

    epoch_s: float | None = None
    rows_per_epoch: int | None = None
    speed: float | None = None

    @property
    def clock(self) -> bool:
        """Whether the epoch clock cuts the epochs."""
        return self.speed is not None

    def cut(self, source: Source, t0_us: int) -> Cut:
        """How the file of `source` is cut."""
        if self.rows_per_epoch is not None:
            return ByRows(self.rows_per_epoch)
        if source.event_time is None:
            raise DefinitionError(
                f"{source.where}: source {source.name!r} has no event time to replay its file by",
                hint="say which column it is, query.source(..., event_time=...), or replay by rows:"
                " --rows-per-epoch 10000",
            )
        length_s = self.speed / TICKS_PER_S if self.speed is not None else self.epoch_s
        assert length_s is not None
        return ByTime(source.event_time, t0_us=t0_us, length_us=max(1, round(length_s * 1e6)))


@dataclass
class Trace:
    """The file of one source, and what became of its rows so far."""

    source: Source
    path: Path
    bad_rows: Literal["raise", "skip"] = "raise"
    #: Rows sent by this run, those that the source set aside, and rows that do not fit.
    rows_sent: int = 0
    set_aside: int = 0
    bad: int = 0
    bad_shown: list[BadRow] = field(default_factory=list)

    @property
    def producer(self) -> str:
        """The name under which the source knows how far this file was sent."""
        return f"replay-{self.source.name}-{self.path.name}"

    def first_us(self) -> int | None:
        """The first event time in the file; also finds out early that it cannot be read."""
        for chunk in files.read(
            self.path, self.source.schema, bad_rows=self.bad_rows, chunk_rows=1000
        ):
            if self.source.event_time is None:
                return None
            times = micros(chunk.table, self.source.event_time).drop_null()
            if len(times):
                return int(times[0].as_py())
        return None

    def chunks(self) -> Iterator[Chunk]:
        """The rows of the file; bad ones are counted on the way."""
        for chunk in files.read(self.path, self.source.schema, bad_rows=self.bad_rows):
            self.bad += len(chunk.bad)
            self.bad_shown += chunk.bad[: BAD_ROWS_SHOWN_MAX - len(self.bad_shown)]
            yield chunk


class Replay:
    """Sends files into the sources of a running cluster.

    `base` is the epoch that slice 0 becomes (clock off); `progress` says how the cluster moves.
    """

    def __init__(
        self,
        cluster: Cluster,
        traces: Iterable[Trace],
        pace: Pace,
        progress: Progress,
        base: int = 0,
    ) -> None:
        self.traces = {trace.source.name: trace for trace in traces}
        self._pace, self._progress, self._base = pace, progress, base
        self.producers: dict[str, Producer] = {
            name: cluster.producer(name, name=trace.producer) for name, trace in self.traces.items()
        }
        #: The number of the open epoch of every source, also of those without a file.
        self._open: dict[str, int] = {
            name: told["next"] for name, told in cluster.status()["sources"].items()
        }
        self._slowest = -1
        #: The wall time at which slice 0 was due; known from the first row that is sent.
        self._zero_s: float | None = None

    def rows_known(self, name: str) -> int:
        """How many rows of the file were sent before, bad ones included."""
        return self.producers[name].sequence

    def run(self) -> None:
        """Sends everything that was not sent yet."""
        known = [first for trace in self.traces.values() if (first := trace.first_us()) is not None]
        t0_us = min(known, default=0)
        cut = {
            name: pieces(
                trace.chunks(), self._pace.cut(trace.source, t0_us),
                after=self.producers[name].sequence - 1,
            )
            for name, trace in self.traces.items()
        }  # fmt: skip
        for step in steps(cut):
            if isinstance(step, Send):
                self._wait_until_due(step.slice)
                self._send(step)
            elif not self._pace.clock:
                self._close(self._base + step.slice)

    def _wait_until_due(self, number: int) -> None:
        if not self._pace.clock:
            return
        if self._zero_s is None:
            self._zero_s = time.monotonic() - number / TICKS_PER_S
        time.sleep(max(0.0, self._zero_s + number / TICKS_PER_S - time.monotonic()))

    def _send(self, step: Send) -> None:
        trace = self.traces[step.source]
        while True:
            try:
                receipt = self.producers[step.source].send(step.rows, sequence=step.last_row)
                break
            except BackpressureError as full:
                # The source has waited a while for room already.
                self._progress.check(full)
        trace.rows_sent += receipt.rows
        trace.set_aside += receipt.set_aside

    def _close(self, epoch: int) -> None:
        """Seals `epoch` of every source that has not sealed it yet."""
        for name, producer in self.producers.items():
            while self._open[name] <= epoch:
                try:
                    self._open[name] = producer.close_epoch() + 1
                except Unreachable:  # Whether it was sealed, the keeper tells when it is back.
                    status = self._progress.wait(lambda status: True)
                    self._open[name] = status["sources"][name]["next"]
        if epoch - self._slowest >= AHEAD_EPOCHS_MAX:
            status = self._progress.wait(lambda s: epoch - slowest(s) < AHEAD_EPOCHS_MAX)
            self._slowest = slowest(status)


def slowest(status: Mapping[str, Any]) -> int:
    """The last epoch that every fragment has done.

    >>> slowest({"nodes": {"n": {"fragments": {"a": {"epoch": 3}, "b": {"epoch": 7}}}}})
    3
    """
    fragments = [f for node in status["nodes"].values() for f in node["fragments"].values()]
    return min((f["epoch"] for f in fragments), default=-1)
