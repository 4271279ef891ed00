"""A directory sink: every epoch of a stream as one Parquet file, each exactly once.

    out/epoch-000000000011.parquet
    out/epoch-000000000012.parquet      the newest name is the position: the next epoch is 13
    out/_unbroken.json                  a note for people, and a cache of the row count

* The file name is the position.  A process that dies between writing the file and writing the note
  neither repeats nor misses an epoch, because the note is never asked where to go on (scenario 30).
* A file is renamed into place when it is complete and on disk: a reader of the directory never
  meets half an epoch, and the ack that lets the cluster forget the epoch leaves only after that.
* Only what is final is written there; what is tentative lies apart (`said_files`), until it is
  replaced.  The header of the epoch is in the file's Parquet metadata: an
  epoch that is lost has a file without rows there, of kind `gap`, and is counted as `lost` in the
  note, so that nobody takes it for an epoch in which nothing happened.  `lost_rows` has the rows
  that were lost on the way, also where this stream has no gap itself.
* A directory belongs to one stream of one query; another one is refused.

>>> import tempfile
>>> folder = Path(tempfile.mkdtemp())
>>> sink = DirectorySink(folder, "shop", "pages")
>>> sink.write(Epoch.of("pages", 0, pa.table({"page": ["home"]}))), sink.next
(True, 1)
>>> DirectorySink(folder, "shop", "pages").next          # another process, later
1
>>> sorted(path.name for path in folder.iterdir())
['_unbroken.json', 'epoch-000000000000.parquet']
"""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unbroken.client.cluster import Cluster
from unbroken.client.said_files import SaidFiles
from unbroken.epochs import FINAL, GAP, HEADER_KEY, Epoch, Header, contradict
from unbroken.errors import DivergenceError, EpochGone, UnbrokenError, Unreachable
from unbroken.streams import disk

NOTE = "_unbroken.json"
QUERY_KEY = b"unbroken.query"
#: How long a sink asks for a cluster that does not answer before it gives up.
AWAY_S_MAX = 120.0
RETRY_S = 0.2

_NAME = re.compile(r"epoch-(\d{12})\.parquet")


