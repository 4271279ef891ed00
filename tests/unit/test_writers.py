"""Writers: one at a time, replaced when it is dead and not before, by whoever holds the most."""

from __future__ import annotations

import pytest
from repair_hand import COMING, GONE, LEAVING, LIVE, Hand

from unbroken.control.intentions import Placed, Standing, Step
from unbroken.control.replicas import Replicas
from unbroken.control.writers import Writers


def test_the_first_one_placed_writes():
    """Until somebody took over; then the records know."""
    hand = Hand({"a": "12"}, "123", passive="a")
    assert hand.writers.of("a") == "1"
    assert hand.take_over(n1=9, n2=7) == []
    known = Writers({"a": ["1", "2"], "b": ["1", "2"]}, hand.replicas, {"a": "2"})
    assert (known.of("a"), known.of("b")) == ("2", "1")


def test_the_backup_takes_over_when_the_writer_is_dead():
    """In a sentence, at the epoch that it holds."""
    hand = Hand({"a": "12"}, "123", passive="a")
    hand.repairs.dead("1")
    [takeover] = hand.take_over(n1=9, n2=7)
    assert takeover.sentence == "a: 2 takes over from 1 at epoch 7 (term 10): 1 is gone"
    assert hand.writers.of("a") == "2"
    assert hand.take_over(n2=7) == []


def test_nothing_is_switched_before_it_is_recorded():
    """Scenario 15: a full disk, say.  Asked again, it says the same again."""
    hand = Hand({"a": "12"}, "123", passive="a")
    hand.repairs.dead("1")
    first = hand.writers.decide({("a", "2"): 7})
    assert hand.writers.of("a") == "1"
    assert hand.writers.decide({("a", "2"): 7}) == first


def test_a_silent_writer_is_not_replaced():
    """It may be back in a moment; who is declared dead is not waited for."""
    hand = Hand({"a": "12"}, "12", passive="a")
    hand.repairs.suspected("1")
    assert hand.take_over(n2=7) == []
    hand.repairs.dead("1")
    assert [takeover.node for takeover in hand.take_over(n2=7)] == ["2"]


def test_neither_the_silent_nor_newcomers_take_over():
    """Nobody relies on the one, and the other may hold half a shipment."""
    hand = Hand({"a": "12"}, "123", passive="a")
    hand.repairs.dead("2")
    hand.to(Step.SHIP)
    hand.repairs.dead("1")
    assert hand.take_over(n3=9) == []
    [sentence] = hand.writers.sentences
    assert sentence.startswith("a is not written: 1 is gone, and no backup can take over")
    hand.repairs.alive("2")
    assert hand.repairs.live("a", "2")
    hand.repairs.suspected("2")
    assert hand.take_over(n2=5, n3=9) == []
    hand.repairs.alive("2")
    [takeover] = hand.take_over(n2=5, n3=9)
    assert (takeover.node, takeover.epoch) == ("2", 5)
    assert hand.writers.sentences == []


def test_whoever_holds_the_most_takes_over():
    """Every epoch that it lacks is computed again."""
    hand = Hand({"a": "123"}, "123", wanted=3, passive="a")
    hand.repairs.dead("1")
    [takeover] = hand.take_over(n1=12, n2=7, n3=9)
    assert takeover.node == "3"


@pytest.mark.parametrize(
    ("standing", "why"), [(GONE, "gone"), (LEAVING, "leaving"), (None, "released")]
)
def test_a_writer_that_may_not_write_any_more_is_replaced(standing: Standing | None, why: str):
    """Removed because its log is full, say."""
    hand = Hand({"a": "12"}, "12", passive="a")
    hand.replicas.put("a", "1", standing)
    [takeover] = hand.take_over()
    assert takeover.sentence == f"a: 2 takes over from 1 (term 10): 1 is {why}"


@pytest.mark.parametrize("standing", [LIVE, COMING, Standing.STARTING])
def test_a_writer_that_is_about_to_write_is_not_replaced(standing: Standing):
    """Also if its node has not been heard of yet, after a restart."""
    placed = {"a": [Placed("1", 1, standing), Placed("2", 2, LIVE)]}
    writers = Writers({"a": ["1", "2"]}, Replicas({"a": ["clicks"]}, placed, ["2"]))
    assert writers.decide({("a", "2"): 7}) == []


