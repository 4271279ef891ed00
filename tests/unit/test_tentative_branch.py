"""When a fragment goes on without an input: the bound, and what counts as waiting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbroken.errors import DefinitionError
from unbroken.policies.guarantee import check_converges
from unbroken.policies.traits import Operator, OperatorClass, Traits
from unbroken.tentative.branch import (
    DELAY,
    PROCESS,
    SUSPEND,
    Bound,
    Silence,
    followed,
    queued_s,
)

X_S = 3.0


def silence(when_cut: str = PROCESS, *inputs: str) -> Silence:
    return Silence(inputs or ("east", "west"), Bound(X_S, when_cut), committed=411)


def test_a_failure_shorter_than_the_bound_is_masked():
    """Papers, DPC: failures shorter than 0.9 X give no tentative result."""
    waits = silence()
    waits.arrived("east", 412, now_s=10.0)
    assert waits.due_s(412) == pytest.approx(10.0 + 0.9 * X_S)
    waits.arrived("west", 412, now_s=12.6)
    assert waits.missing(412) == []


def test_nothing_new_is_not_a_silence():
    """Both inputs stopped: there is nothing to say, tentatively or not."""
    assert silence().due_s(412) is None
    waits = silence()
    waits.arrived("east", 412, now_s=0.0)
    waits.arrived("west", 412, now_s=0.1)
    assert waits.due_s(413) is None


def test_suspend_waits_however_long():
    """Consistency first."""
    waits = silence(SUSPEND)
    waits.arrived("east", 412, now_s=0.0)
    assert waits.due_s(412) is None
    assert waits.due_s(412, tentative=True) is None


def test_the_bound_counts_once_along_a_chain():
    """Scenario 10: what the epoch has waited upstream is not waited for again."""
    for waited_s, due_s in ((2.0, 10.7), (2.7, 10.15), (9.0, 10.15)):
        waits = silence()
        waits.heard("east", 412, now_s=10.0, waited_s=waited_s)
        assert waits.due_s(412) == pytest.approx(due_s), "at least a moment for one that keeps up"
    waits.heard("east", 413, now_s=11.0, waited_s=9.0)
    assert waits.due_s(413) == 11.0, "none for one that is behind"


def test_waits_that_were_masked_count_along_a_chain():
    """Two failures one after the other, each shorter than the bound: together they are not."""
    for waited_s, due_s in ((0.0, 12.7), (2.0, 10.7), (2.7, 10.15), (9.0, 10.15)):
        waits = silence()
        waits.arrived("east", 412, now_s=10.0, waited_s=waited_s)
        assert waits.due_s(412) == pytest.approx(due_s)


def test_to_whoever_catches_up_old_waits_are_an_old_story():
    """An input that was heard a moment ago is not silent, however long an epoch took to come."""
    waits = silence()
    waits.arrived("west", 412, now_s=9.9)
    waits.arrived("east", 412, now_s=10.0, waited_s=2.6)
    waits.arrived("east", 413, now_s=10.1, waited_s=2.6)
    assert waits.due_s(413) == pytest.approx(10.1 + 2.7 - 0.2)
    waits.forgive(20.0)
    assert waits.due_s(413) == pytest.approx(20.0 + 2.7), "nobody could have been heard before"


def test_what_was_masked_is_told_until_it_was_complete():
    """And what came too late to have waited itself was behind one that had."""
    waits = silence()
    waits.arrived("east", 412, now_s=10.0, waited_s=0.5)
    waits.arrived("west", 412, now_s=12.0)
    assert waits.masked_s(412) == pytest.approx(2.5)
    assert queued_s(waits.masked_s(412), apart_us=1_000_000) == pytest.approx(1.5)


def test_what_waits_here_and_what_waited_upstream_did_so_at_the_same_time():
    """An upstream fragment with a shorter bound does not make this one go on before its own."""
    waits = silence(PROCESS, "east", "west", "north")
    waits.arrived("east", 412, now_s=10.0)
    waits.heard("west", 412, now_s=10.9, waited_s=0.9)
    assert waits.due_s(412) == pytest.approx(10.0 + 2.7)
    assert waits.waited_s(412, now_s=12.7) == pytest.approx(2.7)


def test_process_waits_only_for_those_who_keep_up():
    """On the branch a silent input costs nothing; one that is only slower is waited for."""
    waits = silence(PROCESS, "east", "west", "north")
    for number in (412, 413):
        waits.arrived("east", number, now_s=float(number))
    waits.arrived("north", 412, now_s=412.1)
    assert waits.due_s(412, tentative=True) == pytest.approx(412.0 + 2.7)  # west had 411
    assert waits.due_s(413, tentative=True) == pytest.approx(413.0 + 2.7)  # north had 412
    waits.arrived("north", 413, now_s=413.2)
    assert waits.due_s(413, tentative=True) == 413.0


def test_an_input_that_is_back_is_waited_for_once_it_has_caught_up():
    """While it sends what was missed it is behind; then it is an input like any other."""
    waits = silence()
    for number in (412, 413, 414):
        waits.arrived("east", number, now_s=float(number))
    waits.arrived("west", 412, now_s=420.0)
    assert waits.due_s(414, tentative=True) == 414.0
    waits.arrived("west", 413, now_s=420.1)
    assert waits.due_s(414, tentative=True) == pytest.approx(416.7)


def test_delay_waits_the_bound_for_every_epoch():
    """Fewer tentative rows: what comes within the bound is complete."""
    waits = silence(DELAY)
    for number in (412, 413, 414):
        waits.arrived("east", number, now_s=float(number))
    assert waits.due_s(414, tentative=True) == pytest.approx(416.7)


def test_a_stable_line_that_is_near_is_given_the_bound():
    """Otherwise branch and stable line would work side by side for ever."""
    waits = silence()
    for number in (412, 413, 414):
        waits.arrived("east", number, now_s=float(number))
    assert waits.due_s(414, tentative=True, near=True) == pytest.approx(416.7)
    assert waits.due_s(414, tentative=True) == 414.0


def test_whoever_was_paused_itself_has_not_waited():
    """The one that looks late must not blame the others (as the detector forgives)."""
    waits = silence()
    waits.arrived("east", 412, now_s=10.0)
    waits.forgive(70.0)
    assert waits.due_s(412) == pytest.approx(72.7)


def test_what_is_done_is_forgotten():
    """Its memory is as long as what waits."""
    waits = silence()
    for number in (412, 413):
        waits.arrived("east", number, now_s=0.0)
    waits.done(412)
    assert waits.due_s(412) is None
    assert waits.due_s(413) is not None


def test_the_sentence_names_who_is_silent():
    """The same in log, status and test."""
    waits = silence(PROCESS, "east", "west", "north")
    waits.arrived("east", 412, now_s=1.0)
    said = "going tentative: west, north silent for 2.7 s"
    assert waits.sentence(412, now_s=3.7) == said


def test_an_input_that_is_tentative_itself_is_not_waited_for_again():
    """Scenario 10: the first of a chain has waited, those behind it follow at once."""
    waits = silence()
    waits.arrived("east", 412, now_s=10.0)
    waits.heard("west", 412, now_s=12.8, waited_s=2.7)
    assert waits.missing(412) == ["west"]
    assert waits.silent(412) == []
    assert waits.due_s(412) == pytest.approx(12.7), "at once"
    assert waits.sentence(412, now_s=12.8) == "going tentative: west tentative"
    waits.arrived("east", 413, now_s=13.0)
    waits.heard("west", 413, now_s=13.1)
    assert waits.due_s(413, tentative=True) == 13.0


def test_one_that_was_heard_tentatively_keeps_up():
    """It is slower than the other, and not cut off from us."""
    waits = silence()
    waits.heard("west", 412, now_s=1.0)
    for number in (412, 413):
        waits.arrived("east", number, now_s=2.0)
    assert waits.due_s(413, tentative=True) == pytest.approx(4.7)


marks = st.one_of(st.none(), st.integers(0, 10**6))
SOME = frozenset({"west", "north"})


@given(st.lists(st.tuples(marks, st.sets(st.sampled_from(["east", "west", "north"])))))
def test_watermarks_never_fall_and_follow_the_lowest_that_is_present(operators):
    """Scenario 9: windows close by the inputs that are there."""
    before = [mark for mark, _ in operators]
    inputs = [streams for _, streams in operators]
    after = followed(before, inputs, SOME)
    present = [mark for mark, below in operators if not below or not below <= SOME]
    for old, new, below in zip(before, after, inputs, strict=True):
        assert old is None or (new is not None and new >= old)
        if not below or not below <= SOME:
            assert new == old
        elif present and None not in present:
            assert new == max(min(present), old or 0)


@pytest.mark.parametrize("kind", list(OperatorClass))
def test_only_what_comes_right_by_itself_may_converge(kind: OperatorClass):
    traits = Traits(kind, Operator("the operator", "shop.py:9"))
    if kind in (OperatorClass.REPEATABLE, OperatorClass.CONVERGENT):
        check_converges("totals", "shop.py:7", traits)
        return
    with pytest.raises(DefinitionError, match=r"shop\.py:9: fragment 'totals'") as caught:
        check_converges("totals", "shop.py:7", traits)
    assert 'when_healed="correct"' in caught.value.hint


def test_nobody_waits_for_a_stable_line_that_is_near_and_only_starts():
    """It will not arrive within the bound, however near it is."""
    waits = silence()
    for name in ("east", "west"):
        waits.arrived(name, 412, now_s=10.0)
    assert waits.due_s(412, tentative=True, near=True) == pytest.approx(10.0 + 0.9 * X_S)
    assert waits.due_s(412, tentative=True, near=True, hurry=True) == 10.0
