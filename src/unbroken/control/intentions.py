"""Intentions: what the control plane is about to do, written down before it is done.

    repair     expect ──▶ ship ──▶ catch up ──▶ live          one term, four records
    rebuild    the same, but `ship` is: compute it again      nobody survives to be copied
    removal    release ──▶ released                           a term of its own

* Each step is recorded first and done then.  Whoever restarts the control plane finds what was
  under way; it is given a new term and done again from its first step (scenario 15).  So every
  step must bear being done twice.
* A term never repeats within a fragment.  What was promised or asked for under an older one is
  refused: a late release must not remove a replica that was expected again in the meantime.
* A *rebuild* is a repair whose survivor is the very replica that it replaces: what that one needed
  is the pattern for the newcomer's need, and all that is left of it.  So the records say which
  repairs are rebuilds, without a word of their own.

This module defines words.  It does no I/O and reads no clock.

>>> plan = Intention("alerts", Step.EXPECT, "node-3", survivor="node-2", replaces="node-1")
>>> plan.under(7).sentence
'alerts: expecting node-3 as a copy of node-2 in place of node-1 (term 7)'
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

#: Who keeps the sources.
KEEPER = "keeper"


class Step(StrEnum):
    """How far an intention has got.

    >>> Step("catch up").ends
    False
    """

    EXPECT = "expect"
    SHIP = "ship"
    CATCH_UP = "catch up"
    LIVE = "live"
    RELEASE = "release"
    RELEASED = "released"

    @property
    def ends(self) -> bool:
        """Whether nothing is left to be done.

        >>> [str(step) for step in Step if step.ends]
        ['live', 'released']
        """
        return self in (Step.LIVE, Step.RELEASED)


class Standing(StrEnum):
    """What a replica that the placement names is good for.

    >>> Standing("live") is Standing.LIVE
    True
    """

    #: Placed when the query began; will be live by itself.
    STARTING = "starting"
    #: The newcomer of a repair.
    COMING = "coming"
    #: Serves, and counts for `survives`.
    LIVE = "live"
    #: Removed, but still expected by the producers: should all the others die, it may come back.
    GONE = "gone"
    #: To be released: it cannot come back.
    LEAVING = "leaving"


class Placed(NamedTuple):
    """A replica as the records know it.

    >>> Placed("node-1", 3, Standing.LIVE).node
    'node-1'
    """

    node: str
    term: int
    standing: Standing


class Producer(NamedTuple):
    """One keeper of one stream, to whom consumers are made known.

    >>> str(Producer("clicks", "keeper"))
    'clicks@keeper'
    """

    stream: str
    node: str

    def __str__(self) -> str:
        return f"{self.stream}@{self.node}"


@dataclass(frozen=True)
class Intention:
    """One step for one replica of one fragment.

    >>> Intention("alerts", Step.RELEASE, "node-1", reason="node-1 is dead").term
    0
    """

    fragment: str
    step: Step
    #: Whose replica comes or goes.
    node: str
    #: 0 until it is recorded: the record gives it one.
    term: int = 0
    #: Whose checkpoint and log are copied, and whose need is the pattern for the newcomer's.
    survivor: str = ""
    #: Whose place is taken; "" for a copy that never was.
    replaces: str = ""
    reason: str = ""

    def under(self, term: int) -> Intention:
        """The same under `term`.

        >>> Intention("alerts", Step.RELEASE, "node-1").under(4).term
        4
        """
        return replace(self, term=term)

    def then(self, step: Step) -> Intention:
        """The next step under the same term.

        >>> str(Intention("alerts", Step.EXPECT, "node-3", 7).then(Step.SHIP).step)
        'ship'
        """
        return replace(self, step=step)

    @property
    def rebuilds(self) -> bool:
        """Whether nobody is copied: the node rebuilds what it replaces, or starts empty.

        >>> Intention("alerts", Step.EXPECT, "node-3", 7, "node-1", "node-1").rebuilds
        True
        """
        return bool(self.survivor) and self.survivor == self.replaces

    @property
    def took_part(self) -> list[str]:
        """Who may be to blame for a repair that fails; not the one that is gone already.

        >>> Intention("alerts", Step.SHIP, "node-3", 7, "node-2", "node-1").took_part
        ['node-3', 'node-2']
        """
        return [self.node] if self.rebuilds else [self.node, self.survivor]

    @property
    def sentence(self) -> str:
        """What is about to be done, for log and `status`.

        >>> Intention("alerts", Step.RELEASE, "node-1", 9, reason="replaced by node-3").sentence
        'alerts: releasing node-1 (term 9): replaced by node-3'
        >>> Intention("alerts", Step.SHIP, "node-3", 7, "node-1", "node-1").sentence
        'alerts: node-3 rebuilds what node-1 held (term 7)'
        """
        place = f" in place of {self.replaces}" if self.replaces not in ("", self.node) else ""
        expect = f"expecting {self.node} as a copy of {self.survivor}{place}"
        ship = f"shipping checkpoint and log from {self.survivor} to {self.node}"
        if self.rebuilds:
            expect = f"expecting {self.node}{place or ' anew'}"
            ship = f"{self.node} rebuilds what {self.survivor if place else 'it'} held"
        words = {
            Step.EXPECT: expect,
            Step.SHIP: ship,
            Step.CATCH_UP: f"{self.node} catches up",
            Step.LIVE: f"{self.node} is live{place}",
            Step.RELEASE: f"releasing {self.node}",
            Step.RELEASED: f"{self.node} is released",
        }[self.step]
        because = f": {self.reason}" if self.reason else ""
        return f"{self.fragment}: {words} (term {self.term}){because}"


@dataclass(frozen=True)
class Action:
    """What is to be done now, again and again until it is reported as done.

    expect
        Tell each of `producers`: expect `fragment@node` under this term from the need that
        `fragment@survivor` has with you, also if that is lower than what was said before.
    ship
        The survivor forks, and sends checkpoint and output log to the node, manifest last.  If the
        intention `rebuilds`, nobody is asked: the node computes again what producers hold for it,
        or starts empty, as its policy says.
    catch up
        The node starts from what was shipped, and says how far it is.
    release
        Tell each of `producers`: `fragment@node` will not come back, unless it is expected under
        a newer term.  Tell the node, if it answers, to stop its replica and keep the checkpoint.

    >>> Action(Intention("alerts", Step.SHIP, "node-3", 7, "node-2")).sentence
    'alerts: shipping checkpoint and log from node-2 to node-3 (term 7)'
    """

    intention: Intention
    #: Those who have not confirmed yet.
    producers: tuple[Producer, ...] = ()

    @property
    def sentence(self) -> str:
        """The intention, and whom it waits for."""
        waits = f", waiting for {', '.join(map(str, self.producers))}" if self.producers else ""
        return self.intention.sentence + waits
