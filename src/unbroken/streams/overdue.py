"""Questions that are out for too long: when another connection is tried.

    asked ──── wait_s: no news is said after that ────┬── patience ──┬ try ┬ try ┬ reached: anew
                                                      └ an answer was due           (new question)

* In a partition packets are lost.  TCP sends them again after pauses that double, so an answer may
  come as long after the partition as that has lasted: two failures for one.  A new connection knows
  of no pause: as soon as one is through, the question is asked again there.
* Only who has a delay bound asks so often: everybody else waits for TCP, or for its connection to
  be given up.
* An answer may be large, and take long without being lost.  So the old question stays out, and a
  connection that was replaced gets twice as long before it is replaced again.

This module only decides.  It does no I/O and reads no clock.

>>> overdue = Overdue(wait_s=0.3)
>>> overdue.asked("r1", now_s=7.0); overdue.due(7.5), overdue.due(7.7)
([], ['r1'])
>>> overdue.tried("r1", reached=False); overdue.due(8.0)
['r1']
>>> overdue.tried("r1", reached=True); overdue.asked("r1", now_s=8.1)
>>> overdue.due(8.8), overdue.due(9.4)
([], ['r1'])
>>> overdue.answered("r1"); overdue.due(20.0)
[]
"""

from __future__ import annotations

#: More patience with every connection that was replaced and brought no answer, up to this.
PATIENCE_MAX = 64


class Overdue:
    """The questions of one follower, by replica."""

    def __init__(self, *, wait_s: float) -> None:
        """`wait_s`: whoever has no news says so after that; as long again is for the way."""
        self.wait_s = wait_s
        #: Since when a question is out.
        self._out_s: dict[str, float] = {}
        #: How much longer than usual it may be out.
        self._patience: dict[str, int] = {}

    def asked(self, replica: str, *, now_s: float) -> None:
        """A question leaves."""
        self._out_s[replica] = now_s

    def answered(self, replica: str) -> None:
        """Its answer is here, or will not come."""
        self._out_s.pop(replica, None)
        self._patience.pop(replica, None)

    def due(self, now_s: float) -> list[str]:
        """Replicas at which another connection should be tried now."""
        return [
            replica
            for replica, out_s in self._out_s.items()
            if now_s - out_s > self.wait_s * (1 + self._patience.get(replica, 1))
        ]

    def tried(self, replica: str, *, reached: bool) -> None:
        """Another connection was tried; if it has `reached` the replica, it is used from now on."""
        if reached:
            before = self._patience.get(replica, 1)
            self._patience[replica] = min(PATIENCE_MAX, 2 * before)
