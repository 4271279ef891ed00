"""Records: what the control plane keeps in a store, whichever store that is.

    members ─ who has joined          intentions ─ what is under way
    placement ─ who is expected       terms ─ the highest that was given
    removals ─ who is gone, and why   holes ─ what nobody will ever have
    writers ─ who took over           overtaken ─ whom a hole was recorded in place of

The embedded store is SQLite (`control.store`); one that several machines share has to keep the
same promises.

This module defines words.  It does no I/O and reads no clock.

>>> Hole("totals", 51, 57, "node-1 died: restarted empty").sentence
'totals: epochs 51 to 57 are lost: node-1 died: restarted empty'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from unbroken.control.intentions import Intention, Placed, Standing


class Removal(NamedTuple):
    """A replica that was removed, and why.

    >>> Removal("alerts", "node-1", 8, "replaced").node
    'node-1'
    """

    fragment: str
    node: str
    term: int
    reason: str


class Hole(NamedTuple):
    """Epochs of a stream, both ends included, that nobody will ever have.

    >>> Hole("totals", 51, 57, "node-1 died").last
    57
    """

    stream: str
    first: int
    last: int
    reason: str = ""
    #: Rows of the inputs that are known to be lost with it; counted after it was recorded.
    rows: int = 0

    @property
    def sentence(self) -> str:
        """For log and `status`.

        >>> Hole("totals", 51, 57).sentence
        'totals: epochs 51 to 57 are lost'
        >>> Hole("totals", 51, 57, rows=1200).sentence
        'totals: epochs 51 to 57 are lost (1,200 rows in)'
        """
        because = f": {self.reason}" if self.reason else ""
        rows = f" ({self.rows:,} {'row' if self.rows == 1 else 'rows'} in)" if self.rows else ""
        return f"{self.stream}: epochs {self.first} to {self.last} are lost{rows}{because}"


class Records(Protocol):
    """What the control plane needs of a store; each method is one transaction, durable when it
    returns.

    >>> sorted(name for name in vars(Records) if "hole" in name)
    ['count_hole', 'holes', 'record_hole']
    """

    def join(self, node: str, address: str) -> None:
        """`node` is a member from now on, at `address`; said again, it is the new address."""

    def leave(self, node: str) -> None:
        """`node` is no member any more."""

    def members(self) -> dict[str, str]:
        """Node to address."""

    def next_term(self, fragment: str) -> int:
        """A number that no writer of `fragment` has had, or will have again."""

    def place(self, fragment: str, nodes: Sequence[str]) -> list[Placed]:
        """The first placement of `fragment`, a term each; one that is placed stays as it is."""

    def placement(self) -> Mapping[str, list[Placed]]:
        """Fragment to its expected replicas, in the order in which they were placed."""

    def stand(self, fragment: str, node: str, standing: Standing) -> None:
        """An expected replica stands so from now on (it is live, say): its own repair is over."""

    def record_writer(self, fragment: str, node: str) -> int:
        """From now on `node` writes `fragment`, under the term that is the answer."""

    def writers(self) -> dict[str, str]:
        """Fragment to the node that took over last; none, while the first one writes."""

    def record(self, intention: Intention) -> Intention:
        """Writes a step and the standing that goes with it; gives it a term if it has none."""

    def unfinished(self) -> list[Intention]:
        """What was begun and not ended, the oldest terms first."""

    def removals(self) -> list[Removal]:
        """Who was removed and why, the newest last."""

    def record_hole(self, hole: Hole, *, overtakes: Iterable[tuple[str, str]]) -> Hole:
        """Records a hole once; if one that overlaps it is known, that one is the answer.

        In either case those whom it `overtakes` (fragment and node) must not go on where they were.
        """

    def overtake(self, fragment: str, node: str) -> None:
        """The replica on `node` must not go on where it was: its successor begins."""

    def count_hole(self, stream: str, first: int, rows: int) -> int:
        """So many rows are lost with a hole, or more if more were counted before; tells which."""

    def holes(self, stream: str) -> list[Hole]:
        """The holes of `stream`, the first ones first."""

    def overtaken(self) -> set[tuple[str, str]]:
        """Fragment and node of those that a hole has overtaken, until they are live or released."""
