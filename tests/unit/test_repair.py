"""Repair: step by step, through deaths, without ever asking for what was trimmed."""

from __future__ import annotations

import pytest
from repair_hand import CLICKS, Hand

from unbroken.control.attempts import RETRY_S_MAX
from unbroken.control.intentions import Placed, Producer, Standing, Step
from unbroken.control.plans import SETTLE_S
from unbroken.control.repair import Repairs
from unbroken.control.replicas import Replicas
from unbroken.control.work import LAG_EPOCHS_MAX, MADE_EPOCHS_MIN, QUIET_S_MIN, STALL_S_MAX


def test_the_fork_waits_for_every_producer():
    """Scenario 2: two replicas of the producer; one confirmation is not enough."""
    hand = Hand({"a": "12", "b": "34"}, "12345", a=["clicks"], b=["a", "clicks"])
    hand.repairs.dead("4")
    expect = hand.step()
    assert (expect.step, expect.node, expect.survivor, expect.replaces) == (
        Step.EXPECT, "5", "3", "4",
    )  # fmt: skip
    [action] = hand.repairs.actions
    assert set(action.producers) == {Producer("a", "1"), Producer("a", "2"), CLICKS}
    for producer in (Producer("a", "1"), CLICKS):
        hand.repairs.confirmed("b", expect.term, producer)
    assert hand.decide() == []
    assert hand.repairs.sentences[0].endswith("waiting for a@2")
    hand.repairs.confirmed("b", expect.term, Producer("a", "2"))
    assert hand.step().step is Step.SHIP


def test_a_producer_that_died_need_not_confirm():
    """What it kept is gone anyway; whoever comes back takes the list of the expected."""
    hand = Hand({"a": "12", "b": "34"}, "12345", a=["clicks"], b=["a"])
    hand.repairs.dead("4")
    expect = hand.step()
    hand.repairs.confirmed("b", expect.term, Producer("a", "1"))
    hand.repairs.dead("2")
    assert hand.step().step is Step.SHIP
    assert list(hand.replicas.expected("a")) == ["b@3", "b@4", "b@5"]


def test_no_fork_while_nobody_keeps_an_input():
    """All replicas of a producer are gone: nobody left to ask is not the same as all agree."""
    hand = Hand({"a": "12", "b": "34"}, "12345", a=["clicks"], b=["a"])
    hand.repairs.dead("4")
    assert hand.step().fragment == "b"
    hand.repairs.dead("1")
    hand.repairs.dead("2")
    assert hand.decide() == []
    hand.repairs.alive("2")
    hand.repairs.live("a", "2")
    [action] = hand.repairs.actions
    assert action.producers == (Producer("a", "2"),)


def test_nothing_is_done_before_it_is_recorded():
    """Scenario 15: a full disk, say.  Asked again, it says the same again."""
    hand = Hand({"a": "12"}, "123")
    hand.repairs.dead("1")
    first = hand.repairs.decide(0.0)
    assert hand.repairs.actions == []
    assert hand.repairs.decide(0.1) == first


def test_live_and_then_released():
    """The removed one holds the log until the newcomer is live, and not longer."""
    hand = Hand({"a": "12"}, "123")
    hand.repairs.dead("1")
    assert hand.repairs.survives("a") == 0
    hand.to(Step.CATCH_UP)
    assert hand.standing() == {"1": "gone", "2": "live", "3": "coming"}
    assert list(hand.replicas.expected("clicks")) == ["a@1", "a@2", "a@3"]
    hand.to(Step.LIVE)
    assert hand.repairs.survives("a") == 1
    release = hand.step()
    assert (release.step, release.node) == (Step.RELEASE, "1")
    assert list(hand.replicas.expected("clicks")) == ["a@2", "a@3"]
    assert hand.decide() == [], "the producer has not confirmed"
    hand.repairs.confirmed("a", release.term, CLICKS)
    assert hand.step().step is Step.RELEASED
    assert hand.standing() == {"2": "live", "3": "live"}
    assert hand.repairs.sentences == []


def test_a_newcomer_is_live_when_it_is_close_enough():
    """Not when it has merely started."""
    hand = Hand({"a": "12"}, "123")
    hand.repairs.dead("1")
    term = hand.to(Step.CATCH_UP).term
    hand.repairs.progress("a", term, newcomer=50, others=51 + LAG_EPOCHS_MAX)
    assert hand.decide() == []
    hand.repairs.progress("a", term, newcomer=60, others=60 + LAG_EPOCHS_MAX)
    assert hand.step().step is Step.LIVE


