"""The test kit: simulated clusters that run the real protocols, from a seed.

    life ─▶ simulate ─▶ result: a violation of an invariant, or none, and the story

A life says which query runs on how many nodes and what happens to them.  Clock, network, disk and
engine are simulated; what decides is the real code.  `docs/simulator.md` tells more.

>>> from unbroken.testing import Fault, Life, Piece, simulate
>>> totals = Piece("totals", "count", ("clicks",), "passive")
>>> crash = Fault(4.0, "crash", "node-1", for_s=1.0)
>>> result = simulate(Life(1, 3, ("clicks",), (totals,), 40, (crash,), ("totals",)))
>>> result.violation is None
True
>>> [line.text for line in result.story if "takes over" in line.text]
['totals: node-2 takes over from node-1 at epoch 33 (term 3): node-1 is gone']
"""

from unbroken.testing.checkers import Violation
from unbroken.testing.life import Fault, Life, Piece, random_life
from unbroken.testing.shrink import smallest
from unbroken.testing.sim import Result, Sim, simulate
from unbroken.testing.variants import VARIANTS, variant

__all__ = [
    "VARIANTS", "Fault", "Life", "Piece", "Result", "Sim", "Violation", "random_life", "simulate",
    "smallest", "variant",
]  # fmt: skip
