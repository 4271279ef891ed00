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
* Who was removed is released only when the wanted number is live: until then producers hold what
  it would have to replay, and it may come back should all the others die (scenario 16).  A log that
  reaches its limit ends that patience (scenario 19).
* One repair at a time, whoever survives the fewest failures first, fragment by fragment: a node's
  fragments come back one after the other, and the first is safe soon (Flux).  One that fails goes
  behind the others, and waits twice as long each time.

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
>>> repairs.progress("alerts", 3, newcomer=41, others=42)
>>> [step] = repairs.decide(now_s=9.5); repairs.recorded(step); repairs.survives("alerts")
1
>>> [release] = repairs.decide(now_s=9.6); release.under(4).sentence
'alerts: releasing node-1 (term 4): the wanted number is live'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from unbroken.control.attempts import Attempts
from unbroken.control.intentions import Action, Intention, Producer, Standing, Step
from unbroken.control.placement import next_node
from unbroken.control.replicas import Replicas

#: A newcomer that is at most so many epochs behind the others is live.
LAG_EPOCHS_MAX = 2
#: A repair of which nothing was heard for so long has failed.
STALL_S_MAX = 60.0


@dataclass
class _Work:
    """An intention that is on disk, and what is known of its step."""

    intention: Intention
    moved_s: float
    #: Producers, for `expect` and `release`.
    confirmed: set[Producer] = field(default_factory=set)
    #: The node's own part of the step, for `ship` and `catch up`.
    done: bool = False
    epoch: int = -1


