"""The test kit: simulated clusters that run the real protocols, from a seed.

    life ─▶ simulate ─▶ result: a violation of an invariant, or none, and the story

A life says which query runs on how many nodes and what happens to them.  Clock, network, disk and
engine are simulated; what decides is the real code.  `docs/simulator.md` tells more.

>>> from unbroken.testing import CRASH, Fault, Life, Piece, simulate
>>> totals = Piece("totals", "count", ("clicks",), "passive")
>>> crash = Fault(4.0, CRASH, "node-1", for_s=1.0)
>>> result = simulate(Life(1, 3, ("clicks",), (totals,), 40, (crash,), ("totals",)))
>>> result.violation is None
True
>>> [line.text for line in result.story if "takes over" in line.text]
['totals: node-2 takes over from node-1 at epoch 33 (term 3): node-1 is gone']
"""

from unbroken.testing.checkers import Checkers, Violation
from unbroken.testing.cut_lives import random_cut_life
from unbroken.testing.life import (
    CRASH,
    CUT,
    CUT_ONE_WAY,
    DIE_AT,
    DRIFT,
    EPOCH_S,
    FAULTS,
    FULL,
    FUSE,
    ISOLATE,
    JUMP,
    KINDS,
    LAG,
    LOSE,
    PAUSE,
    POLICIES,
    POWER,
    REPEAT,
    SLOW,
    SMALL_KEEP_EPOCHS,
    STUMBLE,
    Fault,
    Life,
    Piece,
    random_life,
)  # fmt: skip
from unbroken.testing.network import Network
from unbroken.testing.operators import OPERATORS
from unbroken.testing.own import own_life, pieces_of, traits_of
from unbroken.testing.shrink import smallest
from unbroken.testing.sim import Result, Sim, simulate
from unbroken.testing.variants import VARIANTS, variant
from unbroken.testing.world import World

__all__ = [
    "CRASH", "CUT", "CUT_ONE_WAY", "DIE_AT", "DRIFT", "EPOCH_S", "FAULTS", "FULL", "FUSE",
    "ISOLATE", "JUMP", "KINDS", "LAG", "LOSE", "OPERATORS", "PAUSE", "POLICIES", "POWER", "REPEAT",
    "SLOW", "SMALL_KEEP_EPOCHS", "STUMBLE", "VARIANTS", "Checkers", "Fault", "Life", "Network",
    "Piece", "Result", "Sim", "Violation", "World", "own_life", "pieces_of",
    "random_cut_life", "random_life", "simulate", "smallest", "traits_of", "variant",
]  # fmt: skip
