"""Several threads at one replica while it parts: readers of Spark, acks, whoever looks at it."""

from __future__ import annotations

import threading
import time
from typing import Any, cast

import pytest
from lines_by_hand import WAIT_S, X_S, Make, Query

from unbroken.checkpoints import fork
from unbroken.node import branch, lines
from unbroken.node.replica import Replica
from unbroken.policies.past import Marks, Past
from unbroken.streams.flight import POLL_S


def test_a_reader_that_wakes_late_may_find_that_another_has_parted(
    world: Make, monkeypatch: pytest.MonkeyPatch
):
    """On a busy machine: there is nobody left whose silence it could forgive."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    park = fork.park

    def slow(*given: Any, **how: Any) -> fork.Start:
        monkeypatch.setattr(lines, "LATE_S", -WAIT_S)  # Whoever wakes from here on is late.
        return park(*given, **how)

    monkeypatch.setattr(lines.fork, "park", slow)
    w.feed("east", 3, 4)
    w.until(lambda: w.said == [3, 4])
    assert w.replica.branch is not None
    assert w.replica.branch.failure() is None


def slow_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit takes a moment, under a lock that other readers wait for; polls are as long as ever.

    Whoever waits at the wrong place is as late as that.
    """
    monkeypatch.setattr(Query, "save_watermarks", lambda self, epoch: time.sleep(0.05))
    for module in (lines, branch):
        monkeypatch.setattr(module, "POLL_S", POLL_S)


def test_the_branch_answers_a_reader_that_came_before_it_parted(
    world: Make, monkeypatch: pytest.MonkeyPatch
):
    """In a chain the next epoch may be due, because of the wait upstream, when one is committed.

    One reader parts as soon as it has noted the commit; the other one waited for that, and would
    wait for the stable line's input from there on.
    """
    slow_commits(monkeypatch)
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    monkeypatch.setattr(Query, "work_s", 0.4)
    w.both(3, 3)
    w.until(lambda: w.replica._gate.released == 3)
    w.feed("east", 4, 4)
    w.western.begin("7@far", after=3)
    w.say(4, waited_s=0.9 * X_S)
    w.until(lambda: w.replica.log.next == 4)
    sealed_s = Query.clock.monotonic()
    w.until(lambda: 4 in w.said)
    assert Query.clock.monotonic() - sealed_s < POLL_S / 2


def test_nobody_of_the_branch_releases_what_the_stable_line_has_not_asked_for(
    world: Make, monkeypatch: pytest.MonkeyPatch
):
    """It would go on without its watermarks, and its past would not have begun."""
    slow_commits(monkeypatch)
    monkeypatch.setattr(Query, "marks", lambda self: Marks(5, (5,)), raising=False)
    order: list[str] = []
    monkeypatch.setattr(Query, "restore_watermarks", lambda self: order.append("restored"))
    wait_released = Replica.wait_released

    def starts_slowly(self: Replica, term: int) -> int | None:
        first = wait_released(self, term)
        if first is not None and term > 1:
            time.sleep(0.3)  # It may go on; its processes take a moment until they ask.
        return first

    monkeypatch.setattr(Replica, "wait_released", starts_slowly)
    w = world()
    w.replica._past = Past(delay_ms=0, history_ms=None)
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    correct = w.replica._correct
    monkeypatch.setattr(w.replica, "_correct", lambda e: (order.append("sealed"), correct(e)))
    monkeypatch.setattr(Query, "work_s", 1.2 * X_S)
    order.clear()
    w.both(3, 3)
    w.feed("east", 4, 4)
    w.until(lambda: w.replica.branch is not None)
    monkeypatch.setattr(Query, "work_s", 0.0)
    w.feed("west", 4, 4)
    w.until(lambda: w.replica.committed == 4)
    assert order == ["sealed", "restored", "sealed"], "3; then 4 by the second query"
    assert w.replica.failed == ""


def test_a_reader_that_starts_while_another_parts_belongs_to_the_branch(
    world: Make, monkeypatch: pytest.MonkeyPatch
):
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    park, parking, asks = fork.park, threading.Event(), threading.Event()

    def slow(*given: Any, **how: Any) -> fork.Start:
        parking.set()
        assert asks.wait(WAIT_S)
        time.sleep(0.05)  # It is on its way to the lock that is held here.
        return park(*given, **how)

    monkeypatch.setattr(lines.fork, "park", slow)
    w.feed("east", 3, 3)
    w.until(parking.is_set)
    answers: list[int | None] = []

    def start() -> None:
        asks.set()
        answers.append(w.replica.wait_released(1))

    reader = threading.Thread(target=start, daemon=True)
    reader.start()
    reader.join(WAIT_S)
    assert answers == [3]


def test_a_branch_that_ends_late_leaves_the_next_one_alone(
    world: Make, monkeypatch: pytest.MonkeyPatch
):
    """It has failed, and its stable line has parted again before whoever saw it has ended it."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 5)
    w.until(lambda: 5 in w.said and w.stable_line_asks())
    first, end = w.replica.branch, branch.Branch.end
    assert first is not None

    def late(ending: branch.Branch) -> None:
        if ending is first:
            w.until(lambda: w.replica.branch not in (first, None))
        end(ending)

    monkeypatch.setattr(branch.Branch, "end", late)
    Query.made[0].fail()
    w.replica.status()  # Sees it, and ends it.
    w.until(lambda: w.said == [3, 4, 5])
    w.feed("east", 6, 6)
    w.until(lambda: w.said == [3, 4, 5, 6])
    assert w.replica.branch is not None
    assert w.replica.branch.failure() is None
    assert "correcting" not in w.replica.status()["sentence"], "nothing is healed"


def test_what_is_sealed_while_a_branch_is_given_up_is_stable_all_the_same(
    world: Make, monkeypatch: pytest.MonkeyPatch
):
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 6)
    w.until(lambda: 6 in w.said and w.stable_line_asks())
    correct = branch.Branch.correct

    def late(ending: branch.Branch, epoch: Any) -> None:
        cast(Query, ending._run).fail()  # A busy machine may have made it part more than once.
        looks = threading.Thread(target=w.replica.status, daemon=True)
        looks.start()
        looks.join(WAIT_S)
        correct(ending, epoch)

    monkeypatch.setattr(branch.Branch, "correct", late)
    w.feed("west", 3, 6)
    w.until(lambda: w.replica.committed == 6)
    assert (w.replica.failed, w.replica.stumbled) == ("", "")
