"""Epochs and logs of a simulation: rows are small tuples of numbers, and a log is a dict.

* A row is `(event time in ms, key, value)`.  The digest is a hash of the sorted rows, so that equal
  rows have equal digests in every run of the simulator.
* Everything else is as in `unbroken.epochs` and `streams.log`: headers are real ones, logs refuse
  holes and other content under a number that is taken, and keep their last epoch when trimmed.
* What a power cut has torn is found by the real `drop_torn_tail`, as files are: `is_whole`.
* `watch` is told of everything that appears in a log and of everything that goes: the checkers
  (see `checkers`) look there.

>>> epoch = Epoch.of("clicks", 3, ((10, 1, 5), (12, 2, 7)))
>>> epoch.number, epoch.kind, epoch.rows, epoch.header.event_us_max
(3, 'stable', 2, 12000)
>>> Epoch.gap("clicks", 4, None, lost=2).digest == Epoch.of("clicks", 4, ()).digest
False
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Protocol

import unbroken.epochs as real
from unbroken.errors import DiskError, DivergenceError, EpochGone, UnbrokenError
from unbroken.testing.disk import Path

Rows = tuple[tuple[int, ...], ...]
#: Each row counts as one byte, as epochs without rows count nothing: limits are in rows.
_GAP = "gap"


class Header(real.Header):
    """A header that travels as itself."""

    def to_json(self) -> Any:
        """Itself: nobody reads text here."""
        return self

    @classmethod
    def from_json(cls, data: Any) -> Any:
        """Itself."""
        return data


class _Table(tuple[Any, ...]):
    """Rows, as the node's classes ask an Arrow table about them."""

    @property
    def num_rows(self) -> int:
        """How many."""
        return len(self)

    def slice(self, offset: int, length: int) -> _Table:
        """Some of them."""
        return _Table(self[offset : offset + length])


class Epoch:
    """A header and its rows."""

    __slots__ = ("header", "number", "replaces", "table")

    def __init__(self, header: real.Header, table: Rows, replaces: Any = None) -> None:
        self.header, self.table = header, _Table(table)
        #: What was heard before under this number, and what has changed.
        self.replaces = replaces
        #: In its stream.
        self.number = header.number

    @classmethod
    def of(
        cls, stream: str, number: int, rows: Rows, *, digest: str | None = None,
        event_time: str | None = None, **fields: Any,
    ) -> Epoch:  # fmt: skip
        """Describes rows as epoch `number` of `stream`."""
        times = [row[0] for row in rows]
        header = Header(
            stream, number, rows=len(rows), bytes=len(rows),
            digest=digest_of(rows) if digest is None else digest,
            event_us_min=min(times) * 1000 if times else None,
            event_us_max=max(times) * 1000 if times else None, **fields,
        )  # fmt: skip
        return cls(header, rows)

    @classmethod
    def gap(cls, stream: str, number: int, schema: object, **fields: Any) -> Epoch:
        """An epoch that is lost."""
        return cls.of(stream, number, (), digest=_GAP, kind=real.GAP, **fields)

    @property
    def kind(self) -> str:
        """`stable`, `gap` or `tentative`."""
        return self.header.kind

    @property
    def rows(self) -> int:
        """How many rows the epoch has."""
        return self.header.rows

    @property
    def num_rows(self) -> int:
        """The same, as Arrow's tables have it: an epoch travels as it is."""
        return self.header.rows

    @property
    def digest(self) -> str:
        """Equal for equal rows."""
        return self.header.digest

    def stamped(self) -> Epoch:
        """Itself: it travels as it is."""
        return self

    @classmethod
    def from_stamped(cls, epoch: Epoch) -> Epoch:
        """Itself."""
        return epoch

    def slice(self, offset: int, length: int) -> Epoch:
        """Itself: whoever wants no rows does not look at them."""
        return self

    def with_header(self, **fields: Any) -> Epoch:
        """The same rows under a changed header."""
        made = {**self.header.__dict__, **fields}
        return Epoch(Header(**made), tuple(self.table))

    def torn(self, *, readable: bool) -> Epoch:
        """What is left of it if its file is cut off in the middle."""
        return Torn(self, readable)


