"""Epoch: a numbered, immutable slice of a stream, and the header that describes it.

    stream   … ├─ 11 ─┼─ 12 ─┼─ 13 ─┤
                        └─ header: number, rows, digest, event-time bounds, term, fingerprint
                           table:  Arrow rows (none is an answer too: nothing is missing)

* A *stable* epoch is final.  Two copies of one number have one digest, or somebody diverged.
* A *gap* is final too, and has no rows because nobody can compute them any more.  It is not an
  empty epoch, which says that nothing is missing: its digest is another one.
* A *tentative* epoch was made without some input that is cut off, on a *branch* that one replica
  went on with.  The stable one of the same number replaces it, and says so (`replaces`).
* The digest does not depend on the order of rows: Spark may deliver the same rows in another
  order on another machine.  It is taken over the sorted row hashes that Spark computes
  (`digest_of_hashes`), or over bytes where nobody else makes a copy (`digest_of_rows`, sources).
* The fingerprint names code and settings: epochs made by other code do not merge, whatever
  their digest.
* What is lost on the way is counted up in every header, from the first epoch on.  Who takes one
  after the other hears of all of it, also of what was lost in epochs that came from somewhere else
  (`lost_since`); and copies that differ because one of them has lost more are told from copies that
  contradict one another (`contradict`).

This module imports nothing of ours.

>>> e = Epoch.of("clicks", 3, pa.table({"n": [1, 2]}))
>>> e.number, e.kind, e.rows
(3, 'stable', 2)
>>> Header.from_json(e.header.to_json()) == e.header
True
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

STABLE = "stable"
GAP = "gap"
TENTATIVE = "tentative"
#: What never changes any more: copies of it may be shipped, merged and written.
FINAL = (STABLE, GAP)

#: The key of the schema metadata under which a header travels with its rows.
HEADER_KEY = b"unbroken"


@dataclass(frozen=True)
class Header:
    """What is known about an epoch without its rows.

    >>> Header("clicks", 7, rows=2).number
    7
    """

    stream: str
    number: int
    kind: str = STABLE
    rows: int = 0
    bytes: int = 0
    digest: str = ""
    #: Lowest and highest event time in microseconds since 1970; None where no row has one.
    event_us_min: int | None = None
    event_us_max: int | None = None
    #: Tentative epochs only: which branch made it, terms and node: "1.3@node-2".
    branch: str = ""
    term: int = 0
    fingerprint: str = ""
    #: Wall-clock microseconds at which the oldest input of this epoch was sealed at its source.
    sealed_us: int = 0
    #: Sources only: highest sequence taken from each producer, so that a repeated send is a no-op.
    sequences: Mapping[str, int] = field(default_factory=dict)
    #: Rows that are known to be lost, others may be: of a gap those of its inputs; of an epoch that
    #: was made from a gap those that its inputs tell.
    lost: int = 0
    #: Epochs and rows that are known to be lost, of all up to this one, wherever on the way.
    gaps_total: int = 0
    lost_total: int = 0
    #: Those of them that this stream has given up itself.
    gaps_here: int = 0
    lost_here: int = 0
    #: How long it was held up for want of input, here and upstream; of a tentative epoch, what
    #: there was of it.  Whoever reads it waits that much less: the user's bound counts once along a
    #: chain (scenario 10).  Copies of a stable epoch may differ in it.
    waited_s: float = 0.0
    #: Tentative epochs only: the newest stable epoch of the stream when it was made.
    stable_to: int = -1

    @property
    def node(self) -> str:
        """Tentative epochs only: the node whose branch made it.  Two sides of a partition differ.

        >>> Header("alerts", 7, TENTATIVE, branch="1.3@node-2").node
        'node-2'
        """
        return self.branch.rpartition("@")[2]

    def to_json(self) -> str:
        """The header as text for files and the wire."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, data: str) -> Header:
        """Reads what `to_json` wrote; unknown fields are an error, not a guess."""
        return cls(**json.loads(data))


@dataclass(frozen=True)
class Replaced:
    """The tentative epoch that a newer one takes the place of, and the rows that differ.

    >>> none = pa.table({"n": pa.array([], pa.int64())})
    >>> Replaced(Header("alerts", 7, TENTATIVE), withdrawn=none, added=none).confirmed
    True
    """

    #: Of the tentative epoch, as it was heard.
    header: Header
    #: Rows that were said and are not true; None if too much was said to remember them, or if
    #: nobody will ever know (`Epoch.given_up`).
    withdrawn: pa.Table | None
    #: Rows that are true and were not said.
    added: pa.Table | None

    @property
    def confirmed(self) -> bool:
        """Whether all that was said is true, and nothing was missing."""
        if self.withdrawn is None or self.added is None:
            return False
        return not self.withdrawn.num_rows and not self.added.num_rows


