"""Two lines on one machine: how far the branch may run ahead of the stable line.

    branch    … 430 431 432 433 ─────────────────▶ as they come, as long as the distance shrinks
    stable    412 413 414 415 416 417 … ─────────▶ as fast as it can
              ◀──── 18 ────▶ ◀── 17 ─▶ … 3: near   two epochs of the branch, one less between them

* Correcting costs a machine twice: the stable line computes the epochs of the cut while the branch
  goes on.  A machine that can do both keeps the bound, and the lines meet soon.
* On one that can hardly do one, both would go at the same pace, and never meet.  So with every
  other epoch of the branch the stable line has to be an epoch nearer, from its first one on.  If it
  is not the branch waits for it, and new results are late: there is an end to that, and there would
  be none to a correction that gets nowhere.
* A branch that is *late*, because its epoch has waited for longer than the bound anyway (and not by
  choice: `delay`), has lost what it runs for.  The stable line does four epochs for each of its.
  A fast machine does them in a moment, and the branch is in time again.  On a slow one every epoch
  of the branch makes all that come later still: the sooner the two meet, the shorter the longest
  wait.
* A stable line that lacks input itself is not waited for: no pace would bring it nearer (a second
  cut).  It is measured anew when it goes on.

This module only decides.  It does no I/O and reads no clock.

>>> turns = Turns(after=411)
>>> turns.may_begin(430, Stable(412, has=420)), turns.may_begin(438, Stable(412, has=420))
(True, True)
>>> turns.may_begin(439, Stable(412, has=420))     # it was eighteen behind, and is twenty-seven
False
>>> turns.may_begin(439, Stable(414, has=420))     # it has got on meanwhile
True
"""

from __future__ import annotations

from typing import NamedTuple

#: The stable line is near when it is so many epochs behind the branch.
NEAR_EPOCHS = 3
#: So many epochs of the branch, and the stable line has to be one nearer.
EPOCHS_PER_GAIN = 2
#: A machine may be busy for a moment.
SLACK_EPOCHS = 12
#: Of the stable line, for each of a branch that is late.
LATE_EPOCHS = 4


class Stable(NamedTuple):
    """How far the stable line is, and the newest epoch that is there for it on all inputs.

    >>> Stable(412, has=420).gets_on, Stable(412, has=412).gets_on
    (True, False)
    """

    at: int
    has: int

    @property
    def gets_on(self) -> bool:
        """Whether it has anything to do."""
        return self.has > self.at

    def is_near(self, number: int) -> bool:
        """Whether it will soon have epoch `number` itself.

        >>> Stable(412, has=420).is_near(420), Stable(417, has=420).is_near(420)
        (False, True)
        >>> Stable(417, has=417).is_near(420)          # it waits for input, like everybody
        False
        """
        return self.gets_on and number - self.at <= NEAR_EPOCHS


class Turns:
    """Lets the branch begin its epochs as long as the stable line gets nearer."""

    def __init__(self, *, after: int) -> None:
        #: Where the branch was when the stable line began to get on, and how far from it.
        self._began: tuple[int, int] | None = None
        #: Where the stable line was when it could not get on, or had not started.
        self._stood_at = after
        #: Where it was when the branch began its last epoch.
        self._was_at = after

    def may_begin(self, number: int, stable: Stable | None, *, late: bool = False) -> bool:
        """Whether the branch may begin epoch `number`; `stable` is None until that line runs.

        >>> turns = Turns(after=411); turns.may_begin(430, None)
        True
        >>> turns.begins(Stable(412, has=420))
        >>> [turns.may_begin(431, Stable(at, has=420), late=True) for at in (412, 415, 416)]
        [False, False, True]
        """
        if stable is None:
            return True
        if not stable.gets_on:
            self._began, self._stood_at = None, stable.at
            return True
        if self._began is None:
            if stable.at == self._stood_at:
                return True  # Its first epoch: a query that has just started takes long for it.
            self._began = number, number - stable.at
        if late and stable.at - self._was_at < LATE_EPOCHS:
            return False
        first, behind = self._began
        allowed = behind + SLACK_EPOCHS - (number - first) // EPOCHS_PER_GAIN
        return number - stable.at <= allowed

    def begins(self, stable: Stable | None) -> None:
        """The branch begins an epoch."""
        if stable is not None:
            self._was_at = stable.at
