"""A gap fragment is lost, and the keeper is frozen while its successor looks where to begin.

Found: nobody could read in the book whom to ask now, so nobody said how far it was.  As soon as the
keeper answered again the hole began before what a sink had taken.
"""

from __future__ import annotations

from lived import lived

from unbroken.testing import Fault, Life, Piece, Sim


def test_consumers_have_their_time_once_the_book_can_be_read_again():
    pieces = Piece("a", "draw", ("s1",), "passive"), Piece("b", "join", ("a", "s1"), "gap")
    faults = Fault(6.407, "crash", "node-2", 6.8), Fault(6.542, "pause", "keeper", 11.0)
    sim = Sim(Life(75969215, 3, ("s1",), pieces, 95, faults, ("b", "b-2")))
    result = sim.run()
    assert result.violation is None
    assert any("b: epochs 63 to " in line.text for line in result.story), "after what sinks have"


def test_a_keeper_that_is_frozen_only_for_a_moment_costs_them_no_time():
    """Found: it was asked at the end of the wait alone, and was awake again by then."""
    pieces = (
        Piece("a", "map", ("s1",), "passive"),
        Piece("b", "map", ("s2",), "restart"),
        Piece("c", "join", ("a", "b"), "gap"),
    )
    faults = (
        Fault(8.054, "cut", "node-3", 6.69, "node-2"),
        Fault(10.89, "crash", "node-3", 0.31),
        Fault(11.367, "pause", "keeper", 0.83),
    )
    one = Life(60589, 3, ("s1", "s2"), pieces, 143, faults, ("c",))
    sim = lived(one, "control: c: node-1 rebuilds", "fault: pause keeper", "c: epochs 80 to ")
    (sink,) = sim.sinks()
    assert (sink.log.read(79).kind, sink.log.read(80).kind) == ("stable", "gap")
