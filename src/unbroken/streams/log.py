"""The log of a stream: one Arrow file per epoch, so that `ls` shows the stream.

    000000000011.5f0e1c22.arrow     number . checksum of the bytes . arrow
    000000000012.91ab0033.arrow

* Numbers have no holes: an epoch is appended at `next`, or it is refused.
* Appending the same epoch again is a no-op; other content under a number that is taken is a
  divergence (invariant 1), raised here and never silent.
* The checksum in the name is compared when a body is read from disk.
* A log is trimmed from its old end only, and keeps its last epoch: that header says where a
  restarted stream goes on.

>>> import tempfile, pyarrow as pa
>>> log = EpochLog(Path(tempfile.mkdtemp()), "clicks")
>>> log.append(Epoch.of("clicks", 0, pa.table({"n": [1]})))
True
>>> log.append(Epoch.of("clicks", 0, pa.table({"n": [1]})))     # a repeated copy: dropped
False
>>> log.first, log.next
(0, 1)
"""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from unbroken.epochs import GAP, Epoch, Header, contradict, header_of
from unbroken.errors import DiskError, DivergenceError, EpochGone, UnbrokenError
from unbroken.streams import disk
from unbroken.streams.giving_up import gap_fields

#: Bodies kept in memory for the consumers that follow closely.
RECENT_EPOCHS = 3
RECENT_BYTES_MAX = 64 << 20
#: Headers that are remembered after their epochs were trimmed.
TRIMMED_MAX = 1000


