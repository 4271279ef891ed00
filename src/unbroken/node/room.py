"""Room in a full output log, where the user would rather lose the oldest than stop.

    eastern's log   412 413 414 ······ 497 498 │ limit      kept for counts, which is cut off
                    gap gap gap ······         it goes on, and so does what counts says meanwhile

* A source that gives up its oldest epochs when it is full (`streams.giving_up`) would gain nothing
  if a fragment behind it stopped instead.  So what is made of such sources alone gives up too.
* First it waits, once: whoever lags behind another copy of itself is removed meanwhile.  Until
  somebody who lagged has got on, it does not wait again.
* Copies of a fragment give up for themselves, at about the same epoch.  Whoever was cut off takes
  what it finds, a gap or the rows; either says what it is.
"""

from __future__ import annotations

import pyarrow as pa

from unbroken.streams.giving_up import too_old
from unbroken.streams.log import EpochLog

#: How long a full log waits for whoever lags.
WAIT_S = 10.0


class Room:
    """Makes room in the output log of one replica."""

    def __init__(self, log: EpochLog, schema: pa.Schema, *, bytes_max: int) -> None:
        self._log, self._schema, self._bytes_max = log, schema, bytes_max
        #: Since when it is full; None while it is not.
        self._full_s: float | None = None
        #: The oldest epoch when something was given up last: nobody has got on since.
        self._gave_up_at = -1
        #: Epochs and rows that were given up since this process started.
        self.epochs = self.rows = 0

    @property
    def told(self) -> str:
        """What was given up, in a few words; empty for nothing."""
        return f"gave up {self.epochs} epochs ({self.rows:,} rows)" if self.epochs else ""

    def look(self, *, now_s: float) -> str:
        """Gives up what is too old, if it is time; tells so, in a sentence."""
        log = self._log
        if log.bytes < self._bytes_max:
            self._full_s = None
            return ""
        self._full_s = now_s if self._full_s is None else self._full_s
        if log.first > self._gave_up_at and now_s < self._full_s + WAIT_S:
            return ""
        sizes = {header.number: header.bytes for header in log.held()}
        numbers = too_old(sizes, held=log.bytes, limit=self._bytes_max)
        if not numbers:
            return ""
        self._gave_up_at, self._full_s = log.first, None
        rows = sum(log.give_up(number, self._schema) for number in numbers)
        self.epochs, self.rows = self.epochs + len(numbers), self.rows + rows
        return f"full; gave up epochs {numbers[0]} to {numbers[-1]}, {rows:,} rows"
