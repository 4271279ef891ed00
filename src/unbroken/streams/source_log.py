"""A source: where rows enter, are made durable, and are cut into epochs.

    send ─▶ journal of the open epoch (synced) ─▶ seal ─▶ epoch log ─▶ consumers
                 │                                  └─ journal goes once the log is synced
                 └─ bad-rows.jsonl: rows too far in the future

* `send` carries (producer, sequence) and is a no-op when repeated: the answer to a send may be
  lost, and the client sends again (scenario 12).  The highest sequences travel in each epoch's
  header, so a restart knows them.
* Rows more than `future_s_max` ahead of the clock are set aside: one such row would move the
  watermark past everybody else's rows (scenario 18).
* Sealing writes the epoch's file and tells consumers at once; the disk is waited for behind their
  back, and the journal stays until then.  So sealing costs no disk wait, and a power cut finds the
  rows in the one or the other.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from unbroken.epochs import Epoch
from unbroken.errors import BackpressureError
from unbroken.streams import disk
from unbroken.streams.journal import Journal
from unbroken.streams.log import EpochLog, is_whole

#: Producers remembered for duplicate removal, the longest silent forgotten first.
PRODUCERS_MAX = 256
BAD_ROWS_KEPT_MAX = 1000
LOG_BYTES_MAX = 1 << 30


@dataclass(frozen=True)
class Receipt:
    """What became of a send: the rows taken, those set aside, and whether it was a repetition.

    >>> Receipt(epoch=3, rows=10, set_aside=0, repeated=False).rows
    10
    """

    epoch: int
    rows: int
    set_aside: int
    repeated: bool


class SourceLog:
    """One source of a query."""

    def __init__(
        self,
        folder: Path,
        stream: str,
        schema: pa.Schema,
        *,
        event_time: str | None = None,
        future_s_max: float = 86_400.0,
        log_bytes_max: int = LOG_BYTES_MAX,
    ) -> None:
        self.stream, self.schema, self.event_time = stream, schema, event_time
        self._folder = folder
        self._future_s_max = future_s_max
        self._log_bytes_max = log_bytes_max
        _drop_torn_epochs(folder)
        self.log = EpochLog(folder, stream)
        self.set_aside = 0
        self._lock = threading.RLock()
        self._room = threading.Condition(self._lock)
        self._sequences: OrderedDict[str, int] = OrderedDict()
        self._rows: list[pa.Table] = []
        #: Journals of sealed epochs whose files are not known to be on disk yet.
        self._unsynced: list[tuple[Journal, Path]] = []
        self._open()

    def _open(self) -> None:
        """Finds everything again after a restart."""
        last = self.log.last_header
        if last is not None:
            self._sequences.update(last.sequences)
        journals = sorted(self._folder.glob("open-*.journal"))
        for path in journals:
            if _number(path) < self.log.next:
                path.unlink()  # Sealed before the restart, and its file was found whole.
        self._journal = self._new_journal()
        self._load_open_epoch()
        while any(_number(path) > self.open_number for path in journals):
            self.seal()  # Its file did not survive a power cut; its journal did.
            self._load_open_epoch()

    def _load_open_epoch(self) -> None:
        for frame in self._journal.frames():
            self._rows.append(frame.table)
            self._remember(frame.producer, frame.sequence)

    def _new_journal(self) -> Journal:
        return Journal(self._folder / f"open-{self.log.next:012d}.journal")

    def _remember(self, producer: str, sequence: int) -> None:
        self._sequences[producer] = sequence
        self._sequences.move_to_end(producer)
        while len(self._sequences) > PRODUCERS_MAX:
            self._sequences.popitem(last=False)

    @property
    def open_number(self) -> int:
        """The number of the epoch that takes rows now."""
        return self.log.next

    @property
    def open_rows(self) -> int:
        """How many rows the open epoch has so far."""
        with self._lock:
            return sum(table.num_rows for table in self._rows)

    def sequence(self, producer: str) -> int:
        """The highest sequence taken from `producer`; -1 if there is none."""
        with self._lock:
            return self._sequences.get(producer, -1)

    def send(
        self,
        table: pa.Table,
        producer: str,
        sequence: int,
        *,
        now_s: float,
        wait_s: float,
        holder: str | None = None,
    ) -> Receipt:
        """Takes rows into the open epoch; they are on disk when this returns."""
        with self._room:
            if sequence <= self.sequence(producer):
                return Receipt(self.open_number, 0, 0, repeated=True)
            if not self._room.wait_for(self._has_room, wait_s):
                raise BackpressureError(
                    f"source {self.stream!r} holds {self.log.bytes:,} bytes, its limit is "
                    f"{self._log_bytes_max:,}; the slowest consumer is {holder or 'unknown'}",
                    hint="nothing of this send was taken: send it again when the consumer has "
                    "caught up (unbroken status shows how far it is)",
                )
            taken, ahead = self._split_future(table, now_s)
            self._journal.append(taken, producer, sequence)
            if taken.num_rows:
                self._rows.append(taken)
            self._remember(producer, sequence)
            if ahead.num_rows:
                self._keep_bad_rows(ahead)
            return Receipt(self.open_number, taken.num_rows, ahead.num_rows, repeated=False)

    def _has_room(self) -> bool:
        return self.log.bytes < self._log_bytes_max

    def trim(self, below: int) -> None:
        """Consumers have acked: old epochs may go, and senders that wait may go on."""
        with self._room:
            if self.log.trim(below):
                self._room.notify_all()

    def _split_future(self, table: pa.Table, now_s: float) -> tuple[pa.Table, pa.Table]:
        if self.event_time is None or table.num_rows == 0:
            return table, table.slice(0, 0)
        latest_us = int((now_s + self._future_s_max) * 1e6)
        micros = table.column(self.event_time).cast(pa.int64())
        ahead = pc.fill_null(pc.greater(micros, latest_us), False)
        if not pc.any(ahead).as_py():
            return table, table.slice(0, 0)
        return table.filter(pc.invert(ahead)), table.filter(ahead)

    def _keep_bad_rows(self, rows: pa.Table) -> None:
        if self.set_aside < BAD_ROWS_KEPT_MAX:
            with disk.disk_errors(self._folder), open(self._folder / "bad-rows.jsonl", "a") as file:
                for row in rows.slice(0, BAD_ROWS_KEPT_MAX - self.set_aside).to_pylist():
                    file.write(json.dumps(row, default=str) + "\n")
        self.set_aside += rows.num_rows

    def seal(self) -> Epoch:
        """Closes the open epoch, also an empty one, and opens the next."""
        with self._lock:
            tables = self._rows or [self.schema.empty_table()]
            epoch = Epoch.of(
                self.stream, self.open_number, pa.concat_tables(tables).combine_chunks(),
                event_time=self.event_time, sequences=dict(self._sequences),
                sealed_us=time.time_ns() // 1000,
            )  # fmt: skip
            self.log.append(epoch)
            self._unsynced.append((self._journal, self.log.path(epoch.number)))
            self._journal = self._new_journal()
            self._rows = []
            return epoch

    def seal_until(self, number: int) -> int:
        """Seals every epoch below `number`; tells how many."""
        sealed = 0
        while self.open_number < number:
            self.seal()
            sealed += 1
        return sealed

    def sync(self) -> None:
        """Waits for the disk with sealed epochs, then lets their journals go."""
        with self._lock:
            unsynced, self._unsynced = self._unsynced, []
        for journal, path in unsynced:
            try:
                with open(path, "rb") as file:
                    os.fsync(file.fileno())
            except FileNotFoundError:
                pass  # Trimmed meanwhile: every consumer has it.
            disk.sync_folder(self._folder)
            journal.remove()

    def close(self) -> None:
        """Ends the use of the folder; everything taken stays in it."""
        self.sync()
        self._journal.close()


def _number(journal: Path) -> int:
    return int(journal.stem.split("-")[1])


def _drop_torn_epochs(folder: Path) -> None:
    """A journal that is still there says: its epoch's file may not have reached the disk."""
    for journal in sorted(folder.glob("open-*.journal")):
        for path in folder.glob(f"{_number(journal):012d}.*.arrow"):
            if not is_whole(path):
                path.unlink()
