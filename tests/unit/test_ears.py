"""What a client heard through a partition, in figures."""

from __future__ import annotations

from unbroken.epochs import GAP, STABLE, TENTATIVE
from unbroken.measure.ears import Ears, Heard


def undisturbed(count: int) -> Ears:
    ears = Ears()
    for n in range(count):
        ears.take(n + 0.3 + 0.1 * (n % 2), Heard(n, STABLE, rows=6, sealed_s=float(n)))
    return ears


def tentative(number: int, rows: int = 4) -> Heard:
    return Heard(number, TENTATIVE, rows, sealed_s=float(number))


def stable(number: int, **became: bool) -> Heard:
    return Heard(number, STABLE, rows=6, sealed_s=float(number), **became)


def test_the_first_word_about_a_number_counts_for_its_wait_whatever_its_kind():
    ears = undisturbed(10)
    for n, at_s in ((10, 12.8), (11, 12.9), (12, 13.0)):
        ears.take(at_s, tentative(n))
    ears.take(16.0, stable(10, replaced=True))
    ears.take(16.1, stable(11, replaced=True, confirmed=True))
    ears.take(16.2, tentative(13, rows=6))
    ears.take(16.3, stable(12, replaced=True))
    ears.take(16.4, stable(13, replaced=True, confirmed=True))
    ears.take(30.0, stable(14))  # Late, but after all was stable again.
    effect = ears.effect(cut_s=9.9, healed_s=13.5, last=12)
    assert effect.wait_s == 3.2, "13 came during the correction"
    assert effect.usual_s == 0.4
    assert effect.stable_s == 2.9
    assert (effect.said, effect.confirmed, effect.replaced, effect.open) == (4, 2, 2, 0)
    assert effect.tentative_rows == 18


def test_stable_again_waits_for_what_was_sealed_when_it_healed():
    """Who waits hears nothing during the cut; the first stable epoch is not yet all of it."""
    ears = undisturbed(10)
    for n in (10, 11, 12, 13):
        ears.take(14.0 + n / 100, stable(n))
    assert ears.stable_again(healed_s=13.5, last=12) == 14.12
    assert ears.stable_again(healed_s=13.5, last=14) is None
    effect = ears.effect(cut_s=9.9, healed_s=13.5, last=12)
    assert (effect.wait_s, effect.said) == (4.1, 0)


def test_a_stable_epoch_behind_the_branch_is_not_the_end():
    ears = undisturbed(3)
    ears.take(6.0, tentative(3))
    ears.take(7.0, tentative(4))
    ears.take(8.0, stable(3, replaced=True))
    assert ears.stable_again(healed_s=6.5, last=3) is None
    effect = ears.effect(cut_s=2.9, healed_s=6.5, last=3)
    assert effect.stable_s is None
    assert effect.open == 1, "nothing became of 4 yet"


def test_a_gap_gives_up_what_was_said():
    ears = undisturbed(3)
    ears.take(6.0, tentative(3))
    ears.take(7.0, Heard(3, GAP, 0, sealed_s=3.0, replaced=True))
    effect = ears.effect(cut_s=2.9, healed_s=6.5, last=3)
    assert (effect.given_up, effect.replaced, effect.open) == (1, 0, 0)


def test_what_is_usual_is_known_only_with_enough_results():
    assert undisturbed(4).latest_s(5) is None
    assert round(undisturbed(5).latest_s(5) or 0.0, 3) == 0.4
