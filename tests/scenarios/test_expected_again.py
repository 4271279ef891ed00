"""A replica is removed and expected again while a producer of its input is away.

Found: that producer had noted the removal on its disk, and the word that came after it passed it
by.  It came back, took control's list of whom to expect, believed its own note, and trimmed what
the replica still needed.
"""

from __future__ import annotations

from unbroken.testing import Fault, Life, Piece, Sim

_PIECES = (
    Piece("a", "map", ("s1",), "restart"),
    Piece("b", "join", ("a", "s1"), "active"),
    Piece("c", "join", ("b", "s1"), "restart"),
    Piece("d", "count", ("b", "c"), "passive"),
)
#: node-3 loses its place to node-1; then node-2 is away while node-1 takes over, and node-3 stands
#: by again.
_FAULTS = (
    Fault(3.984, "full", "node-3", 19.15),
    Fault(6.707, "fuse", "node-3", 3.04, much=32),
    Fault(14.970, "cut", "control", 18.12, other="node-1"),
    Fault(15.024, "power", "node-2", 13.36),
    Fault(15.615, "power", "node-2", 2.25),
)


def test_who_comes_back_believes_controls_newer_list_and_not_its_own_older_note():
    life = Life(332737387, 3, ("s1",), _PIECES, 200, _FAULTS, ("d",), 120, 20)
    sim = Sim(life)
    result = sim.run()
    assert result.violation is None
    told = [line.text for line in result.story]
    assert any("d: node-3 is released (term 4)" in text for text in told)
    assert any("d: expecting node-3 as a copy of node-1" in text for text in told)
    assert any("took b after epoch" in text and line.who == "node-2"
               for line, text in zip(result.story, told, strict=True))  # fmt: skip
    (sink,) = sim.sinks()
    assert sink.next >= 200
