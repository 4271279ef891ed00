"""The epoch clock: one per query, from time to epoch numbers, never backwards.

    t0      t0 + 1 s   t0 + 2 s              t0 + 62 s
    ├── 0 ──┼── 1 ──┼── 2 ──┤ … down 60 s … ├── 62 ──
                              3..61 are sealed empty when the source is back

* While a process lives its monotonic clock counts, so a wall clock that is set back or forward
  changes nothing.
* After a restart the wall clock says how many numbers were missed.  It is believed only forwards,
  and only up to `MISSED_EPOCHS_MAX`: a clock that jumped by a year must not seal thirty million
  empty epochs.  Beyond that the clock is set anew at the next number, also in a process that was
  stopped for so long.

This module only decides: whoever uses it passes the time in.

>>> clock = EpochClock(length_s=1.0, next_number=0, wall_s=100.0, monotonic_s=5.0)
>>> clock.due(5.4), clock.due(7.2)        # 0 is over after a second, 1 after two
(0, 2)
>>> back = EpochClock(length_s=1.0, next_number=2, wall_s=163.0, monotonic_s=0.0, t0_s=100.0)
>>> back.due(0.0)                         # numbers 2..62 are over: to be sealed, empty
63
"""

from __future__ import annotations

#: An hour of 1 s epochs: a longer outage starts the count anew instead of replaying emptiness.
MISSED_EPOCHS_MAX = 3600


class EpochClock:
    """Which epochs are over, given the time."""

    def __init__(
        self,
        *,
        length_s: float,
        next_number: int,
        wall_s: float,
        monotonic_s: float,
        t0_s: float | None = None,
    ) -> None:
        self.length_s = length_s
        #: Invariant: never falls.
        self._due = next_number
        fresh_t0_s = wall_s - next_number * length_s
        missed = 0 if t0_s is None else int((wall_s - t0_s) / length_s) - next_number
        #: Whether more was missed than is made up for: the count goes on, `t0_s` has moved.
        self.forgave = missed > MISSED_EPOCHS_MAX
        if t0_s is None or missed < 0 or self.forgave:
            t0_s = fresh_t0_s
        self.t0_s = t0_s
        #: Where t0 lies on this process's monotonic clock.
        self._zero_s = monotonic_s - (wall_s - t0_s)

    def due(self, monotonic_s: float) -> int:
        """All numbers below this one are over."""
        over = int((monotonic_s - self._zero_s) / self.length_s + 1e-9)
        if over - self._due > MISSED_EPOCHS_MAX:
            late_s = (over - self._due) * self.length_s
            self.t0_s, self._zero_s, self.forgave = self.t0_s + late_s, self._zero_s + late_s, True
            over = self._due
        self._due = max(self._due, over)
        return self._due

    def wait_s(self, monotonic_s: float) -> float:
        """How long until the next number is over."""
        return max(0.0, self._zero_s + (self._due + 1) * self.length_s - monotonic_s)
