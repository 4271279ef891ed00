"""Where a hole begins: after the highest epoch that any consumer has.

    G, lost with its node   … 48 49 50 51 52        no other copy, no state
    C1 has                  … 48 49 50              asks the new G from 51 on
    C2 has                  … 48 49                 asks the new G from 50 on
    hole                               51 52 … 57   recorded once, for everybody

* A consumer that asks for what comes next says what it has.  Were the hole to begin earlier than
  the furthest of them is, two consumers would disagree about an epoch for ever (scenario 13).
* So nothing is decided until every expected consumer has asked, or was removed: whoever is waited
  for may be the furthest.  Clients that nobody expects count if they asked, and are not waited for.
* What it says must stay true until it is answered: the one that is gone may only be silent, and
  still serve.  So it has asked only when it *promised* to take nothing from that one any more.
  What it said before that may arrive after it, and is older.
* And it must outlast the consumer's process: a fragment says what it has committed, not what it has
  fetched.  Else it would ask for less after a restart, and nobody would have what lies between.
* Some cannot ask: a standby takes what its writer has made, and whoever is to be rebuilt waits for
  this very stream.  They are not waited for (`besides`).  One that is gone while another copy of it
  goes on does not even count (`without`): were it further, that other copy could not go on.
* A consumer that lacks an epoch before the hole is told so; a replica is repaired from another one.
  But if no copy of a fragment has it, there is nobody to repair it from: then the hole begins
  earlier for that fragment (`low`), and everybody else takes it from where it is.
* The last word of each name counts.  Names that nobody expects are kept up to `NAMES_MAX`; beyond
  that, and without a name, the furthest of them stands for all.

This module only decides.  It does no I/O and reads no clock.

>>> positions = Positions(["c@node-1", "c@node-2"])
>>> positions.asked("c@node-1", 51); positions.first() is None      # node-2 may be further.
True
>>> positions.asked("c@node-2", 50); positions.first()
51
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

#: Names of clients that nobody expects.
NAMES_MAX = 256
#: Whoever asks without a name.
UNNAMED = ""


class Begin(NamedTuple):
    """Where a stream goes on that has lost what nobody has.

    >>> Begin(51, 49, ["c@node-2"]).low
    49
    """

    #: After the furthest consumer: nobody has anything from here on.
    first: int
    #: After the furthest copy of the fragment that is behind all others; at most `first`.
    low: int
    #: Copies that lack what another copy of their fragment has.
    behind: list[str]


class Positions:
    """How far the consumers of one stream are, by what they ask for."""

    def __init__(self, expected: Iterable[str] = ()) -> None:
        self._expected = set(expected)
        #: The next epoch that each lacks.
        self._next: dict[str, int] = {}
        #: Who takes nothing from anybody else any more.
        self._promised: set[str] = set()

    def expect(self, consumer: str) -> None:
        """`consumer` is waited for from now on.

        >>> positions = Positions(); positions.expect("sink"); positions.missing
        ['sink']
        """
        self._expected.add(consumer)

    def asked(self, consumer: str, next_epoch: int, *, promised: bool = True) -> None:
        """`consumer` has everything below `next_epoch`, and nothing else.

        Unless it `promised`, it may have more in a moment: it counts, and is still waited for.

        >>> positions = Positions(["a"]); positions.asked("a", 7, promised=False)
        >>> positions.missing
        ['a']

        >>> positions.asked("a", 5); positions.asked("a", 7, promised=False); positions.first()
        5

        >>> positions = Positions(); positions.asked("", 7); positions.asked("", 4)
        >>> positions.first()
        7
        """
        if consumer != UNNAMED and consumer in self._promised and not promised:
            return  # Late.
        known = consumer in self._next or consumer in self._expected
        if consumer != UNNAMED and not known and len(self._next) >= NAMES_MAX:
            consumer = UNNAMED
        if consumer == UNNAMED:
            next_epoch = max(next_epoch, self._next.get(UNNAMED, 0))
        self._next[consumer] = next_epoch
        if promised:
            self._promised.add(consumer)

    def ask_again(self) -> None:
        """What was promised before does not count any more.

        >>> positions = Positions(["a"]); positions.asked("a", 7); positions.ask_again()
        >>> positions.missing
        ['a']
        """
        self._promised.clear()

    def removed(self, consumer: str) -> None:
        """`consumer` will not come back: it is not waited for, and what it had does not count.

        >>> positions = Positions(["a"]); positions.removed("a"); positions.first()
        0
        """
        self._expected.discard(consumer)
        self._next.pop(consumer, None)
        self._promised.discard(consumer)

    @property
    def missing(self) -> list[str]:
        """Expected consumers that have not asked yet."""
        return sorted(self._expected - self._promised)

    def begin(
        self, *, at_most: int | None = None, besides: Collection[str] = (),
        without: Collection[str] = (),
    ) -> Begin | None:  # fmt: skip
        """Where the stream goes on, for each; None until all who are expected have asked.

        >>> positions = Positions()
        >>> for who, n in {"b@1": 49, "c@1": 51, "c@2": 50, "sink": 48}.items():
        ...     positions.asked(who, n)
        >>> positions.begin()
        Begin(first=51, low=49, behind=['c@2'])
        """
        first = self.first(at_most=at_most, besides=besides, without=without)
        if first is None:
            return None
        copies: dict[str, dict[str, int]] = {}
        for name, next_epoch in self._next.items():
            fragment, _, node = name.partition("@")
            if node and name not in without:
                copies.setdefault(fragment, {})[name] = min(next_epoch, first)
        furthest = {fragment: max(nexts.values()) for fragment, nexts in copies.items()}
        behind = [
            name for fragment, nexts in copies.items() for name, next_epoch in nexts.items()
            if next_epoch < furthest[fragment]
        ]  # fmt: skip
        return Begin(first, min([first, *furthest.values()]), sorted(behind))

    def first(
        self, *, at_most: int | None = None, besides: Collection[str] = (),
        without: Collection[str] = (),
    ) -> int | None:  # fmt: skip
        """Where the hole begins; None until all who are expected have asked, 0 if nobody ever did.

        Those `besides` are not waited for; those `without` do not even count.

        `at_most` is a bound that the caller knows: nobody has an epoch whose input is not there
        yet, although a client may ask for it.

        >>> positions = Positions(); positions.asked("", 1_000_000); positions.first(at_most=58)
        58
        >>> Positions(["totals@node-2"]).first(besides=["totals@node-2"])
        0
        """
        if set(self.missing).difference(besides, without):
            return None
        furthest = max((n for who, n in self._next.items() if who not in without), default=0)
        return furthest if at_most is None else min(furthest, at_most)
