"""Work: an intention that is on record, and how far its step has got.

    expect    ── every producer confirms ──▶ ship ── the node has it ──▶ catch up ── close ──▶ live
    release   ── every producer confirms ──▶ released

* Producers are asked for at the moment of the question, not when the step began: one that has died
  need not confirm, one that came back must.
* A newcomer is close to the others when it *keeps up*: it has made some epochs itself.
* Whatever is heard of it counts as movement.  Work of which nothing is heard stands still, and
  has failed after a while (invariant 7).

This module only answers.  It does no I/O; the caller passes in monotonic time.

>>> work = Work(Intention("alerts", Step.EXPECT, "node-3", 7, "node-2"), moved_s=0.0)
>>> replicas = Replicas({"alerts": ["clicks"]}, {}, [])
>>> work.action(replicas).sentence
'alerts: expecting node-3 as a copy of node-2 (term 7), waiting for clicks@keeper'
>>> work.confirm(Producer("clicks", "keeper"), now_s=0.2); work.unconfirmed(replicas)
()
"""

from __future__ import annotations

from dataclasses import dataclass, field

from unbroken.control.intentions import Action, Intention, Producer, Step
from unbroken.control.replicas import Replicas

#: Work of which nothing was heard for so long has failed.
STALL_S_MAX = 60.0
#: A newcomer that is at most so many epochs behind the others is live ...
LAG_EPOCHS_MAX = 2
#: ... when it has made so many itself: what was shipped says nothing about its speed, and the first
#: ones of a young JVM take seconds (measured: one that counted as live at once was 60 behind).
MADE_EPOCHS_MIN = 3
#: Or there was nothing to make for so long.
QUIET_S_MIN = 2.0


@dataclass
class Work:
    """One step that is being done.

    >>> Work(Intention("alerts", Step.CATCH_UP, "node-3", 7), moved_s=0.0).stalled(now_s=61.0)
    True
    """

    intention: Intention
    moved_s: float
    #: Producers, for `expect` and `release`.
    confirmed: set[Producer] = field(default_factory=set)
    #: The node's own part of the step, for `ship` and `catch up`.
    done: bool = False
    epoch: int = -1
    #: The newest epoch that it had when it was first heard of, for `catch up`.
    shipped: int | None = None

    @property
    def copied(self) -> bool:
        """Whether the newcomer has everything: its survivor is not needed any more.

        >>> Work(Intention("alerts", Step.SHIP, "node-3", 7), moved_s=0.0).copied
        False
        """
        return self.done or self.intention.step is Step.CATCH_UP

    def is_under(self, fragment: str, term: int) -> bool:
        """Whether what is said of this fragment under this term is said of this work.

        >>> work = Work(Intention("alerts", Step.SHIP, "node-3", 7), moved_s=0.0)
        >>> work.is_under("alerts", 6)
        False
        """
        return (self.intention.fragment, self.intention.term) == (fragment, term)

    def confirm(self, producer: Producer, *, now_s: float) -> None:
        """`producer` did what it was asked for."""
        self.confirmed.add(producer)
        self.moved_s = now_s

    def progress(self, newcomer: int, others: int | None, *, now_s: float) -> None:
        """The newcomer serves up to epoch `newcomer`, the others up to `others` (if any does).

        >>> work = Work(Intention("alerts", Step.CATCH_UP, "node-3", 7), moved_s=0.0)
        >>> work.progress(39, 39, now_s=1.0); work.done     # As it was shipped.
        False
        >>> work.progress(42, 44, now_s=2.0); work.done
        True
        """
        if self.shipped is None:
            self.shipped = newcomer
        if newcomer > self.epoch:
            self.epoch, self.moved_s = newcomer, now_s
        if others is None:
            self.done = True
        elif self.epoch >= self.shipped + MADE_EPOCHS_MIN:
            self.done = self.epoch + LAG_EPOCHS_MAX >= others
        else:
            self.done = self.epoch >= others and now_s - self.moved_s >= QUIET_S_MIN

    def stalled(self, *, now_s: float) -> bool:
        """Whether nothing was heard for too long."""
        return now_s - self.moved_s > STALL_S_MAX

    def unconfirmed(self, replicas: Replicas) -> tuple[Producer, ...]:
        """The producers that have not confirmed yet; none, if they need not."""
        if self.intention.step not in (Step.EXPECT, Step.RELEASE):
            return ()
        asked = replicas.producers(self.intention.fragment)
        return tuple(producer for producer in asked if producer not in self.confirmed)

    def action(self, replicas: Replicas) -> Action:
        """What is to be done for it now."""
        return Action(self.intention, self.unconfirmed(replicas))
