"""The store: what the control plane knows, on disk before it is acted on.

    members      node-1  grpc://…                     who has joined
    placement    alerts  node-1  term 3  live         who is expected, and where it stands
    writers      totals  node-2  term 5               who took over as the only writer
    intentions   alerts  node-3  term 7  ship         what is under way (scenario 15)
    terms        alerts  7                            the highest that was ever given
    removals     alerts  node-2  term 8  node-2 …     why somebody is not there any more
    holes        totals  51..57                       holes that are final (scenario 13)
    overtaken    totals  node-1                       whom they were recorded in place of

* One change is one transaction, and it is on the disk when the call returns: after kill -9 or a
  power cut it is there as a whole or not at all.  A term and what it was given for, a step and the
  standing that goes with it, are one change.
* Terms never repeat, also when what they were given for is gone.
* A hole is recorded once; whoever comes later is told what was recorded.  With it goes who must
  not go on any more, because consumers may have the hole by then.
* A store written by a newer Unbroken is refused; nobody guesses what its records mean.  One
  written by an older is brought up to date (`control.tables`).

`Store` keeps what `records.Records` asks for in one SQLite file.

>>> import tempfile
>>> store = Store(Path(tempfile.mkdtemp()) / "control.db")
>>> [(replica.node, replica.term) for replica in store.place("alerts", ["node-1", "node-2"])]
[('node-1', 1), ('node-2', 2)]
>>> store.next_term("alerts")
3
>>> store.record(Intention("alerts", Step.EXPECT, "node-3", survivor="node-2")).term
4
>>> [intention.sentence for intention in store.unfinished()]
['alerts: expecting node-3 as a copy of node-2 (term 4)']
>>> store.close()
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from unbroken.control.intentions import Intention, Placed, Standing, Step
from unbroken.control.records import Hole, Removal
from unbroken.control.tables import SCHEMA_VERSION, changes_since
from unbroken.errors import DiskError, UnbrokenError
from unbroken.streams import disk

#: Older removals are forgotten: they are there to be read by people.
REMOVALS_MAX = 1000
#: How long to wait for another process that has the file open, such as a backup.
BUSY_S_MAX = 5.0

#: SQLite's errors that are the disk's, as the system calls them.
_OF_THE_DISK = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
}


class Store:
    """The records in one SQLite file; may be used by several threads of one process.

    >>> import tempfile
    >>> store = Store(Path(tempfile.mkdtemp()) / "control.db")
    >>> store.join("node-1", "grpc://127.0.0.1:4001"); store.members()
    {'node-1': 'grpc://127.0.0.1:4001'}
    >>> store.close()
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        with self._errors():
            self._db = sqlite3.connect(
                path, timeout=BUSY_S_MAX, isolation_level=None, check_same_thread=False
            )
            try:
                # A rollback journal, not a write-ahead log: changes are rare, and one file that
                # is complete after each of them is easier to copy and to look at.  EXTRA is FULL
                # and syncs the folder too: without it a power cut could bring the journal back,
                # and with it the state before the last change.
                self._db.execute("PRAGMA journal_mode=DELETE")
                self._db.execute("PRAGMA synchronous=EXTRA")
                self._check_version()
            except BaseException:
                self._db.close()
                raise

    def _check_version(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise UnbrokenError(
                f"{self._path} was written by a newer Unbroken (records of version {version}, "
                f"this one knows {SCHEMA_VERSION})",
                hint="run the newer one, or start the query in another folder",
            )
        if version < SCHEMA_VERSION:
            # With its number in one change: an upgrade that was cut off has not happened.
            with self._change() as db:
                for change in changes_since(version):
                    db.execute(change)
                db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")

    # Members.

    def join(self, node: str, address: str) -> None:
        """`node` is a member from now on, at `address`; said again, the address is a new one."""
        with self._change() as db:
            db.execute("INSERT OR REPLACE INTO members VALUES (?, ?)", (node, address))

    def leave(self, node: str) -> None:
        """`node` is no member any more."""
        with self._change() as db:
            db.execute("DELETE FROM members WHERE node = ?", (node,))

    def members(self) -> dict[str, str]:
        """Node to address."""
        return dict(self._read("SELECT node, address FROM members ORDER BY node"))

    # Terms and placement.

    def next_term(self, fragment: str) -> int:
        """A number that no writer of `fragment` has had, or will have again."""
        with self._change() as db:
            return _next_term(db, fragment)

    def place(self, fragment: str, nodes: Sequence[str]) -> list[Placed]:
        """The first placement of `fragment`, a term each; one that is placed stays as it is."""
        with self._change() as db:
            known = db.execute("SELECT 1 FROM placement WHERE fragment = ?", (fragment,)).fetchone()
            # What has changed since is the work of repairs, and not to be undone by a restart.
            for node in nodes if known is None else ():
                _put(db, fragment, node, _next_term(db, fragment), Standing.STARTING)
        return self.placement().get(fragment, [])

    def placement(self) -> dict[str, list[Placed]]:
        """Fragment to its expected replicas, in the order in which they were placed."""
        found: dict[str, list[Placed]] = {}
        rows = self._read(
            "SELECT fragment, node, term, standing FROM placement ORDER BY fragment, position"
        )
        for fragment, node, term, standing in rows:
            found.setdefault(fragment, []).append(Placed(node, term, Standing(standing)))
        return found

    def stand(self, fragment: str, node: str, standing: Standing) -> None:
        """An expected replica stands so from now on (it is live, say): its own repair is over."""
        with self._change() as db:
            db.execute(
                "DELETE FROM intentions WHERE fragment = ? AND node = ? AND step != ?",
                (fragment, node, Step.RELEASE),
            )
            _stand(db, fragment, node, standing)

    def record_writer(self, fragment: str, node: str) -> int:
        """From now on `node` writes `fragment`, under the term that is the answer.

        >>> import tempfile
        >>> store = Store(Path(tempfile.mkdtemp()) / "control.db")
        >>> store.record_writer("totals", "node-2"), store.writers()
        (1, {'totals': 'node-2'})
        >>> store.close()
        """
        with self._change() as db:
            term = _next_term(db, fragment)
            db.execute("INSERT OR REPLACE INTO writers VALUES (?, ?, ?)", (fragment, node, term))
        return term

    def writers(self) -> dict[str, str]:
        """Fragment to the node that took over last; none, while the first one writes."""
        return dict(self._read("SELECT fragment, node FROM writers ORDER BY fragment"))

    # Intentions.

    def record(self, intention: Intention) -> Intention:
        """Writes a step and the standing that goes with it; gives it a term if it has none."""
        with self._change() as db:
            if not intention.term:
                intention = intention.under(_next_term(db, intention.fragment))
            fragment, node, term = intention.fragment, intention.node, intention.term
            if intention.step is Step.EXPECT:
                # It takes the place of an unfinished repair, and removes whom it replaces.
                db.execute(
                    "DELETE FROM intentions WHERE fragment = ? AND step != ?",
                    (fragment, Step.RELEASE),
                )
                _stand(db, fragment, intention.replaces, Standing.GONE)
                _put(db, fragment, node, term, Standing.COMING)
            elif intention.step is Step.LIVE:
                if intention.rebuilds:
                    # There was one copy, and here is its successor: the old line must not go on.
                    _stand(db, fragment, intention.replaces, Standing.LEAVING)
                _put(db, fragment, node, term, Standing.LIVE)
                _forget_overtaken(db, fragment, node)
            elif intention.step is Step.RELEASE:
                db.execute(
                    "DELETE FROM intentions WHERE fragment = ? AND node = ?", (fragment, node)
                )
                _stand(db, fragment, node, Standing.LEAVING)
                _remove(db, Removal(fragment, node, term, intention.reason))
            elif intention.step is Step.RELEASED:
                db.execute(
                    "DELETE FROM placement WHERE fragment = ? AND node = ?", (fragment, node)
                )
                _forget_overtaken(db, fragment, node)
            db.execute("DELETE FROM intentions WHERE fragment = ? AND term = ?", (fragment, term))
            if not intention.step.ends:
                db.execute(
                    "INSERT INTO intentions VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (fragment, term, intention.step, node, intention.survivor,
                     intention.replaces, intention.reason),
                )  # fmt: skip
        return intention

    def unfinished(self) -> list[Intention]:
        """What was begun and not ended, the oldest terms first."""
        rows = self._read(
            "SELECT fragment, step, node, term, survivor, replaces, reason FROM intentions "
            "ORDER BY fragment, term"
        )
        return [Intention(row[0], Step(row[1]), *row[2:]) for row in rows]

    def removals(self) -> list[Removal]:
        """Who was removed and why, the newest last."""
        rows = self._read("SELECT fragment, node, term, reason FROM removals ORDER BY number")
        return [Removal(*row) for row in rows]

    # Holes.

    def record_hole(
        self, hole: Hole, *, overtakes: Iterable[tuple[str, str]], longer: bool = False
    ) -> Hole:
        """Records a hole once; if one that overlaps it is known, that one is the answer.

        `longer`: the known one must reach as far as this one, because what comes behind it cannot
        be made any more.  Nobody who is waited for has that, or this one would begin there.

        In either case those whom it `overtakes` (fragment and node) must not go on where they were.

        >>> import tempfile
        >>> store = Store(Path(tempfile.mkdtemp()) / "control.db")
        >>> gone = [("totals", "node-1")]
        >>> one = store.record_hole(Hole("totals", 51, 57), overtakes=gone)
        >>> one == store.record_hole(Hole("totals", 55, 60), overtakes=gone)
        True
        >>> store.overtaken()
        {('totals', 'node-1')}
        >>> store.close()
        """
        assert 0 <= hole.first <= hole.last, "both ends included"
        with self._change() as db:
            db.executemany("INSERT OR IGNORE INTO overtaken VALUES (?, ?)", overtakes)
            known = db.execute(
                "SELECT stream, first, last, reason, rows FROM holes "
                "WHERE stream = ? AND first <= ? AND last >= ? ORDER BY first",
                (hole.stream, hole.last, hole.first),
            ).fetchone()
            if known is not None and longer:
                known = (*known[:2], max(known[2], hole.last), *known[3:])
                db.execute("UPDATE holes SET last = ? WHERE stream = ? AND first = ?",
                           (known[2], *known[:2]))  # fmt: skip
            if known is not None:
                return Hole(*known)
            db.execute("INSERT INTO holes VALUES (?, ?, ?, ?, ?)", hole)
        return hole

    def count_hole(self, stream: str, first: int, rows: int) -> int:
        """So many rows are lost with a hole, or more if more were counted before; tells which.

        Never less than consumers may have been told.

        >>> import tempfile
        >>> store = Store(Path(tempfile.mkdtemp()) / "control.db")
        >>> hole = store.record_hole(Hole("totals", 51, 57), overtakes=[])
        >>> store.count_hole("totals", 51, 12), store.count_hole("totals", 51, 9)
        (12, 12)
        >>> store.close()
        """
        with self._change() as db:
            counted = db.execute(
                "UPDATE holes SET rows = max(rows, ?) WHERE stream = ? AND first = ? "
                "RETURNING rows",
                (rows, stream, first),
            ).fetchone()
            if counted is None:
                raise UnbrokenError(f"{stream}: no hole that begins at {first} is on record")
        return int(counted[0])

    def overtake(self, fragment: str, node: str) -> None:
        """The replica on `node` must not go on where it was: its successor begins.

        >>> import tempfile
        >>> store = Store(Path(tempfile.mkdtemp()) / "control.db")
        >>> store.overtake("totals", "node-1"); store.overtaken()
        {('totals', 'node-1')}
        >>> store.close()
        """
        with self._change() as db:
            db.execute("INSERT OR IGNORE INTO overtaken VALUES (?, ?)", (fragment, node))

    def holes(self, stream: str) -> list[Hole]:
        """The holes of `stream`, the first ones first."""
        rows = self._read(
            "SELECT stream, first, last, reason, rows FROM holes WHERE stream = ? ORDER BY first",
            stream,
        )
        return [Hole(*row) for row in rows]

    def overtaken(self) -> set[tuple[str, str]]:
        """Fragment and node of those that a hole has overtaken, until they are live or released."""
        return set(self._read("SELECT fragment, node FROM overtaken"))

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._db.close()

    # One transaction, one kind of error.

    def _read(self, query: str, *values: object) -> list[Any]:
        with self._lock, self._errors():
            return self._db.execute(query, values).fetchall()

    @contextlib.contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._errors():
            self._roll_back()
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                # On a broken disk that may fail as well; then the next change begins with it.
                with contextlib.suppress(sqlite3.Error):
                    self._roll_back()
                raise

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """SQLite's word on the disk, as an error that says which disk and what to do."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
                raise DiskError(
                    f"{self._path} is damaged: {error}",
                    hint="put back a copy of it, or start the query in another folder",
                ) from error
            if code == sqlite3.SQLITE_BUSY:
                # As a disk that cannot be written to for a while: it is decided again.
                raise DiskError(
                    f"{self._path} was in use for {BUSY_S_MAX:.0f} s",
                    hint="another process has it open for writing: end it",
                ) from error
            if code not in _OF_THE_DISK:
                raise
            number = _OF_THE_DISK[code]
            with disk.disk_errors(self._path):
                full = number == errno.ENOSPC
                raise OSError(number, os.strerror(number) if full else str(error)) from error


def _next_term(db: sqlite3.Connection, fragment: str) -> int:
    (term,) = db.execute(
        "INSERT INTO terms VALUES (?, 1) "
        "ON CONFLICT (fragment) DO UPDATE SET term = term + 1 RETURNING term",
        (fragment,),
    ).fetchone()
    return int(term)


def _put(db: sqlite3.Connection, fragment: str, node: str, term: int, standing: Standing) -> None:
    db.execute(
        "INSERT INTO placement (fragment, node, term, standing) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (fragment, node) DO UPDATE SET term = excluded.term, "
        "standing = excluded.standing",
        (fragment, node, term, standing),
    )


def _stand(db: sqlite3.Connection, fragment: str, node: str, standing: Standing) -> None:
    db.execute(
        "UPDATE placement SET standing = ? WHERE fragment = ? AND node = ?",
        (standing, fragment, node),
    )


def _forget_overtaken(db: sqlite3.Connection, fragment: str, node: str) -> None:
    db.execute("DELETE FROM overtaken WHERE fragment = ? AND node = ?", (fragment, node))


def _remove(db: sqlite3.Connection, removal: Removal) -> None:
    db.execute("INSERT INTO removals (fragment, node, term, reason) VALUES (?, ?, ?, ?)", removal)
    db.execute(
        "DELETE FROM removals WHERE number <= (SELECT max(number) FROM removals) - ?",
        (REMOVALS_MAX,),
    )
