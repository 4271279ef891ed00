"""The past that upstream backup needs: from which epoch the state can be computed again.

    epochs       ····│  f  │ in(s) ·············· s │ D ········ newest
                     │     └ the oldest rows that the state after s can hold
                     └ a successor begins here, empty, with the watermarks after f - 1: the *seed*
                       f..s are computed again, mute; it speaks from D on

* D is the first output epoch that consumers may still ask for, and s = D - 1.
* A row leaves the state when the watermark has passed it by `history_ms`; batch s evicts with the
  watermark after s - 1.  An operator's own watermark plus the delay is at or above every event time
  that came up to an epoch.  So epoch e can be in the state after s only if
  highest mark after e + delay >= watermark after s - 1 - history: in(s) is the first such e.
* f = in(s) - 1, one epoch earlier: Spark drops late rows by the watermark of the batch *before*,
  and an empty checkpoint has none.  What the first replayed batch lets in wrongly is older than all
  that the state after s holds, and is evicted by then (scenario 4).
* What this process has not seen it does not guess.  It has then no new seed, and the one that its
  last ack carried stays in force: it reaches further back, and is as right as it was.
* Epochs before f - 1 are forgotten, equal marks take one place, and there are `RUNS_MAX` places.

This module only decides.  It does no I/O and reads no clock.

>>> past = Past(delay_ms=2_000, history_ms=5_000)
>>> for epoch in range(30):                  # A second of event time in every epoch.
...     past.done(epoch, Marks(max(0, epoch * 1000 - 2000), (epoch * 1000 - 2000,)))
>>> past.seed(speak=21)                      # Batch 20 evicted with the mark after 19, 17 000 ms.
Seed(first=11, speak=21, marks=Marks(current_ms=8000, operators=(8000,)))
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unbroken.errors import UnbrokenError
from unbroken.policies.traits import Traits

#: Different marks that are remembered; only event time that moves on makes new ones.
RUNS_MAX = 100_000
OPERATORS_MAX = 64
_MS_MAX = 2**62
#: Below every mark: no operator has seen a row.
_NEVER = -(2**63)


@dataclass(frozen=True)
class Marks:
    """The watermarks after an epoch, in milliseconds.

    >>> Marks(90, (90, None)).highest
    90
    """

    #: The query's watermark: the next batch evicts by it, the one after it drops late rows by it.
    current_ms: int = 0
    #: Each `withWatermark`'s own, in the order of the plan; None before its first row.
    operators: tuple[int | None, ...] = ()

    @property
    def highest(self) -> int | None:
        """The mark of the operator that is furthest ahead; None before any row."""
        return max((mark for mark in self.operators if mark is not None), default=None)

    def raised(self, before: Marks) -> Marks:
        """These marks, none of them lower than in `before`: a watermark never falls.

        >>> Marks(5, (None, 7)).raised(Marks(4, (3, 8)))
        Marks(current_ms=5, operators=(3, 8))
        """
        current_ms = max(self.current_ms, before.current_ms)
        if len(before.operators) != len(self.operators):
            return Marks(current_ms, self.operators)  # Nothing was known of them before.
        pairs = zip(self.operators, before.operators, strict=True)
        return Marks(current_ms, tuple(Marks(0, pair).highest for pair in pairs))


@dataclass(frozen=True)
class Seed:
    """How a successor begins: empty, at input epoch `first`, mute before `speak`.

    >>> Seed(11, 21, Marks(8000, (8000,))).text
    'computes epochs 11 to 20 again and speaks from 21'
    """

    first: int
    speak: int
    #: The watermarks after `first` - 1; None if `first` is the very beginning.
    marks: Marks | None = None

    @property
    def text(self) -> str:
        """The seed in a sentence."""
        if self.first == self.speak:
            return f"begins empty and speaks from {self.speak}"
        return (
            f"computes epochs {self.first} to {self.speak - 1} again and speaks from {self.speak}"
        )

    def to_dict(self) -> dict[str, Any]:
        """The seed for an ack, as plain JSON.

        >>> Seed(0, 4).to_dict()
        {'first': 0, 'speak': 4, 'marks': None}
        """
        marks = self.marks and {
            "current_ms": self.marks.current_ms,
            "operators": list(self.marks.operators),
        }
        return {"first": self.first, "speak": self.speak, "marks": marks}

    @classmethod
    def of(cls, answer: object) -> Seed:
        """What `to_dict` made, after a journey; nothing of it is believed unseen.

        >>> Seed.of({"first": -1, "speak": 4, "marks": None})
        Traceback (most recent call last):
        ...
        unbroken.errors.UnbrokenError: not a seed: first is -1
          → all processes of a cluster must run one version of Unbroken
        """
        told = _fields("it", answer, {"first", "speak", "marks"})
        first = _number("first", told["first"], least=0)
        speak = _number("speak", told["speak"], least=first)
        if (told["marks"] is None) != (first == 0):
            raise _refused(f"first is {first}, marks are {str(told['marks'])[:40]}")
        return cls(first, speak, None if told["marks"] is None else _marks(told["marks"]))


class Past:
    """What one run of a fragment knows of its own watermarks, epoch by epoch."""

    def __init__(self, *, delay_ms: int, history_ms: int | None) -> None:
        """`history_ms` is None for a fragment without state.  Round both up to whole ones."""
        self._back_ms = None if history_ms is None else delay_ms + history_ms
        #: Where the marks change, the new ones, and their highest; from an oldest epoch on that is
        #: -1 at the very beginning.  Invariant: all three rise.
        self._starts: list[int] = [-1]
        self._marks: list[Marks] = [Marks()]
        self._highest: list[int] = [_NEVER]
        self._newest = -1

    @classmethod
    def of(cls, traits: Traits) -> Past:
        """The past of a fragment with these operators; they were found fit for upstream backup.

        >>> Past.of(Traits(stateful=True, delay_s=2, history_s=5)).seed(speak=0)
        Seed(first=0, speak=0, marks=None)
        """
        if not traits.stateful:
            return cls(delay_ms=0, history_ms=None)
        assert traits.history_s is not None, "a history without end was refused before"
        # 0.3 s * 1000 is a little more than 300.
        delay, history = (round(s * 1000, 3) for s in (traits.delay_s, traits.history_s))
        return cls(delay_ms=math.ceil(delay), history_ms=math.ceil(history))

    def began(self, epoch: int, marks: Marks | None) -> None:
        """The run goes on after `epoch`, from a checkpoint or a seed; `marks` after it, if known.

        A run that begins with epoch 0 says nothing, or -1.
        """
        self._newest = epoch
        if epoch >= 0:
            known = [] if marks is None else [marks]
            self._starts, self._marks = [epoch] * len(known), known
            self._highest = [_level(mark) for mark in known]

    def done(self, epoch: int, marks: Marks) -> None:
        """`epoch` is committed; told once for each, in order."""
        assert epoch == self._newest + 1, f"epoch {epoch} after {self._newest}"
        self._newest = epoch
        if self._marks:
            marks = marks.raised(self._marks[-1])
            if marks == self._marks[-1]:
                return
        self._starts.append(epoch)
        self._marks.append(marks)
        self._highest.append(_level(marks))
        if len(self._starts) > RUNS_MAX:
            self._forget_before(self._starts[1])

    def seed(self, speak: int) -> Seed | None:
        """Where a successor would begin that owes everything from `speak` on; None if not known.

        What only an older `speak` would need is forgotten.
        """
        last = speak - 1
        if not self._starts:
            return None
        # The marks after `last` - 1 must be known; `last` itself may still be at work.
        if not self._starts[0] <= max(last - 1, -1) <= self._newest:
            return None
        first = self._oldest_in_state(last) - 1
        if self._starts[0] == -1:
            first = max(0, first)
        if first - 1 < self._starts[0]:
            return None
        self._forget_before(first - 1)
        return Seed(first, speak, None if first == 0 else self._after(first - 1))

    def _oldest_in_state(self, last: int) -> int:
        """in(last): the first epoch that can be in the state after `last`."""
        if self._back_ms is None or last < 0:
            return last + 1
        evicted_ms = self._after(last - 1).current_ms - self._back_ms
        place = bisect_left(self._highest, evicted_ms)
        found = self._starts[place] if place < len(self._starts) else last + 1
        # An epoch that is not committed yet may bring anything.
        return min(found, last if last > self._newest else last + 1)

    def _after(self, epoch: int) -> Marks:
        return self._marks[bisect_right(self._starts, max(epoch, -1)) - 1]

    def _forget_before(self, epoch: int) -> None:
        """`epoch` becomes the oldest whose marks are known."""
        place = bisect_right(self._starts, epoch) - 1
        del self._starts[:place], self._marks[:place], self._highest[:place]
        self._starts[0] = max(self._starts[0], epoch)

    def __len__(self) -> int:
        """How many different marks are remembered."""
        return len(self._starts)


def _level(marks: Marks) -> int:
    return _NEVER if marks.highest is None else marks.highest


def _marks(told: object) -> Marks:
    marks = _fields("marks", told, {"current_ms", "operators"})
    operators = marks["operators"]
    if not isinstance(operators, list) or len(operators) > OPERATORS_MAX:
        raise _refused(f"operators are {str(operators)[:40]}")
    return Marks(
        _number("current_ms", marks["current_ms"]),
        tuple(None if each is None else _number("operators", each) for each in operators),
    )


def _fields(name: str, told: object, fields: set[str]) -> Mapping[str, object]:
    if not isinstance(told, Mapping) or set(told) != fields:
        raise _refused(f"{name} is {str(told)[:40]}")
    return told


def _number(name: str, told: object, *, least: int = -_MS_MAX) -> int:
    # True is an int, and would be epoch 1.
    if not isinstance(told, int) or isinstance(told, bool) or not least <= told <= _MS_MAX:
        raise _refused(f"{name} is {str(told)[:40]}")
    return told


def _refused(why: str) -> UnbrokenError:
    return UnbrokenError(
        f"not a seed: {why}", hint="all processes of a cluster must run one version of Unbroken"
    )
