"""A replica that is repaired, live, and lost again: each time control waits longer."""

from __future__ import annotations

import pytest
from repair_hand import Hand

from unbroken.control.attempts import PROVEN_S, RETRY_S_MAX
from unbroken.control.intentions import Step


def repaired(hand: Hand, fragment: str = "a") -> str:
    """The next repair succeeds; who is live then."""
    node = hand.to(Step.LIVE, fragment).node
    for _ in range(4):  # Whoever it replaces is released.
        hand.act()
        hand.decide()
    return node


def waits_s(hand: Hand, fragment: str = "a") -> float:
    """How long it takes until the next repair begins."""
    began_s = hand.now_s
    while not any((i.fragment, i.step) == (fragment, Step.EXPECT) for i in hand.decide()):
        assert hand.now_s - began_s < 2 * RETRY_S_MAX
    return hand.now_s - began_s


@pytest.mark.parametrize("rebuilt", ["a", ""], ids=["rebuilt", "copied"])
def test_who_is_lost_again_and_again_is_repaired_less_and_less_often(rebuilt: str):
    """Otherwise every second of such a day costs a fork, its shipping and a start of Spark."""
    hand = Hand({"a": "1" if rebuilt else "12"}, "12", rebuilt=rebuilt)
    hand.repairs.lost("a", "1")
    pauses = []
    for _ in range(9):
        hand.repairs.lost("a", repaired(hand))
        pauses.append(round(waits_s(hand)))
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_it_says_why_it_waits():
    hand = Hand({"a": "1"}, "1", rebuilt="a")
    hand.repairs.lost("a", "1")
    hand.repairs.lost("a", repaired(hand))
    hand.decide()
    assert hand.repairs.waiting["a"] == (
        "a has 0 of 1 replicas: the last repair failed; the next one begins in 1 s"
    )


def test_another_node_is_tried_first():
    """It may be the node's fault; with nobody else it is asked again."""
    hand = Hand({"a": "12"}, "1234")
    hand.repairs.dead("1")
    first = repaired(hand)
    hand.repairs.lost("a", first)
    hand.now_s += 2
    second = repaired(hand)
    assert {first, second} == {"3", "4"}


def test_another_is_copied_first():
    """It may be the fault of what was copied: everybody who took part is asked later."""
    hand = Hand({"a": "123"}, "12345", wanted=3)
    hand.repairs.dead("1")
    copied = hand.to(Step.LIVE)
    hand.repairs.lost("a", copied.node)
    hand.now_s += 2
    assert {copied.survivor, hand.to(Step.EXPECT).survivor} == {"2", "3"}


def test_what_was_told_twice_counts_once():
    """A node says with every beat what it has lost."""
    hand = Hand({"a": "1"}, "1", rebuilt="a")
    hand.repairs.lost("a", "1")
    repaired(hand)
    for _ in range(9):
        hand.repairs.lost("a", "1")
    assert round(waits_s(hand)) == 1


def test_who_was_live_for_long_is_repaired_at_once():
    """What happens to it now has nothing to do with what happened then."""
    hand = Hand({"a": "1"}, "1", rebuilt="a")
    hand.repairs.lost("a", "1")
    for _ in range(4):
        hand.repairs.lost("a", repaired(hand))
        waits_s(hand)
    repaired(hand)
    hand.now_s += PROVEN_S
    hand.decide()
    hand.repairs.lost("a", "1")
    assert waits_s(hand) < 1
    hand.repairs.lost("a", repaired(hand))
    assert round(waits_s(hand)) == 1, "counted anew"


def test_nodes_that_are_killed_one_after_another_delay_nobody():
    """Neither what they held, nor another fragment."""
    hand = Hand({"a": "1", "b": "12"}, "123456", rebuilt="a")
    for _ in range(3):
        [node] = hand.replicas.serving("a")
        hand.repairs.dead(node)
        assert waits_s(hand) < 1
        assert repaired(hand) != node
    hand.repairs.lost("a", hand.replicas.serving("a")[0])
    hand.repairs.dead("2")
    assert waits_s(hand, "b") < 1, "what is wrong with `a` is not its fault"


@pytest.mark.parametrize("back", [False, True])
def test_one_whose_node_dies_is_repaired_at_once(back: bool):
    """That says nothing about the fragment; nor that the node comes back without its disk."""
    hand = Hand({"a": "1"}, "1" if back else "123", rebuilt="a")
    hand.repairs.lost("a", "1")
    hand.repairs.lost("a", repaired(hand))
    node = repaired(hand)
    hand.repairs.dead(node)
    if back:
        hand.repairs.alive(node)
        hand.repairs.lost("a", node)
    assert waits_s(hand) < 1


def test_who_is_too_slow_as_soon_as_it_is_live_counts_too():
    """A log is full for its sake again and again."""
    hand = Hand({"a": "12"}, "12", wanted=2)
    hand.repairs.dead("1")
    hand.repairs.alive("1")
    hand.repairs.lost("a", "1")
    pauses = []
    for _ in range(3):
        assert hand.repairs.held("a", repaired(hand), "the log of clicks is full, it holds it")
        for _ in range(3):  # Only who was released may come again.
            hand.decide()
            hand.act()
        pauses.append(waits_s(hand))
    assert [round(pause) for pause in pauses] == [1, 2, 4]
