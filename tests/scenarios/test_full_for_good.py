"""Scenario 17 at a source: its log is full of what a state was made from, and its producers hear
that it stays so.

Found: the clock goes on and cuts epochs without rows.  Each of them was taken for news, so that
nobody ever called it a standstill.
"""

from __future__ import annotations

from unbroken.testing import Life, Piece, Sim
from unbroken.testing.life import SMALL_KEEP_EPOCHS

FOR_GOOD = "and it stays full for good: b@node-1 has processed all of it, and its state reaches"


def lived(limit: int) -> tuple[Sim, list[tuple[float, str]]]:
    """A window right behind a source that may hold `limit` rows, and what its producers heard."""
    piece = Piece("b", "window", ("s1",), "upstream")
    sim = Sim(Life(7, 3, ("s1",), (piece,), 200, (), ("b",), limit, SMALL_KEEP_EPOCHS))
    result = sim.run()
    assert result.violation is None
    return sim, [(line.at_s, line.text) for line in result.story if "its limit is" in line.text]


def standstill(sim: Sim) -> str:
    """What `status` tells of the source in the end."""
    return str(sim.shells["keeper"].keeper._status({})["sources"]["s1"]["standstill"])


def test_a_producer_is_told_that_there_will_never_be_room():
    """And not before that has lasted for ten seconds: an ack may be on its way."""
    sim, heard = lived(limit=8)
    (before_s, pushed_back), (after_s, for_good) = heard[-2:]
    assert "the slowest consumer is b@node-1" in pushed_back
    assert FOR_GOOD in for_good
    assert after_s - before_s >= 10.0
    assert standstill(sim).startswith("b@node-1 has processed all of it")


def test_a_source_that_is_full_now_and_then_is_no_standstill():
    """A little more room: the window lets go in time, again and again."""
    sim, heard = lived(limit=20)
    assert len(heard) > 3
    assert not any("for good" in text for _, text in heard)
    assert standstill(sim) == ""
