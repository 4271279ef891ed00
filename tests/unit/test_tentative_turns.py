"""How far a branch may run ahead of the stable line on a machine that they share."""

from __future__ import annotations

from fractions import Fraction

import pytest

from unbroken.tentative.turns import EPOCHS_PER_GAIN, NEAR_EPOCHS, SLACK_EPOCHS, Stable, Turns

#: A bound, in epochs.
X_EPOCHS = 3


def together(speed: Fraction, behind: int, *, limit: int = 10_000) -> tuple[int, int]:
    """Two lines take turns on a machine that does `speed` epochs while one arrives.

    Whoever may begin an epoch does, the branch first, and in turns.  The result: how many epochs
    have arrived when the stable line has caught up, and how far the branch was behind at most.
    """
    turns, after = Turns(after=0), 0
    branch, stable, arrived = behind, 0, Fraction(behind)
    late, last = 0, ""
    while stable < branch:
        arrived += 1 / speed  # The time of one epoch of work.
        there = int(arrived)
        late = max(late, there - branch)
        number = branch + 1
        line, waits = Stable(stable, has=there), there - branch > X_EPOCHS
        wants = number <= there and turns.may_begin(number, line, late=waits)
        near = number - stable <= NEAR_EPOCHS and there - branch < NEAR_EPOCHS  # It gives a bound.
        if wants and not near and last != "branch":
            branch, last = number, "branch"
            turns.begins(line)
        else:
            stable, last = stable + 1, "stable"
        after += 1
        assert after < limit, f"branch at {branch}, stable at {stable}: they never meet"
    return there - behind, late


def test_a_machine_with_room_for_both_keeps_the_bound():
    """The branch is never held, so no new result is late."""
    arrived, late = together(Fraction(4), behind=60)
    assert late <= 1
    assert arrived <= 60


@pytest.mark.parametrize("speed", [Fraction(11, 10), Fraction(3, 2), Fraction(2)])
def test_a_machine_that_can_hardly_do_one_line_comes_to_an_end(speed: Fraction):
    """Side by side they would go at one pace, and never meet; new results are late instead."""
    behind = 20
    arrived, late = together(speed, behind)
    # At worst as many epochs of the branch as bring the distance to nothing, in time for ever.
    most = EPOCHS_PER_GAIN * (behind + SLACK_EPOCHS)
    assert arrived <= (2 * most + behind) / speed + 1
    # A branch that stopped at once would be late by what the stable line takes alone.
    assert late <= 1.5 * (behind / speed + X_EPOCHS)


def test_a_branch_that_is_late_for_a_moment_is_in_time_again():
    """A fast machine does a few stable epochs in a moment: no reason to wait for all of them."""
    turns = Turns(after=411)
    turns.begins(Stable(412, has=480))
    assert not turns.may_begin(480, Stable(415, has=480), late=True)
    assert turns.may_begin(480, Stable(416, has=480), late=True)
    assert turns.may_begin(480, Stable(413, has=480)), "in time: nobody has to wait"


def test_nobody_is_held_while_the_stable_line_starts():
    """A query that is new takes long for its first epoch."""
    turns = Turns(after=411)
    assert all(turns.may_begin(number, None) for number in range(412, 500))
    assert all(turns.may_begin(number, Stable(411, has=500)) for number in range(500, 600))
    assert turns.may_begin(600, Stable(412, has=600))
    assert not turns.may_begin(640, Stable(412, has=640)), "from its first epoch on it counts"


def test_a_stable_line_that_lacks_input_holds_nobody():
    """A second cut: no pace would bring it nearer.  When it goes on it is measured anew."""
    turns = Turns(after=411)
    assert turns.may_begin(430, Stable(412, has=420))
    assert not turns.may_begin(480, Stable(415, has=480))
    assert turns.may_begin(480, Stable(420, has=420))
    assert turns.may_begin(530, Stable(420, has=420))
    assert turns.may_begin(531, Stable(421, has=531)), "it is as far behind as it was"


def test_a_stable_line_is_near_only_if_it_gets_on():
    """Whoever waits for input itself is not waited for."""
    assert Stable(414 - NEAR_EPOCHS, has=414).is_near(414)
    assert not Stable(414 - NEAR_EPOCHS - 1, has=414).is_near(414)
    assert not Stable(413, has=413).is_near(414)
