"""Where a hole begins: after the furthest consumer, when all have been heard."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from unbroken.streams import hole
from unbroken.streams.hole import Positions


def test_the_furthest_counts_and_everybody_is_waited_for():
    """Scenario 13: C1 took 50, C2 did not."""
    positions = Positions(["c1", "c2"])
    assert positions.missing == ["c1", "c2"]
    positions.asked("c1", 51)
    assert positions.first() is None
    positions.asked("c2", 50)
    assert positions.first() == 51


def test_whoever_was_removed_is_not_waited_for_and_does_not_count():
    positions = Positions(["c1", "c2"])
    positions.asked("c1", 51)
    positions.removed("c2")
    assert positions.first() == 51
    positions.removed("c1")
    assert positions.first() == 0


def test_clients_count_if_they_asked_and_are_not_waited_for():
    positions = Positions(["c1"])
    positions.asked("", 60)
    assert positions.first() is None
    positions.asked("c1", 51)
    assert positions.first() == 60


def test_a_position_may_fall():
    """A replica that was started again from an older checkpoint has not what it had."""
    positions = Positions(["c1"])
    positions.asked("c1", 51)
    positions.asked("c1", 40)
    assert positions.first() == 40


def test_nobody_has_what_has_no_input_yet():
    """A client may ask for any number."""
    positions = Positions()
    positions.asked("", 10**9)
    assert positions.first(at_most=58) == 58


def test_names_are_bounded_and_no_position_is_lost():
    positions = Positions(["expected"])
    for number in range(3 * hole.NAMES_MAX):
        positions.asked(f"client-{number}", number)
    assert len(positions._next) <= hole.NAMES_MAX + 1
    positions.asked("expected", 7)
    assert positions.missing == []
    assert positions.first() == 3 * hole.NAMES_MAX - 1


names = st.sampled_from(["", "a", "b", "c"])


@given(st.lists(st.tuples(names, st.integers(0, 99))), st.sets(st.sampled_from(["a", "b", "c"])))
def test_no_consumer_has_an_epoch_of_the_hole(asked: list[tuple[str, int]], expected: set[str]):
    """Invariant 1: what one has as stable no other is told to be lost."""
    positions, last = Positions(expected), dict[str, int]()
    for name, number in asked:
        positions.asked(name, number)
        last[name] = number if name else max(number, last.get(name, 0))
    first = positions.first()
    assert (first is None) == bool(expected - last.keys())
    if first is not None:
        assert first == max(last.values(), default=0)


def test_those_who_cannot_ask_are_not_waited_for():
    """A standby takes what its writer made: it never asks, and is never further."""
    positions = Positions(["totals@node-1", "totals@node-2"])
    positions.asked("totals@node-1", 51)
    assert positions.first() is None
    assert positions.first(besides=["totals@node-2"]) == 51
    assert positions.first(besides=["totals@node-1"]) is None


def test_what_was_said_before_the_promise_and_comes_after_it_does_not_count():
    """It says what was fetched by then, which was given back since."""
    positions = Positions(["d@node-3"])
    positions.asked("d@node-3", 63, promised=False)
    assert positions.first() is None
    positions.asked("d@node-3", 59)
    positions.asked("d@node-3", 63, promised=False)
    assert positions.first() == 59
    positions.asked("", 61, promised=False)
    assert positions.first() == 61, "one without a name may be another one"