class EpochLog:
    """The epochs of one stream that one replica keeps.

    Safe for many threads: those that append take turns, many read, wait and trim meanwhile.
    """

    def __init__(self, folder: Path, stream: str, *, sync: bool = False) -> None:
        self.folder = folder
        self.stream = stream
        self._sync = sync
        #: Held from the look at `next` until the epoch is noted: a standby's copy and the replica
        #: that takes over from it may bring one epoch at the same time.
        self._appending = threading.Lock()
        #: Held until files are gone: those of an older trim go first, or a crash leaves a hole.
        self._removing = threading.Lock()
        self._changed = threading.Condition()
        #: Invariant: the numbers in here have no holes.
        self._headers: dict[int, Header] = {}
        self._files: dict[int, Path] = {}
        self._recent: OrderedDict[int, Epoch] = OrderedDict()
        #: In memory only: after a restart nothing is known of what was trimmed before.
        self._trimmed: OrderedDict[int, Header] = OrderedDict()
        self._first = self._next = 0
        self._bytes = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._load()

    def _load(self) -> None:
        for path in sorted(self.folder.glob(f"*{disk.TEMPORARY}")):
            path.unlink()  # A writer died before its rename: the epoch was never there.
        for path in sorted(self.folder.glob("*.arrow")):
            number = number_of(path)
            header = _header_in(path)
            if number in self._headers:
                # Its process died while the epoch was given up: the gap counts.
                was = self._headers[number]
                stale = path if was.kind == GAP else self._files[number]
                if header.kind == GAP:
                    self._headers[number], self._files[number] = header, path
                    self._bytes += header.bytes - was.bytes
                stale.unlink()
                continue
            if self._headers and number != self._next:
                raise UnbrokenError(
                    f"log {self.folder} has a hole: epoch {self._next} is missing before {number}",
                    hint="restore the file from a copy, or move the folder away to start afresh",
                )
            self._note(number, header, path)

    def _note(self, number: int, header: Header, path: Path) -> None:
        if not self._headers:
            self._first = number
        self._headers[number] = header
        self._files[number] = path
        self._next = number + 1
        self._bytes += header.bytes

    @property
    def first(self) -> int:
        """The oldest epoch that can still be read; equal to `next` in an empty log."""
        return self._first

    @property
    def next(self) -> int:
        """The number that the next epoch will have."""
        return self._next

    @property
    def bytes(self) -> int:
        """How many bytes of rows the log holds."""
        return self._bytes

    @property
    def last_header(self) -> Header | None:
        """The newest epoch's header."""
        with self._changed:
            return self._headers.get(self._next - 1)

    def start_at(self, number: int) -> None:
        """An empty log is to begin at `number` (a replica that starts in the middle)."""
        with self._changed:
            assert not self._headers, "only an empty log may choose its first number"
            self._first = self._next = number
            self._changed.notify_all()

    def skip_to(self, number: int) -> None:
        """Forgets every epoch and goes on at `number`: nobody asks for what lies before it.

        For a copy that was away while its original was trimmed.
        """
        with self._appending, self._removing:
            with self._changed:
                if self._headers and number <= self._next:
                    return  # Whoever else appends has brought it meanwhile: there is no hole.
                gone = [self._files[old] for old in sorted(self._files)]
                for kept in (self._headers, self._files, self._recent):
                    kept.clear()
                self._first = self._next = number
                self._bytes = 0
                self._changed.notify_all()
            for path in gone:  # Oldest first, and before the next is written: never a hole.
                path.unlink(missing_ok=True)

    def append(self, epoch: Epoch, *, before_seen: Callable[[], None] | None = None) -> bool:
        """Adds an epoch; False if it was there already with the same content.

        `before_seen` runs when the file is there and nobody has been told; if it fails, the epoch
        is not added.
        """
        with self._appending:
            return self._append(epoch, before_seen)

    def _append(self, epoch: Epoch, before_seen: Callable[[], None] | None) -> bool:
        number = epoch.number
        with self._changed:
            if number < self._next:
                self._compare(epoch)
                return False
            if number > self._next:
                raise UnbrokenError(f"{self.stream}: epoch {number} appended at {self._next}")
        body = _to_bytes(epoch)
        path = self.folder / f"{number:012d}.{zlib.crc32(body):08x}.arrow"
        disk.write_whole(path, [body], sync=self._sync)
        if before_seen is not None:
            try:
                before_seen()
            except BaseException:
                path.unlink()
                raise
        with self._changed:
            self._note(number, epoch.header, path)
            self._recent[number] = epoch
            while len(self._recent) > RECENT_EPOCHS or (
                sum(e.header.bytes for e in self._recent.values()) > RECENT_BYTES_MAX
            ):
                self._recent.popitem(last=False)
            self._changed.notify_all()
        return True

    def _compare(self, epoch: Epoch) -> None:
        known = self._headers.get(epoch.number)
        # What was shown stays, should it be made again of epochs that are lost by now.
        if known is not None and contradict(known, epoch.header):
            raise DivergenceError(
                f"{self.stream}: epoch {epoch.number} was {known.rows} rows with digest "
                f"{known.digest}, and is {epoch.rows} rows with digest {epoch.digest} now",
                hint="the fragment is not deterministic: look for rand, uuid, current time, "
                "or Python code that keeps state of its own",
            )

    def give_up(self, number: int, schema: pa.Schema) -> int:
        """The rows of an epoch go, and a gap says how many there were; tells that.

        It has no fingerprint: nobody has computed it.
        """
        with self._removing:
            with self._changed:
                header, path = self._headers.get(number), self._files.get(number)
            if header is None or path is None or header.kind == GAP:
                return 0
            gap = Epoch.gap(
                self.stream, number, schema, sequences=header.sequences,
                sealed_us=header.sealed_us, **gap_fields(header),
            )  # fmt: skip
            body = _to_bytes(gap)
            taken = self.folder / f"{number:012d}.{zlib.crc32(body):08x}.arrow"
            # First the gap, and for good: a crash in between leaves both, and the gap counts.
            disk.write_whole(taken, [body], sync=True)
            with self._changed:
                self._headers[number], self._files[number] = gap.header, taken
                self._recent.pop(number, None)
                self._bytes += gap.header.bytes - header.bytes
            path.unlink(missing_ok=True)
        return gap.header.lost

    def header(self, number: int) -> Header:
        """The header of one epoch."""
        with self._changed:
            if number not in self._headers:
                raise self._gone(number)
            return self._headers[number]

    def remembered(self, number: int) -> Header | None:
        """The header of one epoch, also for a while after it was trimmed; None if not known.

        Should a hole reach back there, its rows can still be counted.
        """
        with self._changed:
            return self._headers.get(number) or self._trimmed.get(number)

    def headers(self, start: int, *, most: int = 64) -> list[Header]:
        """Headers from `start` on, oldest first; EpochGone if `start` was trimmed."""
        with self._changed:
            if start < self._first:
                raise self._gone(start)
            return [self._headers[n] for n in range(start, min(self._next, start + most))]

    def held(self, at_least: int = 0) -> list[Header]:
        """Headers of all that it holds from `at_least` on, oldest first: one moment of it."""
        with self._changed:
            return [self._headers[n] for n in range(max(at_least, self._first), self._next)]

    def read(self, number: int) -> Epoch:
        """One epoch with its rows, its checksum compared."""
        with self._changed:
            if number in self._recent:
                return self._recent[number]
            if number not in self._files:
                raise self._gone(number)
            path = self._files[number]
        try:
            body = path.read_bytes()
        except FileNotFoundError:
            with self._changed:
                given_up = self._files.get(number, path) != path
            if given_up:
                return self.read(number)
            raise self._gone(number) from None
        if not is_whole(path, body):
            raise DiskError(
                f"{path} is damaged: its bytes do not match its checksum",
                hint="the disk is failing; another replica still has this epoch",
            )
        return Epoch.from_stamped(pa.ipc.open_stream(pa.py_buffer(body)).read_all())

    def path(self, number: int) -> Path:
        """The file of one epoch."""
        with self._changed:
            return self._files[number]

    def wait(self, number: int, timeout_s: float) -> bool:
        """Waits until epoch `number` is there; False after `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: self._next > number, timeout_s)

    def trim(self, below: int) -> int:
        """Forgets the epochs under `below`, except the last one; tells how many went."""
        gone: list[Path] = []
        with self._removing:
            with self._changed:
                below = min(below, self._next - 1)
                while self._first < below:
                    header = self._headers.pop(self._first)
                    self._bytes -= header.bytes
                    self._trimmed[self._first] = header
                    self._recent.pop(self._first, None)
                    gone.append(self._files.pop(self._first))
                    self._first += 1
                while len(self._trimmed) > TRIMMED_MAX:
                    self._trimmed.popitem(last=False)
                self._changed.notify_all()
            for path in gone:  # Oldest first: a crash in between leaves no hole.
                path.unlink(missing_ok=True)
        return len(gone)

    def _gone(self, number: int) -> EpochGone:
        if number >= self._next:
            return EpochGone(f"{self.stream}: epoch {number} is not there yet (next {self._next})")
        oldest = self._headers.get(self._first)
        if oldest is not None and oldest.kind == GAP:
            return EpochGone(
                f"{self.stream}: epoch {number} is gone: the log begins at {self._first}, after "
                "the loss of a node, with epochs that are lost",
                hint=f"follow from {self._first}: epochs of kind gap say which numbers are lost",
            )
        return EpochGone(
            f"{self.stream}: epoch {number} was trimmed; the log begins at {self._first}",
            hint=f"follow from {self._first}, or declare a sink before the run so that it is kept",
        )


def number_of(path: Path) -> int:
    """The number of the epoch in a file of a log.

    >>> number_of(Path("000000000412.1c291ca3.arrow"))
    412
    """
    return int(path.name.split(".", 1)[0])


def drop_torn_tail(folder: Path) -> None:
    """After a reboot: nothing counts from the first epoch on that is torn or missing.

    It was not synced, and a disk writes in the order that it likes.  Only for logs whose content
    can be computed again.
    """
    torn, before = False, -1
    for path in sorted(folder.glob("*.arrow")):
        number = number_of(path)
        torn = torn or 0 <= before < number - 1 or not is_whole(path)
        before = number
        if torn:
            path.unlink()


def is_whole(path: Path, body: bytes | None = None) -> bool:
    """Whether the bytes of an epoch's file match the checksum in its name."""
    body = path.read_bytes() if body is None else body
    return f"{zlib.crc32(body):08x}" == path.name.split(".")[1]


def _header_in(path: Path) -> Header:
    try:
        with pa.memory_map(str(path)) as source:
            return header_of(pa.ipc.open_stream(source).schema)
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise DiskError(
            f"{path} is damaged: it has no readable header",
            hint="the machine lost power before the disk had it, or the disk is failing: restore "
            "the file from a copy, or move the folder away to start afresh",
        ) from error


def _to_bytes(epoch: Epoch) -> memoryview:
    sink = pa.BufferOutputStream()
    table = epoch.stamped()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())
