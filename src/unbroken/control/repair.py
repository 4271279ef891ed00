"""Repair: a fragment gets back the number of live replicas that it should have.

    survivor  ────────────────●fork──────────────────────▶   goes on all the time
                expect         │ship        catch up   live
    newcomer    ·──────────────▼────────────▶▶▶▶▶▶▶▶▶▶▶──▶
    producers   hold from the survivor's need             release whoever was replaced

* First *expected*, at every producer, from the survivor's need; only when all have confirmed is
  the fork made.  Otherwise producers trim, while the fork travels, what the newcomer has to replay
  (scenario 2).
* A step is recorded before it is done; only recorded steps become actions.  What is unfinished
  when the control plane restarts gets a new term and is done again (scenario 15).
* If the survivor dies before everything is shipped, another one takes its part under a new term;
  later it is not needed any more.  If the newcomer dies, it is released and another node tried.
  The survivor of a passive fragment is its writer, so a take-over counts as such a death.
* A *rebuilt* fragment has one copy, so nobody survives: the newcomer is expected with the need of
  the one that is gone, and computes again what producers hold for that one.  This need is all that
  is left, so it is released by nothing but a newcomer that is live.
* A newcomer that starts empty records a hole.  From then on the one that it replaces is
  *overtaken*: it may be rebuilt, but must not come back, also if the newcomer dies.
* All rebuilds at once, because nobody serves these fragments.  Copies are made one at a time and
  after them, whoever survives the fewest failures first: the first one is safe soon (Flux).
  What fails goes behind the others, and waits twice as long each time; so does what is live and
  lost again (see `attempts`).

This module only decides.  It does no I/O; the caller passes in monotonic time.

>>> from unbroken.control.intentions import Placed
>>> live = [Placed("node-1", 1, Standing.LIVE), Placed("node-2", 2, Standing.LIVE)]
>>> replicas = Replicas({"alerts": ["clicks"]}, {"alerts": live}, ["node-1", "node-2", "node-3"])
>>> repairs = Repairs({"alerts": 2}, replicas)
>>> repairs.dead("node-1"); repairs.survives("alerts")
0
>>> [plan] = repairs.decide(now_s=0.0)               # The caller records it, which gives it a term.
>>> repairs.recorded(plan.under(3)); plan.under(3).sentence
'alerts: expecting node-3 as a copy of node-2 in place of node-1 (term 3)'
>>> repairs.confirmed("alerts", 3, Producer("clicks", "keeper"))
>>> [step] = repairs.decide(now_s=0.1); repairs.recorded(step); step.sentence
'alerts: shipping checkpoint and log from node-2 to node-3 (term 3)'
>>> repairs.shipped("alerts", 3)
>>> [step] = repairs.decide(now_s=9.0); repairs.recorded(step); step.sentence
'alerts: node-3 catches up (term 3)'
>>> repairs.progress("alerts", 3, newcomer=39, others=39)     # As it was shipped.
>>> repairs.progress("alerts", 3, newcomer=42, others=43)
>>> [step] = repairs.decide(now_s=9.5); repairs.recorded(step); repairs.survives("alerts")
1
>>> [release] = repairs.decide(now_s=9.6); release.under(4).sentence
'alerts: releasing node-1 (term 4): the wanted number is live'
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from unbroken.control.intentions import Action, Intention, Producer, Standing, Step
from unbroken.control.plans import SETTLE_S, Plans
from unbroken.control.releases import Releases
from unbroken.control.replicas import Replicas
from unbroken.control.work import STALL_S_MAX, Work
from unbroken.control.writers import Writers


class Repairs:
    """Decides the repairs of all fragments, given the number of replicas `wanted` of each.

    Fragments in `rebuilt` have one replica, and nobody to copy it from; those in `writers` are
    copied from their writer; all others from any that serves.

    The caller, in one thread: says what happened (`alive` to `failed`); asks `decide`; records
    each intention in this order and says so (`recorded`), with no event in between; carries out
    `actions`.  What is reported under a term that is over changes nothing.

    After a restart, `replicas` and `unfinished` come from the records.  Nobody is believed to be up
    before it was heard of: a replica must not be released because others were live once.

    >>> from unbroken.control.intentions import Placed
    >>> coming = Replicas({"a": ["s"]}, {"a": [Placed("node-1", 1, Standing.LIVE),
    ...                   Placed("node-2", 2, Standing.COMING)]}, ["node-1", "node-2"])
    >>> old = Intention("a", Step.SHIP, "node-2", 2, survivor="node-1")
    >>> [again] = Repairs({"a": 2}, coming, [old]).decide(0.0); str(again.step), again.term
    ('expect', 0)
    """

    def __init__(
        self,
        wanted: Mapping[str, int],
        replicas: Replicas,
        unfinished: Iterable[Intention] = (),
        *,
        rebuilt: Collection[str] = (),
        writers: Writers | None = None,
        overtaken: Collection[tuple[str, str]] = (),
    ) -> None:
        self.replicas = replicas
        #: Invariant: at most one of their replicas is live, starting or gone: the one to follow.
        self._rebuilt = frozenset(rebuilt)
        self._writers = writers or Writers({}, replicas)
        #: Invariant: recorded.  One per fragment; any number of rebuilds, at most one other.
        self._work: dict[str, Work] = {}
        self._releases = Releases(wanted, replicas, self._writers)
        self._plans = Plans(wanted, replicas, self._writers, rebuilt=self._rebuilt)
        self._plans.overtaken |= set(overtaken)
        for fragment, node in overtaken:
            # On record as live from before: it will not serve, and nobody must wait for its word.
            if node in replicas.having(fragment, Standing.LIVE, Standing.STARTING):
                replicas.put(fragment, node, Standing.GONE)
        self._again = self._plans.again
        self._now_s = 0.0
        for intention in unfinished:
            if intention.step is Step.RELEASE:
                self._releases.leave(intention.fragment, intention.node, intention.reason)
            else:
                self._again[intention.fragment] = intention
        self._releases.leave_unknown()
        for fragment in replicas.inputs:
            for node in replicas.having(fragment, Standing.COMING):
                if fragment not in self._again or self._again[fragment].node != node:
                    reason = "no repair is known that it belongs to"
                    self._releases.leave(fragment, node, reason)

    # What happened.

    def alive(self, node: str) -> None:
        """`node` can take replicas: it joined, came back, or is trusted again."""
        self.replicas.alive(node)

    def suspected(self, node: str) -> None:
        """`node` is silent: it keeps its replicas, but gets no new ones and gives no forks."""
        self.replicas.suspected(node)

    def dead(self, node: str) -> None:
        """`node` was declared dead: its replicas are gone, and repairs with it start again."""
        for fragment in self.replicas.dead(node):
            self._gone(fragment, node, f"{node} died before it was live")
        for work in list(self._work.values()):
            if work.intention.survivor == node:
                self._start_again(work)

    def started_again(self, node: str) -> None:
        """Another process speaks for `node`, perhaps before anybody noticed that one had died.

        A newcomer there begins once more, and may begin earlier than the one that died: what that
        one has promised is not true of it, so it needs a term of its own.
        """
        for work in list(self._work.values()):
            if work.intention.node == node:
                reason = f"{node} was started again before it was live"
                self._gone(work.intention.fragment, node, reason)

    def live(self, fragment: str, node: str, epoch: int = -1) -> bool:
        """`node` says that its replica runs (or holds what it was shipped) and has done `epoch`;
        False: it should stop, because it was replaced.

        A replica that is gone, but neither being replaced nor superfluous, is simply back.
        """
        standing = self.replicas.of(fragment).get(node)
        if standing is Standing.COMING:  # It is live when it has caught up.
            return fragment not in self._again
        superfluous = standing is Standing.GONE and self.may_discard(fragment)
        replaced = self._replaced(fragment, node) or self.is_overtaken(fragment, node)
        if standing in (None, Standing.LEAVING) or replaced or superfluous:
            return False
        self.replicas.put(fragment, node, Standing.LIVE)
        self._plans.lost.discard((fragment, node))
        self._plans.epochs[fragment, node] = epoch
        return True

    def took_over(self, fragment: str) -> None:
        """Another node writes `fragment` from now on; it is left alone for a moment."""
        self._plans.settles_s[fragment] = self._now_s + SETTLE_S

    def lost(self, fragment: str, node: str) -> None:
        """`node` is up but cannot go on from its checkpoint: it may be replaced by itself."""
        if node in self.replicas.having(fragment, Standing.LIVE, Standing.STARTING, Standing.GONE):
            self._lived(fragment, node)
            self.replicas.put(fragment, node, Standing.GONE)
            self._plans.lost.add((fragment, node))

    def overtakes(self, fragment: str, node: str) -> str | None:
        """In whose place `node` starts empty and may record a hole; None: it is not its turn."""
        work = self._work.get(fragment)
        told = work.intention if work else None
        if told is None or (told.node, told.step) != (node, Step.SHIP) or not told.rebuilds:
            return None
        return told.replaces

    def overtaken(self, fragment: str, node: str) -> None:
        """A hole is on disk in the place of this replica: consumers may have it from now on."""
        self._plans.overtaken.add((fragment, node))

    def is_overtaken(self, fragment: str, node: str) -> bool:
        """Whether this replica must not go on where it was."""
        return (fragment, node) in self._plans.overtaken

    @property
    def all_overtaken(self) -> Collection[tuple[str, str]]:
        """Fragment and node of those that must not go on where they were."""
        return frozenset(self._plans.overtaken)

    def held(self, fragment: str, node: str, reason: str) -> bool:
        """A producer's log is full because of this replica: it is removed, if another one is live.

        False: it is the last one, and the producer has to push back.
        """
        if not set(self.replicas.serving(fragment)) - {node}:
            return False
        if self.replicas.of(fragment).get(node, Standing.LEAVING) is not Standing.LEAVING:
            self._lived(fragment, node)
            self._gone(fragment, node, reason)
            self._releases.leave(fragment, node, reason)
        return True

    def _lived(self, fragment: str, node: str) -> None:
        """A live replica is of no use any more: if it has just been repaired, in vain."""
        if node in self.replicas.having(fragment, Standing.LIVE):
            self._plans.attempts.lost(fragment, node, now_s=self._now_s)

    def confirmed(self, fragment: str, term: int, producer: Producer) -> None:
        """`producer` did what the expect or the release of this term asked for."""
        work = self._under(fragment, term)
        if work is not None:
            work.confirm(producer, now_s=self._now_s)
        self._releases.confirmed(fragment, term, producer, now_s=self._now_s)

    def moved(self, fragment: str, term: int) -> None:
        """Some more has arrived at the newcomer, or was computed again by it."""
        work = self._under(fragment, term)
        if work is not None:
            work.moved_s = self._now_s

    def shipped(self, fragment: str, term: int) -> None:
        """The newcomer has checkpoint and log: all of it was shipped, or computed again."""
        work = self._under(fragment, term, Step.SHIP)
        if work is not None:
            work.done, work.moved_s = True, self._now_s

    def progress(self, fragment: str, term: int, *, newcomer: int, others: int | None) -> None:
        """The newcomer serves up to epoch `newcomer`, the others up to `others` (if any does)."""
        work = self._under(fragment, term, Step.CATCH_UP)
        if work is not None:
            work.progress(newcomer, others, now_s=self._now_s)

    def failed(self, fragment: str, term: int, reason: str) -> None:
        """The repair cannot go on: its newcomer is released, and another try made later."""
        work = self._under(fragment, term)
        if work is None:
            return
        told = work.intention
        self._plans.attempts.failed(fragment, told.took_part, now_s=self._now_s)
        self._gone(fragment, told.node, reason)

    def recorded(self, intention: Intention) -> None:
        """`intention` is on disk, under its term."""
        assert intention.term > 0, "the record gives the term"
        fragment, node = intention.fragment, intention.node
        if intention.step in (Step.RELEASE, Step.RELEASED):
            self._releases.recorded(intention, now_s=self._now_s)
            if intention.step is Step.RELEASED:
                self._plans.overtaken.discard((fragment, node))
        elif intention.step is Step.LIVE:
            del self._work[fragment]
            self.replicas.put(fragment, node, Standing.LIVE)
            attempts = self._plans.attempts
            attempts.done(fragment, node, intention.took_part, now_s=self._now_s)
            self._plans.overtaken.discard((fragment, node))
            if intention.rebuilds and intention.replaces != node:
                # Recorded with the step: there is one line to follow, at every moment.
                self._releases.leave(fragment, intention.replaces, f"{node} is live in its place")
        else:
            if intention.step is Step.EXPECT:
                assert fragment not in self._work, "one repair per fragment"
                self._again.pop(fragment, None)
                self._plans.lost.discard((fragment, node))
                self.replicas.put(fragment, node, Standing.COMING, term=intention.term)
            self._work[fragment] = Work(intention, self._now_s)

    # What to do about it.

    def decide(self, now_s: float) -> list[Intention]:
        """What is to be recorded now; asked again without recording, it says the same again."""
        self._now_s = now_s
        self._give_up()
        plans = self._plans.decide(now_s)
        begin = [plan for plan in plans if plan.rebuilds]
        if not begin and not self._work:
            begin = plans[:1]
        for plan in plans:
            if plan not in begin:
                self._plans.wait(plan.fragment, "another repair comes first")
        following = [self._following(work) for work in self._work.values()]
        steps = [step for step in following if step is not None]
        return self._releases.decide() + steps + begin

    def _give_up(self) -> None:
        """Ends repairs that stand still, that lost who took part, or that are needed no more."""
        for work in list(self._work.values()):
            told = work.intention
            if work.stalled(now_s=self._now_s):
                reason = f"nothing moved for {STALL_S_MAX:.0f} s at step '{told.step}'"
                self.failed(told.fragment, told.term, reason)
            elif not self._can_give(told.fragment, told.survivor):
                self._start_again(work)
        under_way = [work.intention for work in self._work.values()]
        for intention in [*under_way, *self._again.values()]:
            fragment, node = intention.fragment, intention.node
            if self.may_discard(fragment):
                self._gone(fragment, node, "others came back, it is not needed")
            elif fragment in self._again and self.replicas.silent(node):
                self._gone(fragment, node, f"{node} is silent")

    def _following(self, work: Work) -> Intention | None:
        """The next step of a repair under way, if this one is done."""
        told = work.intention
        if told.step is Step.EXPECT:
            served = all(map(self.replicas.keepers, self.replicas.inputs[told.fragment]))
            return told.then(Step.SHIP) if served and not self._unconfirmed(work) else None
        if not work.done:
            return None
        return told.then(Step.CATCH_UP if told.step is Step.SHIP else Step.LIVE)

    @property
    def actions(self) -> list[Action]:
        """What is to be done for the intentions on record; each bears being done twice."""
        work = [each for each in self._work.values() if not each.done]
        return [each.action(self.replicas) for each in work] + self._releases.actions

    @property
    def under_way(self) -> dict[str, Intention]:
        """Fragment to the step of its repair that is on record."""
        return {fragment: work.intention for fragment, work in self._work.items()}

    @property
    def waiting(self) -> dict[str, str]:
        """Fragments that lack replicas, and what they wait for, in a sentence."""
        return self._plans.waiting

    def survives(self, fragment: str) -> int:
        """How many failures the fragment survives right now; -1: it is down."""
        return self.replicas.survives(fragment)

    def may_discard(self, fragment: str) -> bool:
        """Whether the wanted number is live: checkpoints of those that are gone may be deleted."""
        return self._releases.may_discard(fragment)

    def is_released(self, fragment: str, node: str) -> bool:
        """Whether it is on disk that this replica will not come back."""
        return self._releases.is_recorded(fragment, node)

    @property
    def sentences(self) -> list[str]:
        """What is under way, and what waits, for `status`."""
        return [action.sentence for action in self.actions] + list(self.waiting.values())

    def _gone(self, fragment: str, node: str, reason: str) -> None:
        """Nobody relies on this replica now; a newcomer that was never live is released."""
        standing = self.replicas.of(fragment)[node]
        if standing is Standing.COMING:
            work = self._work.pop(fragment, None)
            told = self._again.pop(fragment, None) or (work.intention if work else None)
            if told is not None and told.rebuilds and told.replaces == node:
                # Its need is the pattern for whoever comes next: it stays expected.
                self.replicas.put(fragment, node, Standing.GONE)
                self._plans.lost.add((fragment, node))
            else:
                self._releases.leave(fragment, node, reason)
        elif standing is not Standing.LEAVING:
            self.replicas.put(fragment, node, Standing.GONE)

    def _start_again(self, work: Work) -> None:
        """From the first step, with another survivor, unless that one is needed no more."""
        if not work.copied and not work.intention.rebuilds:
            self._again[work.intention.fragment] = work.intention
            del self._work[work.intention.fragment]

    def _can_give(self, fragment: str, survivor: str) -> bool:
        """Whether a copy may be made of this replica, now or when its node is heard of again."""
        live = survivor in self.replicas.having(fragment, Standing.LIVE)
        return live and self._writers.get(fragment) in (None, survivor)

    def _replaced(self, fragment: str, node: str) -> bool:
        """Whether another one is about to take its place."""
        work = self._work.get(fragment)
        told = work.intention if work else None
        if told is None and fragment in self._rebuilt:
            # It may have written already, before the control plane was started again.
            told = self._again.get(fragment)
        return told is not None and told.replaces == node

    def _under(self, fragment: str, term: int, step: Step | None = None) -> Work | None:
        work = self._work.get(fragment)
        if work is None or not work.is_under(fragment, term):
            return None
        return work if step in (None, work.intention.step) else None

    def _unconfirmed(self, work: Work) -> tuple[Producer, ...]:
        return work.unconfirmed(self.replicas)