class Repairs:
    """Decides the repairs of all active fragments, given the number of replicas `wanted` of each.

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
        self, wanted: Mapping[str, int], replicas: Replicas, unfinished: Iterable[Intention] = ()
    ) -> None:
        self._wanted = dict(wanted)
        self.replicas = replicas
        #: Invariant: recorded.  At most one repair, any number of releases.
        self._repair: _Work | None = None
        self._releases: dict[tuple[str, str], _Work] = {}
        #: To be released, with the reason; not recorded yet.  Invariant: they stand as `leaving`.
        self._drop: dict[tuple[str, str], str] = {}
        #: Repairs that lost their term or their survivor: the same newcomer, from the start.
        self._again: dict[str, Intention] = {}
        #: Replicas whose checkpoint is lost although their node is up.
        self._lost: set[tuple[str, str]] = set()
        #: How far each live replica said it was: the newest makes the best survivor.
        self._epochs: dict[tuple[str, str], int] = {}
        self._attempts = Attempts()
        self._now_s = 0.0
        #: Fragments that lack replicas, and what they wait for, in a sentence.
        self.waiting: dict[str, str] = {}
        for intention in unfinished:
            if intention.step is Step.RELEASE:
                self._leave(intention.fragment, intention.node, intention.reason)
            else:
                self._again[intention.fragment] = intention
        for fragment in replicas.inputs:
            for node in replicas.having(fragment, Standing.COMING):
                if fragment not in self._again or self._again[fragment].node != node:
                    self._leave(fragment, node, "no repair is known that it belongs to")

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
        repair = self._repair
        if repair is not None and repair.intention.survivor == node:
            copied = repair.done or repair.intention.step is Step.CATCH_UP
            if not copied:
                self._again[repair.intention.fragment] = repair.intention
                self._repair = None

    def live(self, fragment: str, node: str, epoch: int = -1) -> bool:
        """`node` says that its replica runs and has done `epoch`; False: it should stop, because
        it was replaced.

        A replica that is gone, but neither being replaced nor superfluous, is simply back.
        """
        standing = self.replicas.of(fragment).get(node)
        if standing is Standing.COMING:  # It is live when it has caught up.
            return fragment not in self._again
        repair = self._repair.intention if self._repair else None
        replaced = repair and (repair.fragment, repair.replaces) == (fragment, node)
        superfluous = standing is Standing.GONE and self.may_discard(fragment)
        if standing in (None, Standing.LEAVING) or replaced or superfluous:
            return False
        self.replicas.put(fragment, node, Standing.LIVE)
        self._lost.discard((fragment, node))
        self._epochs[fragment, node] = epoch
        return True

    def lost(self, fragment: str, node: str) -> None:
        """`node` is up but cannot go on from its checkpoint: it may be replaced by itself."""
        if node in self.replicas.having(fragment, Standing.LIVE, Standing.STARTING, Standing.GONE):
            self.replicas.put(fragment, node, Standing.GONE)
            self._lost.add((fragment, node))

    def held(self, fragment: str, node: str, reason: str) -> bool:
        """A producer's log is full because of this replica: it is removed, if another one is live.

        False: it is the last one, and the producer has to push back.
        """
        if not set(self.replicas.serving(fragment)) - {node}:
            return False
        if self.replicas.of(fragment).get(node, Standing.LEAVING) is not Standing.LEAVING:
            self._gone(fragment, node, reason)
            self._leave(fragment, node, reason)
        return True

    def confirmed(self, fragment: str, term: int, producer: Producer) -> None:
        """`producer` did what the expect or the release of this term asked for."""
        for work in [*([self._repair] if self._repair else []), *self._releases.values()]:
            if (work.intention.fragment, work.intention.term) == (fragment, term):
                work.confirmed.add(producer)
                work.moved_s = self._now_s

    def moved(self, fragment: str, term: int) -> None:
        """Some more of the checkpoint or the log has arrived at the newcomer."""
        repair = self._under(fragment, term)
        if repair is not None:
            repair.moved_s = self._now_s

    def shipped(self, fragment: str, term: int) -> None:
        """The newcomer has checkpoint and log, the manifest as well."""
        repair = self._under(fragment, term, Step.SHIP)
        if repair is not None:
            repair.done, repair.moved_s = True, self._now_s

    def progress(self, fragment: str, term: int, *, newcomer: int, others: int | None) -> None:
        """The newcomer serves up to epoch `newcomer`, the others up to `others` (if any does)."""
        repair = self._under(fragment, term, Step.CATCH_UP)
        if repair is not None:
            if newcomer > repair.epoch:
                repair.epoch, repair.moved_s = newcomer, self._now_s
            repair.done = others is None or newcomer + LAG_EPOCHS_MAX >= others

    def failed(self, fragment: str, term: int, reason: str) -> None:
        """The repair cannot go on: its newcomer is released, and another try made later."""
        repair = self._under(fragment, term)
        if repair is None:
            return
        intention = repair.intention
        took_part = [intention.node, intention.survivor]
        self._attempts.failed(fragment, took_part, now_s=self._now_s)
        self._gone(fragment, intention.node, reason)

    def recorded(self, intention: Intention) -> None:
        """`intention` is on disk, under its term."""
        assert intention.term > 0, "the record gives the term"
        fragment, node = intention.fragment, intention.node
        if intention.step is Step.RELEASE:
            self._drop.pop((fragment, node), None)
            self._releases[fragment, node] = _Work(intention, self._now_s)
            self.replicas.put(fragment, node, Standing.LEAVING)
        elif intention.step is Step.RELEASED:
            del self._releases[fragment, node]
            self.replicas.put(fragment, node, None)
        elif intention.step is Step.LIVE:
            self._repair = None
            self.replicas.put(fragment, node, Standing.LIVE)
            self._attempts.done(fragment)
        else:
            if intention.step is Step.EXPECT:
                assert self._repair is None, "one repair at a time"
                self._again.pop(fragment, None)
                self._lost.discard((fragment, node))
                self.replicas.put(fragment, node, Standing.COMING)
            self._repair = _Work(intention, self._now_s)

    # What to do about it.

    def decide(self, now_s: float) -> list[Intention]:
        """What is to be recorded now; asked again without recording, it says the same again."""
        self._now_s = now_s
        self._give_up()
        plans = self._plans()
        following = self._following() if self._repair is not None else next(iter(plans), None)
        for plan in plans:
            if plan is not following:
                self._wait(plan.fragment, "another repair comes first")
        return self._releasing() + ([following] if following is not None else [])

    def _give_up(self) -> None:
        """Ends repairs that stand still, that lost their newcomer or that are needed no more."""
        repair = self._repair
        if repair is not None and self._now_s - repair.moved_s > STALL_S_MAX:
            stalled = repair.intention
            reason = f"nothing moved for {STALL_S_MAX:.0f} s at step '{stalled.step}'"
            self.failed(stalled.fragment, stalled.term, reason)
        repair = self._repair
        for intention in [*([repair.intention] if repair else []), *self._again.values()]:
            fragment, node = intention.fragment, intention.node
            if self.may_discard(fragment):
                self._gone(fragment, node, "others came back, it is not needed")
            elif fragment in self._again and self.replicas.silent(node):
                self._gone(fragment, node, f"{node} is silent")

    def _releasing(self) -> list[Intention]:
        done = [w.intention for w in self._releases.values() if not self._unconfirmed(w)]
        due = dict(self._drop)
        for fragment in self._wanted:
            if self.may_discard(fragment):
                for node in self.replicas.having(fragment, Standing.GONE):
                    due[fragment, node] = "the wanted number is live"
                for node in self.replicas.serving(fragment)[self._wanted[fragment] :]:
                    due[fragment, node] = "more are live than wanted"
        return [intention.then(Step.RELEASED) for intention in done] + [
            Intention(fragment, Step.RELEASE, node, reason=reason)
            for (fragment, node), reason in due.items()
        ]

    def _following(self) -> Intention | None:
        """The next step of the repair under way, if this one is done."""
        assert self._repair is not None
        intention = self._repair.intention
        if intention.step is Step.EXPECT:
            streams = self.replicas.inputs[intention.fragment]
            served = all(map(self.replicas.keepers, streams))
            complete = served and not self._unconfirmed(self._repair)
            return intention.then(Step.SHIP) if complete else None
        if not self._repair.done:
            return None
        return intention.then(Step.CATCH_UP if intention.step is Step.SHIP else Step.LIVE)

    def _plans(self) -> list[Intention]:
        """The repairs that could begin, the most urgent first."""
        self.waiting = {}
        order = sorted(
            self._wanted,
            key=lambda f: (self._attempts.failures(f), f not in self._again, self.survives(f)),
        )
        plans = [self._plan(fragment) for fragment in order]
        return [plan for plan in plans if plan is not None]

    def _plan(self, fragment: str) -> Intention | None:
        again = self._again.get(fragment)
        if again is None and len(self.replicas.load()[fragment]) >= self._wanted[fragment]:
            return None
        survivors = self.replicas.serving(fragment)
        newcomer = again.node if again else self._newcomer(fragment)
        streams = self.replicas.inputs[fragment]
        silent = [stream for stream in streams if not self.replicas.keepers(stream)]
        wait_s = self._attempts.wait_s(fragment, now_s=self._now_s)
        if not survivors:
            self._wait(fragment, "none is left to fork from; one that is gone has to come back")
        elif wait_s > 0:
            self._wait(fragment, f"the last repair failed; the next one begins in {wait_s:.0f} s")
        elif again and again.node not in self.replicas.up:
            self._wait(fragment, f"{again.node} has not been heard of yet")
        elif newcomer is None:
            self._wait(fragment, "no node to put one on; start another node")
        elif silent:
            self._wait(fragment, f"nobody serves {', '.join(silent)}")
        else:
            gone = self.replicas.having(fragment, Standing.GONE)
            replaces = newcomer if newcomer in gone else next(iter(gone), "")
            survivor = min(survivors, key=partial(self._worth, fragment))
            return Intention(fragment, Step.EXPECT, newcomer, survivor=survivor, replaces=replaces)
        return None

    def _worth(self, fragment: str, survivor: str) -> tuple[int, int]:
        """Least for the best survivor: few failures, then far ahead."""
        epoch = self._epochs.get((fragment, survivor), -1)
        return self._attempts.failures(fragment, survivor), -epoch

    def _wait(self, fragment: str, why: str) -> None:
        number = f"{len(self.replicas.having(fragment, Standing.LIVE))} of {self._wanted[fragment]}"
        self.waiting[fragment] = f"{fragment} has {number} replicas: {why}"

    def _newcomer(self, fragment: str) -> str | None:
        """The node for one more replica, by the rules of placement."""
        standing = self.replicas.of(fragment)
        gone = self.replicas.having(fragment, Standing.GONE)
        itself = [node for node in gone if (fragment, node) in self._lost]
        free = [node for node in self.replicas.up if node not in standing or node in itself]
        failures = {node: self._attempts.failures(fragment, node) for node in free}
        free = [node for node in free if failures[node] == min(failures.values())]
        return next_node(fragment, self.replicas.load(), free)

    @property
    def actions(self) -> list[Action]:
        """What is to be done for the intentions on record; each bears being done twice."""
        work = [self._repair] if self._repair is not None and not self._repair.done else []
        work += self._releases.values()
        return [Action(each.intention, self._unconfirmed(each)) for each in work]

    @property
    def under_way(self) -> Intention | None:
        """The step of the repair that is on record, if there is one."""
        return self._repair.intention if self._repair else None

    def survives(self, fragment: str) -> int:
        """How many failures the fragment survives right now; -1: it is down."""
        return self.replicas.survives(fragment)

    def may_discard(self, fragment: str) -> bool:
        """Whether the wanted number is live: checkpoints of those that are gone may be deleted."""
        return len(self.replicas.serving(fragment)) >= self._wanted.get(fragment, 0)

    @property
    def sentences(self) -> list[str]:
        """What is under way, and what waits, for `status`."""
        return [action.sentence for action in self.actions] + list(self.waiting.values())

    def _gone(self, fragment: str, node: str, reason: str) -> None:
        """Nobody relies on this replica now; a newcomer that was never live is released."""
        standing = self.replicas.of(fragment)[node]
        if standing is Standing.COMING:
            if self._repair is not None and self._repair.intention.fragment == fragment:
                self._repair = None
            self._again.pop(fragment, None)
            self._leave(fragment, node, reason)
        elif standing is not Standing.LEAVING:
            self.replicas.put(fragment, node, Standing.GONE)

    def _leave(self, fragment: str, node: str, reason: str) -> None:
        if (fragment, node) not in self._releases:
            self._drop[fragment, node] = reason
        self.replicas.put(fragment, node, Standing.LEAVING)

    def _under(self, fragment: str, term: int, step: Step | None = None) -> _Work | None:
        repair = self._repair
        if repair is None or step not in (None, repair.intention.step):
            return None
        known = repair.intention.fragment, repair.intention.term
        return repair if known == (fragment, term) else None

    def _unconfirmed(self, work: _Work) -> tuple[Producer, ...]:
        if work.intention.step not in (Step.EXPECT, Step.RELEASE):
            return ()
        asked = self.replicas.producers(work.intention.fragment)
        return tuple(producer for producer in asked if producer not in work.confirmed)
