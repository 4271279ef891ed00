"""The past of session windows: they can be of any age, so their state is asked for the oldest.

    epochs    ····│  f  │ in ············· s0 ········ s │ D ········ newest
                  │     └ the first epoch that can have a row of a session that is open after s0
                  └ the seed                └ reading: the oldest session that is open starts at m

* A *reading* says when the oldest session starts that is open after the committed epoch s0.  It is
  taken from Spark's own state now and then; until the next one it stays in force.
* A session that is open after s >= s0 and has rows of epochs up to s0 was open after s0, since what
  is closed never comes back: these rows are not older than m.  So in(s) is the first epoch with
  highest mark + delay >= m, as in `past.py`, and at most s0 + 1.  It never falls: what was not in
  the state after s0 is not in it later, even if a late row makes a session start before m.
* A reading after s says nothing: what was open after s may be closed by then.
* A successor that begins at f = in - 1 has the same open sessions after s, with the same rows:
  * Rows join a session when they overlap.  Of a session that the first run closed the successor
    has a part of the rows, which ends no later: it closes no later.
  * Only its first batch lets in what is late (scenario 4): rows that end at or before a watermark
    L.  They can make a session begin earlier, but not end later.  Nor can they join two sessions:
    the left one would end before L, and all of its rows be late themselves.
  * No row of epoch f is in a session that is open after s0: so whatever they joined is closed.
* None of this asks how long a gap is, so it may differ from row to row.

This module only decides.  It does no I/O and reads no clock.

>>> past = SessionPast(delay_ms=2_000)
>>> for epoch in range(30):                  # A second of event time in every epoch.
...     past.done(epoch, Marks(max(0, epoch * 1000 - 2000), (epoch * 1000 - 2000,)))
>>> past.seed(speak=21)                      # Nothing was read: it could have begun with epoch 0.
Seed(first=0, speak=21, marks=None)
>>> past.read(Reading(epoch=18, oldest_ms=12_000)); past.read(Reading(epoch=25, oldest_ms=24_000))
>>> past.seed(speak=21)
Seed(first=11, speak=21, marks=Marks(current_ms=8000, operators=(8000,)))
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

from unbroken.policies.past import Marks, Past, Seed
from unbroken.policies.traits import Traits

#: Readings that wait for consumers to get as far; those that come then are left out.
READINGS_MAX = 1000


@dataclass(frozen=True)
class Reading:
    """When the oldest session starts that is open after `epoch`; None if none is open.

    >>> Reading(18, 12_000).text
    'after epoch 18 the oldest open session starts at 12000 ms'
    """

    epoch: int
    #: In milliseconds of event time, rounded down as watermarks are.
    oldest_ms: int | None

    @property
    def text(self) -> str:
        """The reading in a sentence."""
        if self.oldest_ms is None:
            return f"after epoch {self.epoch} no session is open"
        return f"after epoch {self.epoch} the oldest open session starts at {self.oldest_ms} ms"


class SessionPast(Past):
    """What one run of a fragment with session windows knows of its watermarks and its state."""

    def __init__(self, *, delay_ms: int) -> None:
        super().__init__(delay_ms=delay_ms, history_ms=0)
        self._delay_ms = delay_ms
        #: The first epoch that can be in the state; None if not known.  Invariant: never falls.
        self._in: int | None = 0
        #: The epoch of the reading that says so; -1: before the first epoch nothing is open.
        self._read = -1
        #: In the order of their epochs.
        self._readings: list[Reading] = []

    def began(self, epoch: int, marks: Marks | None) -> None:
        """As for every past; what a checkpoint holds is known only when it is read."""
        super().began(epoch, marks)
        if epoch >= 0:
            self._in, self._readings = None, []

    def read(self, reading: Reading) -> None:
        """The state after a committed epoch was read; told in order."""
        if self._readings:
            assert reading.epoch > self._readings[-1].epoch, "readings come in order"
        if len(self._readings) < READINGS_MAX:
            self._readings.append(reading)

    def has_news(self, speak: int) -> bool:
        """Whether a reading counts for `seed(speak)` that has not counted before.

        >>> past = SessionPast(delay_ms=0); past.done(0, Marks(5, (5,))); past.read(Reading(0, 5))
        >>> past.has_news(0), past.has_news(1)
        (False, True)
        """
        # Spark's commit is read before it is told here: without its marks nothing follows.
        return bool(self._readings) and self._readings[0].epoch <= min(speak - 1, self._newest)

    def seed(self, speak: int) -> Seed | None:
        """As for every past, from the readings of epochs before `speak`."""
        while self.has_news(speak):
            reading = self._readings.pop(0)
            if self._starts and reading.epoch >= self._starts[0]:  # Else nothing follows from it.
                found, self._read = self._first_of(reading), reading.epoch
                self._in = found if self._in is None else max(self._in, found)
        return super().seed(speak)

    def _oldest_in_state(self, last: int) -> int:
        """in(last), if the newest reading that counts is not of after it."""
        if self._in is None or last < self._read:
            return self._starts[0]  # Not known: before everything whose marks are.
        return self._in

    def _first_of(self, reading: Reading) -> int:
        """The first epoch that can have a row of a session that is open after the reading's."""
        if reading.oldest_ms is None:
            return reading.epoch + 1
        place = bisect_left(self._highest, reading.oldest_ms - self._delay_ms)
        found = self._starts[place] if place < len(self._starts) else reading.epoch + 1
        return min(found, reading.epoch + 1)


def past_of(traits: Traits) -> Past:
    """The past of a fragment with these operators; they were found fit for upstream backup.

    >>> past_of(Traits(stateful=True, delay_s=2, history_s=5)).seed(speak=0)
    Seed(first=0, speak=0, marks=None)
    """
    if traits.sessions:
        # 0.3 s * 1000 is a little more than 300.
        return SessionPast(delay_ms=math.ceil(round(traits.delay_s * 1000, 3)))
    return Past.of(traits)