class DirectorySink:
    """The directory of one stream's epochs."""

    def __init__(self, folder: Path | str, query: str, stream: str) -> None:
        self.folder = Path(folder)
        self.query, self.stream = query, stream
        if self.folder.exists() and not self.folder.is_dir():
            raise UnbrokenError(
                f"the sink of {stream!r} cannot be {self.folder}: a file of that name is there",
                hint="name a directory; it is made if it does not exist",
            )
        with disk.disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            for path in self.folder.glob(f"*{disk.TEMPORARY}"):
                path.unlink()  # A writer died before its rename: the epoch was never there.
        note = self._read_note()
        numbers = self._numbers()
        #: Invariant: every epoch from the oldest file up to this one is there, none at or above it.
        self.next = numbers[-1] + 1 if numbers else 0
        self.last = self._header(numbers[-1]) if numbers else None
        self.rows, self.lost = self._count(numbers, note)
        if not numbers and note.get("next", 0) > 0:
            raise UnbrokenError(
                f"{self.folder}: its note speaks of {note['next']} epochs, but no file is there",
                hint="put the newest file back to go on after it, or remove "
                f"{self.folder / NOTE} to begin with epoch 0",
            )
        self._said = SaidFiles(self.folder, lambda epoch: _to_parquet(epoch, query))
        self._write_note()  # Also finds out, before anything starts, that we may write here.

    @property
    def lost_rows(self) -> int:
        """Rows that are known to be lost, wherever on the way: the newest epoch has them all."""
        return self.last.lost_total if self.last else 0

    def path(self, number: int) -> Path:
        """The file of epoch `number`."""
        return self.folder / f"epoch-{number:012d}.parquet"

    def write(self, epoch: Epoch) -> bool:
        """Writes the next epoch; False if it is there already, or is not final.

        What is tentative is written where nobody can mistake it for a result.
        """
        if epoch.header.stream != self.stream:
            raise UnbrokenError(
                f"an epoch of {epoch.header.stream!r} at the sink of {self.stream!r}"
            )
        if epoch.kind not in FINAL:
            if epoch.number >= self.next:
                self._said.write(epoch)
            return False
        if epoch.number < self.next:
            self.compare(epoch.header)
            return False
        if epoch.number > self.next:
            raise UnbrokenError(
                f"{self.folder}: epoch {epoch.number} came, but {self.next} is next",
                hint="follow the stream from the sink's `next`",
            )
        path = self.path(epoch.number)
        if path.exists():
            raise UnbrokenError(
                f"{path} was written by somebody else while this sink runs",
                hint="two runs write to one directory: stop one of them",
            )
        disk.write_whole(path, [_to_parquet(epoch, self.query)], sync=True)
        self.next, self.last = epoch.number + 1, epoch.header
        self.rows += epoch.rows
        self.lost += epoch.kind == GAP
        self._write_note()
        self._said.replaced(epoch.number)
        return True

    def compare(self, header: Header) -> None:
        """Raises if `header` is another content than the file of its number has."""
        if not self.path(header.number).exists():
            return  # Moved away by its owner, long after it was written.
        known = self._header(header.number)
        # One that is made again of epochs that are lost by now does not replace what is here.
        if contradict(known, header):
            raise DivergenceError(
                f"{self.folder}: epoch {header.number} has {_rows_in(known)} there, and other "
                f"content comes from the cluster: {_rows_in(header)}",
                hint="these results belong to another run of the query: choose another directory",
            )

    def _numbers(self) -> list[int]:
        found = (_NAME.fullmatch(path.name) for path in self.folder.iterdir())
        numbers = sorted(int(name[1]) for name in found if name)
        for before, number in itertools.pairwise(numbers):
            if number != before + 1:
                raise UnbrokenError(
                    f"{self.folder} has a hole: epoch {before + 1} is missing before {number}",
                    hint="put the file back, or choose another directory for this sink",
                )
        return numbers

    def _header(self, number: int) -> Header:
        path = self.path(number)
        try:
            metadata = pq.read_schema(path).metadata or {}
            header, query = Header.from_json(metadata[HEADER_KEY]), metadata[QUERY_KEY].decode()
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
            raise UnbrokenError(
                f"{path} is not an epoch that Unbroken wrote",
                hint="choose another directory for this sink, or move the file away",
            ) from error
        self._check_owner(query, header.stream)
        return header

    def _check_owner(self, query: str, stream: str) -> None:
        if (query, stream) != (self.query, self.stream):
            raise UnbrokenError(
                f"{self.folder} holds the stream {stream!r} of query {query!r}, "
                f"not {self.stream!r} of {self.query!r}",
                hint="choose another directory for this sink",
            )

    def _read_note(self) -> dict[str, Any]:
        try:
            note: dict[str, Any] = json.loads((self.folder / NOTE).read_bytes())
            self._check_owner(note["query"], note["stream"])
            return {key: int(note[key]) for key in ("next", "rows", "lost")}
        except (OSError, ValueError, KeyError, TypeError):
            return {}  # Lost or spoilt: it is only a cache.

    def _write_note(self) -> None:
        note = {
            "query": self.query, "stream": self.stream, "next": self.next, "rows": self.rows,
            "lost": self.lost, "lost_rows": self.lost_rows,
            "fingerprint": self.last.fingerprint if self.last else "",
        }  # fmt: skip
        disk.write_whole(self.folder / NOTE, [json.dumps(note).encode()])

    def _count(self, numbers: list[int], note: dict[str, Any]) -> tuple[int, int]:
        """Rows, and epochs that are lost: what the note says, and what came after it."""
        counted = note.get("next", 0) if note.get("next", 0) <= self.next else 0
        rows, lost = (note["rows"], note["lost"]) if counted else (0, 0)
        for number in numbers:
            if number >= counted:
                header = self._header(number)
                rows, lost = rows + header.rows, lost + (header.kind == GAP)
        return rows, lost


