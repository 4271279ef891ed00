"""Merge: one stream out of the copies that several replicas announce.

    r1   ├─ 7 ─┼─ 8 ─┼─ 9 ─┤                 take 7 from r1 (announced first),
    r2     ├─ 7 ─┼─ 8 ─┤                     8 from r1; r1 stalls: 8 from r2; r2's 7 is dropped

* Each epoch is taken once, in order, none skipped (invariant 2), from whoever announced it first;
  on a failed or stalled fetch from the next one.  Nothing is detected, nothing is switched.
* Later copies are dropped by number, and their digests compared: replicas that disagree are a
  divergence (invariant 1).  Unless one of them has lost more on the way: then it is the line that
  goes on, and what is not taken yet is taken from there.
* Epochs made by other code or settings do not merge: their replica is refused (scenario 26).
* A fragment that begins anew behind a hole has one replica, and it stands *alone*: what the one
  before it still says is lost by now, although it may not have heard so yet (`only`).

This module only decides.  It does no I/O and reads no clock.

>>> merge = Merge("alerts", start=7)
>>> merge.announced("r1", [Header("alerts", 7, digest="d7"), Header("alerts", 8, digest="d8")])
>>> merge.announced("r2", [Header("alerts", 7, digest="d7")])
>>> merge.wanted()
Fetch(replica='r1', number=7)
>>> merge.failed(Fetch("r1", 7)); merge.wanted()
Fetch(replica='r2', number=7)
>>> merge.taken(7); merge.next
8
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from unbroken.epochs import Header, contradict
from unbroken.errors import DivergenceError
from unbroken.streams.giving_up import is_given_up

#: Digests of taken epochs that are still compared with late copies.
REMEMBERED_MAX = 1000


class Serving(dict[str, str]):
    """Replica name to the address of its door, of all who serve a stream.

    >>> Serving({"a@node-2": "grpc://b:1"}, alone=(7, "a@node-2")).alone
    (7, 'a@node-2')
    """

    def __init__(
        self, doors: Mapping[str, str] | None = None, *, alone: tuple[int, str] = (0, "")
    ) -> None:
        super().__init__(doors or {})
        #: The term under which one replica stands alone, and which; 0: all are equal.
        self.alone = alone


@dataclass(frozen=True)
class Fetch:
    """What to ask whom for."""

    replica: str
    number: int


@dataclass
class _Copies:
    header: Header
    replicas: list[str] = field(default_factory=list)
    #: Whoever announced it first, also when it is away by now.
    first: str = ""

    def __post_init__(self) -> None:
        self.first = self.replicas[0]


class Merge:
    """Decides which copy of each epoch is fetched."""

    def __init__(self, stream: str, *, start: int) -> None:
        self.stream = stream
        #: Invariant: everything below was taken exactly once, nothing at or above it was.
        self.next = start
        self._copies: dict[int, _Copies] = {}
        self._taken: OrderedDict[int, _Copies] = OrderedDict()
        #: An epoch of which two replicas announced different copies, and who they are.
        self.diverged: tuple[int, str, str] | None = None
        self._fingerprint: str | None = None
        #: Replicas whose code or settings differ, with the reason, for `status`.
        self.refused: dict[str, str] = {}
        #: The highest term under which a replica stands alone, and which; 0: all are equal.
        self.alone: tuple[int, str] = 0, ""

    def only(self, term: int, replica: str) -> bool:
        """From now on nothing is taken from anybody but `replica`; False: that is known, or over.

        Whoever says under this term how far it is has promised that: a hole begins there.

        >>> merge = Merge("a", start=7); merge.announced("r1", [Header("a", 7, digest="d7")])
        >>> merge.only(5, "r2"), merge.only(4, "r1"), merge.wanted()
        (True, False, None)
        """
        if term <= self.alone[0]:
            return False
        self.alone = term, replica
        for other in {each for copies in self._copies.values() for each in copies.replicas}:
            if other != replica:
                self.lost(other)
        return True

    def allows(self, replica: str) -> bool:
        """Whether epochs may be taken from `replica`."""
        return self.alone[1] in ("", replica)

    def announced(self, replica: str, headers: Iterable[Header]) -> None:
        """`replica` has these epochs."""
        if not self.allows(replica):
            return
        for header in headers:
            if not self._same_code(replica, header):
                return
            known = self._known(header)
            if known is None:
                if header.number >= self.next:
                    self._copies[header.number] = _Copies(header, [replica])
                continue
            first = known.header
            if contradict(first, header):
                self.diverged = header.number, replica, known.first
                raise DivergenceError(
                    f"{self.stream}: epoch {header.number} has digest {header.digest} "
                    f"({header.rows} rows) at {replica}, and {first.digest} ({first.rows} rows) "
                    f"at {known.first}",
                    hint="the fragment is not deterministic: look for rand, uuid, current time, "
                    "or Python code that keeps state of its own",
                )
            copies = self._copies.get(header.number)
            if copies is None or replica in copies.replicas:
                continue
            if first.digest == header.digest:
                copies.replicas.append(replica)
            elif header.gaps_total > first.gaps_total:
                self._copies[header.number] = _Copies(header, [replica])

    def _same_code(self, replica: str, header: Header) -> bool:
        if is_given_up(header):
            return True  # Nobody has computed it.
        if self._fingerprint is None:
            self._fingerprint = header.fingerprint
        if header.fingerprint == self._fingerprint:
            self.refused.pop(replica, None)
            return True
        self.refused[replica] = (
            f"refused {self.stream} from {replica}: its code or settings are "
            f"{header.fingerprint[:8]}, ours came from {self._fingerprint[:8]}"
        )
        return False

    def _known(self, header: Header) -> _Copies | None:
        return self._copies.get(header.number) or self._taken.get(header.number)

    def wanted(self, besides: Collection[str] = ()) -> Fetch | None:
        """The next epoch and who to ask for it, other than `besides`; None if there is nobody."""
        copies = self._copies.get(self.next)
        free = [r for r in copies.replicas if r not in besides] if copies else []
        return Fetch(free[0], self.next) if free else None

    def header(self, number: int) -> Header | None:
        """What was announced under `number`, if it was not taken yet."""
        copies = self._copies.get(number)
        return copies.header if copies else None

    def others(self, fetch: Fetch) -> bool:
        """Whether anybody else has announced what `fetch` asks for."""
        copies = self._copies.get(fetch.number)
        return copies is not None and copies.replicas != [fetch.replica]

    def failed(self, fetch: Fetch) -> None:
        """The fetch brought nothing: the next replica's turn, until this one announces again."""
        copies = self._copies.get(fetch.number)
        if copies is not None and fetch.replica in copies.replicas:
            copies.replicas.remove(fetch.replica)
            if not copies.replicas:
                del self._copies[fetch.number]

    def lost(self, replica: str) -> None:
        """`replica` does not answer: what it announced must be announced anew."""
        for number in list(self._copies):
            self.failed(Fetch(replica, number))

    def taken(self, number: int) -> None:
        """The consumer has epoch `number`."""
        assert number == self.next, "epochs are taken in order"
        copies = self._copies.pop(number, None)
        if copies is not None:  # Its replica may have gone between its body and this call.
            self._taken[number] = copies
        if len(self._taken) > REMEMBERED_MAX:
            self._taken.popitem(last=False)
        self.next += 1
