"""A mistake that is known and not mended yet, as the smallest life that shows it.

It is marked as expected to fail; in random lives the checkers let it pass if it is said.
docs/simulator.md tells it in words.
"""

from __future__ import annotations

import pytest

from unbroken.testing import Fault, Life, Piece, Sim


@pytest.mark.xfail(reason="what was fetched counts as had, and is gone with a restart", strict=True)
def test_a_fragment_had_fetched_what_is_lost_and_starts_again():
    """The hole of `a` begins after what `d` has in memory; `d` waits for `c`, and is killed.

    Its checkpoint is older, and what lies between is neither in a log nor called lost.
    """
    pieces = (
        Piece("a", "map", ("s1",), "gap"),
        Piece("c", "map", ("s1",), "restart"),
        Piece("d", "join", ("a", "c"), "restart"),
    )
    faults = (
        Fault(6.0, "pause", "node-2", 8.0),
        Fault(6.6, "lose", "node-1", 20.0),
        Fault(12.0, "crash", "node-3", 0.3),
    )
    sim = Sim(Life(7, 4, ("s1",), pieces, 200, faults, ("d",)))
    assert sim.run().violation is None
    (sink,) = sim.sinks()
    assert sink.next >= 200
