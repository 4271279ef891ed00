"""Placement: never two copies on one node, even, spread, stable, the same every time."""

from __future__ import annotations

import random

import pytest

from unbroken.control.placement import next_node, place
from unbroken.errors import DefinitionError


def names(kind: str, number: int) -> list[str]:
    return [f"{kind}-{i + 1}" for i in range(number)]


def loads(placed, nodes: list[str]) -> list[int]:
    return [len(placed.on(node)) for node in nodes]


@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_one_copy_each_is_round_robin(number: int):
    """A cluster without replicas is laid out as it always was: fragment i on node i mod n."""
    nodes, fragments = names("node", number), names("f", 11)
    placed = place(dict.fromkeys(fragments, 1), nodes)
    assert placed.nodes == {f: (nodes[i % number],) for i, f in enumerate(fragments)}
    assert placed.missing == {}


@pytest.mark.parametrize("seed", range(100))
def test_new_copies_are_apart_and_even(seed: int):
    """Any numbers of nodes, fragments and copies: loads differ by one at most."""
    chance = random.Random(seed)
    nodes = names("node", chance.randint(1, 7))
    copies = {f: chance.randint(1, 4) for f in names("f", chance.randint(1, 12))}
    placed = place(copies, nodes)
    for fragment, wanted in copies.items():
        held = placed.nodes[fragment]
        assert len(set(held)) == len(held) == min(wanted, len(nodes))
        assert placed.missing.get(fragment, 0) == wanted - len(held)
    assert max(loads(placed, nodes)) - min(loads(placed, nodes)) <= 1
    assert placed == place(copies, nodes)


@pytest.mark.parametrize("seed", range(100))
def test_existing_copies_stay_and_no_move_of_a_new_one_would_help(seed: int):
    """Nodes came and went: what exists on a node that is there stays, first and in its order."""
    chance = random.Random(seed)
    nodes = names("node", chance.randint(2, 6))
    copies = {f: chance.randint(1, 3) for f in names("f", chance.randint(1, 10))}
    known = [*nodes, "gone-1", "gone-2"]
    existing = {
        f: chance.sample(known, chance.randint(0, 2)) for f in copies if chance.random() < 0.7
    }
    placed = place(copies, nodes, existing=existing)
    for fragment, wanted in copies.items():
        held = placed.nodes[fragment]
        stay = [node for node in existing.get(fragment, []) if node in nodes][:wanted]
        assert list(held[: len(stay)]) == stay
        assert len(set(held)) == len(held) == min(wanted, len(nodes))
        for new in held[len(stay) :]:
            better = [n for n in nodes if n not in held]
            assert all(len(placed.on(new)) - len(placed.on(node)) <= 1 for node in better)


@pytest.mark.parametrize("number", range(3, 8))
def test_the_other_copies_of_one_node_are_spread(number: int):
    """When a node dies, all the others carry on with its fragments, each with about the same."""
    nodes = names("node", number)
    for fragments in range(1, 31):
        placed = place(dict.fromkeys(names("f", fragments), 2), nodes)
        for dead in nodes:
            shared = [
                sum(other in placed.nodes[f] for f in placed.on(dead))
                for other in nodes
                if other != dead
            ]
            assert max(shared) - min(shared) <= 2


def test_a_node_that_died_loses_only_its_own_copies():
    """Stable: nobody else's copy moves."""
    nodes = names("node", 4)
    before = place(dict.fromkeys(names("f", 8), 2), nodes)
    after = place(dict.fromkeys(names("f", 8), 2), nodes[1:], existing=before.nodes)
    for fragment, held in before.nodes.items():
        assert set(held) - {"node-1"} <= set(after.nodes[fragment])
    assert "node-1" not in {node for held in after.nodes.values() for node in held}


def test_what_cannot_be_placed_is_said():
    """Fewer nodes than copies, or none at all: no exception, a number and a sentence."""
    placed = place({"alerts": 3, "totals": 2}, ["node-1", "node-2"])
    assert placed.missing == {"alerts": 1}
    assert placed.sentences == [
        "alerts has 2 of 3 copies, one on each of 2 nodes: start 1 more node"
    ]
    assert place({"alerts": 2}, []).missing == {"alerts": 2}
    assert next_node("alerts", {}, []) is None


def test_more_copies_than_wanted_and_names_said_twice():
    """The last ones go; a node that is named twice is still one node."""
    placed = place({"a": 1}, ["n1", "n2", "n1"], existing={"a": ["n2", "n2", "n1"]})
    assert placed.nodes == {"a": ("n2",)}
    assert place({"a": 2}, ["n1", "n1"]).missing == {"a": 1}
    with pytest.raises(DefinitionError, match="0 copies"):
        place({"a": 0}, ["n1"])
    assert place({}, ["n1"]).nodes == {}
