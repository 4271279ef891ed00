"""A full log: for whose sake, and whether there will ever be room again.

    b, upstream backup     state holds 3 ................ 90     processed all, may ask from 3 on
    a's log, its limit                 3 ................ 90     full: nothing new can be sealed
    for good               no new epoch ─▶ no new watermark ─▶ b never lets go of 3

* Whoever is behind makes room when it goes on, or is replaced (`Needs.laggard`).
* Whoever has processed all that there is, and still holds it, holds it for its state (scenario 17):
  it lets go when event time moves on, which it never does without new epochs.
* Unless its own consumers are behind: then it needs what they may ask for, and says whom it waits
  for with its acks (`owed_to`).
* A source gets epochs from the clock, also while it takes no rows.  Event time does not move with
  those: what counts there is the newest epoch with rows.
* An ack may be on its way, so that is not said before it has lasted `FOR_GOOD_S`.

This module only decides.  It does no I/O; the caller passes in monotonic time.

>>> needs, log = Needs(), Extent(first=3, next=91, full=True)
>>> needs.record("b@node-2", term=1, processed=90, need=3, seed={"first": 3})
>>> standstill = Standstill()
>>> standstill.look(log, needs, now_s=0.0)
''
>>> standstill.look(log, needs, now_s=20.0)  # doctest: +ELLIPSIS
'b@node-2 has processed all of it, and its state reaches back to epoch 3...'
>>> needs.record("b@node-2", term=1, processed=90, need=3, owed_to="sink_b")
>>> standstill.look(log, needs, now_s=40.0)                                        # It will go on.
''
"""

from __future__ import annotations

from typing import NamedTuple

from unbroken.streams.needs import Needs

#: For so long nothing may change before a standstill is called one.
FOR_GOOD_S = 10.0


class Extent(NamedTuple):
    """What a log holds, and whether that is all it may.

    >>> Extent(3, 91, full=True).next
    91
    """

    first: int
    #: After the newest epoch; of a source, after the newest one with rows.
    next: int
    full: bool


class Standstill:
    """Notices that a log is full for the sake of a state, and will stay so."""

    def __init__(self) -> None:
        self._since: tuple[str, int, int] | None = None
        self._since_s = 0.0

    def look(self, log: Extent, needs: Needs, *, now_s: float) -> str:
        """Why there will never be room again, in a sentence; "" if there may be."""
        holder = needs.holder
        held = None
        if log.full and holder is not None and owed_to(log, needs) == "":
            need, seed = needs.seed(holder)
            # Only a state has a seed with a first epoch; what lies before `need` is let go of.
            if seed is not None and "first" in seed and need is not None and need <= log.first:
                held = holder, need, log.next
        if held != self._since:
            self._since, self._since_s = held, now_s
        if held is None or now_s - self._since_s < FOR_GOOD_S:
            return ""
        return (
            f"{holder} has processed all of it, and its state reaches back to epoch {held[1]}: it "
            "lets go of that when event time moves on, and without room it does not"
        )


def owed_to(log: Extent, needs: Needs) -> str:
    """The consumer that is behind, at the end of the chain of those who hold this log; or "".

    >>> needs = Needs(); needs.record("sink_b", term=1, processed=7, need=8)
    >>> owed_to(Extent(8, 91, False), needs), owed_to(Extent(8, 8, False), needs)
    ('sink_b', '')
    """
    holder = needs.holder
    if holder is None:
        return ""
    if needs.processed[holder] < log.next - 1:
        return holder
    return needs.owed_to(holder)
