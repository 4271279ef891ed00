"""A hole is on record: whoever the hole was recorded in place of must not go on where it was."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from repair_hand import CLICKS, Hand

from unbroken.control.intentions import Step
from unbroken.control.orders import Orders
from unbroken.control.records import Hole
from unbroken.control.repair import Repairs
from unbroken.control.replicas import Replicas
from unbroken.control.store import Store
from unbroken.policies import Gap


def begun(hand: Hand, node: str) -> None:
    """`node` starts empty: it tells the hole, which is recorded."""
    assert hand.to(Step.SHIP).node == node
    assert hand.repairs.overtakes("a", node) == "1"
    hand.repairs.overtaken("a", "1")


def overtaken() -> Hand:
    """`a` ran on 1, which died; 2 recorded a hole and died before it was live; 1 is back."""
    hand = Hand({"a": "1"}, "12", rebuilt="a")
    hand.repairs.dead("1")
    begun(hand, "2")
    hand.repairs.dead("2")
    assert hand.step().step is Step.RELEASE
    hand.repairs.alive("1")
    return hand


def test_s13_one_that_was_overtaken_does_not_go_on_where_it_was():
    """Consumers may have the hole already; it would fill these numbers with rows.

    It is up, so it may be its own successor: empty, behind what consumers have by then.
    """
    hand = overtaken()
    orders = Orders({"a": Gap()}, hand.replicas, hand.repairs, hand.writers)
    assert orders.of("1", {})["run"] == [], "not even before anything else was decided"
    assert orders.of("1", {})["forget"] == []
    assert not hand.repairs.live("a", "1"), "one that was only frozen, and runs"
    assert hand.standing()["1"] == "gone"
    assert hand.to(Step.EXPECT).sentence == "a: expecting 1 anew (term 12)"
    assert hand.to(Step.SHIP).rebuilds
    assert orders.of("1", {})["rebuild"] == {"a": "a@1"}
    assert hand.to(Step.LIVE).node == "1"
    hand.repairs.dead("1")
    hand.repairs.alive("1")
    assert orders.of("1", {})["run"] == ["a"], "this line is behind the hole"
    assert hand.repairs.live("a", "1")


@pytest.mark.parametrize("step", [Step.EXPECT, Step.SHIP, Step.CATCH_UP])
def test_it_stays_so_until_its_own_new_start_is_live(step: Step):
    """What it left before may still be all that is on its disk."""
    hand = overtaken()
    hand.to(step)
    hand.repairs.dead("1")
    hand.repairs.alive("1")
    orders = Orders({"a": Gap()}, hand.replicas, hand.repairs, hand.writers)
    assert orders.of("1", {})["run"] == []
    assert not hand.repairs.live("a", "1")
    assert hand.to(Step.LIVE).node == "1"


def test_without_a_hole_whoever_comes_back_goes_on():
    """Nobody was told anything: nothing is lost."""
    hand = Hand({"a": "1"}, "12", rebuilt="a")
    hand.repairs.dead("1")
    hand.to(Step.SHIP)
    hand.repairs.dead("2")
    hand.repairs.alive("1")
    assert hand.repairs.live("a", "1")


def test_only_the_newcomer_of_a_rebuild_may_give_epochs_up():
    """One that was frozen meanwhile, and replaced, must not make a hole in another one's line."""
    hand = Hand({"a": "1"}, "123", rebuilt="a")
    assert hand.repairs.overtakes("a", "1") is None, "nothing was lost"
    hand.repairs.dead("1")
    expect = hand.step()
    assert hand.repairs.overtakes("a", "2") is None, "producers have not confirmed"
    hand.repairs.confirmed("a", expect.term, CLICKS)
    hand.step()
    assert [hand.repairs.overtakes("a", node) for node in "123"] == [None, "1", None]
    hand.to(Step.LIVE)
    assert hand.repairs.overtakes("a", "2") is None


def test_copies_overtake_nobody():
    """Only who starts empty gives anything up."""
    hand = Hand({"a": "12"}, "123")
    hand.repairs.dead("1")
    newcomer = hand.to(Step.SHIP)
    assert hand.repairs.overtakes("a", newcomer.node) is None


def test_the_records_know_it_after_a_restart(tmp_path: Path):
    """Control dies between the hole and the death of whoever recorded it."""
    with contextlib.closing(Store(tmp_path / "control.db")) as store:
        store.place("a", ["1"])
        hand = Hand({"a": "1"}, "12", rebuilt="a")
        hand.repairs.dead("1")
        store.record(hand.step())
        store.record_hole(Hole("a", 51, 57), overtakes=[("a", "1")])
        assert store.record_hole(Hole("a", 51, 60), overtakes=[("a", "1")]).last == 57
        assert store.overtaken() == {("a", "1")}
        replicas = Replicas({"a": ["clicks"]}, store.placement(), "1")
        repairs = Repairs(
            {"a": 1}, replicas, store.unfinished(), rebuilt=["a"], overtaken=store.overtaken()
        )
        repairs.dead("2")
        assert not repairs.live("a", "1")
        again = store.record(repairs.decide(0.1)[-1])
        assert (again.step, again.node, again.rebuilds) == (Step.EXPECT, "1", True)
        assert store.overtaken() == {("a", "1")}
        store.record(again.then(Step.LIVE))
        assert store.overtaken() == set()


def test_who_is_released_is_not_remembered(tmp_path: Path):
    """It may come again, as a newcomer."""
    with contextlib.closing(Store(tmp_path / "control.db")) as store:
        store.place("a", ["1"])
        hand = Hand({"a": "1"}, "12", rebuilt="a")
        hand.repairs.dead("1")
        store.record(hand.step())
        store.record_hole(Hole("a", 51, 57), overtakes=[("a", "1")])
        hand.repairs.overtaken("a", "1")
        store.record(hand.to(Step.LIVE))
        store.record(hand.to(Step.RELEASE))
        store.record(hand.to(Step.RELEASED))
        assert store.overtaken() == set()
        hand.repairs.alive("1")
        hand.repairs.dead("2")
        assert hand.to(Step.LIVE).node == "1"
        assert hand.repairs.live("a", "1")
