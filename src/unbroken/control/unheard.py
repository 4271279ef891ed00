"""Unheard: the consumers of a stream that cannot say how far they are, and are not waited for.

    a (gap), lost     b (active)   node-2 live: asked            node-3 gone: replaced by node-2
                      c (passive)  node-4 writes: asked          node-5 holds: never further
                      d (gap)      node-1 gone: waits for a itself

* A standby holds what its writer makes, and is never further.
* Whoever has to be rebuilt can begin only when its inputs are served: two gap fragments in a row
  would wait for one another.
* A copy that is gone while another one serves may have been further.  It is not waited for either,
  because without a spare node nobody ever takes its place; nor does it count.  So it is *replaced*:
  it has, perhaps, what the hole says is lost, and must be taken from one that goes on.
* A gone copy is waited for if nobody else is there: it is the fragment.
* One that has nothing to go on from, and so asks first where its inputs begin, has no say either:
  it would wait for this very stream.

This module only answers.  It does no I/O and reads no clock.

>>> from unbroken.control.intentions import Placed
>>> placed = {"b": [Placed("node-2", 1, Standing.LIVE), Placed("node-3", 2, Standing.GONE)]}
>>> replicas = Replicas({"b": ["a"]}, placed, ["node-2"])
>>> unheard("a", {"b": Active()}, replicas, Writers({}, replicas))
Unheard(waiting=[], replaced=[('b', 'node-3')])
>>> replicas.put("b", "node-2", Standing.GONE)
>>> unheard("a", {"b": Active()}, replicas, Writers({}, replicas)).replaced
[]
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from unbroken.control.intentions import Standing
from unbroken.control.replicas import Replicas
from unbroken.control.writers import Writers
from unbroken.policies import Active, Gap, Passive, Policy, Upstream


class Unheard(NamedTuple):
    """Fragment and node of consumers that are not waited for.

    >>> Unheard([("c", "node-5")], []).waiting
    [('c', 'node-5')]
    """

    #: They take what others make, or wait for this very stream.
    waiting: list[tuple[str, str]]
    #: They are gone, and another copy goes on.
    replaced: list[tuple[str, str]]


def unheard(
    stream: str, policies: Mapping[str, Policy], replicas: Replicas, writers: Writers,
    empty: Collection[tuple[str, str]] = (), overtaken: Collection[tuple[str, str]] = (),
) -> Unheard:  # fmt: skip
    """Whom a successor that begins `stream` anew does not wait for.

    `empty` are fragment and node of those that have nothing to go on from, `overtaken` of those
    that must not go on where they were: an earlier hole was recorded in their place.
    """
    found = Unheard([], [])
    for name, policy in policies.items():
        if stream not in replicas.inputs[name]:
            continue
        found.waiting.extend((name, node) for node in replicas.of(name) if (name, node) in empty)
        gone = replicas.having(name, Standing.GONE)
        coming = replicas.having(name, Standing.COMING)
        if isinstance(policy, Upstream | Gap):
            found.waiting.extend((name, node) for node in gone + coming)
        elif _goes_on(name, policy, replicas, writers, empty):
            found.replaced.extend((name, node) for node in gone)
        else:
            found.replaced.extend((name, node) for node in gone if (name, node) in overtaken)
        if isinstance(policy, Passive):
            starting = replicas.having(name, Standing.STARTING)
            holding = replicas.having(name, Standing.LIVE) + coming + starting
            found.waiting.extend((name, node) for node in holding if node != writers.of(name))
    return found


def _goes_on(
    name: str, policy: Policy, replicas: Replicas, writers: Writers,
    empty: Collection[tuple[str, str]],
) -> bool:  # fmt: skip
    """Whether a copy serves that the fragment goes on with."""
    serving = [node for node in replicas.serving(name) if (name, node) not in empty]
    if isinstance(policy, Passive):
        return writers.of(name) in serving
    return isinstance(policy, Active) and bool(serving)
