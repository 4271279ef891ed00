"""The arithmetic of a kill: output gap, peak latency, and when results are in time again."""

from __future__ import annotations

import pytest

from unbroken.measure.watch import Effect, Watch, worst

SPACING_S, LATENCY_S = 0.5, 0.3


def steady(watch: Watch, first_s: float, count: int, late_s: float = LATENCY_S) -> float:
    """`count` outputs from `first_s` on; tells when the next one is due."""
    for i in range(count):
        at_s = first_s + i * SPACING_S
        watch.take(at_s, at_s - late_s)
    return first_s + count * SPACING_S


def test_a_kill_that_nobody_notices():
    watch = Watch()
    steady(watch, 0.0, 60)
    assert watch.effect(kill_s=20.2) == Effect(gap_s=0.0, peak_s=LATENCY_S, back_s=0.0)


def test_a_silence_is_counted_less_the_usual_spacing_and_also_if_it_began_before_the_kill():
    watch = Watch()
    steady(watch, 0.0, 40)  # The last at 19.5.
    steady(watch, 23.0, 10)
    effect = watch.effect(kill_s=19.9)
    assert effect.gap_s == pytest.approx(3.5 - SPACING_S)


def test_a_silence_long_after_the_kill_is_told_apart_from_the_one_around_it():
    """Method: one output more after the kill, 0.8 s of silence, and 1.5 s when all is repaired."""
    watch = Watch()
    steady(watch, 0.0, 41)  # The last at 20.0, after the kill.
    steady(watch, 20.8, 20)  # The last at 30.3.
    steady(watch, 31.8, 10)
    effect = watch.effect(kill_s=19.9)
    assert effect.gap_s == pytest.approx(0.3)
    assert effect.later_s == pytest.approx(1.0)


def test_it_is_back_when_outputs_are_in_time_again_after_the_worst_one():
    """Method: after a silence three late outputs, one in time by chance, a late one, then all."""
    watch = Watch()
    steady(watch, 0.0, 40)
    for at_s, late_s in ((22.0, 2.3), (22.1, 1.9), (22.2, 1.5), (22.3, 0.3), (22.4, 1.0)):
        watch.take(at_s, at_s - late_s)
    assert watch.effect(kill_s=20.0).back_s is None
    steady(watch, 23.0, 2)
    assert watch.effect(kill_s=20.0).back_s is None, "two are not enough to be believed"
    steady(watch, 24.0, 1)
    effect = watch.effect(kill_s=20.0)
    assert effect.peak_s == pytest.approx(2.3)
    assert effect.back_s == pytest.approx(3.0)


def test_within_a_tenth_is_as_before_and_more_is_not():
    bound_s = 1.1 * LATENCY_S + 0.05
    for late_s, back_s in ((bound_s - 0.001, 0.0), (bound_s + 0.001, None)):
        watch = Watch()
        steady(watch, steady(watch, 0.0, 40), 10, late_s)
        assert watch.effect(kill_s=19.9).back_s == back_s


def test_before_anything_came_after_the_kill_nothing_is_claimed():
    watch = Watch()
    steady(watch, 0.0, 40)
    assert watch.effect(kill_s=19.9) == Effect(gap_s=0.0, peak_s=None, back_s=None)
    watch.take(20.0, 19.7)
    assert watch.effect(kill_s=19.9).back_s is None, "one output is too few to say that it is well"


def test_only_the_newest_outputs_say_what_is_usual():
    """An earlier kill must not make the next one look better."""
    watch = Watch()
    next_s = steady(watch, 0.0, 10, late_s=30.0)
    steady(watch, next_s + 30.0, 40)
    assert watch.usual(kill_s=100.0) == pytest.approx((SPACING_S, LATENCY_S))


def test_epochs_without_rows_end_a_silence_but_have_no_latency():
    watch = Watch()
    for i in range(40):
        watch.take(i * SPACING_S, None if i % 2 else i * SPACING_S - LATENCY_S)
    assert watch.usual(kill_s=100.0) == pytest.approx((SPACING_S, LATENCY_S))
    assert watch.latency_s == pytest.approx(LATENCY_S)


def test_of_several_results_the_one_that_suffered_most_counts():
    assert worst([Effect(0.1, None, 1.0), Effect(0.2, 3.0, 0.5)]) == Effect(0.2, 3.0, 1.0)
    assert worst([Effect(0.1, 1.0, None), Effect(0.2, 3.0, 0.5)]).back_s is None
