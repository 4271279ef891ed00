"""What becomes of tentative epochs: confirmed, replaced or withdrawn.

    said on the branch     412   413   414   415
    stable                 412 = 413 ≠ 414 ≠           confirmed, replaced, replaced; 415 is open
                                                       caught up at 415: stable again

* The stable epoch of a number replaces the tentative one.  Where it says the same, what was said is
  *confirmed*, and its rows need not travel again.
* What differs is told row by row: rows that were said and are not true are *withdrawn*, rows that
  are true and were not said are *added*.
* A fragment that *converges* gives up what it has said: a gap of that number says how many input
  rows it cost, and whether the rows that were said are true is never told (`given_up`).
* A branch that ends before the stable line has caught up gives up what it has not been told of: its
  epochs are replaced all the same, only the count is not known.

This module only decides.  It does no I/O and reads no clock.

>>> correction = Correction("3@node-1", after=411)
>>> for number in (412, 413):
...     correction.said(Header("alerts", number, TENTATIVE, digest=f"said {number}"))
>>> correction.became(Header("alerts", 412, digest="said 412"))
'confirmed'
>>> correction.became(Header("alerts", 413, digest="other"))
'replaced'
>>> correction.changed(18); correction.sentence
'stable again: corrected epochs 412 to 413 (18 rows changed)'
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unbroken.epochs import GAP, TENTATIVE, Epoch, Header, Replaced

CONFIRMED, REPLACED = "confirmed", "replaced"
_SIDE, _AT = "__unbroken_side", "__unbroken_at"


class Correction:
    """What one branch has said, and what has become of it."""

    def __init__(self, branch: str, *, after: int) -> None:
        self.branch = branch
        #: The newest stable epoch when the branch began.
        self.after = after
        #: The newest epoch that was said.
        self.newest = after
        #: What was said and is open: number to digest.
        self._open: dict[int, str] = {}
        self.confirmed = 0
        self.replaced = 0
        self.rows_changed = 0
        #: The newest epoch that is a gap, and the input rows that all of them have cost.
        self._gap_to = after
        self._rows_lost = 0

    def said(self, header: Header) -> None:
        """A tentative epoch was shown."""
        assert header.kind == TENTATIVE, "only what is marked may be taken back"
        assert header.number > self.newest, "a branch says its epochs in order, each once"
        self.newest = header.number
        self._open[header.number] = header.digest

    def became(self, header: Header) -> str | None:
        """The stable epoch is there: `confirmed` or `replaced`; None if nothing was said."""
        digest = self._open.pop(header.number, None)
        if digest is None:
            return None
        if digest == header.digest:
            self.confirmed += 1
            return CONFIRMED
        self.replaced += 1
        return REPLACED

    def gives_up(self, gap: Header) -> None:
        """Nothing replaces what was said under this number: it is a gap.

        >>> correction = Correction("3@node-1", after=411)
        >>> correction.said(Header("alerts", 412, TENTATIVE, digest="said"))
        >>> correction.gives_up(Header("alerts", 412, GAP, lost=7)); correction.open
        []
        >>> correction.sentence
        'stable again: gave up epoch 412 (7 input rows)'
        """
        assert gap.kind == GAP, "consumers are told as much"
        self._open.pop(gap.number, None)
        self._gap_to, self._rows_lost = gap.number, self._rows_lost + gap.lost

    def changed(self, rows: int) -> None:
        """So many rows of a replaced epoch were withdrawn or added."""
        self.rows_changed += rows

    @property
    def open(self) -> list[int]:
        """Tentative epochs that no stable one has replaced yet."""
        return sorted(self._open)

    @property
    def sentence(self) -> str:
        """What the correction did.

        >>> Correction("3@node-1", after=7).sentence
        'stable again: nothing was said that had to be corrected'
        """
        said = self.confirmed + self.replaced
        if self._gap_to > self.after:
            rows = f"{self._rows_lost:,} input row{'' if self._rows_lost == 1 else 's'}"
            return f"stable again: gave up {_epochs(self.after + 1, self._gap_to)} ({rows})"
        if not said:
            return "stable again: nothing was said that had to be corrected"
        which = _epochs(self.after + 1, self.newest)
        if not self.replaced:
            return f"stable again: confirmed {which}"
        rows = f"{self.rows_changed:,} row{'' if self.rows_changed == 1 else 's'}"
        return f"stable again: corrected {which} ({rows} changed)"

    @property
    def given_up(self) -> str:
        """What is said when the branch ends too early.

        >>> Correction("3@node-1", after=7).given_up
        'the branch ended after epoch 7: 0 tentative epochs are open until stable ones come'
        """
        count = len(self._open)
        return (
            f"the branch ended after epoch {self.newest}: {count} tentative "
            f"epoch{' is' if count == 1 else 's are'} open until stable ones come"
        )


def _epochs(first: int, last: int) -> str:
    return f"epoch {first}" if first == last else f"epochs {first} to {last}"


def replacing(epoch: Epoch, said: Epoch | None) -> Epoch:
    """`epoch`, with what it changes about the one of its number that was `said` before.

    A gap changes nothing: what was said is given up, true or not.

    >>> said = Epoch.of("alerts", 7, pa.table({"k": [1, 2]}), kind=TENTATIVE)
    >>> now = replacing(Epoch.of("alerts", 7, pa.table({"k": [2, 3]})), said)
    >>> now.replaces.withdrawn["k"].to_pylist(), now.replaces.added["k"].to_pylist()
    ([1], [3])
    """
    if said is None:
        return epoch
    if epoch.kind == GAP:
        return Epoch(epoch.header, epoch.table, Replaced(said.header, None, None))
    if said.digest == epoch.digest:
        none = epoch.table.slice(0, 0)
        return Epoch(epoch.header, epoch.table, Replaced(said.header, none, none))
    withdrawn, added = difference(said.table, epoch.table)
    return Epoch(epoch.header, epoch.table, Replaced(said.header, withdrawn, added))


def difference(before: pa.Table, after: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows that only `before` has, and those that only `after` has; order means nothing.

    >>> gone, new = difference(pa.table({"k": [1, 1, 2]}), pa.table({"k": [2, 1, 3]}))
    >>> gone["k"].to_pylist(), new["k"].to_pylist()
    ([1], [3])
    """
    both = pa.concat_tables([before, after.cast(before.schema)])
    side = np.repeat([-1, 1], [before.num_rows, after.num_rows])
    keys = pa.table(
        [_comparable(column) for column in both.columns], names=[*map(str, range(both.num_columns))]
    )
    names = keys.column_names
    keys = keys.append_column(_SIDE, pa.array(side, pa.int64()))
    keys = keys.append_column(_AT, pa.array(np.arange(both.num_rows), pa.int64()))
    # Copied: rows that came over the network are not aligned as Arrow's grouping wants them.
    keys = keys.take(pa.array(np.arange(both.num_rows)))
    found = keys.group_by(names, use_threads=False).aggregate([(_SIDE, "sum"), (_AT, "min")])
    count = found.column(f"{_SIDE}_sum").to_numpy()
    at = found.column(f"{_AT}_min").to_numpy()
    gone, new = (np.repeat(at, np.maximum(sign * count, 0)) for sign in (-1, 1))
    return both.take(pa.array(np.sort(gone))), both.take(pa.array(np.sort(new)))


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column by which Arrow can group: lists, structs and maps by their text."""
    if pa.types.is_nested(column.type):
        texts = [repr(each) for each in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    if pa.types.is_floating(column.type):
        # By their bits: 0.0 and -0.0 are other rows to whoever reads them, NaN is equal to itself.
        wide = pc.cast(column, pa.float64()).combine_chunks()
        return pa.chunked_array([wide.view(pa.int64())])
    return column
