"""Rebuild: one copy, and nobody survives; another node computes again what the gone one held."""

from __future__ import annotations

import pytest
from repair_hand import CLICKS, LIVE, Hand

from unbroken.control.intentions import Placed, Producer, Standing, Step
from unbroken.control.repair import Repairs
from unbroken.control.replicas import Replicas
from unbroken.control.work import STALL_S_MAX


def test_a_rebuild_step_by_step():
    """Expected with the need of the one that is gone, which holds the log until all is live."""
    hand = Hand({"a": "1"}, "123", rebuilt="a")
    hand.repairs.dead("1")
    expect = hand.step()
    assert expect.sentence == "a: expecting 2 in place of 1 (term 10)"
    assert (expect.survivor, expect.rebuilds) == ("1", True)
    assert hand.decide() == [], "the producer has not confirmed"
    hand.repairs.confirmed("a", 10, CLICKS)
    assert hand.step().sentence == "a: 2 rebuilds what 1 held (term 10)"
    hand.repairs.shipped("a", 10)
    assert hand.step().sentence == "a: 2 catches up (term 10)"
    assert list(hand.replicas.expected("clicks")) == ["a@1", "a@2"]
    hand.repairs.progress("a", 10, newcomer=41, others=None)
    assert hand.step().sentence == "a: 2 is live in place of 1 (term 10)"
    assert hand.step().sentence == "a: releasing 1 (term 11): 2 is live in its place"
    hand.repairs.confirmed("a", 11, CLICKS)
    assert hand.step().step is Step.RELEASED
    assert hand.standing() == {"2": "live"}
    assert hand.repairs.sentences == []


def test_the_next_one_is_rebuilt_in_the_same_way():
    """Also while the first one is still being released."""
    hand = Hand({"a": "1"}, "1234", rebuilt="a")
    hand.repairs.dead("1")
    second = hand.to(Step.LIVE)
    hand.repairs.dead(second.node)
    release, expect = hand.decide()
    assert (release.step, release.node) == (Step.RELEASE, "1")
    assert (expect.node, expect.survivor, expect.replaces) == ("3", "2", "2")


def test_suspicion_rebuilds_nothing():
    """A rebuild costs more than a short silence."""
    hand = Hand({"a": "1"}, "12", rebuilt="a")
    hand.repairs.suspected("1")
    assert hand.decide() == []


def test_one_that_comes_back_before_anything_was_begun_is_simply_back():
    """No other node was there meanwhile."""
    hand = Hand({"a": "1"}, "1", rebuilt="a")
    hand.repairs.dead("1")
    assert hand.decide() == []
    assert hand.repairs.sentences == [
        "a has 0 of 1 replicas: no node to put one on; start another node, or 1 has to come back"
    ]
    hand.repairs.alive("1")
    assert hand.repairs.live("a", "1")
    assert hand.decide() == []
    assert hand.standing() == {"1": "live"}


@pytest.mark.parametrize("step", [Step.EXPECT, Step.SHIP, Step.CATCH_UP, Step.LIVE])
def test_one_that_is_being_replaced_stays_out(step: Step):
    """Its successor may have written already."""
    hand = Hand({"a": "1"}, "12", rebuilt="a")
    hand.repairs.dead("1")
    hand.to(step)
    hand.repairs.alive("1")
    assert not hand.repairs.live("a", "1")


@pytest.mark.parametrize("step", [Step.EXPECT, Step.SHIP, Step.CATCH_UP])
def test_the_newcomer_of_a_rebuild_dies(step: Step):
    """Another node, from the need of the one that was gone first: that one is still expected."""
    hand = Hand({"a": "1"}, "123", rebuilt="a")
    hand.repairs.dead("1")
    old = hand.to(step)
    hand.repairs.dead(old.node)
    release, expect = hand.decide()
    assert (release.step, release.node) == (Step.RELEASE, "2")
    assert (expect.node, expect.survivor, expect.replaces) == ("3", "1", "1")
    assert "a@1" in hand.replicas.expected("clicks")
    assert hand.to(Step.LIVE).node == "3"


def test_when_the_newcomer_died_the_gone_one_may_come_back():
    """Nothing replaces it any more, and no other node is there."""
    hand = Hand({"a": "1"}, "12", rebuilt="a")
    hand.repairs.dead("1")
    hand.to(Step.SHIP)
    hand.repairs.dead("2")
    assert hand.step().step is Step.RELEASE
    hand.repairs.alive("1")
    assert hand.repairs.live("a", "1")
    assert hand.standing()["1"] == "live"


def test_a_second_death_of_the_gone_one_breaks_nothing_off():
    """It came back as an empty node, and died again."""
    hand = Hand({"a": "1"}, "12", rebuilt="a")
    hand.repairs.dead("1")
    old = hand.to(Step.SHIP)
    hand.repairs.alive("1")
    hand.repairs.dead("1")
    assert hand.decide() == []
    assert hand.to(Step.LIVE).term == old.term


def test_a_node_that_lost_its_checkpoint_rebuilds_it_itself():
    """Scenario 28: nobody else is there."""
    hand = Hand({"a": "1"}, "1", rebuilt="a")
    hand.repairs.lost("a", "1")
    expect = hand.step()
    assert expect.sentence == "a: expecting 1 anew (term 10)"
    assert hand.to(Step.SHIP).sentence == "a: 1 rebuilds what it held (term 10)"
    hand.to(Step.LIVE)
    assert hand.standing() == {"1": "live"}
    assert hand.decide() == [], "nobody is released"


