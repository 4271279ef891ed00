"""Repair after a restart of the control plane: from its records, and believing in nobody."""

from __future__ import annotations

import pytest
from repair_hand import GONE, LEAVING, LIVE, Hand

from unbroken.control.intentions import Intention, Placed, Standing, Step
from unbroken.control.repair import Repairs
from unbroken.control.replicas import Replicas


@pytest.mark.parametrize("step", [Step.EXPECT, Step.SHIP, Step.CATCH_UP])
def test_after_a_restart_it_is_done_again_under_a_new_term(step: Step):
    """Scenario 15, with what the records say and nothing else."""
    hand = Hand({"a": "12"}, "123")
    hand.repairs.dead("1")
    old = hand.to(step)
    placed = {"a": [Placed(n, 1, Standing(s)) for n, s in hand.standing().items()]}
    hand.replicas = Replicas({"a": ["clicks"]}, placed, "123")
    hand.repairs = Repairs({"a": 2}, hand.replicas, [old])
    assert hand.repairs.actions == []
    again = hand.step()
    assert again == old.then(Step.EXPECT).under(again.term)
    assert again.term > old.term


def test_after_a_restart_nobody_is_believed_in_before_it_was_heard_of():
    """Scenario 14: what the records call live may be dead; nothing is decided on their word."""
    placed = {"a": [Placed("1", 1, GONE), Placed("2", 2, LIVE), Placed("3", 3, LIVE)]}
    repairs = Repairs({"a": 2}, Replicas({"a": ["clicks"]}, placed, []))
    assert repairs.decide(0.0) == []
    assert repairs.survives("a") == -1
    repairs.alive("1")
    assert repairs.live("a", "1"), "it may be the last one"
    repairs.alive("2")
    repairs.alive("3")
    [release] = repairs.decide(0.1)
    assert (release.step, release.reason) == (Step.RELEASE, "more are live than wanted")


def test_after_a_restart_a_newcomer_is_waited_for():
    """It is not given up because it has not reported yet."""
    placed = {"a": [Placed("1", 1, LIVE), Placed("2", 2, Standing.COMING)]}
    old = Intention("a", Step.SHIP, "2", 2, survivor="1")
    repairs = Repairs({"a": 2}, Replicas({"a": ["clicks"]}, placed, ["1", "3"]), [old])
    assert repairs.decide(0.0) == []
    assert repairs.waiting["a"].endswith("2 has not been heard of yet")
    repairs.alive("2")
    repairs.suspected("2")
    assert {(i.step, i.node) for i in repairs.decide(0.1)} == {
        (Step.RELEASE, "2"), (Step.EXPECT, "3"),
    }  # fmt: skip


def test_an_unfinished_release_is_done_again_too():
    """And a newcomer that belongs to no repair is released."""
    placed = {"a": [Placed("1", 1, LEAVING), Placed("2", 2, LIVE), Placed("3", 3, Standing.COMING)]}
    unfinished = [Intention("a", Step.RELEASE, "1", 5, reason="replaced")]
    repairs = Repairs({"a": 2}, Replicas({"a": ["clicks"]}, placed, "23"), unfinished)
    first, second = repairs.decide(0.0)
    assert (first.step, first.node, first.term, first.reason) == (Step.RELEASE, "1", 0, "replaced")
    assert (second.step, second.node) == (Step.RELEASE, "3")


def test_who_is_leaving_without_a_release_is_released():
    """The successor of a rebuilt replica was recorded as live, and then the control plane died."""
    placed = {"a": [Placed("1", 1, LEAVING), Placed("3", 3, LIVE)]}
    replicas = Replicas({"a": ["clicks"]}, placed, "13")
    repairs = Repairs({"a": 1}, replicas, rebuilt=["a"])
    assert not repairs.live("a", "1")
    [release] = repairs.decide(0.0)
    assert (release.step, release.node) == (Step.RELEASE, "1")
