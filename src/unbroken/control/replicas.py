"""Replicas: where each one stands, who serves which stream, and whom a stream is held for.

    alerts      node-1 gone     node-2 live     node-3 coming
    clicks ──▶  held for alerts@node-1, alerts@node-2 and alerts@node-3; survives: 0

* *Expected* are all that the placement names, the ones that are gone included, until they are
  released; *live* are those that can serve.  Only these count for `survives`.
* A silent node keeps its replicas, but nobody relies on it: it does not count for `survives`, gets
  no newcomer and gives no fork.

This module only answers.  It does no I/O and reads no clock.

>>> replicas = Replicas(
...     {"alerts": ["clicks"]},
...     {"alerts": [Placed("node-1", 1, Standing.GONE), Placed("node-2", 2, Standing.LIVE)]},
...     ["node-2", "node-3"],
... )
>>> replicas.survives("alerts"), replicas.expected("clicks")
(0, {'alerts@node-1': 1, 'alerts@node-2': 2})
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from unbroken.control.intentions import KEEPER, Placed, Producer, Standing


class Replicas:
    """What is known of all replicas of a query.

    `nodes` are those that were heard of already: none, when the control plane has just started.

    >>> replicas = Replicas({"alerts": ["clicks"]}, {"alerts": []}, ["node-1"])
    >>> replicas.of("alerts"), replicas.up, replicas.survives("alerts")
    ({}, ['node-1'], -1)
    """

    def __init__(
        self,
        inputs: Mapping[str, Sequence[str]],
        placement: Mapping[str, Sequence[Placed]],
        nodes: Iterable[str],
    ) -> None:
        #: The streams that each fragment reads.
        self.inputs = dict(inputs)
        #: Invariant: a node is there at most once per fragment.
        self._standing: dict[str, dict[str, Standing]] = {fragment: {} for fragment in inputs}
        for fragment, placed in placement.items():
            self._standing[fragment] = {replica.node: replica.standing for replica in placed}
        #: The term under which a replica was expected last, by fragment and node.
        self._terms = {
            (fragment, replica.node): replica.term
            for fragment, placed in placement.items() for replica in placed
        }  # fmt: skip
        #: Fragments of which some replica was live once.
        self._begun = {
            fragment
            for fragment, placed in placement.items()
            if any(replica.standing is not Standing.STARTING for replica in placed)
        }
        self._nodes = dict.fromkeys(nodes)
        self._suspects: set[str] = set()

    def alive(self, node: str) -> None:
        """`node` can take replicas: it joined, came back, or is trusted again.

        >>> replicas = Replicas({}, {}, []); replicas.alive("node-1"); replicas.up
        ['node-1']
        """
        self._nodes.setdefault(node)
        self._suspects.discard(node)

    def suspected(self, node: str) -> None:
        """`node` is silent.

        >>> replicas = Replicas({}, {}, ["node-1"]); replicas.suspected("node-1"); replicas.up
        []
        """
        self._suspects.add(node)

    def silent(self, node: str) -> bool:
        """Whether `node` is suspected.

        >>> Replicas({}, {}, ["node-1"]).silent("node-1")
        False
        """
        return node in self._suspects

    def dead(self, node: str) -> list[str]:
        """`node` was declared dead; the fragments of which it held a replica.

        >>> placed = {"alerts": [Placed("node-1", 1, Standing.LIVE)]}
        >>> Replicas({"alerts": ["clicks"]}, placed, ["node-1"]).dead("node-1")
        ['alerts']
        """
        self._nodes.pop(node, None)
        self._suspects.discard(node)
        return [fragment for fragment, nodes in self._standing.items() if node in nodes]

    @property
    def up(self) -> list[str]:
        """The nodes that can be relied on, in the order in which they came.

        >>> Replicas({}, {}, ["node-2", "node-1"]).up
        ['node-2', 'node-1']
        """
        return [node for node in self._nodes if node not in self._suspects]

    def of(self, fragment: str) -> Mapping[str, Standing]:
        """Node to standing, in the order of the placement."""
        return self._standing.get(fragment, {})

    def put(
        self, fragment: str, node: str, standing: Standing | None, *, term: int | None = None
    ) -> None:
        """From now on the replica stands so, expected under `term`; None: it is no longer expected.

        >>> replicas = Replicas({"alerts": ["clicks"]}, {}, ["node-1"])
        >>> replicas.put("alerts", "node-1", Standing.LIVE); replicas.survives("alerts")
        0
        """
        if standing is None:
            self._standing[fragment].pop(node, None)
        else:
            self._standing[fragment][node] = standing
        if standing is Standing.LIVE:
            self._begun.add(fragment)
        if term is not None:
            self._terms[fragment, node] = term

    def term(self, fragment: str, node: str) -> int:
        """The term under which this replica was expected last; 0: it never was.

        >>> placed = {"alerts": [Placed("node-1", 4, Standing.LIVE)]}
        >>> Replicas({}, placed, []).term("alerts", "node-1")
        4
        """
        return self._terms.get((fragment, node), 0)

    def has_begun(self, fragment: str) -> bool:
        """Whether some replica of `fragment` was ever live, as far as is on record.

        >>> replicas = Replicas({"alerts": ["clicks"]}, {}, ["node-1"])
        >>> replicas.put("alerts", "node-1", Standing.GONE); replicas.has_begun("alerts")
        False
        >>> replicas.put("alerts", "node-1", Standing.LIVE); replicas.has_begun("alerts")
        True
        """
        return fragment in self._begun

    def having(self, fragment: str, *standings: Standing) -> list[str]:
        """The nodes whose replica of `fragment` stands so.

        >>> replicas = Replicas({}, {"alerts": [Placed("node-1", 1, Standing.LIVE)]}, [])
        >>> replicas.having("alerts", Standing.LIVE, Standing.STARTING)
        ['node-1']
        """
        return [node for node, standing in self.of(fragment).items() if standing in standings]

    def serving(self, fragment: str) -> list[str]:
        """The nodes whose replica of `fragment` is live, and that are not silent.

        >>> replicas = Replicas({}, {"alerts": [Placed("node-1", 1, Standing.LIVE)]}, ["node-1"])
        >>> replicas.suspected("node-1"); replicas.serving("alerts")
        []
        """
        return [node for node in self.having(fragment, Standing.LIVE) if node in self.up]

    def survives(self, fragment: str) -> int:
        """How many failures `fragment` survives right now; -1: it is down."""
        return len(self.serving(fragment)) - 1

    def keepers(self, stream: str) -> list[Producer]:
        """Whoever keeps `stream` now; a newcomer does when it is live.

        >>> Replicas({"alerts": ["clicks"]}, {}, []).keepers("clicks")
        [Producer(stream='clicks', node='keeper')]
        """
        if stream not in self._standing:
            return [Producer(stream, KEEPER)]
        there = self.having(stream, Standing.LIVE, Standing.STARTING)
        return [Producer(stream, node) for node in there]

    def producers(self, fragment: str) -> list[Producer]:
        """Whoever keeps one of the streams that `fragment` reads."""
        return [keeper for stream in self.inputs[fragment] for keeper in self.keepers(stream)]

    def expected(self, stream: str) -> dict[str, int]:
        """The consumers that `stream` is held for, and the terms under which they are expected.

        A producer that starts or comes back takes this list before it trims anything; one that
        has become live takes it once more, because a release may have passed it by.
        """
        return {
            f"{fragment}@{node}": self.term(fragment, node)
            for fragment, streams in self.inputs.items()
            for node, standing in self.of(fragment).items()
            if stream in streams and standing is not Standing.LEAVING
        }

    def load(self) -> dict[str, list[str]]:
        """Fragment to the nodes that work for it, as `placement` wants it.

        >>> Replicas({}, {"alerts": [Placed("node-1", 1, Standing.GONE)]}, []).load()
        {'alerts': []}
        """
        busy = (Standing.LIVE, Standing.STARTING, Standing.COMING)
        return {fragment: self.having(fragment, *busy) for fragment in self._standing}