@pytest.mark.parametrize("how", ["dies", "fails", "stalls"])
def test_the_need_outlives_a_rebuild_on_the_same_node(how: str):
    """Released with its newcomer, it would take with it all that is left of the fragment."""
    hand = Hand({"a": "1"}, "1", rebuilt="a")
    hand.repairs.lost("a", "1")
    old = hand.to(Step.SHIP)
    if how == "dies":
        hand.repairs.dead("1")
    elif how == "fails":
        hand.repairs.failed("a", old.term, "its disk is full")
    hand.repairs.alive("2")
    hand.now_s += STALL_S_MAX
    hand.decide()
    hand.now_s += 10
    hand.decide()
    assert list(hand.replicas.expected("clicks")) == ["a@1", "a@2"]
    repair = hand.repairs.under_way["a"]
    assert (repair.node, repair.survivor, repair.replaces) == ("2", "1", "1")
    assert hand.to(Step.LIVE).node == "2"


def test_who_is_gone_is_not_blamed():
    """A failed rebuild says nothing against the node that lost the checkpoint."""
    hand = Hand({"a": "1"}, "12", rebuilt="a")
    hand.repairs.dead("1")
    hand.repairs.failed("a", hand.to(Step.SHIP).term, "its disk is full")
    hand.decide()
    hand.repairs.alive("1")
    hand.repairs.lost("a", "1")
    hand.now_s += 2
    expect = hand.to(Step.EXPECT)
    assert (expect.node, expect.replaces) == ("1", "1")


def test_rebuilds_do_not_wait_for_one_another_and_are_spread():
    """One node held three fragments; copies wait until these are served again."""
    hand = Hand({"a": "1", "b": "1", "c": "1", "d": "12"}, "1234", rebuilt="abc")
    hand.repairs.dead("1")
    begun = hand.decide()
    assert {intention.fragment for intention in begun} == {"a", "b", "c"}
    assert {intention.node for intention in begun} == {"2", "3", "4"}
    assert hand.repairs.waiting["d"].endswith("another repair comes first")
    assert set(hand.repairs.under_way) == {"a", "b", "c"}
    hand.act()
    assert {i.step for i in hand.decide()} == {Step.SHIP}
    assert hand.to(Step.EXPECT, "d").survivor == "2"
    assert set(hand.repairs.under_way) == {"d"}


def test_a_rebuild_does_not_wait_for_a_copy_that_is_under_way():
    """And the copy is not given up for it."""
    hand = Hand({"d": "13", "a": "2"}, "123456", rebuilt="a")
    hand.repairs.dead("1")
    assert hand.step().fragment == "d"
    hand.repairs.dead("2")
    assert hand.step().fragment == "a"
    assert set(hand.repairs.under_way) == {"a", "d"}
    done = [i for _ in range(6) for i in (hand.act(), hand.decide())[1] if i.step is Step.LIVE]
    assert {i.fragment for i in done} == {"a", "d"}


def test_a_chain_is_rebuilt_from_the_producer_on():
    """Scenario 1: both are gone at once, and nobody serves the second one's input."""
    hand = Hand({"a": "1", "b": "1"}, "123", rebuilt="ab", a=["clicks"], b=["a"])
    hand.repairs.dead("1")
    assert hand.step().fragment == "a"
    assert hand.repairs.waiting["b"] == "b has 0 of 1 replicas: nobody serves a"
    hand.to(Step.LIVE)
    expect = hand.to(Step.EXPECT, "b")
    [action] = [a for a in hand.repairs.actions if a.intention == expect]
    assert [producer.stream for producer in action.producers] == ["a"]


@pytest.mark.parametrize("step", [Step.EXPECT, Step.SHIP, Step.CATCH_UP])
@pytest.mark.parametrize("node", ["1", "2"])
def test_after_a_restart_a_rebuild_is_still_a_rebuild(step: Step, node: str):
    """Scenario 15: on another node, or on the same; the gone one stays out meanwhile."""
    hand = Hand({"a": "1"}, "12" if node == "2" else "1", rebuilt="a")
    hand.repairs.dead("1") if node == "2" else hand.repairs.lost("a", "1")
    old = hand.to(step)
    assert old.node == node
    placed = {"a": [Placed(n, 1, Standing(s)) for n, s in hand.standing().items()]}
    hand.replicas = Replicas({"a": ["clicks"]}, placed, "12")
    hand.repairs = Repairs({"a": 1}, hand.replicas, [old], rebuilt=["a"])
    assert not hand.repairs.live("a", "1")
    again = hand.step()
    assert again == old.then(Step.EXPECT).under(again.term)
    assert again.rebuilds
    assert hand.to(Step.LIVE).node == node


def test_a_fragment_that_was_never_placed_says_so():
    """There is no need to go on from."""
    replicas = Replicas({"a": ["clicks"]}, {}, "1")
    repairs = Repairs({"a": 1}, replicas, rebuilt=["a"])
    assert repairs.decide(0.0) == []
    assert "never placed" in repairs.waiting["a"]


def test_other_fragments_with_one_copy_are_not_rebuilt():
    """Their node has to come back: nobody promised that producers hold what they need."""
    hand = Hand({"a": "1"}, "12", wanted=1)
    hand.repairs.dead("1")
    assert hand.decide() == []
    assert "has to come back" in hand.repairs.waiting["a"]
    assert hand.replicas.keepers("a") == []
    hand.replicas.put("a", "1", LIVE)
    assert hand.replicas.keepers("a") == [Producer("a", "1")]
