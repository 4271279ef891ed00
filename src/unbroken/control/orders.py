"""Orders: what a node shall run, hold, take, rebuild and forget; the answer to its beat.

    alerts (active)    node-1 live: run          node-2 live: run      node-3 coming: join
    totals (passive)   node-2 writes: run        node-3 live: hold
    spikes (upstream)  node-1 gone, being replaced: nothing            node-3 coming: rebuild

* All of it is said anew with every beat: it follows from the records and from who is live, never
  from what was said before.
* Whoever is gone and not being replaced may go on from what it has, unless a hole was recorded in
  its place.  A former writer whose place was taken holds what the new one ships.
* A copy that a hole has overtaken is made *anew*: what it has left is of a line that is over.
* With each goes the term under which it is *placed* there: acks carry it (see `streams.needs`).
* Where nobody was ever live, whoever runs is the *first*: nothing is lost if it has nothing.

This module only answers.  It does no I/O and reads no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unbroken.control.intentions import Standing, Step
from unbroken.control.repair import Repairs
from unbroken.control.replicas import Replicas
from unbroken.control.writers import Writers
from unbroken.policies import Passive, Policy

_HERE = (Standing.STARTING, Standing.LIVE, Standing.GONE)


class Orders:
    """Derives every node's orders from what control knows.

    >>> from unbroken.control.intentions import Placed
    >>> live = [Placed("node-1", 1, Standing.LIVE), Placed("node-2", 2, Standing.LIVE)]
    >>> replicas = Replicas({"totals": ["clicks"]}, {"totals": live}, ["node-1", "node-2"])
    >>> writers = Writers({"totals": ["node-1", "node-2"]}, replicas, {})
    >>> repairs = Repairs({"totals": 2}, replicas, writers=writers)
    >>> orders = Orders({"totals": Passive()}, replicas, repairs, writers)
    >>> orders.of("node-1", {})["run"], orders.of("node-2", {"node-1": "grpc://a:1"})["hold"]
    (['totals'], {'totals': 'grpc://a:1'})
    >>> orders.of("node-1", {})["backups"]["totals"]["live"]
    ['totals@node-2']
    """

    def __init__(
        self,
        policies: Mapping[str, Policy],
        replicas: Replicas,
        repairs: Repairs,
        writers: Writers,
    ) -> None:
        self._policies = dict(policies)
        self._replicas = replicas
        self._repairs = repairs
        self._writers = writers

    def of(self, node: str, doors: Mapping[str, str]) -> dict[str, Any]:
        """What `node` shall do; `doors` has the addresses of the nodes that were heard of."""
        orders: dict[str, Any] = {
            "run": [], "hold": {}, "join": {}, "rebuild": {}, "forget": [], "backups": {},
            "anew": [], "placed": {}, "first": [],
            "consumers": {name: self._expected(name) for name in self._policies},
        }  # fmt: skip
        for name, policy in self._policies.items():
            order = self._order(name, policy, node)
            if order:
                orders["placed"][name] = self._replicas.term(name, node)
            if order in ("hold", "join") and self._repairs.is_overtaken(name, node):
                orders["anew"].append(name)
            if order == "run":
                orders["run"].append(name)
                orders["first"] += [] if self._replicas.has_begun(name) else [name]
                if isinstance(policy, Passive):
                    orders["backups"][name] = self._backups(name, node)
            elif order == "hold":
                orders["hold"][name] = doors.get(self._writers.of(name), "")
            elif order == "join" and self._survivor(name) in doors:
                orders["join"][name] = doors[self._survivor(name)]
            elif order == "rebuild":
                orders["rebuild"][name] = f"{name}@{self._survivor(name)}"
            elif not order and self._repairs.may_discard(name):
                orders["forget"] += [name] if node not in self._replicas.of(name) else []
        return orders

    def _expected(self, stream: str) -> dict[str, int]:
        """The consumers that `stream` is held for, until the release of one is on record.

        With the terms under which they are expected: a producer that was away may have heard of a
        removal, and not that the same replica is expected again.  Under 0 nobody is let in.

        Producers trim as soon as it is not on this list; were control to die before it has
        recorded why, it would count on that one again.
        """
        leaving = [
            f"{fragment}@{node}"
            for fragment, streams in self._replicas.inputs.items() if stream in streams
            for node in self._replicas.having(fragment, Standing.LEAVING)
            if not self._repairs.is_released(fragment, node)
        ]  # fmt: skip
        return dict.fromkeys(leaving, 0) | self._replicas.expected(stream)

    def _backups(self, fragment: str, writer: str) -> dict[str, list[str]]:
        """Whoever could take over from `writer` now, or later should it come back, and all others.

        Not one whose release is on record: only then it cannot come back.
        """
        others = {
            f"{fragment}@{node}": standing
            for node, standing in self._replicas.of(fragment).items()
            if node != writer and not self._repairs.is_released(fragment, node)
        }
        now = (Standing.LIVE, Standing.COMING)
        return {
            "live": [name for name, standing in others.items() if standing is Standing.LIVE],
            "gone": [name for name, standing in others.items() if standing not in now],
            "placed": list(others),
        }

    def _survivor(self, fragment: str) -> str:
        """Whose replica is copied, or whose place is taken."""
        repair = self._repairs.under_way.get(fragment)
        assert repair is not None
        return repair.survivor

    def _order(self, fragment: str, policy: Policy, node: str) -> str:
        repair = self._repairs.under_way.get(fragment)
        if repair is not None and repair.node == node:
            if isinstance(policy, Passive):
                return "hold" if repair.step in (Step.SHIP, Step.CATCH_UP) else ""
            ship = "rebuild" if repair.rebuilds else "join"
            return {Step.SHIP: ship, Step.CATCH_UP: "run"}.get(repair.step, "")
        if repair is not None and repair.replaces == node:
            return ""
        if self._repairs.is_overtaken(fragment, node):
            return ""
        if self._replicas.of(fragment).get(node) not in _HERE:
            return ""
        return "hold" if isinstance(policy, Passive) and self._holds(fragment, node) else "run"

    def _holds(self, fragment: str, node: str) -> bool:
        """Whether another node writes; if that one is gone for good, whoever is there may go on."""
        writer = self._writers.of(fragment)
        if writer == node:
            return False
        writing = self._replicas.of(fragment).get(writer) in (Standing.STARTING, Standing.LIVE)
        gone = self._replicas.of(fragment).get(node) is Standing.GONE
        return writing or not gone or bool(self._replicas.serving(fragment))