class Torn(Epoch):
    """What a power cut has left of an epoch: half of its rows, with or without its header.

    >>> torn = Epoch.of("clicks", 3, ((10, 1, 5), (12, 2, 7))).torn(readable=True)
    >>> torn.header.rows, torn.table
    (2, ((10, 1, 5),))
    """

    __slots__ = ("readable",)

    def __init__(self, epoch: Epoch, readable: bool) -> None:
        super().__init__(epoch.header, epoch.table[: len(epoch.table) // 2], epoch.replaces)
        #: Whether its header can be read, which lies before its rows.
        self.readable = readable


def is_whole(path: Path, body: object = None) -> bool:
    """Whether the file of an epoch is all there; as `streams.log.is_whole`."""
    log, number = path.disk.logs[path.parent.text], int(path.name.split(".", 1)[0])
    return not isinstance(log[number], Torn)


def digest_of(rows: Rows) -> str:
    """Of rows in whatever order.

    >>> digest_of(((1, 2, 3), (4, 5, 6))) == digest_of(((4, 5, 6), (1, 2, 3)))
    True
    """
    return f"{hash(tuple(sorted(rows))) & 0xFFFFFFFFFFFF:012x}"


def difference(before: Rows, after: Rows) -> tuple[_Table, _Table]:
    """The rows that only `before` has, and those that only `after` has; as for Arrow tables.

    >>> difference(((1, 1, 1), (1, 1, 1)), ((1, 1, 1), (2, 2, 2)))
    (((1, 1, 1),), ((2, 2, 2),))
    """
    gone, new = Counter(before), Counter(after)
    return _Table((gone - new).elements()), _Table((new - gone).elements())


class Watch(Protocol):
    """Who is told what happens to logs."""

    def appended(self, folder: Path, epoch: Epoch) -> None:
        """An epoch is there from now on."""

    def trimmed(self, folder: Path, stream: str, gone: range) -> None:
        """These epochs are gone."""


class Log:
    """The epochs of one stream in one folder; as `streams.log.EpochLog`."""

    def __init__(self, folder: Path, stream: str, *, sync: bool = False) -> None:
        self.folder, self.stream = folder, stream
        self._kept: dict[int, Epoch] = folder.disk.logs.setdefault(folder.text, {})
        if sync:
            folder.disk.synced_logs.add(folder.text)
        self.first, self.next = 0, 0
        if self._kept:
            self.first, self.next = min(self._kept), max(self._kept) + 1
            if self.next - self.first != len(self._kept):
                raise UnbrokenError(f"log {folder} has a hole")
            if any(isinstance(each, Torn) and not each.readable for each in self._kept.values()):
                raise DiskError(f"{folder} is damaged: an epoch has no readable header")
        self.bytes = sum(epoch.header.bytes for epoch in self._kept.values())
        #: Whoever waits for news; told once.
        self.waiting: list[Any] = []
        self._trimmed: dict[int, real.Header] = {}

    @property
    def last_header(self) -> real.Header | None:
        """The newest epoch's header."""
        epoch = self._kept.get(self.next - 1)
        return epoch.header if epoch is not None else None

    def start_at(self, number: int) -> None:
        """An empty log is to begin at `number`."""
        assert not self._kept, "only an empty log may choose its first number"
        self.first = self.next = number

    def skip_to(self, number: int) -> None:
        """Forgets every epoch and goes on at `number`."""
        if self._kept and number <= self.next:
            return
        self._kept.clear()
        self.first = self.next = number
        self.bytes = 0

    def append(self, epoch: Epoch, *, before_seen: Any = None) -> bool:
        """Adds an epoch; False if it was there already with the same content."""
        number = epoch.header.number
        if number < self.next:
            known = self._kept.get(number)
            if known is not None and real.contradict(known.header, epoch.header):
                raise DivergenceError(
                    f"{self.stream}: epoch {number} was {known.digest}, and is {epoch.digest} now"
                )
            return False
        if number > self.next:
            raise UnbrokenError(f"{self.stream}: epoch {number} appended at {self.next}")
        self.folder.disk.room(self.folder)
        if not self._kept:
            self.first = number
        self._kept[number] = epoch
        self.next = number + 1
        self.bytes += epoch.header.bytes
        self.folder.disk.watch.appended(self.folder, epoch)
        waiting, self.waiting = self.waiting, []
        for told in waiting:
            told()
        return True

    def header(self, number: int) -> real.Header:
        """The header of one epoch."""
        return self.read(number).header

    def remembered(self, number: int) -> real.Header | None:
        """The header of one epoch, also after it was trimmed in this life."""
        kept = self._kept.get(number)
        return kept.header if kept is not None else self._trimmed.get(number)

    def headers(self, start: int, *, most: int = 64) -> list[real.Header]:
        """Headers from `start` on, oldest first."""
        if start < self.first:
            raise EpochGone(f"{self.stream}: epoch {start} was trimmed; it begins at {self.first}")
        return [self._kept[n].header for n in range(start, min(self.next, start + most))]

    def held(self, at_least: int = 0) -> list[real.Header]:
        """Headers of all that it holds from `at_least` on, oldest first."""
        return [self._kept[n].header for n in range(max(at_least, self.first), self.next)]

    def read(self, number: int) -> Epoch:
        """One epoch with its rows."""
        if number not in self._kept:
            raise EpochGone(f"{self.stream}: epoch {number} is not in {self.first}..{self.next}")
        epoch = self._kept[number]
        if isinstance(epoch, Torn) and not is_whole(self.folder / f"{number:012d}.0.arrow"):
            raise DiskError(f"{self.folder}: epoch {number} is damaged")
        return epoch

    def wait(self, number: int, timeout_s: float) -> bool:
        """Whether epoch `number` is there; whoever cannot wait asks again."""
        return self.next > number

    def trim(self, below: int) -> int:
        """Forgets the epochs under `below`, except the last one; tells how many went."""
        below = min(below, self.next - 1)
        gone = range(self.first, max(below, self.first))
        while self.first < below:
            header = self._kept.pop(self.first).header
            self.bytes -= header.bytes
            self._trimmed[self.first] = header
            self.first += 1
        if gone:
            self.folder.disk.watch.trimmed(self.folder, self.stream, gone)
        return len(gone)
