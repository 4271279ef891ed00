"""A standby gets ready in advance; it never claims to be readier than it is, nor is in the way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from unbroken.errors import UnbrokenError
from unbroken.node import preparation as preparation_module
from unbroken.node.preparation import HELD_S, PAUSE_S, PAUSE_S_MAX, Preparation
from unbroken.node.standby import Standby


class Stage:
    """A standby's replica, and a clock; rehearsals end as a test wants."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.stop, self.busy = threading.Event(), threading.Lock()
        self.holds, self.rehearsals = 0, 0
        self.hold_error: UnbrokenError | None = None
        self.outcome: int | UnbrokenError = 20
        self.holding, self.name = False, "ids@node-2"
        replica: Any = self
        plan: Any = None
        self.made = Preparation(replica, plan, self._rehearse, stop=self.stop, busy=self.busy)

    def hold(self, plan: object) -> None:
        assert self.busy.locked()
        self.holds += 1
        if self.hold_error is not None:
            raise self.hold_error
        self.holding = True

    def _rehearse(self, stop: threading.Event) -> int:
        self.rehearsals += 1
        if isinstance(self.outcome, UnbrokenError):
            raise self.outcome
        return self.outcome

    def look(self, *, after_s: float = 0.0) -> None:
        """Looks whether there is something to do, and waits until it is done."""
        self.now_s += after_s
        self.made.look(now_s=self.now_s)
        if self.made.thread is not None:
            self.made.thread.join(10)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    made = Stage()
    monkeypatch.setattr(preparation_module, "SETTLE_S", 0.0)
    monkeypatch.setattr(preparation_module, "SETTLE_S_MAX", 0.0)
    monkeypatch.setattr(
        preparation_module, "time", SimpleNamespace(monotonic=lambda: made.now_s, sleep=None)
    )
    yield made
    made.stop.set()


def pauses(stage: Stage, count: Callable[[], int], most: int) -> list[float]:
    """After how many seconds each of the next attempts is made."""
    made = []
    for _ in range(most):
        before, began_s = count(), stage.now_s
        while count() == before:
            assert stage.now_s - began_s <= 2 * PAUSE_S_MAX
            stage.look(after_s=1.0)
        made.append(stage.now_s - began_s)
    return made


def test_what_went_well_is_done_once(stage: Stage):
    for _ in range(5):
        stage.look(after_s=1000.0)
    assert (stage.holds, stage.rehearsals) == (1, 1)
    assert stage.made.status() == {
        "held": True, "rehearsed": True, "prepared": True,
        "rehearsal": "has rehearsed 20 epochs in 0.0 s",
    }  # fmt: skip


def test_a_rehearsal_that_fails_is_tried_again_less_and_less_often(stage: Stage):
    """It costs a start of Spark each time, next to others who work; and it says so."""
    stage.outcome = UnbrokenError("it failed after 3 epochs: no")
    stage.look()
    told = stage.made.status()
    assert (told["rehearsed"], told["prepared"]) == (False, False)
    assert told["rehearsal"] == (
        "has not rehearsed: it failed after 3 epochs: no; tried 1 time, again in 5 s"
    )
    assert pauses(stage, lambda: stage.rehearsals, 9) == [
        5, 10, 20, 40, 80, 160, 300, 300, 300
    ]  # fmt: skip
    assert "tried 10 times, again in 300 s" in stage.made.status()["rehearsal"]
    assert stage.holds == 1, "the query that is held has nothing to do with it"
    stage.outcome = 20
    pauses(stage, lambda: stage.rehearsals, 1)
    assert stage.made.status()["rehearsed"]


def test_nothing_to_rehearse_with_is_not_a_rehearsal_but_nobody_waits_for_it(stage: Stage):
    """A stream on which nothing comes.  It is tried again: something may come."""
    stage.outcome = 0
    stage.look()
    told = stage.made.status()
    assert (told["rehearsed"], told["prepared"]) == (False, True)
    assert told["rehearsal"].startswith("has not rehearsed: there was nothing to rehearse with")
    stage.outcome = UnbrokenError("no")
    assert pauses(stage, lambda: stage.rehearsals, 1) == [PAUSE_S]
    assert not stage.made.status()["prepared"], "now there was something, and it went wrong"
    stage.outcome = 7
    pauses(stage, lambda: stage.rehearsals, 1)
    told = stage.made.status()
    assert (told["rehearsed"], told["prepared"]) == (True, True)