@dataclass(frozen=True)
class Epoch:
    """A header and its rows.

    >>> Epoch.of("clicks", 0, pa.table({"n": [5]})).table.to_pylist()
    [{'n': 5}]
    """

    header: Header
    table: pa.Table
    #: What a follower heard before under this number, and what has changed; None for nothing.
    replaces: Replaced | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls,
        stream: str,
        number: int,
        table: pa.Table,
        *,
        event_time: str | None = None,
        digest: str | None = None,
        **fields: Any,
    ) -> Epoch:
        """Describes `table` as epoch `number` of `stream`."""
        low, high = event_bounds(table, event_time)
        header = Header(
            stream, number, rows=table.num_rows, bytes=table.nbytes,
            digest=digest_of_rows(table) if digest is None else digest,
            event_us_min=low, event_us_max=high, **fields,
        )  # fmt: skip
        return cls(header, table)

    @classmethod
    def gap(
        cls,
        stream: str,
        number: int,
        schema: pa.Schema,
        *,
        lost: int = 0,
        **fields: Any,
    ) -> Epoch:
        """Epoch `number` of `stream` is lost, and with it `lost` rows of its inputs.

        >>> gap = Epoch.gap("clicks", 51, pa.schema([("n", pa.int64())]), lost=12)
        >>> gap.kind, gap.rows, gap.header.lost
        ('gap', 0, 12)
        """
        return cls.of(
            stream, number, schema.empty_table(), digest=_DIGEST_OF_GAP, kind=GAP, lost=lost,
            **fields,
        )  # fmt: skip

    @property
    def number(self) -> int:
        """The number of the epoch in its stream."""
        return self.header.number

    @property
    def kind(self) -> str:
        """`stable`: these are the rows.  `gap`: the rows are lost.  Both are final.

        `tentative`: made without all of the input; another epoch of this number will come.
        """
        return self.header.kind

    @property
    def confirmed(self) -> bool:
        """Whether it says again what a tentative epoch of its number has said."""
        return self.replaces is not None and self.replaces.confirmed

    @property
    def given_up(self) -> bool:
        """Whether a tentative epoch was said under its number, of which nothing will come.

        >>> said = Replaced(Header("alerts", 7, TENTATIVE), None, None)
        >>> Epoch(Header("alerts", 7, GAP), pa.table({}), said).given_up
        True
        """
        return self.kind == GAP and self.replaces is not None

    @property
    def stable_to(self) -> int:
        """How far the stream was stable when this epoch was made.

        >>> Epoch.of("clicks", 3, pa.table({"n": [1]})).stable_to
        3
        """
        return self.number if self.kind in FINAL else self.header.stable_to

    @property
    def rows(self) -> int:
        """How many rows the epoch has."""
        return self.header.rows

    @property
    def digest(self) -> str:
        """Equal for equal rows, in whatever order."""
        return self.header.digest

    def stamped(self) -> pa.Table:
        """The table with its header in the schema, as it lies in files and travels."""
        return self.table.replace_schema_metadata({HEADER_KEY: self.header.to_json().encode()})

    @classmethod
    def from_stamped(cls, table: pa.Table) -> Epoch:
        """The inverse of `stamped`."""
        header = header_of(table.schema)
        return cls(header, table.replace_schema_metadata(None))

    def with_header(self, **fields: Any) -> Epoch:
        """The same rows under a changed header."""
        return Epoch(replace(self.header, **fields), self.table, self.replaces)


def lost_since(before: Header | None, header: Header) -> int:
    """The rows that whoever takes an epoch after the one `before` hears to be lost.

    More than those of the epoch itself, if it comes from a copy that had lost others before.

    >>> lost_since(Header("c", 49), Header("c", 50, lost=3, lost_total=40))
    40
    >>> lost_since(None, Header("c", 50, lost=3, lost_total=40))
    3
    """
    more = header.lost_total - before.lost_total if before is not None else 0
    return max(header.lost, more)


def contradict(one: Header, other: Header) -> bool:
    """Whether two copies of one epoch cannot both be right.

    They can if one of them was made of epochs that the other has lost: each says how many.

    >>> real, empty = Header("c", 50, digest="d"), Header("c", 50, digest="e")
    >>> contradict(real, empty), contradict(real, replace(empty, gaps_total=4))
    (True, False)
    """
    return one.digest != other.digest and one.gaps_total == other.gaps_total


def header_of(schema: pa.Schema) -> Header:
    """The header that travels in a stamped table's schema.

    >>> header_of(Epoch.of("clicks", 4, pa.table({"n": [1]})).stamped().schema).number
    4
    """
    return Header.from_json(schema.metadata[HEADER_KEY].decode())


def event_bounds(table: pa.Table, column: str | None) -> tuple[int | None, int | None]:
    """Lowest and highest event time of `column` in microseconds, None without any.

    >>> event_bounds(pa.table({"ts": pa.array([3, 9], pa.timestamp("us"))}), "ts")
    (3, 9)
    """
    if column is None or table.num_rows == 0:
        return None, None
    bounds = pc.min_max(table.column(column)).values()
    low, high = (b.cast(pa.timestamp("us")).value for b in bounds)
    return low, high


def digest_of_hashes(hashes: np.ndarray[Any, np.dtype[np.int64]]) -> str:
    """Digest of a set of rows, given one 64-bit hash per row *in sorted order*.

    >>> digest_of_hashes(np.array([1, 2])) == digest_of_hashes(np.array([1, 3]))
    False
    """
    return hashlib.blake2b(hashes.astype("<i8").tobytes(), digest_size=16).hexdigest()


#: Of every gap, however many rows are said to be lost: no rows have another digest.
_DIGEST_OF_GAP = hashlib.blake2b(b"gap", digest_size=16).hexdigest()


def digest_of_rows(table: pa.Table) -> str:
    """Digest of rows in this order, for content of which only one copy is ever made.

    >>> digest_of_rows(pa.table({"n": [1]})) == digest_of_rows(pa.table({"n": [2]}))
    False
    """
    state = hashlib.blake2b(digest_size=16)
    for batch in table.combine_chunks().to_batches():
        state.update(batch.serialize())
    return state.hexdigest()
