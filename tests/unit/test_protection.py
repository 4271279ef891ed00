"""How many failures a fragment survives depends on where its producers are."""

from __future__ import annotations

import pytest

from unbroken.control.intentions import Placed, Standing
from unbroken.control.protection import survives
from unbroken.control.replicas import Replicas
from unbroken.policies import Active, Passive, Policy, Upstream

INPUTS = {"a": ["clicks"], "b": ["a", "clicks"]}


def placed(**nodes: str) -> Replicas:
    """Fragments, live on nodes with names of one letter; four nodes are up."""
    where = {
        name: [Placed(node, 1, Standing.LIVE) for node in nodes_of]
        for name, nodes_of in nodes.items()
    }
    return Replicas(INPUTS, where, "1234")


@pytest.mark.parametrize(
    ("a", "b", "number"),
    [("1", "1", 0), ("2", "1", 1), ("12", "1", 1), ("1", "2", 1)],
)
def test_what_upstream_backup_needs_must_not_die_with_it(a: str, b: str, number: int):
    """Found: a chain on one node was said to survive a failure, and could not be rebuilt."""
    found, why = survives("b", Upstream(), placed(a=a, b=b))
    assert (found, bool(why)) == (number, number == 0)


def test_a_producer_that_is_only_silent_keeps_nothing_for_sure():
    replicas = placed(a="2", b="1")
    replicas.suspected("2")
    assert survives("b", Upstream(), replicas)[0] == 0


def test_sources_are_kept_elsewhere_and_one_node_is_not_enough():
    assert survives("a", Upstream(), placed(a="1", b="1")) == (1, "")
    alone = Replicas(INPUTS, {"a": [Placed("1", 1, Standing.LIVE)]}, "1")
    assert survives("a", Upstream(), alone) == (0, "no other node is there to rebuild it on")


@pytest.mark.parametrize(("policy", "number"), [(Active(replicas=2), 1), (Passive(), 1)])
def test_copies_do_not_depend_on_producers_that_die_with_one_of_them(policy: Policy, number: int):
    assert survives("b", policy, placed(a="1", b="12")) == (number, "")
