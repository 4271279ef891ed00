"""Mistakes that small logs and precise deaths have shown, and that are not mended yet.

Each is the smallest life that shows it, marked as expected to fail until it is mended.
Random lives avoid them, or the checkers let them pass; docs/simulator.md tells them in words.
"""

from __future__ import annotations

import pytest

from unbroken.testing import Fault, Life, Piece, Result, Sim, random_life, simulate
from unbroken.testing.life import SMALL_KEEP_EPOCHS

GAPS = Piece("a", "map", ("s1",), "gap"), Piece("b", "count", ("a",), "gap")


def lived(
    *pieces: Piece, faults: list[Fault], nodes: int = 3, limit: int = 0
) -> tuple[Sim, Result]:
    """A simulation that is over; the last of its fragments has a sink."""
    sinks, keep = (pieces[-1].name,), SMALL_KEEP_EPOCHS
    sim = Sim(Life(7, nodes, ("s1",), pieces, 200, tuple(faults), sinks, limit, keep))
    return sim, sim.run()


@pytest.mark.xfail(reason="standstill: a full log waits for a watermark, which waits", strict=True)
def test_history_that_is_longer_than_the_limit_of_a_log():
    """Scenario 17: it should be an error, and is a lock.

    The producer says "waiting: the output log holds 40 bytes, its limit", for ever.
    """
    pieces = Piece("a", "map", ("s1",), "active"), Piece("b", "window", ("a",), "upstream")
    _, result = lived(*pieces, faults=[], nodes=4, limit=40)
    assert result.violation is None


@pytest.mark.xfail(reason="what is kept for strangers counts for the limit", strict=True)
def test_what_a_sink_keeps_reaches_the_limit_of_its_log():
    """Invariant 7: nobody is behind, and yet the fragment waits for ever."""
    _, result = lived(Piece("a", "map", ("s1",), "restart"), faults=[], limit=10)
    assert result.violation is None


@pytest.mark.xfail(reason="whoever begins anew has not heard of its sinks", strict=True)
def test_a_hole_that_is_longer_than_what_is_kept_for_strangers():
    """A sink declares itself to the replica that is there; the next one does not know it.

    So the beginning of a long hole is trimmed before the sink has seen it, and it stops.
    """
    faults = [
        Fault(4.0, "die at", "node-2", 1.0, "sealed b", much=60),
        Fault(6.105, "crash", "node-1", 3.0),
    ]
    sim, _ = lived(*GAPS, faults=faults)
    (sink,) = sim.sinks()
    assert sink.error is None


@pytest.mark.xfail(reason="what was shown of a lost epoch is not in the state", strict=True)
def test_two_gap_fragments_in_a_row_die_between_output_and_commit():
    """The second has sealed what it made of an epoch that the successor of the first calls lost."""
    faults = [
        Fault(4.0, "die at", "node-2", 1.0, "sealed b", much=62),
        Fault(6.337, "crash", "node-1", 3.0),
    ]
    sim, result = lived(*GAPS, faults=faults)
    assert result.violation is None
    assert sim.watch.beyond == {}


@pytest.mark.xfail(reason="logs are full when control is back, and nobody makes room", strict=True)
def test_control_is_away_while_small_logs_fill_up():
    """Nobody trims while it is away; afterwards everything stands still, and nobody says why."""
    assert simulate(random_life(700101)).violation is None