def test_a_query_that_cannot_be_held_is_tried_again_less_and_less_often(stage: Stage):
    """And is not rehearsed meanwhile: the machine may be busy."""
    stage.hold_error = UnbrokenError("no")
    stage.look()
    assert pauses(stage, lambda: stage.holds, 3) == [5, 10, 20]
    assert stage.rehearsals == 0
    assert stage.made.status()["rehearsal"] == "cannot be held: no; tried 4 times, again in 40 s"
    stage.hold_error = None
    pauses(stage, lambda: stage.holds, 1)
    assert stage.made.status()["prepared"]


def test_a_held_query_that_fails_is_held_again_soon_also_while_rehearsals_pause(stage: Stage):
    """Without it a take-over takes seconds."""
    stage.outcome = UnbrokenError("no")
    pauses(stage, lambda: stage.rehearsals, 6)
    stage.look(after_s=1.0)
    stage.holding = False
    stage.look(after_s=1.0)
    assert (stage.holds, stage.rehearsals) == (2, 6)


def test_one_that_is_held_and_fails_again_and_again_is_held_less_and_less_often(stage: Stage):
    """Until it has been held for a while."""

    def fails(after_s: float) -> int:
        stage.look(after_s=after_s)
        stage.holding = False
        return stage.holds

    stage.look()
    assert pauses(stage, lambda: fails(0.0), 4) == [5, 10, 20, 40]
    pauses(stage, lambda: stage.holds, 1)
    stage.look(after_s=HELD_S)
    stage.holding = False
    stage.look(after_s=1.0)
    assert stage.holding


def test_what_was_broken_off_is_neither_a_rehearsal_nor_a_failure(stage: Stage, capsys):
    """The standby takes over: nobody asks any more."""
    stage.stop.set()
    stage.outcome = UnbrokenError("interrupted")
    stage.made._rehearse_now()
    assert not stage.made.status()["rehearsed"]
    assert capsys.readouterr() == ("", "")


def test_a_take_over_does_not_wait_until_a_rehearsal_has_stopped(
    monkeypatch: pytest.MonkeyPatch,
):
    """Spark may take half a minute to stop a query.  It is told to, and cleans up after itself."""
    monkeypatch.setattr(preparation_module, "SETTLE_S", 0.0)
    monkeypatch.setattr(preparation_module, "SETTLE_S_MAX", 0.0)
    begun, stopping, may_end = threading.Event(), threading.Event(), threading.Event()

    def rehearse(stop: threading.Event) -> int:
        begun.set()
        assert stop.wait(10)
        stopping.set()
        assert may_end.wait(10)
        return 3

    replica: Any = SimpleNamespace(name="ids@node-2", holding=True)
    nothing: Any = None
    standby = Standby(replica, nothing, rehearse=rehearse, book=nothing, giver="", interval_s=1.0)
    standby.epoch, standby._floor = 7, 0
    standby.begin()
    assert begun.wait(10)
    ending = threading.Thread(target=standby.end)
    began_s = time.monotonic()
    ending.start()
    ending.join(5)
    try:
        assert not ending.is_alive(), "it waits for the rehearsal"
        assert time.monotonic() - began_s < 2
        assert stopping.wait(5), "the rehearsal was told"
    finally:
        may_end.set()
        ending.join(10)


def test_a_take_over_waits_for_a_query_that_is_just_being_held(stage: Stage):
    """It is the query that goes on."""
    held, may_hold = threading.Event(), threading.Event()

    def hold(plan: object) -> None:
        held.set()
        assert may_hold.wait(10)

    replica: Any = SimpleNamespace(name="ids@node-2", holding=False, hold=hold)
    nothing: Any = None
    standby = Standby(
        replica, nothing, rehearse=lambda stop: 20, book=nothing, giver="", interval_s=1.0
    )
    standby.epoch, standby._floor = 7, 0
    standby.begin()
    assert held.wait(10)
    ending = threading.Thread(target=standby.end)
    ending.start()
    ending.join(0.2)
    assert ending.is_alive()
    may_hold.set()
    ending.join(10)
    assert not ending.is_alive()
