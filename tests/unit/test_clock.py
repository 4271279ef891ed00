"""The epoch clock: never backwards, never more missed epochs than can be made up for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbroken.streams.clock import MISSED_EPOCHS_MAX, EpochClock


def clock(*, next_number: int = 0, wall_s: float = 1000.0, t0_s: float | None = None,
          length_s: float = 1.0) -> EpochClock:  # fmt: skip
    return EpochClock(
        length_s=length_s, next_number=next_number, wall_s=wall_s, monotonic_s=50.0, t0_s=t0_s
    )


def test_an_epoch_is_over_when_its_time_is():
    """Number n lasts from t0 + n to t0 + n + 1; `wait_s` ends exactly there."""
    ticking = clock()
    assert ticking.due(50.999) == 0
    assert ticking.wait_s(50.75) == pytest.approx(0.25)
    assert ticking.due(51.0) == 1
    assert ticking.wait_s(51.0) == pytest.approx(1.0)
    assert ticking.wait_s(99.0) == 0.0


@pytest.mark.parametrize("length_s", [0.01, 0.1, 0.5, 1.0, 60.0, 86_400.0])
def test_after_its_own_wait_the_next_number_is_due(length_s: float):
    """A loop that sleeps for `wait_s` never wakes a hair too early and spins."""
    ticking, now_s = clock(length_s=length_s), 50.0
    for number in range(1, 1000):
        now_s += ticking.wait_s(now_s)
        assert ticking.due(now_s) == number


def test_a_source_that_was_down_has_the_missed_numbers_to_seal():
    """Scenario 11: down for 60 s at epoch 10, so 10..69 are over."""
    assert clock(next_number=10, t0_s=1000.0, wall_s=1070.0).due(50.0) == 70


def test_a_clock_that_was_set_back_repeats_no_number():
    """Scenario 11: the count goes on at the next number, at its normal pace."""
    back = clock(next_number=10, t0_s=1000.0, wall_s=400.0)
    assert back.due(50.5) == 10
    assert back.due(51.0) == 11


def test_a_clock_that_jumped_by_a_year_seals_no_million_of_epochs():
    """Invariant 7: beyond the limit the count starts anew, and the new t0 is to be kept."""
    year = clock(next_number=10, t0_s=1000.0, wall_s=1010.0 + 365 * 86_400)
    assert year.forgave
    assert year.due(50.0) == 10
    after = clock(next_number=11, t0_s=year.t0_s, wall_s=1011.0 + 365 * 86_400)
    assert (after.forgave, after.due(50.0)) == (False, 11)


def test_a_process_that_was_stopped_for_a_night_starts_its_count_anew_too():
    """SIGSTOP, or a sleeping laptop: the limit holds in a living process as after a restart."""
    ticking = clock()
    t0_s = ticking.t0_s
    assert ticking.due(51.0) == 1
    assert ticking.due(51.0 + 12 * 3600) == 1
    assert ticking.forgave
    assert ticking.t0_s == pytest.approx(t0_s + 12 * 3600)
    assert ticking.due(52.0 + 12 * 3600) == 2


def test_the_longest_outage_that_is_made_up_for():
    """The limit itself is still made up for, one more is not."""
    longest = clock(t0_s=1000.0, wall_s=1000.0 + MISSED_EPOCHS_MAX)
    assert longest.due(50.0) == MISSED_EPOCHS_MAX
    assert clock(t0_s=1000.0, wall_s=1001.0 + MISSED_EPOCHS_MAX).due(50.0) == 0


@given(
    st.lists(st.tuples(st.floats(0, 5000), st.floats(-1e6, 1e6), st.booleans()), max_size=20),
    st.sampled_from([0.01, 0.3, 1.0, 60.0]),
)
def test_numbers_never_fall_whatever_the_clocks_do(moves, length_s: float):
    """Goal: never backwards, never more than the limit at once.

    Method: let time pass, let the wall clock jump both ways, restart at any moment.
    """
    wall_s, monotonic_s = 1e6, 0.0
    ticking = EpochClock(length_s=length_s, next_number=0, wall_s=wall_s, monotonic_s=monotonic_s)
    due = 0
    for passed_s, jump_s, restart in moves:
        monotonic_s += passed_s
        wall_s = max(0.0, wall_s + passed_s + jump_s)
        if restart:
            ticking = EpochClock(length_s=length_s, next_number=due, wall_s=wall_s,
                                 monotonic_s=monotonic_s, t0_s=ticking.t0_s)  # fmt: skip
        before, due = due, ticking.due(monotonic_s)
        assert before <= due <= before + MISSED_EPOCHS_MAX + 1