def test_a_newcomer_is_not_live_for_what_was_shipped_to_it():
    """Found on real Spark: live at once, and half a minute behind a little later."""
    hand = Hand({"a": "12"}, "123")
    hand.repairs.dead("1")
    term = hand.to(Step.CATCH_UP).term
    for made in range(MADE_EPOCHS_MIN):
        hand.repairs.progress("a", term, newcomer=50 + made, others=50 + made)
        assert hand.decide() == []
    hand.repairs.progress("a", term, newcomer=50 + MADE_EPOCHS_MIN, others=54)
    assert hand.step().step is Step.LIVE


def test_a_newcomer_that_has_nothing_to_make_is_live_after_a_while():
    hand = Hand({"a": "12"}, "123")
    hand.repairs.dead("1")
    term = hand.to(Step.CATCH_UP).term
    hand.repairs.progress("a", term, newcomer=50, others=50)
    assert hand.decide() == []
    hand.now_s += QUIET_S_MIN
    assert hand.decide() == []
    hand.repairs.progress("a", term, newcomer=50, others=51)
    assert hand.decide() == [], "there is something to make"
    hand.repairs.progress("a", term, newcomer=50, others=50)
    assert hand.step().step is Step.LIVE


@pytest.mark.parametrize("step", [Step.EXPECT, Step.SHIP, Step.CATCH_UP])
def test_the_newcomer_dies(step: Step):
    """It is released at once, recorded before the next one begins under a new term."""
    hand = Hand({"a": "12"}, "1234")
    hand.repairs.dead("1")
    old = hand.to(step)
    hand.repairs.dead("3")
    release, expect = hand.decide()
    assert (release.step, release.node) == (Step.RELEASE, "3")
    assert (expect.step, expect.node, expect.replaces) == (Step.EXPECT, "4", "1")
    assert expect.term > old.term
    assert hand.to(Step.LIVE).node == "4"


@pytest.mark.parametrize("step", [Step.EXPECT, Step.SHIP])
def test_the_survivor_dies_before_all_is_shipped(step: Step):
    """Another one takes its part: same newcomer, new term, all producers asked again."""
    hand = Hand({"a": "124"}, "1243", wanted=3)
    hand.repairs.dead("1")
    old = hand.to(step)
    assert old.survivor == "2"
    hand.repairs.dead("2")
    again = hand.step()
    assert (again.step, again.node, again.survivor) == (Step.EXPECT, "3", "4")
    assert again.term > old.term
    hand.repairs.confirmed("a", old.term, CLICKS)
    hand.repairs.shipped("a", old.term)
    assert hand.decide() == [], "what was said under the old term is worth nothing"
    hand.to(Step.SHIP)
    hand.repairs.shipped("a", old.term)
    hand.repairs.failed("a", old.term, "too late")
    assert hand.decide() == []
    assert hand.to(Step.LIVE).term == again.term


def test_the_survivor_dies_after_all_is_shipped():
    """The newcomer has everything: it goes on, and is the only one."""
    hand = Hand({"a": "12"}, "123")
    hand.repairs.dead("1")
    term = hand.to(Step.CATCH_UP).term
    hand.repairs.dead("2")
    assert hand.repairs.survives("a") == -1
    hand.repairs.progress("a", term, newcomer=9, others=None)
    assert hand.step().step is Step.LIVE
    assert hand.standing() == {"1": "gone", "2": "gone", "3": "live"}


def test_the_last_copy_may_come_back():
    """Scenario 16: removed, its successor's survivor dies; it wakes and is not thrown away."""
    hand = Hand({"a": "12"}, "123")
    hand.repairs.dead("1")
    hand.to(Step.SHIP)
    assert not hand.repairs.live("a", "1"), "it is being replaced"
    hand.repairs.dead("2")
    assert hand.decide() == []
    assert hand.repairs.waiting["a"].startswith("a has 0 of 2 replicas: none is left to fork from")
    assert "a@1" in hand.replicas.expected("clicks"), "producers still hold what it needs"
    hand.repairs.alive("1")
    assert hand.repairs.live("a", "1")
    again = hand.step()
    assert (again.step, again.node, again.survivor) == (Step.EXPECT, "3", "1")
    hand.to(Step.LIVE)
    assert hand.repairs.survives("a") == 1


