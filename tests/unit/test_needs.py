"""Needs: what may be trimmed, and whose word counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbroken.errors import FenceError, UnbrokenError
from unbroken.streams.needs import Needs


def test_whoever_is_expected_holds_everything_until_it_has_spoken():
    """Invariant 3, scenario 2: a consumer that is still starting has not asked for anything yet."""
    needs = Needs()
    needs.expect("fast")
    needs.expect("starting")
    needs.record("fast", term=1, processed=99, need=100)
    assert needs.trim_below(newest=120, keep=0) == 0
    assert needs.holder == "starting"
    needs.record("starting", term=1, processed=-1, need=40)
    assert needs.trim_below(newest=120, keep=0) == 40


def test_what_a_consumer_may_ask_for_counts_and_not_what_it_has_processed():
    """Upstream backup: processed to 500, may still ask from 100."""
    needs = Needs()
    needs.record("c", term=1, processed=500, need=100)
    assert needs.trim_below(newest=600, keep=0) == 100
    assert needs.processed == {"c": 500}


def test_an_ack_that_was_overtaken_takes_nothing_back():
    """Acks may arrive in another order; need and processed never fall."""
    needs = Needs()
    needs.record("c", term=1, processed=9, need=10)
    needs.record("c", term=1, processed=4, need=5)
    assert needs.trim_below(newest=20, keep=0) == 10
    assert needs.processed == {"c": 9}


def test_an_older_term_is_refused_also_after_a_restart_of_the_producer():
    """Invariant 5, scenario 3: the paused primary wakes and acks from its old connection."""
    needs = Needs()
    needs.record("c", term=4, processed=9, need=10)
    for producer in (needs, Needs(needs.terms)):
        with pytest.raises(FenceError, match="term 3 refused: term 4 has begun"):
            producer.record("c", term=3, processed=30, need=31)
    assert needs.trim_below(newest=40, keep=0) == 10


def test_a_consumer_that_will_not_come_back_holds_nothing():
    """A removal is recorded, never inferred from silence; its term stays known."""
    needs = Needs()
    needs.record("gone", term=2, processed=0, need=1)
    needs.record("here", term=1, processed=7, need=8)
    needs.remove("gone")
    assert needs.trim_below(newest=10, keep=0) == 8
    assert needs.terms["gone"] == 2


def test_a_stream_without_consumers_keeps_its_newest_epochs():
    """For followers that nobody declared; and never a number below zero."""
    assert Needs().trim_below(newest=1000, keep=600) == 401
    assert Needs().trim_below(newest=3, keep=600) == 0
    assert Needs().holder is None


consumers = st.sampled_from(["a", "b", "c"])
steps = st.one_of(
    st.tuples(st.just("expect"), consumers),
    st.tuples(st.just("ack"), consumers, st.integers(1, 4), st.integers(0, 50)),
    st.tuples(st.just("remove"), consumers),
)


@given(st.lists(steps, max_size=40), st.integers(0, 60), st.integers(0, 30))
def test_nothing_is_trimmed_that_an_expected_consumer_may_ask_for(steps, newest: int, keep: int):
    """Invariant 3 under any order of expectations, acks (old terms too) and removals."""
    needs, model = Needs(), {}
    for step in steps:
        if step[0] == "expect":
            needs.expect(step[1])
            model.setdefault(step[1], 0)
        elif step[0] == "remove":
            needs.remove(step[1])
            model.pop(step[1], None)
        else:
            _, name, term, need = step
            try:
                needs.record(name, term=term, processed=need - 1, need=need)
            except FenceError:
                continue
            model[name] = max(model.get(name, 0), need)
    below = needs.trim_below(newest=newest, keep=keep)
    assert 0 <= below <= max(0, newest + 1 - keep)
    assert all(below <= need for need in model.values())
    if model:
        assert below == max(0, min(min(model.values()), newest + 1 - keep))
        assert model[needs.holder] == min(model.values())


def test_what_control_said_late_or_twice_changes_nothing():
    """Scenario 15: an expectation is done again under a newer term, an older removal comes late."""
    needs = Needs()
    needs.expect("r@node-1")
    needs.record("r@node-1", term=3, processed=8, need=9)
    needs.expect("r@node-2", term=5, like="r@node-1")
    needs.remove("r@node-2", term=4)
    assert needs.trim_below(newest=20, keep=0) == 9
    needs.record("r@node-2", term=1, processed=11, need=12, placed=5)
    needs.expect("r@node-2", term=5, like="r@node-1")
    assert needs.processed["r@node-2"] == 11, "said twice"


def test_a_removed_replica_is_not_believed_until_it_is_expected_again():
    """Scenario 3: paused, replaced, awake again; also after a restart of the producer."""
    needs = Needs()
    needs.expect("r@node-1")
    needs.remove("r@node-1", term=6)
    needs = Needs(needs.terms, needs.ruled)
    with pytest.raises(FenceError):
        needs.record("r@node-1", term=3, processed=8, need=9)
    needs.expect("r@node-1", term=6)
    with pytest.raises(FenceError):
        needs.record("r@node-1", term=3, processed=8, need=9)
    needs.expect("r@node-1", term=7)
    needs.record("r@node-1", term=1, processed=4, need=5, placed=7)
    assert needs.trim_below(newest=20, keep=0) == 5


def test_an_ack_of_a_life_that_was_placed_before_is_refused():
    """It promised more than the present one has, and both of them count their terms from 1."""
    needs = Needs()
    needs.expect("r@node-1", term=2)
    needs.record("r@node-1", term=1, processed=40, need=41, placed=2)
    needs.expect("r@node-1", term=3, like="r@node-2")
    for producer in (needs, Needs(needs.terms, needs.ruled)):
        producer.expect("r@node-1")
        with pytest.raises(FenceError, match="it was placed under term 2, and anew under 3"):
            producer.record("r@node-1", term=1, processed=40, need=41, placed=2)
        assert producer.trim_below(newest=50, keep=0) == 0
        producer.record("r@node-1", term=1, processed=18, need=19, placed=3)
        assert producer.trim_below(newest=50, keep=0) == 19


def test_a_newcomer_holds_back_what_the_survivor_does():
    """Scenario 2: it is given the survivor's state, and will ask for what comes after it."""
    needs = Needs()
    needs.expect("r@node-1")
    needs.record("r@node-1", term=1, processed=99, need=100)
    needs.expect("r@node-3", term=2, like="r@node-1")
    needs.record("r@node-1", term=1, processed=130, need=131)
    assert needs.trim_below(newest=140, keep=0) == 100