class SinkThread(threading.Thread):
    """Writes a stream of a running cluster to a directory, until `stop`.

    The stream keeps what this sink has not written yet, also while it is away: it is an expected
    consumer.  What goes wrong is raised by `check`.
    """

    def __init__(self, cluster: Cluster, sink: DirectorySink) -> None:
        super().__init__(name=f"sink-{sink.stream}", daemon=True)
        self.sink = sink
        self.error: Exception | None = None
        #: From the sealing of the oldest input at its source until the file was there; the newest.
        self.delay_s: float | None = None
        self._cluster = cluster
        self._changed = threading.Condition()
        self._first = sink.next
        self._checked = False
        self._stopped = False

    @property
    def next(self) -> int:
        """The number of the next epoch to be written."""
        return self.sink.next

    def run(self) -> None:
        """Follows the stream; the thread's own function."""
        try:
            self._check_same_run()
            with self._changed:
                self._checked = True
                self._changed.notify_all()
            while not self._stopped:
                self._follow()
        except Exception as error:  # Whatever it is, the one who waits must hear of it.
            with self._changed:
                self.error = error
                self._changed.notify_all()

    def _check_same_run(self) -> None:
        """The newest epoch of the directory must be the cluster's own epoch of that number."""
        if self.sink.next == 0:
            return
        while not self._stopped:
            epochs = self._start(self.sink.next - 1, has=self.sink.next)
            try:
                newest = next(epoch for epoch in epochs if epoch.kind in FINAL)
                return self.sink.compare(newest.header)
            except EpochGone:
                return  # Trimmed, because we had acked it.
            except Unreachable:
                continue
            finally:
                epochs.close()

    def _follow(self) -> None:
        epochs = self._start(self.sink.next, has=self.sink.next)
        try:
            for epoch in epochs:
                self.sink.write(epoch)
                with self._changed:
                    if epoch.header.sealed_us:
                        self.delay_s = max(0.0, time.time() - epoch.header.sealed_us / 1e6)
                    self._changed.notify_all()
                if self._stopped:
                    return
        except Unreachable:
            return  # The caller follows again, from where the files end.

    def _start(self, number: int, *, has: int = 0) -> Any:
        """A follower from `number` on, as soon as somebody serves the stream."""
        deadline = time.monotonic() + AWAY_S_MAX
        stream = self.sink.stream
        while True:
            try:
                return self._cluster.follow(stream, number, consumer=f"sink_{stream}", has=has)
            except UnbrokenError as error:
                # Exactly this class: nobody serves the stream now.
                away = isinstance(error, Unreachable) or type(error) is UnbrokenError
                if not away or self._stopped or time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_S)

    def wait(self, number: int, timeout_s: float) -> bool:
        """Waits until every epoch below `number` is written; False after `timeout_s`."""
        if number < self._first:
            raise DivergenceError(
                f"{self.sink.folder} has {self._first} epochs, the query ended after {number}",
                hint="these results belong to another run of the query: choose another directory",
            )
        with self._changed:
            done = self._changed.wait_for(
                lambda: (self._checked and self.sink.next >= number) or self.error is not None,
                timeout_s,
            )
        self.check()
        return done

    def check(self) -> None:
        """Raises what made the sink stop, if anything did."""
        if self.error is not None and not self._stopped:
            raise self.error

    def stop(self) -> None:
        """Writes nothing after the epoch it is at; does not wait."""
        self._stopped = True


def _rows_in(header: Header) -> str:
    return "rows that are lost" if header.kind == GAP else f"{header.rows} rows"


def _to_parquet(epoch: Epoch, query: str) -> Any:
    buffer = pa.BufferOutputStream()
    metadata = {HEADER_KEY: epoch.header.to_json(), QUERY_KEY: query.encode()}
    pq.write_table(epoch.table.replace_schema_metadata(metadata), buffer)
    return buffer.getvalue()
