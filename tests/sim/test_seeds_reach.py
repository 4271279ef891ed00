"""The fixed lives come into the situations that the protocol was made for, and out of them."""

from __future__ import annotations

from test_cuts import FIXED as FIXED_CUTS
from test_seeds import FIXED, REACHED

from unbroken.testing import random_cut_life, random_life, simulate
from unbroken.testing.reached import CORRECTION, RECOVERIES, SITUATIONS, Reached


def test_the_fixed_lives_reach_every_situation():
    """They are lived by `test_seeds`; what is asked for alone is lived here."""
    reached = Reached()
    for seed in range(FIXED):
        lived = REACHED.get(seed)
        reached.update(simulate(random_life(seed)).reached if lived is None else lived)
    for kind in {*RECOVERIES, *SITUATIONS} - {CORRECTION}:
        assert reached[kind] >= 1, f"{kind}: never in {FIXED} lives; {dict(reached)}"


def test_lives_with_cuts_are_corrected():
    """No more of them than it takes to see some."""
    reached = Reached()
    for seed in range(FIXED_CUTS):
        reached.update(simulate(random_cut_life(seed)).reached)
        if reached[CORRECTION] >= 5:
            break
    assert reached[CORRECTION] >= 5