def test_who_was_replaced_may_write_again():
    """Scenario 16: paused, replaced, its successor dies, it wakes: the last copy is used."""
    hand = Hand({"a": "12"}, "12", passive="a")
    hand.repairs.dead("1")
    [first] = hand.take_over(n2=7)
    hand.repairs.dead("2")
    assert hand.take_over() == []
    hand.repairs.alive("1")
    assert hand.repairs.live("a", "1", 9)
    [second] = hand.take_over(n1=9)
    assert (second.node, second.from_node) == ("1", "2")
    assert second.term > first.term


def test_who_was_replaced_comes_back_as_a_backup():
    """It does not write because it once did."""
    hand = Hand({"a": "12"}, "12", passive="a")
    hand.repairs.dead("1")
    hand.take_over(n2=7)
    hand.repairs.alive("1")
    assert hand.repairs.live("a", "1", 9)
    assert hand.take_over(n1=9, n2=7) == []
    assert hand.writers.of("a") == "2"


def test_a_new_backup_is_fed_by_the_writer():
    """Not by whoever is furthest ahead."""
    hand = Hand({"a": "123"}, "1234", wanted=3, passive="a")
    hand.repairs.live("a", "1", 5)
    hand.repairs.live("a", "2", 9)
    hand.repairs.dead("3")
    expect = hand.step()
    assert (expect.survivor, expect.node, expect.replaces) == ("1", "4", "3")


def test_no_backup_is_made_while_nobody_writes():
    """The writer is dead and not replaced yet, or silent."""
    hand = Hand({"a": "12"}, "123", passive="a")
    hand.repairs.dead("1")
    assert hand.decide() == []
    assert hand.repairs.waiting["a"] == (
        "a has 1 of 2 replicas: waits for 1, which writes it and has to feed a backup"
    )
    hand.take_over(n2=7)
    hand.repairs.suspected("2")
    assert hand.decide() == []
    assert "waits for 2" in hand.repairs.waiting["a"]
    hand.repairs.alive("2")
    assert hand.step().survivor == "2"


@pytest.mark.parametrize("step", [Step.EXPECT, Step.SHIP])
def test_a_take_over_starts_the_repair_again(step: Step):
    """Half a shipment of the old writer is worth nothing: same newcomer, new term."""
    hand = Hand({"a": "123"}, "1234", wanted=3, passive="a")
    hand.repairs.dead("3")
    old = hand.to(step)
    assert old.survivor == "1"
    hand.repairs.lost("a", "1")  # Its node is up: nobody is declared dead.
    hand.take_over(n2=7)
    again = hand.step()
    assert (again.step, again.node, again.survivor) == (Step.EXPECT, "4", "2")
    assert again.term > old.term
    assert hand.to(Step.LIVE).node == "4"


def test_a_backup_that_has_everything_goes_on_without_its_writer():
    """Shipped before the writer died: it is live, and then it takes over."""
    hand = Hand({"a": "12"}, "123", passive="a")
    hand.repairs.dead("2")
    hand.to(Step.CATCH_UP)
    hand.repairs.dead("1")
    assert hand.take_over(n3=9) == []
    assert hand.to(Step.LIVE).node == "3"
    assert [takeover.node for takeover in hand.take_over(n3=9)] == ["3"]


def test_the_writer_is_never_the_one_too_many():
    """Three are live and two wanted: the writer stays, although it was placed last."""
    hand = Hand({"a": "123"}, "123", passive="a")
    hand.repairs.dead("1")
    hand.take_over(n3=9)
    hand.repairs.alive("1")
    hand.replicas.put("a", "1", LIVE)
    release = hand.step()
    assert (release.step, release.node) == (Step.RELEASE, "2")


def test_a_writer_that_is_gone_is_held_until_somebody_took_over():
    """Two backups are live: enough, but nobody writes yet."""
    hand = Hand({"a": "123"}, "123", passive="a")
    hand.repairs.dead("1")
    assert hand.decide() == []
    hand.take_over(n2=9)
    release = hand.step()
    assert (release.step, release.node) == (Step.RELEASE, "1")


def test_who_cannot_come_back_is_named():
    """The writer is lost, and in the place of the other one a hole was recorded."""
    placed = [Placed("1", 1, Standing.GONE), Placed("3", 2, Standing.GONE)]
    replicas = Replicas({"b": ["a"]}, {"b": placed}, ["1", "3"])
    writers = Writers({"b": ["1", "3"]}, replicas, {"b": "3"})
    assert writers.decide({}) == []
    assert writers.sentences[0].endswith("one that is gone has to come back")
    assert writers.decide({}, {("b", "1"), ("c", "3")}) == []
    assert writers.sentences[0].endswith(
        "one that is gone has to come back, but not 1, in whose place a hole was recorded"
    )