def test_who_was_replaced_stays_out():
    """It comes back after its release was decided: a spare, and not before it is over."""
    hand = Hand({"a": "12"}, "123")
    hand.repairs.dead("1")
    hand.to(Step.LIVE)
    hand.repairs.alive("1")
    assert not hand.repairs.live("a", "1"), "the wanted number is live"
    release = hand.step()
    assert not hand.repairs.live("a", "1")
    hand.repairs.dead("3")
    assert hand.decide() == [], "node 1 must not be expected and released at the same time"
    hand.repairs.confirmed("a", release.term, CLICKS)
    assert hand.step().step is Step.RELEASED
    expect = hand.step()
    assert (expect.step, expect.node) == (Step.EXPECT, "1")


def test_a_repair_that_is_not_needed_any_more_is_given_up():
    """Two of three were gone; while one is replaced, so many come back that all is well."""
    hand = Hand({"a": "12"}, "1234")
    hand.repairs.dead("1")
    term = hand.to(Step.CATCH_UP).term
    hand.repairs.dead("2")
    hand.repairs.progress("a", term, newcomer=9, others=None)
    assert hand.step().step is Step.LIVE
    expect = hand.step()
    assert (expect.node, expect.replaces) == ("4", "1")
    hand.repairs.alive("2")
    assert hand.repairs.live("a", "2")
    assert {(i.step, i.node) for i in hand.decide()} == {(Step.RELEASE, "4"), (Step.RELEASE, "1")}


def test_the_newest_survivor_is_copied():
    """One that came back a moment ago has a long way to go, and its copy would have it too."""
    hand = Hand({"a": "123"}, "1234", wanted=3)
    hand.repairs.live("a", "1", 7)
    hand.repairs.live("a", "3", 90)
    hand.repairs.dead("2")
    assert hand.step().survivor == "3"


def test_suspicion_repairs_nothing_and_is_not_relied_on():
    """It counts for nothing, is no target and no survivor, and is not replaced."""
    hand = Hand({"a": "12"}, "1234")
    hand.repairs.suspected("1")
    assert hand.repairs.survives("a") == 0
    assert hand.decide() == []
    hand.repairs.dead("2")
    assert hand.decide() == []
    assert "none is left to fork from" in hand.repairs.waiting["a"]
    hand.repairs.suspected("3")
    hand.repairs.alive("1")
    assert hand.step().node == "4"


def test_one_at_a_time_and_the_most_endangered_first():
    """Three of b are wanted, two of a: a is down to one, so a comes first."""
    hand = Hand({"b": "123", "a": "14"}, "12345")
    hand.repairs = Repairs({"b": 3, "a": 2}, hand.replicas)
    hand.repairs.dead("1")
    assert hand.step().fragment == "a"
    assert hand.repairs.waiting["b"].endswith("another repair comes first")
    hand.to(Step.LIVE, "a")
    assert hand.to(Step.EXPECT, "b").node in {"4", "5"}


def test_no_node_is_said_and_one_that_joins_is_used():
    """The copies that never could be placed are repairs like all others."""
    hand = Hand({"a": "1"}, "1")
    assert hand.decide() == []
    assert hand.repairs.sentences == [
        "a has 1 of 2 replicas: no node to put one on; start another node"
    ]
    hand.repairs.alive("2")
    expect = hand.step()
    assert (expect.node, expect.survivor, expect.replaces) == ("2", "1", "")


def test_a_node_that_lost_its_checkpoint_is_replaced_by_itself():
    """Scenario 28: after a reboot of one of two machines nobody else is there."""
    hand = Hand({"a": "12"}, "12")
    hand.repairs.lost("a", "1")
    expect = hand.step()
    assert (expect.node, expect.replaces) == ("1", "1")
    hand.to(Step.LIVE)
    assert hand.standing() == {"1": "live", "2": "live"}
    assert hand.decide() == [], "nobody is released"


def test_a_newcomer_whose_node_was_started_again_unnoticed_gets_a_new_term():
    """It begins once more, and may have less than what it has promised under the old one."""
    hand = Hand({"a": "12"}, "123")
    hand.repairs.dead("1")
    shipping = hand.to(Step.SHIP)
    hand.repairs.started_again("2")
    assert hand.repairs.under_way["a"] == shipping, "the survivor has what it had"
    hand.repairs.started_again("3")
    assert (hand.repairs.under_way, hand.standing()["3"]) == ({}, "leaving")
    assert hand.to(Step.SHIP).term > shipping.term


def test_a_rebuild_on_its_own_node_that_was_started_again_gets_a_new_term():
    """What it needed stays expected: it is the pattern for the next attempt."""
    hand = Hand({"a": "1"}, "1", rebuilt="a")
    hand.repairs.lost("a", "1")
    rebuilding = hand.to(Step.SHIP)
    hand.repairs.started_again("1")
    assert hand.standing() == {"1": "gone"}
    again = hand.to(Step.SHIP)
    assert (again.survivor, again.term > rebuilding.term) == ("1", True)


