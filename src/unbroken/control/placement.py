"""Placement: which nodes hold the copies of each fragment.

    copies      node-1   node-2   node-3          load 2, 2, 2
    sessions      1        2                      node-1 dies: the other copy of `sessions` is on
    alerts                 1        2             node-2, that of `totals` on node-3: two nodes
    totals        2                 1             share the work of going on

* Two copies of one fragment on one node would die together, so there are never two.
* Copies that exist stay where they are: moving one is a repair, and a repair costs a fork, its
  shipping and a catch-up.  Only new copies are placed, on the least loaded nodes.
* The other copies of what one node holds are spread over many nodes, because these have to carry
  on together when it dies (cooperative backup, ICDE'07).
* The same question gets the same answer: order counts, neither hashes nor chance do.

With one copy each this is round robin.  This module only decides.  It does no I/O and reads no
clock.

>>> nodes = ["node-1", "node-2", "node-3"]
>>> two = place({"sessions": 2, "alerts": 2, "totals": 2}, nodes)
>>> two.nodes["sessions"], two.nodes["alerts"], two.nodes["totals"]
(('node-1', 'node-2'), ('node-2', 'node-3'), ('node-3', 'node-1'))
>>> place({"alerts": 3}, ["node-1", "node-2"]).sentences
['alerts has 2 of 3 copies, one on each of 2 nodes: start 1 more node']
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from unbroken.errors import DefinitionError

_Placed = dict[str, list[str]]


@dataclass(frozen=True)
class Placement:
    """Where the copies are, and which could not be placed.

    >>> placement = Placement({"alerts": ("node-2", "node-1"), "totals": ("node-1",)})
    >>> placement.on("node-1")
    ['alerts', 'totals']
    """

    #: Fragment to its nodes, the first to run first.  Invariant: no node twice.
    nodes: Mapping[str, tuple[str, ...]]
    #: Fragment to the number of copies for which there is no node.
    missing: Mapping[str, int] = field(default_factory=dict)

    def on(self, node: str) -> list[str]:
        """The fragments that have a copy on `node`.

        >>> Placement({"alerts": ("node-2",)}).on("node-1")
        []
        """
        return [fragment for fragment, nodes in self.nodes.items() if node in nodes]

    @property
    def sentences(self) -> list[str]:
        """What is missing, a sentence per fragment, for `status`.

        >>> Placement({"alerts": ("node-1",)}, {"alerts": 1}).sentences
        ['alerts has 1 of 2 copies, one on each of 1 node: start 1 more node']
        """
        return [
            f"{fragment} has {len(self.nodes[fragment])} of {len(self.nodes[fragment]) + missing} "
            f"copies, one on each of {_counted(len(self.nodes[fragment]))}: "
            f"start {missing} more {'node' if missing == 1 else 'nodes'}"
            for fragment, missing in self.missing.items()
        ]


def place(
    copies: Mapping[str, int],
    nodes: Sequence[str],
    *,
    existing: Mapping[str, Sequence[str]] | None = None,
) -> Placement:
    """Gives every fragment its number of copies, as far as there are nodes.

    Copies in `existing` stay, as long as their node is one of `nodes`; of more than are wanted the
    last ones go.

    >>> place({"a": 1, "b": 1, "c": 1}, ["node-1", "node-2"]).nodes
    {'a': ('node-1',), 'b': ('node-2',), 'c': ('node-1',)}
    >>> place({"a": 2}, ["node-1", "node-2", "node-3"], existing={"a": ["node-3"]}).nodes
    {'a': ('node-3', 'node-1')}
    """
    for fragment, wanted in copies.items():
        if wanted < 1:
            raise DefinitionError(
                f"{wanted} copies of fragment {fragment!r}", hint="at least one copy"
            )
    nodes = list(dict.fromkeys(nodes))
    there = {fragment: dict.fromkeys((existing or {}).get(fragment, ())) for fragment in copies}
    placed = {
        fragment: [node for node in there[fragment] if node in nodes][:wanted]
        for fragment, wanted in copies.items()
    }
    fixed = {(fragment, node) for fragment, held in placed.items() for node in held}
    # Those with many copies first: they have the least choice.  All first copies before any
    # second one, so that each node gets its share of the first ones too.
    hardest_first = sorted(copies, key=lambda fragment: -copies[fragment])
    for nth in range(max(copies.values(), default=0)):
        for fragment in hardest_first:
            if len(placed[fragment]) <= nth < copies[fragment]:
                node = next_node(fragment, placed, nodes)
                if node is not None:
                    placed[fragment].append(node)
    _improve(placed, fixed, nodes)
    missing = {f: wanted - len(placed[f]) for f, wanted in copies.items()}
    assert all(len(set(held)) == len(held) for held in placed.values()), "two copies on one node"
    return Placement(
        {fragment: tuple(held) for fragment, held in placed.items()},
        {fragment: number for fragment, number in missing.items() if number},
    )


def next_node(
    fragment: str, placed: Mapping[str, Sequence[str]], nodes: Sequence[str]
) -> str | None:
    """The best of `nodes` for one more copy of `fragment`; None if each has one already.

    The least loaded; among those the one that shares the fewest fragments with the nodes that have
    a copy already.

    >>> next_node("a", {"a": ["node-1"], "b": ["node-2"]}, ["node-1", "node-2", "node-3"])
    'node-3'
    >>> next_node("a", {"a": ["node-1"]}, ["node-1"]) is None
    True
    """
    holders = placed.get(fragment, ())
    load = Counter(node for held in placed.values() for node in held)

    def price(node: str) -> tuple[int, int, int, int]:
        beside = [held for held in placed.values() if node in held]
        shared = sum(holder in held for held in beside for holder in holders)
        # Where the copies have an order, the backups of one node's first copies are spread too.
        same_first = sum(held[0] == holders[0] for held in beside) if holders else 0
        return load[node], shared, same_first, nodes.index(node)

    return min((node for node in nodes if node not in holders), key=price, default=None)


def _improve(placed: _Placed, fixed: set[tuple[str, str]], nodes: Sequence[str]) -> None:
    """Moves new copies while that evens out the load, or spreads copies further.

    A node with two copies more than another one has one that the other lacks.  So without fixed
    copies no two nodes differ by more than one in the end.  Every move lowers the cost: it ends.
    """
    cost = _cost(placed)
    moved = True
    while moved:
        moved = False
        for fragment, at, node in _moves(placed, fixed, nodes):
            before = placed[fragment][at]
            placed[fragment][at] = node
            if _cost(placed) < cost:
                cost, moved = _cost(placed), True
                break
            placed[fragment][at] = before


def _moves(
    placed: _Placed, fixed: set[tuple[str, str]], nodes: Sequence[str]
) -> Iterator[tuple[str, int, str]]:
    for fragment, held in placed.items():
        for at, node in enumerate(list(held)):
            if (fragment, node) not in fixed:
                yield from ((fragment, at, other) for other in nodes if other not in held)


def _cost(placed: _Placed) -> tuple[int, int]:
    load = Counter(node for held in placed.values() for node in held)
    pairs = Counter(pair for held in placed.values() for pair in combinations(sorted(held), 2))
    return sum(n * n for n in load.values()), sum(n * n for n in pairs.values())


def _counted(nodes: int) -> str:
    return f"{nodes} node" if nodes == 1 else f"{nodes} nodes"
