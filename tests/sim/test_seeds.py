"""Simulated clusters: fixed seeds, fresh seeds, and that one seed is one life.

Fresh ones are others for every version of the code, and the same ones whenever that version is
tested: a failure is a finding, never a flake, and nobody has to run it twice to believe it.
`UNBROKEN_SEEDS` says how many, and `UNBROKEN_SEEDS=0` leaves them out.
"""

from __future__ import annotations

import os
import secrets
import subprocess
from pathlib import Path

import pytest

from unbroken.testing import Life, random_life, simulate
from unbroken.testing.life import FAULTS, POLICIES
from unbroken.testing.reached import Reached

#: Lives of one test.
GROUP = 25
FIXED, FRESH = 200, int(os.environ.get("UNBROKEN_SEEDS", "200"))


def first_fresh() -> int:
    """Where the fresh seeds of this version begin; of a copy without git, anywhere."""
    try:
        asked = ["git", "rev-parse", "HEAD:src"]
        answer = subprocess.run(asked, cwd=Path(__file__).parent, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 1_000_000 + secrets.randbelow(1_000_000_000)
    return 1_000_000 + int(answer.stdout, 16) % 1_000_000_000


FIRST = first_fresh()


#: What the fixed lives came to, by seed: lived once, looked at in `test_seeds_reach` too.
REACHED: dict[int, Reached] = {}


def live(life: Life, options: str = "") -> Reached:
    """Lives, and tells how to do it again if an invariant does not hold."""
    result = simulate(life)
    story = "\n".join(map(str, result.story[-60:]))
    again = f"unbroken sim --seeds 1 --from {life.seed}{options}"
    assert result.violation is None, f"{result.violation}\n{life.text}\n{story}\n{again}"
    return result.reached


@pytest.mark.parametrize("first", range(0, FIXED, GROUP))
def test_nothing_goes_wrong_in_fixed_lives(first: int):
    """All faults, all policies; the seeds are always the same."""
    for seed in range(first, first + GROUP):
        REACHED[seed] = live(random_life(seed))


@pytest.mark.skipif(not FRESH, reason="no fresh lives are asked for")
@pytest.mark.parametrize("place", range(0, max(FRESH, 1), GROUP))
def test_nothing_goes_wrong_in_fresh_lives(place: int):
    """Other seeds for every version; they are printed before anything runs."""
    for seed in range(FIRST + place, FIRST + min(place + GROUP, FRESH)):
        live(random_life(seed))


@pytest.mark.parametrize("kind", FAULTS)
def test_nothing_goes_wrong_with_one_kind_of_fault(kind: str):
    """The same fault again and again finds what a mixture passes by."""
    for seed in range(6):
        life = random_life(10_000 + seed, faults=[kind], epochs=120)
        live(life, f" --faults {kind} --epochs 120")


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_goes_wrong_with_one_policy(policy: str):
    """Chains of one policy."""
    for seed in range(6):
        life = random_life(20_000 + seed, policies=[policy], epochs=120)
        live(life, f" --policy {policy} --epochs 120")


def test_one_seed_is_one_life():
    """Equal seeds, equal stories, to the last event."""
    for seed in (3, 8, 21):
        one, other = simulate(random_life(seed)), simulate(random_life(seed))
        assert (one.story, one.events, one.now_s) == (other.story, other.events, other.now_s)


def test_a_life_without_faults_is_quiet():
    """Nobody is declared dead, and nothing is repaired, when nothing happens."""
    for seed in range(5):
        result = simulate(random_life(seed, faults=[], epochs=60))
        assert result.violation is None
        # Now and then everything is started again in the end; before that nothing is to be said.
        said = [line.text for line in result.story if line.at_s < 5.9 and line.who == "control"]
        assert said == []