def test_whoever_holds_a_full_log_is_removed_unless_it_is_the_last():
    """Scenario 19: a paused replica; its node is up, but it will be replaced."""
    hand = Hand({"a": "12"}, "123")
    assert hand.repairs.held("a", "1", "holds 1 GiB of clicks")
    release, expect = hand.decide()
    assert release.sentence.endswith("holds 1 GiB of clicks")
    assert (release.node, expect.node) == ("1", "3")
    assert not hand.repairs.held("a", "2", "holds 1 GiB of clicks")
    assert hand.standing()["2"] == "live"


def test_a_dead_one_that_nobody_can_replace_is_released_at_the_limit():
    """No spare node: without this the log would stay full for ever."""
    hand = Hand({"a": "12"}, "12")
    hand.repairs.dead("1")
    assert hand.decide() == []
    hand.repairs.held("a", "1", "holds 1 GiB of clicks")
    assert hand.step().step is Step.RELEASE


def test_failures_wait_longer_each_time_and_others_go_first():
    """Invariant 7: retries are limited in rate, and another node and survivor are tried."""
    hand = Hand({"a": "12", "b": "12"}, "123456", wanted=3)
    first = hand.step()
    hand.repairs.failed("a", first.term, "the fork does not fit on its disk")
    release, other = hand.decide()
    assert (release.step, release.node) == (Step.RELEASE, first.node)
    assert other.fragment == "b"
    assert "the next one begins in 1 s" in hand.repairs.waiting["a"]
    hand.to(Step.LIVE, "b")
    hand.now_s += 1
    second = hand.to(Step.EXPECT)
    assert second.node != first.node
    assert second.survivor != first.survivor
    waits = []
    for _ in range(8):
        hand.repairs.failed("a", second.term, "bad luck")
        hand.decide()
        waits.append(hand.repairs.waiting["a"].split()[-2])
        hand.now_s += RETRY_S_MAX
        second = hand.to(Step.EXPECT)
    assert waits == ["2", "4", "8", "16", "32", "60", "60", "60"]


def test_a_repair_that_stands_still_is_a_failure():
    """Invariant 7: no wait without a limit; whatever moves starts it anew."""
    hand = Hand({"a": "12"}, "1234")
    hand.repairs.dead("1")
    term = hand.to(Step.SHIP).term
    hand.now_s += STALL_S_MAX - 1
    hand.decide()
    hand.repairs.moved("a", term)
    hand.now_s += STALL_S_MAX - 1
    assert hand.decide() == []
    hand.now_s += 2
    assert hand.step().sentence.endswith("nothing moved for 60 s at step 'ship'")


def test_what_is_said_about_strangers_changes_nothing():
    """Reports of nodes and terms that nobody knows."""
    hand = Hand({"a": "12"}, "12")
    assert not hand.repairs.live("a", "9")
    hand.repairs.lost("a", "9")
    hand.repairs.dead("9")
    hand.repairs.failed("a", 3, "x")
    hand.repairs.shipped("a", 3)
    assert hand.standing() == {"1": "live", "2": "live"}
    assert hand.decide() == []


def test_whoever_has_just_taken_over_is_left_alone_for_a_moment():
    """It repeats what its consumers wait for; a new backup can wait a little."""
    hand = Hand({"a": "12"}, "123", passive="a")
    hand.decide()
    hand.repairs.dead("1")
    [takeover] = hand.writers.decide({("a", "2"): 7})
    hand.writers.recorded(takeover.under(20))
    hand.repairs.took_over("a")
    assert hand.decide() == []
    assert hand.repairs.waiting["a"].endswith(
        "2 has just taken over, and makes up for the pause first"
    )
    hand.now_s += SETTLE_S
    assert hand.step().step is Step.EXPECT


def test_s15_one_that_a_hole_has_overtaken_is_not_live_after_a_restart_of_control():
    """It will not run where it was: who waits for its word as a producer waits for ever."""
    placed = [Placed("1", 1, Standing.LIVE), Placed("2", 2, Standing.LIVE)]
    replicas = Replicas({"b": ["a"], "c": ["b"]}, {"b": placed, "c": []}, ["1", "2"])
    Repairs({"b": 2}, replicas, overtaken=[("b", "2")])
    assert [keeper.node for keeper in replicas.keepers("b")] == ["1"]
