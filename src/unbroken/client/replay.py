"""Replay: the rows of files, sent into sources as if they happened now, or as fast as it goes.

    file ─▶ slices ─▶ steps ─┬─ as fast as it goes   a slice is an epoch
                             └─ at a speed           a slice is a tick of 50 ms, sent when it is due

* By event time, slice k is [t0 + k E, t0 + (k + 1) E), t0 the lowest first event time of all files
  and E the length of an epoch, or what happened during a tick.
* The replay closes the epochs itself, so they are the same in every run, whatever the speed; unless
  other sources wait for rows from elsewhere: then the cluster's epoch clock closes them.
* A replay is a named producer whose sequence is the row number of the last row sent.  A run that
  was killed goes on after that row: the open epoch has it in its journal, and the rest of the slice
  joins it there.  So no row is lost or repeated, and the epochs are the same (scenario 12).
* A source whose log is full is waited for, as long as something moves.

>>> Pace(speed=10.0).clock, Pace(speed=10.0, epoch_s=1.0).clock
(True, False)
"""

from __future__ import annotations

import hashlib
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

#: At a speed, rows are sent about this often per second of wall time.
TICKS_PER_S = 20
#: Sources stay at most this many epochs ahead of the slowest fragment.
AHEAD_EPOCHS_MAX = 64
BAD_ROWS_SHOWN_MAX = 5


@dataclass(frozen=True)
class Pace:
    """How a replay is cut and how fast it goes.

    >>> Pace(epoch_s=1.0, speed=10.0).slices_per_epoch, Pace(epoch_s=1.0).slices_per_epoch
    (20, 1)
    """

    #: The length of an epoch; with a speed, in wall time.  None: the cluster's clock cuts.
    epoch_s: float | None = None
    #: Cut by rows instead of event time: so many in a slice.
    rows: int | None = None
    #: Event time passes this many times as fast as wall time; None: as fast as it goes.
    speed: float | None = None

    @property
    def clock(self) -> bool:
        """Whether the cluster's epoch clock cuts the epochs."""
        return self.speed is not None and self.epoch_s is None

    @property
    def slices_per_epoch(self) -> int:
        """How many slices make an epoch."""
        if self.speed is None or self.epoch_s is None:
            return 1
        return max(1, round(self.epoch_s * TICKS_PER_S))

    @property
    def tick_s(self) -> float:
        """How long a slice lasts in wall time; 0 without a speed."""
        if self.speed is None:
            return 0.0
        return self.epoch_s / self.slices_per_epoch if self.epoch_s else 1 / TICKS_PER_S

    def cut(self, source: Source, t0_us: int) -> Cut:
        """How the file of `source` is cut."""
        if self.rows is not None:
            return ByRows(self.rows)
        if source.event_time is None:
            raise DefinitionError(
                f"{source.where}: source {source.name!r} has no event time to replay its file by",
                hint="say which column it is, query.source(..., event_time=...), or replay by rows:"
                " --rows-per-epoch 10000",
            )
        length_s = self.epoch_s if self.speed is None else self.tick_s * self.speed
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
        # Files of one name in different folders are different files.
        folder = hashlib.blake2b(str(self.path.resolve().parent).encode(), digest_size=4)
        return f"replay-{self.source.name}-{self.path.name}-{folder.hexdigest()}"

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

    `base` is the epoch that begins with slice 0; `progress` says how the cluster moves.
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
                if self._zero_s is None:
                    self._zero_s = time.monotonic() - step.slice * self._pace.tick_s
                self._wait_until_due(step.slice)
                self._send(step)
                continue
            epoch, rest = divmod(step.slice + 1, self._pace.slices_per_epoch)
            if rest == 0 and not self._pace.clock:
                self._wait_until_due(step.slice + 1)
                self._close(self._base + epoch - 1)

    def _wait_until_due(self, slice_: int) -> None:
        if self._zero_s is not None:  # Slices that were sent before are due at once.
            time.sleep(max(0.0, self._zero_s + slice_ * self._pace.tick_s - time.monotonic()))

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