def test_the_newest_seed_is_kept_with_its_need():
    """Acks may arrive in another order; one without a seed takes none away."""
    needs = Needs()
    needs.record("c", term=1, processed=20, need=10, seed={"first": 10})
    needs.record("c", term=1, processed=12, need=5, seed={"first": 5})
    assert needs.seed("c") == (10, {"first": 10})
    needs.record("c", term=1, processed=21, need=10)
    needs.record("c", term=1, processed=22, need=10, seed={"first": 10, "speak": 20})
    assert needs.seed("c") == (10, {"first": 10, "speak": 20})
    needs.record("c", term=1, processed=21, need=10, seed={"first": 10, "speak": 19})
    assert needs.seed("c") == (10, {"first": 10, "speak": 20}), "overtaken"


def test_a_fenced_ack_leaves_no_seed():
    """Scenario 3: the paused primary's seed belongs to a past that nobody continues."""
    needs = Needs()
    needs.record("c", term=4, processed=9, need=10, seed={"of": 4})
    with pytest.raises(FenceError):
        needs.record("c", term=3, processed=30, need=31, seed={"of": 3})
    assert needs.seed("c") == (10, {"of": 4})


def test_a_successor_gets_need_and_seed_of_whom_it_replaces():
    needs = Needs()
    needs.record("r@node-1", term=3, processed=8, need=4, seed={"first": 4})
    needs.expect("r@node-2", term=5, like="r@node-1")
    needs.record("r@node-1", term=3, processed=9, need=6, seed={"first": 6})
    assert needs.seed("r@node-2") == (4, {"first": 4})
    needs.remove("r@node-1", term=6)
    assert needs.seed("r@node-1") == (None, None)
    assert needs.trim_below(newest=20, keep=0) == 4
    assert list(needs.seeds) == ["r@node-2"]


def test_what_was_known_before_a_restart_counts_for_the_same_life_only():
    needs = Needs()
    needs.expect("r", term=2)
    needs.record("r", term=1, processed=8, need=4, seed={"first": 4}, placed=2)
    again = Needs(needs.terms, needs.ruled, needs.seeds)
    again.expect("r")
    assert again.seed("r") == (4, {"first": 4})
    assert again.trim_below(newest=20, keep=0) == 4
    new_life = Needs(needs.terms, needs.ruled, needs.seeds)
    new_life.expect("r", term=3)
    assert new_life.seed("r") == (None, None)
    torn = Needs(needs.terms, {"r": (3, True)}, needs.seeds)  # Killed between the two notes.
    torn.expect("r")
    assert torn.seed("r") == (None, None)


@pytest.mark.parametrize("seed", [7, "seed", [1], {"x": "y" * 40_000}])
def test_a_seed_is_a_small_object(seed: object):
    """And an ack that carries anything else changes nothing."""
    needs = Needs()
    with pytest.raises(UnbrokenError, match="ack of c refused: its seed is"):
        needs.record("c", term=1, processed=2, need=3, seed=seed)  # type: ignore[arg-type]
    assert needs.processed == {}


def test_the_lowest_need_of_all():
    needs = Needs()
    needs.record("a", term=1, processed=9, need=10)
    needs.record("b", term=1, processed=9, need=7)
    assert needs.lowest == 7
    needs.expect("starting")
    assert needs.lowest == 0


def test_a_replica_that_is_expected_anew_holds_what_it_held():
    """A rebuild on the same node: its own last life is the pattern."""
    needs = Needs()
    needs.expect("r@node-1")
    needs.record("r@node-1", term=3, processed=8, need=5)
    needs.expect("r@node-1", term=9, like="r@node-1")
    assert needs.trim_below(newest=20, keep=0) == 5
    needs.record("r@node-1", term=1, processed=9, need=6, placed=9)
