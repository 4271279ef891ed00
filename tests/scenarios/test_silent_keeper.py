"""A gap fragment is lost, and the keeper is frozen while its successor looks where to begin.

Found: nobody could read in the book whom to ask now, so nobody said how far it was.  As soon as the
keeper answered again the hole began before what a sink had taken.
"""

from __future__ import annotations

from unbroken.testing import Fault, Life, Piece, Sim


def test_consumers_have_their_time_once_the_book_can_be_read_again():
    pieces = Piece("a", "draw", ("s1",), "passive"), Piece("b", "join", ("a", "s1"), "gap")
    faults = Fault(6.407, "crash", "node-2", 6.8), Fault(6.542, "pause", "keeper", 11.0)
    sim = Sim(Life(75969215, 3, ("s1",), pieces, 95, faults, ("b", "b-2")))
    result = sim.run()
    assert result.violation is None
    assert any("b: epochs 63 to " in line.text for line in result.story), "after what sinks have"
