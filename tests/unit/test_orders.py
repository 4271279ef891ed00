"""What nodes are told with every beat, at each step of a take-over, a repair and a rebuild."""

from __future__ import annotations

from typing import Any

from repair_hand import CLICKS, LIVE, Hand

from unbroken.control.intentions import Placed, Standing, Step
from unbroken.control.orders import Orders
from unbroken.control.replicas import Replicas
from unbroken.policies import Active, Gap, Passive, Policy, Upstream

DOORS = {node: f"grpc://{node}" for node in "1234"}


def told(hand: Hand, policy: Policy, node: str) -> dict[str, Any]:
    """The orders of `node` about fragment `a`, those that say something."""
    orders = Orders({"a": policy}, hand.replicas, hand.repairs, hand.writers).of(node, DOORS)
    del orders["consumers"]
    placed = orders.pop("placed")
    assert placed == {
        name: hand.replicas.term(name, node)
        for name in [*orders["run"], *orders["hold"], *orders["join"], *orders["rebuild"]]
    }
    return {kind: what for kind, what in orders.items() if what}


def test_a_copy_is_taken_then_run_and_what_is_left_of_the_dead_one_is_kept_until_then():
    """Scenario 16: nobody forgets anything while the fragment is not whole."""
    hand = Hand({"a": "12"}, "123")
    assert told(hand, Active(), "1") == told(hand, Active(), "2") == {"run": ["a"]}
    hand.repairs.dead("1")
    expected = hand.step()
    assert (expected.step, expected.node) == (Step.EXPECT, "3")
    assert told(hand, Active(), "3") == {}, "before all producers hold for it"
    assert told(hand, Active(), "1") == {}, "it is being replaced: neither runs nor forgets"
    hand.repairs.confirmed("a", expected.term, CLICKS)
    hand.to(Step.SHIP)
    assert told(hand, Active(), "3") == {"join": {"a": "grpc://2"}}
    hand.repairs.shipped("a", expected.term)
    hand.to(Step.CATCH_UP)
    assert told(hand, Active(), "3") == {"run": ["a"]}
    hand.act()
    hand.to(Step.LIVE)
    hand.to(Step.RELEASE)
    assert told(hand, Active(), "2") == told(hand, Active(), "3") == {"run": ["a"]}


def test_s3_one_writes_and_the_other_holds_also_after_they_have_changed():
    """The former writer that comes back finds another in its place."""
    hand = Hand({"a": "12"}, "12", passive="a")
    backups = {"live": ["a@2"], "gone": [], "placed": ["a@2"]}
    assert told(hand, Passive(), "1") == {"run": ["a"], "backups": {"a": backups}}
    assert told(hand, Passive(), "2") == {"hold": {"a": "grpc://1"}}
    hand.repairs.dead("1")
    assert [takeover.node for takeover in hand.take_over(n2=7)] == ["2"]
    backups = {"live": [], "gone": ["a@1"], "placed": ["a@1"]}
    assert told(hand, Passive(), "2") == {"run": ["a"], "backups": {"a": backups}}
    assert told(hand, Passive(), "1") == {"hold": {"a": "grpc://2"}}


def test_s6_a_backup_that_is_still_coming_cannot_take_over_and_is_not_said_to():
    """Output that is held back must wait for one who could."""
    hand = Hand({"a": "12"}, "123", passive="a")
    hand.repairs.dead("2")
    expected = hand.step()
    assert told(hand, Passive(), "1")["backups"]["a"]["live"] == []
    hand.repairs.confirmed("a", expected.term, CLICKS)
    hand.to(Step.SHIP)
    assert told(hand, Passive(), "3") == {"hold": {"a": "grpc://1"}}
    backups = told(hand, Passive(), "1")["backups"]["a"]
    assert (backups["live"], "a@3" in backups["placed"]) == ([], True)
    hand.repairs.shipped("a", expected.term)
    hand.to(Step.CATCH_UP)
    hand.repairs.progress("a", expected.term, newcomer=5, others=None)
    hand.to(Step.LIVE)
    assert told(hand, Passive(), "1")["backups"]["a"]["live"] == ["a@3"]


def test_what_nobody_ships_is_rebuilt_in_the_name_of_the_one_that_is_gone():
    """Producers know the seed by that name."""
    for policy in (Upstream(), Gap()):
        hand = Hand({"a": "1"}, "12", rebuilt="a")
        assert told(hand, policy, "1") == {"run": ["a"]}
        hand.repairs.dead("1")
        expected = hand.step()
        hand.repairs.confirmed("a", expected.term, CLICKS)
        hand.to(Step.SHIP)
        assert told(hand, policy, "2") == {"rebuild": {"a": "a@1"}}
        assert told(hand, policy, "1") == {}


def test_whoever_has_no_place_forgets_when_the_fragment_is_whole():
    """And not before: what it has may be all that is left."""
    hand = Hand({"a": "12"}, "123")
    assert told(hand, Active(), "3") == {"forget": ["a"]}
    hand.repairs.suspected("1")
    assert told(hand, Active(), "3") == {}
    assert hand.replicas.of("a")["1"] is LIVE


def test_who_is_told_to_run_where_nobody_was_ever_live_is_the_first():
    """It has lost nothing, although it has nothing; the records say so after a restart too."""
    placed = [Placed("1", 1, Standing.STARTING), Placed("2", 2, Standing.STARTING)]
    hand = Hand({"a": "12"}, "12", passive="a")
    for standing, first in ((Standing.STARTING, ["a"]), (Standing.LIVE, [])):
        hand.replicas = Replicas(
            {"a": ["clicks"]}, {"a": [placed[0]._replace(standing=standing), placed[1]]}, "12"
        )
        assert told(hand, Passive(), "1").get("first", []) == first
        hand.replicas.put("a", "1", Standing.GONE)
        assert told(hand, Passive(), "1").get("first", []) == first
