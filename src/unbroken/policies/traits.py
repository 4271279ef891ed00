"""What a fragment's operators allow: their class, and how far back their state reaches.

    repeatable           no state: the same epochs give the same rows, from any start
    convergent-capable   state that a watermark bounds: started empty early enough, the rows are
                         the same in the end
    deterministic        state without a bound: the same rows only from the same state
    arbitrary            other rows every time: random numbers, the current time, declared so

A fragment has the class of its weakest operator.  The classes are those of Hwang et al. (ICDE'05);
`engine/operators.py` reads them off Spark's plan.  Nothing here knows Spark.

>>> weakest([OperatorClass.REPEATABLE, OperatorClass.DETERMINISTIC])
<OperatorClass.DETERMINISTIC: 'deterministic'>
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class OperatorClass(Enum):
    """What an operator does when it is run again, from the strongest to the weakest.

    >>> OperatorClass("arbitrary").rank > OperatorClass.REPEATABLE.rank
    True
    """

    REPEATABLE = "repeatable"
    CONVERGENT = "convergent-capable"
    DETERMINISTIC = "deterministic"
    ARBITRARY = "arbitrary"

    @property
    def rank(self) -> int:
        """0 for the strongest."""
        return list(OperatorClass).index(self)


def weakest(classes: Iterable[OperatorClass]) -> OperatorClass:
    """The class of operators that work together; repeatable if there are none.

    >>> weakest([]).value
    'repeatable'
    """
    return max(classes, key=lambda each: each.rank, default=OperatorClass.REPEATABLE)


@dataclass(frozen=True)
class Operator:
    """An operator in words, and the user's `file:line` if it is known.

    >>> str(Operator("rand()", "shop.py:12"))
    'rand() (shop.py:12)'
    """

    name: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.where})" if self.where else self.name


@dataclass(frozen=True)
class Endless:
    """An operator whose state can hold rows of any age: why, and what to do about it.

    >>> Endless(Operator("limit"), "it counts from the first epoch on", "use Passive").why
    'it counts from the first epoch on'
    """

    operator: Operator
    why: str
    way_out: str
    #: Whether a watermark bounds how much is kept, though not of what age (session windows).
    bounded: bool = False
    #: Whether the state tells how old the oldest row is that it holds (one session operator).
    readable: bool = False


@dataclass(frozen=True)
class Traits:
    """What is known about a fragment's operators before it runs.

    >>> Traits().operator_class.value, Traits().stateful
    ('repeatable', False)
    """

    operator_class: OperatorClass = OperatorClass.REPEATABLE
    #: The operator that makes it so.
    decided_by: Operator = Operator("no operator keeps state")
    stateful: bool = False
    #: Operators whose history has no end: the state cannot be computed again from kept epochs.
    endless: tuple[Endless, ...] = ()
    #: How far the watermark stays behind the newest row, in seconds of event time.
    delay_s: float = 0.0
    #: How far behind the watermark the oldest row in the state can be.  None if any age.
    history_s: float | None = 0.0
    #: What is believed because the user says so: Python functions, tables read beside the streams.
    declared: tuple[str, ...] = ()

    @property
    def unbounded(self) -> tuple[Operator, ...]:
        """Operators whose state only ever grows."""
        return tuple(each.operator for each in self.endless if not each.bounded)

    @property
    def sessions(self) -> bool:
        """Whether its state are session windows that tell how old the oldest of them is.

        >>> Traits().sessions
        False
        """
        return bool(self.endless) and all(each.readable for each in self.endless)
