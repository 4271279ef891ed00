"""A fragment that converges: what it said while input was cut off is given up, number by number."""

from __future__ import annotations

from typing import Any

import pytest
from lines_by_hand import Make, Query, World, came, complete

from unbroken.checkpoints import fork
from unbroken.epochs import Epoch
from unbroken.errors import DiskError
from unbroken.streams.log import EpochLog
from unbroken.tentative.branch import CONVERGE


def kinds(w: World) -> list[str]:
    return [header.kind for header in w.replica.log.headers(0)]


def given_up(world: Make) -> World:
    """Epochs 3 to 6 were said without west, which has come back."""
    w = world(when_healed=CONVERGE)
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 6)
    w.until(lambda: w.said == [3, 4, 5, 6])
    w.feed("west", 3, 5)
    w.until(lambda: came(w.replica, "west") == 5)
    assert w.replica.log.next == 3, "not all is back: nothing is given up yet"
    assert w.replica.acks(0)[0][1]["processed"] == 2
    w.feed("west", 6, 6)
    w.until(lambda: w.replica.log.next == 7)
    return w


def test_a_fragment_that_converges_gives_up_what_it_said_and_goes_on(world: Make):
    """Invariants 2 and 4: number by number, explicitly, and final."""
    w = given_up(world)
    w.both(7, 8)
    w.until(lambda: w.replica.branch is None and w.replica.committed == 8)
    assert kinds(w) == ["stable"] * 3 + ["gap"] * 4 + ["stable"] * 2
    assert w.stable() == [*complete(3), [], [], [], [], [7, 1007], [8, 1008]]
    headers = w.replica.log.headers(0)
    assert [header.lost for header in headers] == [0, 0, 0, 2, 2, 2, 2, 0, 0]
    assert [header.gaps_total for header in headers] == [0, 0, 0, 1, 2, 3, 4, 4, 4]
    assert [header.lost_total for header in headers] == [0, 0, 0, 2, 4, 6, 8, 8, 8]
    assert w.replica.acks(0)[0][1]["processed"] == 8
    assert w.replica.partition == "stable again: gave up epochs 3 to 6 (8 input rows)"
    w.until(lambda: w.said == [])
    assert [query.term for query in Query.made] == [1, 3], "what was parked first was not needed"
    w.until(lambda: fork.terms_in(w.folder / "alerts") == [3])


def test_what_was_given_up_stays_so_after_a_crash_in_the_middle(world: Make):
    """The fork was there, and half of the gaps: the log is completed from the fork."""
    w = given_up(world)
    w.replica.stop()
    for number in (5, 6):
        w.replica.log.path(number).unlink()
    w.start()
    assert kinds(w) == ["stable"] * 3 + ["gap"] * 4
    assert w.replica.committed == 6
    w.both(7, 7)
    w.until(lambda: w.replica.committed == 7)
    assert w.stable()[-1] == [7, 1007]
    assert w.replica.log.header(7).lost_total == 8


def test_a_crash_before_it_is_healed_corrects_nothing_and_gives_up_nothing(world: Make):
    """What was said is lost with the process; the parked fork takes the complete epochs."""
    w = world(when_healed=CONVERGE)
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 6)
    w.until(lambda: 6 in w.said)
    w.replica.stop()
    w.feed("west", 3, 6)
    w.start()
    w.until(lambda: w.replica.committed == 6)
    assert w.stable() == complete(7)


def test_without_room_for_the_later_fork_what_was_said_is_corrected(
    world: Make, monkeypatch: pytest.MonkeyPatch
):
    def full(*given: Any, **how: Any) -> fork.Start:
        raise DiskError("no space left")

    w = world(when_healed=CONVERGE)
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 4)
    w.until(lambda: w.said == [3, 4])
    monkeypatch.setattr(fork, "park_later", full)
    w.feed("west", 3, 4)
    w.until(lambda: w.replica.branch is None and w.stable() == complete(5))
    assert kinds(w) == ["stable"] * 5


def test_without_room_for_the_gaps_it_is_started_again_and_completes_them(
    world: Make, monkeypatch: pytest.MonkeyPatch
):
    """The fork is there, so that nothing can be corrected any more; half of the log is."""
    append, had_room = EpochLog.append, []

    def fills_up(log: EpochLog, epoch: Epoch, **how: Any) -> bool:
        if log.stream == "alerts" and epoch.kind == "gap":
            had_room.append(epoch.number)
            if len(had_room) == 2:
                raise DiskError("no space left")
        return append(log, epoch, **how)

    w = world(when_healed=CONVERGE)
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 5)
    w.until(lambda: w.said == [3, 4, 5])
    monkeypatch.setattr(EpochLog, "append", fills_up)
    w.feed("west", 3, 5)
    w.until(lambda: "no space left" in w.replica.stumbled)
    assert w.replica.failed == "", "a node starts again what has stumbled"
    w.replica.stop()
    w.start()
    w.both(6, 6)
    w.until(lambda: w.replica.committed == 6)
    assert kinds(w) == ["stable"] * 3 + ["gap"] * 3 + ["stable"]
    assert w.stable()[-1] == [6, 1006]
