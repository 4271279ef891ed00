"""What a consumer hears that follows a stream through a partition: stable and tentative, apart.

    stable      410 411                     412  413 …      in order, each once
    tentative            412' 413' 414' ·········· 415'     in order, each once, beyond the stable
    heard       410 411  412' 413' 414'     412  413  415'  each stable one replaces what was said

* A stable epoch is taken whenever there is one, from whoever has it (scenario 7).
* A tentative one is taken only where the stable ones end, and each number once: of several branches
  one is followed, until it speaks no more, or another one has left it behind.  Two that speak side
  by side may lack different inputs; a mixture of them is what nobody has computed.
* What was said is remembered until the stable epoch of its number comes: it tells what has changed.
  The rows of the oldest are forgotten when they are more than `SAID_BYTES_MAX`, never that they
  were said (invariant 4).

This module only decides.  It does no I/O and reads no clock.

>>> hearing = Hearing(start=412)
>>> hearing.announced("r1", "3@node-1", [Header("alerts", n, TENTATIVE) for n in (412, 413)])
>>> hearing.announced("r2", "5@node-2", [Header("alerts", 412, TENTATIVE)])
>>> hearing.wanted(stable_next=412)
Wanted(replica='r1', branch='3@node-1', number=412)
>>> hearing.wanted(stable_next=413).number            # 412 has come meanwhile: no need to hear it
413
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from unbroken.epochs import TENTATIVE, Epoch, Header, Replaced
from unbroken.tentative.correction import replacing

#: Rows of tentative epochs that a consumer remembers, so that it can tell what has changed.
SAID_BYTES_MAX = 256 << 20
#: A branch that another one has left so far behind is not followed any more.
LEAD_EPOCHS = 3


@dataclass(frozen=True)
class Wanted:
    """Which tentative epoch to ask whom for."""

    replica: str
    branch: str
    number: int


@dataclass
class _Branch:
    name: str
    #: Invariant: numbers without holes, as the branch said them.
    headers: dict[int, Header] = field(default_factory=dict)


class Hearing:
    """Decides which tentative epochs a consumer takes, and what stable ones replace."""

    def __init__(self, start: int) -> None:
        #: The next tentative number: none is heard twice.
        self._next = start
        self._branches: dict[str, _Branch] = {}
        #: The replica whose branch is followed.
        self._followed: str | None = None
        self._said: dict[int, Epoch | Header] = {}

    def announced(self, replica: str, branch: str, headers: Iterable[Header]) -> None:
        """`replica` speaks on `branch` and has these epochs; "" if it has none."""
        known = self._branches.get(replica)
        if known is None or known.name != branch:
            known = self._branches[replica] = _Branch(branch)
        if not branch:
            self.silent(replica)
            return
        for header in headers:
            assert header.kind == TENTATIVE, "stable epochs come another way"
            known.headers[header.number] = header

    def silent(self, replica: str) -> None:
        """`replica` speaks on no branch, or does not answer."""
        self._branches.pop(replica, None)
        if self._followed == replica:
            self._followed = None

    def wanted(self, *, stable_next: int) -> Wanted | None:
        """The next tentative epoch, if one follows what was heard; None if there is none."""
        self._next = max(self._next, stable_next)
        for branch in self._branches.values():
            for old in [number for number in branch.headers if number < self._next]:
                del branch.headers[old]
        for replica, branch in self._heard().items():
            if self._next in branch.headers:
                return Wanted(replica, branch.name, self._next)
        return None

    def _heard(self) -> dict[str, _Branch]:
        """The branch that is followed, or all of them if it is over or left behind."""
        followed = self._branches.get(self._followed) if self._followed is not None else None
        if self._followed is None or followed is None:
            return self._branches
        lead = self._next + LEAD_EPOCHS
        behind = self._next not in followed.headers
        if behind and any(lead in branch.headers for branch in self._branches.values()):
            return self._branches
        return {self._followed: followed}

    def failed(self, wanted: Wanted) -> None:
        """Its rows did not come: it must announce them again, or the stable one is there by now."""
        branch = self._branches.get(wanted.replica)
        if branch is not None:
            branch.headers.pop(wanted.number, None)

    def taken(self, wanted: Wanted, epoch: Epoch) -> Epoch:
        """The consumer has a tentative epoch: it will be told what becomes of it."""
        assert wanted.number == self._next, "each number once, in order"
        self._followed = wanted.replica
        self._next += 1
        self._said[epoch.number] = epoch
        self._forget()
        return epoch

    def _forget(self) -> None:
        """The rows of the oldest go; that they were said does not."""
        whole = [(n, each) for n, each in sorted(self._said.items()) if isinstance(each, Epoch)]
        size = sum(epoch.header.bytes for _, epoch in whole)
        for number, epoch in whole:
            if size <= SAID_BYTES_MAX:
                return
            size -= epoch.header.bytes
            self._said[number] = epoch.header

    def known(self, header: Header) -> Epoch | None:
        """The stable epoch of `header`, if what was said has the same rows: nothing to fetch."""
        said = self._said.get(header.number)
        if isinstance(said, Epoch) and said.digest == header.digest:
            return Epoch(header, said.table)
        return None

    def replaced(self, epoch: Epoch) -> Epoch:
        """A final epoch, with what it changes about the tentative one of its number."""
        said = self._said.pop(epoch.number, None)
        if isinstance(said, Header):
            return Epoch(epoch.header, epoch.table, Replaced(said, None, None))
        return replacing(epoch, said)

    @property
    def quiet(self) -> bool:
        """Whether nobody speaks on a branch, and all that was said is replaced.

        >>> hearing = Hearing(start=412); hearing.quiet
        True
        >>> hearing.announced("r1", "3@node-1", []); hearing.quiet
        False
        """
        return not self._branches and not self._said

    @property
    def open(self) -> list[int]:
        """Numbers that were heard tentatively, and not yet otherwise."""
        return sorted(self._said)
