"""Plans: which repairs could begin now, of whose replica, and on which node.

    active     a copy of     the survivor that is furthest ahead, and failed least
    passive    a copy of     the writer: only it can feed a backup
    rebuilt    in place of   the one that is gone: nobody survives, producers hold what it needed

* The newcomer's node follows the rules of placement; where a repair failed, others are tried
  first.  A node that is up but cannot go on from its checkpoint may be given its own replica again.
* Several rebuilds begin at once, so each counts as load for the next: what one node held is spread.
* A repair that lost its term or its survivor is planned again for the same newcomer.
* Whatever cannot begin waits, and says for what.

This module only decides.  It does no I/O; the caller passes in monotonic time.

>>> from unbroken.control.intentions import Placed
>>> placed = {"alerts": [Placed("node-1", 1, Standing.GONE)]}
>>> replicas = Replicas({"alerts": ["clicks"]}, placed, ["node-3"])
>>> none = Writers({}, replicas)
>>> [plan] = Plans({"alerts": 1}, replicas, none, rebuilt=["alerts"]).decide(now_s=0.0)
>>> plan.under(7).sentence
'alerts: expecting node-3 in place of node-1 (term 7)'
>>> copies = Plans({"alerts": 1}, replicas, none)
>>> copies.decide(now_s=0.0), copies.waiting["alerts"]
([], 'alerts has 0 of 1 replicas: none is left to fork from; one that is gone has to come back')
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from unbroken.control.attempts import Attempts
from unbroken.control.intentions import Intention, Standing, Step
from unbroken.control.placement import next_node
from unbroken.control.replicas import Replicas
from unbroken.control.writers import Writers

#: A writer that took over has epochs to repeat, and consumers wait for them: a repair that began at
#: once would take the processor from it (measured: a pause of 1.8 s where half a second is usual).
SETTLE_S = 2.0


class Plans:
    """What is known for choosing, and the choice.

    >>> nobody = Replicas({}, {}, [])
    >>> Plans({}, nobody, Writers({}, nobody)).decide(now_s=0.0)
    []
    """

    def __init__(
        self,
        wanted: Mapping[str, int],
        replicas: Replicas,
        writers: Writers,
        *,
        rebuilt: Collection[str] = (),
    ) -> None:
        self._wanted = dict(wanted)
        self._replicas = replicas
        self._rebuilt = rebuilt
        self._writers = writers
        self.attempts = Attempts()
        #: Repairs that lost their term or their survivor: the same newcomer, from the start.
        self.again: dict[str, Intention] = {}
        #: Replicas whose checkpoint is lost although their node is up.
        self.lost: set[tuple[str, str]] = set()
        #: Replicas in whose place a hole was recorded: they must not go on where they were.
        self.overtaken: set[tuple[str, str]] = set()
        #: How far each live replica said it was: the newest makes the best survivor.
        self.epochs: dict[tuple[str, str], int] = {}
        #: Until when each fragment that was taken over is left alone.
        self.settles_s: dict[str, float] = {}
        #: Fragments that lack replicas, and what they wait for, in a sentence.
        self.waiting: dict[str, str] = {}

    def decide(self, now_s: float) -> list[Intention]:
        """The repairs that could begin, the most urgent first."""
        self.waiting = {}
        order = sorted(
            self._wanted,
            key=lambda f: (
                self.attempts.failures(f), f not in self.again, self._replicas.survives(f),
            ),
        )  # fmt: skip
        load, plans = self._replicas.load(), []
        for fragment in order:
            plan = self._plan(fragment, load, now_s)
            if plan is not None:
                plans.append(plan)
                if plan.rebuilds and plan.node not in load[fragment]:
                    load[fragment].append(plan.node)
        return plans

    def wait(self, fragment: str, why: str) -> None:
        """`fragment` lacks replicas, and waits."""
        live = len(self._replicas.having(fragment, Standing.LIVE))
        number = f"{live} of {self._wanted[fragment]}"
        self.waiting[fragment] = f"{fragment} has {number} replicas: {why}"

    def _plan(self, fragment: str, load: Mapping[str, list[str]], now_s: float) -> Intention | None:
        again = self.again.get(fragment)
        if again is None and len(load[fragment]) >= self._wanted[fragment]:
            return None
        survivor = self._survivor(fragment)
        if survivor is None:
            return None
        newcomer = again.node if again else self._newcomer(fragment, load)
        streams = self._replicas.inputs[fragment]
        silent = [stream for stream in streams if not self._replicas.keepers(stream)]
        wait_s = self.attempts.wait_s(fragment, now_s=now_s)
        if now_s < self.settles_s.get(fragment, 0.0):
            self.wait(fragment, f"{survivor} has just taken over, and makes up for the pause first")
        elif wait_s > 0:
            self.wait(fragment, f"the last repair failed; the next one begins in {wait_s:.0f} s")
        elif again and again.node not in self._replicas.up:
            self.wait(fragment, f"{again.node} has not been heard of yet")
        elif newcomer is None:
            back = f", or {survivor} has to come back" if fragment in self._rebuilt else ""
            self.wait(fragment, f"no node to put one on; start another node{back}")
        elif silent:
            self.wait(fragment, f"nobody serves {', '.join(silent)}")
        else:
            replaces = survivor
            if fragment not in self._rebuilt:
                gone = self._replicas.having(fragment, Standing.GONE)
                replaces = newcomer if newcomer in gone else next(iter(gone), "")
            return Intention(fragment, Step.EXPECT, newcomer, survivor=survivor, replaces=replaces)
        return None

    def _survivor(self, fragment: str) -> str | None:
        """Whose replica the newcomer is made from; None: it waits for one."""
        serving = self._replicas.serving(fragment)
        if fragment in self._rebuilt:
            again, gone = self.again.get(fragment), self._replicas.having(fragment, Standing.GONE)
            # One that is replaced by itself stands as coming: only the intention knows it.
            patterns = [again.survivor] if again else gone
            if not patterns:
                self.wait(fragment, "it was never placed; start the query again")
            return next(iter(patterns), None)
        writer = self._writers.get(fragment)
        if writer is not None:
            if writer not in serving:
                self.wait(fragment, f"waits for {writer}, which writes it and has to feed a backup")
            return writer if writer in serving else None
        if not serving:
            self.wait(fragment, "none is left to fork from; one that is gone has to come back")
        return min(serving, key=partial(self._worth, fragment), default=None)

    def _worth(self, fragment: str, survivor: str) -> tuple[int, int]:
        """Least for the best survivor: few failures, then far ahead."""
        epoch = self.epochs.get((fragment, survivor), -1)
        return self.attempts.failures(fragment, survivor), -epoch

    def _newcomer(self, fragment: str, load: Mapping[str, list[str]]) -> str | None:
        """The node for one more replica, by the rules of placement."""
        standing = self._replicas.of(fragment)
        gone = self._replicas.having(fragment, Standing.GONE)
        itself = [node for node in gone if (fragment, node) in self.lost | self.overtaken]
        free = [node for node in self._replicas.up if node not in standing or node in itself]
        failures = {node: self.attempts.failures(fragment, node) for node in free}
        free = [node for node in free if failures[node] == min(failures.values())]
        return next_node(fragment, load, free)
