"""The gate: which epoch Spark may have next.

    input a   ├─ 7 ─┼─ 8 ─┤            8 is complete on both inputs: released to both at once
    input b   ├─ 7 ─┼─ 8 ─┼─ 9 ─┤      9 waits for a
                      ▲
                 released = 8, committed = 7 (Spark asks "after 8?" when it has committed 8)

* An epoch is released when it is there on *all* inputs, and to all inputs under one number.  A poll
  that falls between two inputs therefore waits; it never answers "nothing new" (scenario 23).
* Spark asks for what comes after n only when batch n is in its commit log.  So the question itself
  is the news that n is committed (invariant 6).
* A question after any other number means that Spark went its own way: refused, not repaired.
* What an input has brought and was not released may be *withdrawn*: it is as if it had never come,
  and comes again.  While an epoch is worked on that has to wait, and nothing more is released.
* On a tentative branch an epoch may be released although an input is missing; then that is said to
  all inputs alike, also to one that asks when the missing epoch has come after all.

This module only decides.  It does no I/O and reads no clock.

>>> gate = Gate(["a", "b"], committed=6)
>>> gate.offer("a", 7); gate.offer("b", 7); gate.offer("b", 8)
>>> gate.asked(after=6)            # 7 is complete: released
7
>>> gate.asked(after=7) is None    # Spark has committed 7; 8 is missing on a
True
>>> gate.committed, gate.missing
(7, ['a'])
"""

from __future__ import annotations

from collections.abc import Sequence

from unbroken.errors import MisalignedBatch


class Gate:
    """Lets a fragment's epochs through, one at a time, complete on all inputs."""

    def __init__(self, inputs: Sequence[str], *, committed: int) -> None:
        #: The newest epoch in Spark's commit log.
        self.committed = committed
        #: Invariant: committed or committed + 1; the epoch that Spark works on or has done.
        self.released = committed
        #: The newest epoch offered on each input; offers come in order, none skipped.
        self._offered = dict.fromkeys(inputs, committed)
        #: Inputs that are to be withdrawn as soon as nothing is worked on.
        self.to_withdraw: set[str] = set()

    def offer(self, stream: str, number: int) -> None:
        """Epoch `number` of `stream` has arrived."""
        assert number == self._offered[stream] + 1, "the merge delivers in order, none skipped"
        self._offered[stream] = number

    @property
    def missing(self) -> list[str]:
        """The inputs on which the epoch after `committed` has not arrived, or will not stay."""
        return [name for name, newest in self._offered.items()
                if newest <= self.committed or name in self.to_withdraw]  # fmt: skip

    @property
    def complete(self) -> int:
        """The newest epoch that has arrived on all inputs."""
        return min(self._offered.values())

    def asked(self, *, after: int, incomplete: bool = False) -> int | None:
        """Spark asks for the epoch after `after`; None while it is not complete.

        `incomplete`: it is released all the same, to a branch whose results are tentative.

        >>> gate = Gate(["a", "b"], committed=6)
        >>> gate.asked(after=6), gate.asked(after=6, incomplete=True), gate.asked(after=6)
        (None, 7, 7)
        """
        self.commit(after)
        if self.released > self.committed:
            return self.released
        if self.missing and not incomplete:
            return None
        self.released = self.committed + 1
        return self.released

    def withdraw(self, stream: str) -> int | None:
        """Takes back what `stream` has brought beyond the commit; tells the first epoch of that.

        None while an epoch is worked on: asked again when that is committed.  Until then nothing
        more is released.

        >>> gate = Gate(["a"], committed=6); gate.offer("a", 7); gate.offer("a", 8)
        >>> gate.asked(after=6), gate.withdraw("a"), gate.asked(after=7), gate.withdraw("a")
        (7, None, None, 8)
        >>> gate.offer("a", 8); gate.asked(after=7)
        8
        """
        self.to_withdraw.add(stream)
        if self.released > self.committed:
            return None
        self.to_withdraw.discard(stream)
        self._offered[stream] = self.committed
        return self.committed + 1

    def commit(self, after: int) -> None:
        """Spark asks what comes after `after`: that is committed, or it went its own way."""
        if after == self.released:
            self.committed = after
        elif after != self.committed:
            raise MisalignedBatch(
                f"Spark asks for the epoch after {after}, but {self.released} was released "
                f"and {self.committed} committed",
                hint="a batch must go from one epoch to the next on every input; "
                "this fragment is stopped and has to be started from its checkpoint",
            )
