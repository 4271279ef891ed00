"""A source: where rows enter, are made durable, and are cut into epochs.

    send ─▶ journal of the open epoch (synced) ─▶ seal ─▶ epoch log ─▶ consumers
                 │                                  └─ journal goes once the log is synced
                 └─ bad-rows.jsonl: rows too far in the future

* `send` carries (producer, sequence) and is a no-op when repeated: the answer to a send may be
  lost, and the client sends again (scenario 12).  The highest sequences travel in each epoch's
  header, so a restart knows them.
* Rows more than `future_s_max` ahead of the clock are set aside: one such row would move the
  watermark past everybody else's rows (scenario 18).
* Sealing writes the epoch's file, opens the next journal (its name, synced, says for ever that the
  epoch is closed), and tells consumers.  The epoch's own file is synced later, behind their back,
  and its journal stays until then: a power cut finds the rows in the one or the other, and an epoch
  is sealed again from its journal, with the same rows in the same order.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from unbroken.ddl import to_ddl
from unbroken.epochs import Epoch
from unbroken.errors import BackpressureError, DefinitionError
from unbroken.streams import disk
from unbroken.streams.giving_up import GIVE_UP, WAIT, too_old
from unbroken.streams.journal import Journal
from unbroken.streams.log import EpochLog, is_whole, number_of

#: Producers remembered for duplicate removal, the longest silent forgotten first.
PRODUCERS_MAX = 256
BAD_ROWS = "bad-rows.jsonl"
BAD_ROWS_KEPT_MAX = 1000
GIVEN_UP = "given-up.json"
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
        when_full: str = WAIT,
    ) -> None:
        self.stream, self.schema, self.event_time = stream, schema, event_time
        self._folder = folder
        self._future_s_max = future_s_max
        self._log_bytes_max, self._when_full = log_bytes_max, when_full
        _drop_torn_epochs(folder)
        self.log = EpochLog(folder, stream)
        self.set_aside = _count_lines(folder / BAD_ROWS)
        #: Epochs and rows that were given up because it was full.
        self.given_up = _read_given_up(folder / GIVEN_UP)
        #: Whether senders have waited in vain, and nobody who lagged has got on since.
        self._waited = False
        self._lock = threading.RLock()
        self._syncing = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._sequences: OrderedDict[str, int] = OrderedDict()
        #: Of the open epoch; None only until it was found again.
        self._journal: Journal | None = None
        self._rows: list[pa.Table] = []
        self._open_bytes = 0
        #: Sealed epochs whose files are not known to be on disk yet, and their journals.
        self._unsynced: list[tuple[Journal | None, Path]] = []
        try:
            self._open()
        except BaseException:
            self._close_journal()
            raise

    def _open(self) -> None:
        """Finds everything again after a restart."""
        last = self.log.last_header
        if last is not None:
            self._check_schema(self.log.read(last.number).table.schema)
            self._sequences.update(last.sequences)
        journals = sorted(self._folder.glob("open-*.journal"))
        if last is None and journals:
            # The only file that was kept did not survive a power cut: numbers go on all the same.
            self.log.start_at(_number(journals[0]))
        for path in journals:
            if _number(path) < self.log.next:
                # Sealed before the restart, and its file was found whole, if not trimmed since.
                if _number(path) >= self.log.first:
                    with disk.disk_errors(path), open(self.log.path(_number(path)), "rb") as file:
                        os.fsync(file.fileno())
                path.unlink()
        self._load_open_epoch()
        while any(_number(path) > self.open_number for path in journals):
            self.seal()  # Its file did not survive a power cut; its journal did.
            self._load_open_epoch()

    def _load_open_epoch(self) -> None:
        self._journal = self._journal or self._new_journal(self.open_number)
        for frame in self._journal.frames():
            self._check_schema(frame.table.schema)
            self._take(frame.table, frame.producer, frame.sequence)

    def _check_schema(self, found: pa.Schema) -> None:
        if not found.equals(self.schema):
            raise DefinitionError(
                f"source {self.stream!r} has rows of another schema in {self._folder}: "
                f"{to_ddl(found)}",
                hint="a source keeps its schema: give the new one another name, or start in a new "
                "folder",
            )

    def _new_journal(self, number: int) -> Journal:
        return Journal(self._folder / f"open-{number:012d}.journal")

    def _take(self, rows: pa.Table, producer: str, sequence: int) -> None:
        if rows.num_rows:
            self._rows.append(rows)
            self._open_bytes += rows.nbytes
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
        standstill: Callable[[], str] = lambda: "",
    ) -> Receipt:
        """Takes rows into the open epoch; they are on disk when this returns.

        If there is no room: `holder` is who holds the most, and `standstill` tells why that is for
        good, if it is.
        """
        with self._room:
            # Asked again after the wait: the lock was free meanwhile, and an impatient client may
            # have sent the same rows a second time.
            self._room.wait_for(lambda: self._is_known(producer, sequence) or not self.full,
                                0.0 if self._waited else wait_s)  # fmt: skip
            if self._is_known(producer, sequence):
                return Receipt(self.open_number, 0, 0, repeated=True)
            if self.full and self._when_full == GIVE_UP:
                self._give_up_oldest()
            if not self.full:
                assert self._journal is not None
                taken, ahead = self._split_future(table, now_s)
                # First, because a send that is repeated would not tell of them again.
                self._keep_bad_rows(ahead)
                self._journal.append(taken, producer, sequence)
                self._take(taken, producer, sequence)
                self.set_aside += ahead.num_rows
                return Receipt(self.open_number, taken.num_rows, ahead.num_rows, repeated=False)
        # Not under the lock: who knows why holds its own, and may be waiting to trim (deadlock).
        raise self._full(holder, standstill())

    def _is_known(self, producer: str, sequence: int) -> bool:
        return sequence <= self._sequences.get(producer, -1)

    @property
    def full(self) -> bool:
        """Whether it has reached its limit, and pushes back."""
        return self.log.bytes + self._open_bytes >= self._log_bytes_max

    def _full(self, holder: str | None, standstill: str = "") -> BackpressureError:
        what = (
            f"source {self.stream!r} holds {self.log.bytes + self._open_bytes:,} bytes, its limit "
            f"is {self._log_bytes_max:,}"
        )
        if self._open_bytes > self.log.bytes:
            return BackpressureError(
                f"{what}; most of them are in the open epoch {self.open_number}",
                hint="nothing of this send was taken: close the epoch, or make epochs shorter",
            )
        if standstill:
            return BackpressureError(
                f"{what}, and it stays full for good: {standstill}",
                hint="nothing of this send was taken, and nothing will be: start the query again "
                "with a higher log_bytes_max, or in a new folder protect the fragment that reads "
                "this source in another way",
            )
        return BackpressureError(
            f"{what}; the slowest consumer is {holder or 'unknown'}",
            hint="nothing of this send was taken: send it again when the consumer has "
            "caught up (unbroken status shows how far it is)",
        )

    def _give_up_oldest(self) -> None:
        """Makes room: the oldest epochs become gaps."""
        sizes = {header.number: header.bytes for header in self.log.held()}
        held = self.log.bytes + self._open_bytes
        numbers = too_old(sizes, held=held, limit=self._log_bytes_max)
        if not numbers:
            return
        rows = sum(self.log.give_up(number, self.schema) for number in numbers)
        self.given_up = {
            "epochs": self.given_up["epochs"] + len(numbers), "rows": self.given_up["rows"] + rows,
        }  # fmt: skip
        note = [json.dumps(self.given_up).encode()]
        disk.write_whole(self._folder / GIVEN_UP, note)
        print(
            f"{self.stream}: full; gave up epochs {numbers[0]} to {numbers[-1]}, {rows:,} rows",
            flush=True,
        )
        self._waited = True
        self._room.notify_all()

    def trim(self, below: int) -> None:
        """Consumers have acked: old epochs may go, and senders that wait may go on."""
        with self._room:
            if self._unsynced and not self.full:
                # What is not on disk yet may be lost, and with it who has sent what: the newest one
                # that is there tells.  (Full, it has to make room: syncing takes a second at most.)
                below = min(below, number_of(self._unsynced[0][1]) - 1)
            if self.log.trim(below):
                self._waited = False
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
        kept = rows.slice(0, max(0, BAD_ROWS_KEPT_MAX - self.set_aside)).to_pylist()
        if not kept:
            return
        path = self._folder / BAD_ROWS
        text = "".join(json.dumps(row, default=str) + "\n" for row in kept)
        with disk.disk_errors(path):
            size = path.stat().st_size if path.exists() else 0
            try:
                with open(path, "a") as file:
                    file.write(text)
            except OSError:
                os.truncate(path, size)
                raise

    def seal(self) -> Epoch:
        """Closes the open epoch, also an empty one, and opens the next."""
        with self._lock:
            tables = self._rows or [self.schema.empty_table()]
            epoch = Epoch.of(
                self.stream, self.open_number, pa.concat_tables(tables).combine_chunks(),
                event_time=self.event_time, sequences=dict(self._sequences),
                sealed_us=time.time_ns() // 1000,
            )  # fmt: skip
            opened: list[Journal] = []
            # The next journal's name, synced, says for ever that this epoch is closed; so it must
            # be there before anybody sees the epoch, or a power cut could let more rows into it.
            self.log.append(
                epoch, before_seen=lambda: opened.append(self._new_journal(epoch.number + 1))
            )
            self._close_journal()  # An outage is sealed in one go: thousands of open files.
            self._unsynced.append((self._journal, self.log.path(epoch.number)))
            self._journal, self._rows, self._open_bytes = opened[0], [], 0
            return epoch

    def seal_until(self, number: int) -> int:
        """Seals every epoch below `number`; tells how many."""
        sealed = 0
        with self._lock:
            while self.open_number < number:
                self.seal()
                sealed += 1
        return sealed

    def sync(self) -> None:
        """Waits for the disk with sealed epochs, then lets their journals go."""
        with self._syncing:
            with self._lock:
                unsynced = list(self._unsynced)
            if not unsynced:
                return
            with disk.disk_errors(self._folder):
                for _, path in unsynced:
                    # Trimmed meanwhile: every consumer has it.
                    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
                        os.fsync(file.fileno())
                disk.sync_folder(self._folder)
            for journal, _ in unsynced:
                if journal is not None:
                    journal.remove()
            with self._lock:
                del self._unsynced[: len(unsynced)]

    def close(self) -> None:
        """Ends the use of the folder; everything taken stays in it."""
        self.sync()
        self._close_journal()

    def _close_journal(self) -> None:
        if self._journal is not None:
            self._journal.close()


def _number(journal: Path) -> int:
    return int(journal.stem.split("-")[1])


def _count_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _read_given_up(path: Path) -> dict[str, int]:
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        told = json.loads(path.read_bytes())
        return {"epochs": int(told["epochs"]), "rows": int(told["rows"])}
    return {"epochs": 0, "rows": 0}  # None yet, or torn by a power cut.


def _drop_torn_epochs(folder: Path) -> None:
    """A journal that is still there says: its epoch's file may not have reached the disk.

    With a torn file the later ones go as well, for a log has no holes: they are sealed again from
    their journals.  A file without a journal was synced, so it is never touched.
    """
    dropped: list[Path] = []
    for journal in sorted(folder.glob("open-*.journal")):
        for path in folder.glob(f"{_number(journal):012d}.*.arrow"):
            if dropped or not is_whole(path):
                dropped.append(path)
    for path in reversed(dropped):  # Newest first: a crash in between leaves no hole.
        path.unlink()
