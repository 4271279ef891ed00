"""A gap fragment is lost while its consumer has read ahead: what is not processed is given back.

Found: what had been fetched counted as had, and the hole began after that.  A consumer that was
started again went on from its checkpoint, and what lay between was neither in a log nor called
lost: it stood still for ever.
"""

from __future__ import annotations

import pytest

from unbroken.testing import Fault, Life, Piece, Sim
from unbroken.testing.variants import variant


def waits(crash_s: float) -> Life:
    """`d` has four epochs of `a` in memory, because it waits for `c`; then both its inputs go.

    node-1 has `a`, and loses it; node-2 has `c`, and is paused; node-3 has `d`, and is killed.
    """
    pieces = (
        Piece("a", "map", ("s1",), "gap"),
        Piece("c", "map", ("s1",), "restart"),
        Piece("d", "join", ("a", "c"), "restart"),
    )
    faults = (
        Fault(6.0, "pause", "node-2", 8.0),
        Fault(6.6, "lose", "node-1", 20.0),
        Fault(crash_s, "crash", "node-3", 0.3),
    )
    return Life(7, 4, ("s1",), pieces, 200, faults, ("d",))


def hole_of(life: Life) -> str:
    """What is called lost in a life that comes to its end, and breaks nothing."""
    sim = Sim(life)
    result = sim.run()
    assert result.violation is None
    (sink,) = sim.sinks()
    assert sink.next >= 200
    (hole,) = (line.text for line in result.story if line.text.startswith("a: epochs "))
    return hole


#: Before the hole is on record, just after it, and long after.
@pytest.mark.parametrize("crash_s", [7.3, 8.6, 12.0])
def test_a_fragment_had_fetched_what_is_lost_and_starts_again(crash_s: float):
    hole = hole_of(waits(crash_s))
    assert hole.startswith("a: epochs 59 to "), "all that d has not processed is called lost"


def works(crash_s: float) -> Life:
    """`d` takes two seconds for an epoch of `a`, which is lost meanwhile; `d` is killed."""
    pieces = Piece("a", "map", ("s1",), "gap"), Piece("d", "count", ("a",), "restart")
    faults = (
        Fault(5.0, "lag", "node-2", 8.0, much=60.0),
        Fault(6.6, "lose", "node-1", 20.0),
        Fault(crash_s, "crash", "node-2", 0.3),
    )
    return Life(7, 3, ("s1",), pieces, 200, faults, ("d",))


@pytest.mark.parametrize(("crash_s", "first"), [(8.8, 51), (9.3, 52)])
def test_a_fragment_is_killed_while_it_works_on_what_is_lost(crash_s: float, first: int):
    """Epoch 51 is committed between the two: it is lost in one of them, and had in the other."""
    assert hole_of(works(crash_s)).startswith(f"a: epochs {first} to ")


def stands_still(life: Life, broken: str) -> int:
    """How far the sink gets under a broken protocol, which is noticed."""
    with variant(broken):
        sim = Sim(life)
        result = sim.run()
    assert result.violation is not None
    assert result.violation.number == 10
    (sink,) = sim.sinks()
    return int(sink.next)


def test_it_stood_still():
    """With what was fetched counted as had, as it was; and with what is worked on."""
    assert stands_still(waits(12.0), "what was fetched counts as had") == 59
    assert stands_still(works(8.8), "what is worked on counts as had") == 51
