"""A replica whose input is cut off: it parks a fork, goes on, and comes together again."""

from __future__ import annotations

import threading
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from lines_by_hand import SCHEMA, WAIT_S, X_S, Make, Query, came, complete

from unbroken.checkpoints import fork
from unbroken.epochs import Epoch, Header
from unbroken.errors import CheckpointLost, DiskError, FragmentFailed
from unbroken.node import branch, lines, replica
from unbroken.node.inputs import AHEAD_EPOCHS
from unbroken.node.replica import Replica
from unbroken.policies.past import Marks, Seed
from unbroken.streams.giving_up import gap_fields
from unbroken.tentative.branch import DELAY, Bound


def test_a_failure_shorter_than_the_bound_gives_no_tentative_row(world: Make):
    """Masked wholly: nothing is parked, nothing is said."""
    w = world()
    w.both(0, 2)
    w.feed("east", 3, 3)
    Query.clock.sleep(0.5 * X_S)
    w.feed("west", 3, 3)
    w.until(lambda: w.replica.committed == 3)
    assert w.stable() == complete(4)
    assert w.replica.partition == ""
    assert len(Query.made) == 1


def test_results_go_on_within_the_bound_and_are_corrected_after(world: Make):
    """Both promises of DPC, availability and eventual consistency, with one replica."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    began_s = Query.clock.monotonic()
    w.feed("east", 3, 6)
    w.until(lambda: 3 in w.said)
    assert 0.85 * X_S < Query.clock.monotonic() - began_s < 1.3 * X_S
    w.until(lambda: w.said == [3, 4, 5, 6])
    status = w.replica.status()
    assert status["partition"] == "going tentative: west silent for 0.9 s"
    assert status["sentence"] == "tentative from epoch 3 on: 6 without west; stable to 2"
    assert (status["epoch"], status["tentative_to"], status["branch"]) == (2, 6, "0.1@node-1")
    header = w.replica.said.news("", 0, 0)[1][0]
    assert (header.kind, header.branch, header.stable_to) == ("tentative", "0.1@node-1", 2)
    assert header.waited_s == pytest.approx(0.9 * X_S, abs=0.2)
    assert w.replica.log.next == 3, "the stable stream knows nothing of it"
    assert w.replica.acks(0)[0][1]["processed"] == 2, "nor does any producer"

    w.feed("west", 3, 7)
    w.feed("east", 7, 7)
    w.until(lambda: w.replica.branch is None)
    w.until(lambda: w.replica.committed == 7)
    assert w.stable() == complete(8)
    assert w.replica.partition.startswith("stable again: corrected epochs 3 to ")
    assert [query.term for query in Query.made] == [1, 2]
    w.until(lambda: w.said == [])  # A moment after the branch is gone.
    w.until(lambda: fork.terms_in(w.folder / "alerts") == [2])
    w.both(8, 8)
    w.until(lambda: w.stable() == complete(9))


def test_new_results_go_on_while_the_stable_line_catches_up(
    world: Make, monkeypatch: pytest.MonkeyPatch
):
    """Where rollback-and-redo designs stall."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 12)
    w.until(lambda: 12 in w.said)
    monkeypatch.setattr(Query, "work_s", 0.15)  # Of the second query, which has much to do.
    Query.made[0].work_s = 0.0
    w.feed("west", 3, 12)
    w.until(lambda: w.replica.log.next > 4)
    w.both(13, 13)
    w.until(lambda: 13 in w.said)
    assert w.replica.log.next < 10, "said long before the stable line is there"
    w.until(lambda: w.replica.branch is None)
    w.until(lambda: w.replica.committed == 13)
    assert w.stable() == complete(14)


def test_a_second_partition_during_the_correction(world: Make):
    """The stable line waits, the branch goes on, and they meet all the same."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 6)
    w.until(lambda: 6 in w.said)
    w.feed("west", 3, 4)
    w.until(lambda: w.replica.log.next == 5)
    w.feed("east", 7, 9)
    w.until(lambda: 9 in w.said)
    w.feed("west", 5, 9)
    w.until(lambda: w.replica.branch is None)
    w.until(lambda: w.stable() == complete(10))


def test_a_crash_in_the_middle_loses_only_tentative_results(world: Make):
    """The parked fork is what a restart goes on from, not what the branch has committed."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 6)
    w.until(lambda: 6 in w.said)
    w.replica.stop()
    w.start()
    assert w.replica.committed == 2
    assert w.said == []
    w.until(lambda: 6 in w.said)  # Still cut off: it parts again.
    w.feed("west", 3, 6)
    w.until(lambda: w.replica.branch is None and w.stable() == complete(7))


def test_a_branch_that_fails_is_given_up_and_the_stable_line_goes_on(world: Make):
    """Still cut off, it parts again after the bound."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 5)
    w.until(lambda: 5 in w.said)
    Query.made[0].fail()
    w.until(lambda: w.replica.status()["branch"] != "0.1@node-1")
    w.until(lambda: w.said == [3, 4, 5])
    assert w.replica.branch is not None
    assert w.replica.branch.name == "0.2@node-1"
    w.feed("west", 3, 5)
    w.until(lambda: w.replica.branch is None and w.stable() == complete(6))


def test_a_fork_that_cannot_be_parked_is_tried_again_after_the_bound(
    world: Make, monkeypatch: pytest.MonkeyPatch
):
    """Also if the epoch has waited upstream for all of it: not at once, again and again."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    tries: list[float] = []
    park = fork.park

    def full(*given: Any, **how: Any) -> fork.Start:
        tries.append(Query.clock.monotonic())
        if len(tries) < 3:
            raise DiskError("no space left")
        return park(*given, **how)

    monkeypatch.setattr(lines.fork, "park", full)
    w.western.begin("7@far", after=2)
    w.feed("east", 3, 3)
    w.say(3, waited_s=0.9 * X_S)
    w.until(lambda: w.said == [3])
    assert [later - before > 0.8 * X_S for before, later in pairwise(tries)] == [True, True]


def test_a_branch_goes_on_without_what_its_stable_line_has_acked_before_it(world: Make):
    """It was trimmed: to the branch an input that is missing."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 4)
    w.until(lambda: w.said == [3, 4])
    assert w.replica.branch is not None
    w.replica.branch._inputs.error = CheckpointLost("west: epoch 3 was trimmed")
    w.feed("east", 5, 5)
    w.until(lambda: w.said == [3, 4, 5])
    assert w.replica.branch.failure() is None


def test_delay_waits_the_bound_for_every_epoch(world: Make):
    """Fewer tentative rows than with process: what comes in time is in it."""
    w = world(when_cut=DELAY)
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 3)
    w.until(lambda: 3 in w.said and len(Query.made) == 2 and not w.replica._is_starting())
    assert w.replica.branch is not None
    work_s = max(w.replica.branch._work_s)
    began_s = Query.clock.monotonic()
    w.feed("east", 4, 4)
    w.until(lambda: 4 in w.said)
    assert Query.clock.monotonic() - began_s > min(0.85 * X_S, 0.95 * X_S - work_s)
    w.feed("west", 3, 4)
    w.until(lambda: w.replica.branch is None and w.stable() == complete(5))


def test_nobody_waits_by_choice_while_the_stable_line_starts(
    world: Make, monkeypatch: pytest.MonkeyPatch
):
    """It keeps the machine busy for seconds: whoever begins at the last moment would be late."""
    w = world(when_cut=DELAY)
    started, resume = threading.Event(), Replica._resume

    def slowly(self: Replica, began: fork.Start) -> None:
        assert started.wait(WAIT_S)
        resume(self, began)

    monkeypatch.setattr(Replica, "_resume", slowly)
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 3)
    w.until(lambda: 3 in w.said and w.replica._is_starting())
    assert w.replica.branch is not None
    w.replica.branch._silence.bound = Bound(600.0, DELAY)
    w.feed("east", 4, 5)
    w.until(lambda: w.said == [3, 4, 5])
    started.set()
    w.until(lambda: not w.replica._is_starting())
    w.feed("east", 6, 6)
    w.until(lambda: w.replica.branch._arrivals.gate.complete == 2 and came(w.replica, "east") == 6)
    assert w.said == [3, 4, 5], "now it waits again"
    w.feed("west", 3, 6)
    w.until(lambda: w.replica.branch is None and w.stable() == complete(7))


def test_what_epochs_take_is_not_waited_for(world: Make):
    """What is left of the bound is for the work, as the last ones took it."""
    w = world(when_cut=DELAY)
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    Query.made[0].work_s = 0.1
    w.feed("east", 3, 3)
    w.until(lambda: 3 in w.said and len(Query.made) == 2 and not w.replica._is_starting())
    branch = w.replica.branch
    assert branch is not None
    assert 0.1 <= max(branch._work_s) < WAIT_S
    branch._silence.bound = Bound(600.0, DELAY)
    branch._work_s.append(600.0)
    w.feed("east", 4, 4)
    w.until(lambda: 4 in w.said)
    w.feed("west", 3, 4)
    w.until(lambda: w.replica.branch is None and w.stable() == complete(5))


def test_watermarks_are_lifted_for_what_is_missing(world: Make):
    """Scenario 9: after every epoch of the branch, and never on the stable line."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 4)
    w.until(lambda: len(Query.made[0].lifted) == 2)
    assert Query.made[0].lifted == [["west"], ["west"]]
    w.feed("west", 3, 4)
    w.until(lambda: w.replica.branch is None)
    assert Query.made[1].lifted == []


def test_what_is_tentative_upstream_is_tentative_here_and_the_bound_counts_once(world: Make):
    """Scenario 10: the producer has waited; whoever reads it follows at once, and is corrected."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 5)
    w.western.begin("7@far", after=2)
    began_s = Query.clock.monotonic()
    w.say(3, waited_s=0.9 * X_S)
    for number in (4, 5):
        w.say(number, waited_s=0.0)
    w.until(lambda: w.said == [3, 4, 5])
    assert Query.clock.monotonic() - began_s < 0.6 * X_S, "it does not wait a second time"
    assert w.replica.partition == "going tentative: west tentative"
    assert w.replica.said is not None
    first = w.replica.said.read("0.1@node-1", 3)
    assert first.table["n"].to_pylist() == [3, 2003]
    assert first.header.waited_s >= 0.9 * X_S
    w.feed("west", 3, 5)
    w.western.end("7@far")
    w.until(lambda: w.replica.branch is None and w.stable() == complete(6))
    assert w.replica.partition == "stable again: corrected epochs 3 to 5 (6 rows changed)"


def test_a_stable_line_never_hears_what_is_tentative(world: Make):
    """The stable epoch comes before the bound runs out: nothing was ever tentative here."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.western.begin("7@far", after=2)
    w.feed("east", 3, 3)
    w.say(3, waited_s=0.2)
    Query.clock.sleep(0.3 * X_S)
    w.feed("west", 3, 3)
    w.until(lambda: w.stable() == complete(4))
    assert w.replica.partition == ""


def test_what_only_the_branch_has_read_does_not_count_for_a_hole(world: Make):
    """Scenario 13: should the producer lose everything, its hole begins after the stable line.

    That has a few epochs at hand itself, while it waits for the input that is cut off.
    """
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 6)
    w.until(lambda: len(Query.made) == 2)
    w.feed("east", 7, 20)
    w.until(lambda: 20 in w.said)
    assert w.streams["east"].hole() <= 3 + AHEAD_EPOCHS + 1
    w.feed("west", 3, 20)
    w.until(lambda: w.replica.branch is None and w.stable() == complete(21))
    w.until(lambda: w.streams["east"].hole() == 21)


def test_the_stable_line_starts_while_its_input_is_away(world: Make):
    """A start takes seconds; when the input is back nobody has to wait for it."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 4)
    w.until(lambda: len(Query.made) == 2)
    assert w.said == [3, 4], "not before the branch has said what was there"
    w.until(lambda: "waiting for epoch 3 of west" in w.replica.sentence)
    w.feed("east", 5, 5)
    w.until(lambda: 5 in w.said)
    assert w.replica.log.next == 3
    assert "correcting" not in w.replica.status()["sentence"]
    w.feed("west", 3, 5)
    w.until(lambda: w.replica.branch is None and w.stable() == complete(6))
    assert len(Query.made) == 2


def test_a_stable_line_that_cannot_start_early_starts_when_it_is_healed(
    world: Make, monkeypatch: pytest.MonkeyPatch
):
    """A full disk, say: the branch goes on meanwhile, and nobody calls the replica failed."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    tries: list[fork.Start] = []
    resume = Replica._resume

    def full(self: Replica, began: fork.Start) -> None:
        tries.append(began)
        if len(tries) == 1:
            raise DiskError("no space left")
        resume(self, began)

    monkeypatch.setattr(Replica, "_resume", full)
    w.feed("east", 3, 4)
    w.until(lambda: len(tries) == 1)
    w.feed("east", 5, 6)
    w.until(lambda: w.said == [3, 4, 5, 6])
    assert (len(tries), w.replica.failed) == (1, "")
    w.feed("west", 3, 6)
    w.until(lambda: w.replica.branch is None and w.stable() == complete(7))
    assert len(tries) == 2


def test_a_branch_does_not_wait_for_a_stable_line_that_has_failed(
    world: Make, monkeypatch: pytest.MonkeyPatch
):
    """People have to mend that; until then there are results, tentative ones."""
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 20)
    w.until(lambda: 20 in w.said and len(Query.made) == 2)
    Query.made[1].work_s = 0.1
    w.feed("west", 3, 60)
    w.until(lambda: w.replica.log.next > 5)
    Query.made[1].fail()
    monkeypatch.setattr(Query.made[1], "failure", lambda: FragmentFailed("out of memory"))
    w.feed("east", 21, 60)
    w.until(lambda: w.replica.status()["failed"] and 60 in w.said)
    assert w.replica.log.next < 20


class Core:
    """A machine that does an epoch and a half while one arrives, however slow the real one is."""

    def __init__(self) -> None:
        self._changed, self._halves = threading.Condition(), 0

    def is_used(self) -> bool:
        """Whether the time that there has been is used up."""
        return self._halves < 2

    def arrives(self) -> None:
        """One more epoch arrives: there has been time for one and a half."""
        with self._changed:
            self._halves = min(self._halves, 2) + 3
            self._changed.notify_all()

    def is_quick(self) -> None:
        """From now on it does whatever there is to do."""
        with self._changed:
            self._halves = 1_000
            self._changed.notify_all()

    def does(self, before: Any) -> Any:
        """The same, which takes the time of an epoch."""

        def seal(sealed: Any, *given: Any) -> None:
            with self._changed:
                self._changed.wait_for(lambda: self._halves >= 2)
                self._halves -= 2
                self._changed.notify_all()
            before(sealed, *given)

        return seal


def test_two_lines_that_share_one_core_meet(world: Make, monkeypatch: pytest.MonkeyPatch):
    """Side by side they would never meet: each would do three epochs while four arrive."""
    core = Core()
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    w.feed("east", 3, 12)
    w.until(lambda: 12 in w.said and len(Query.made) == 2)
    monkeypatch.setattr(branch.Branch, "seal", core.does(branch.Branch.seal))
    monkeypatch.setattr(replica.Replica, "_seal", core.does(replica.Replica._seal))
    Query.made[0].seal_with(w.replica.branch.seal)
    Query.made[1].seal_with(w.replica._seal)
    w.feed("west", 3, 12)
    number = 12
    while w.replica.branch is not None:
        number += 1
        assert number < 150, w.replica.status()
        w.both(number, number)
        core.arrives()
        # However slow the real machine is; unless the stable line has done all that there is.
        w.until(lambda last=number: core.is_used() or w.replica.committed == last)
    core.is_quick()
    w.until(lambda: w.stable() == complete(number + 1))


def test_what_a_source_has_given_up_is_told_and_counted_once(world: Make):
    """A partition that outlasts the log: gaps are taken as empty epochs, and what follows says so.

    Later epochs of the source are whole, so it is the consumer that counts; also after a crash.
    """
    w = world()
    w.feed("west", 0, 2)
    for number in (3, 4):
        given_up = gap_fields(Header("west", number, rows=1))
        w.logs["west"].append(Epoch.gap("west", number, SCHEMA, **given_up))
    w.feed("west", 5, 5)
    w.feed("east", 0, 3)
    w.until(lambda: w.replica.committed == 3)
    w.replica.stop()
    w.start()
    w.feed("east", 4, 5)
    w.until(lambda: w.replica.committed == 5)
    assert w.stable() == [*complete(3), [3], [4], [5, 1005]]
    headers = w.replica.log.headers(0)
    assert [header.lost for header in headers] == [0, 0, 0, 1, 1, 0]
    assert [header.gaps_total for header in headers] == [0, 0, 0, 1, 2, 2]
    assert [header.lost_total for header in headers] == [0, 0, 0, 1, 2, 2]


def test_a_stable_line_goes_on_from_its_checkpoint_and_not_from_an_older_seed(
    world: Make, monkeypatch: pytest.MonkeyPatch
):
    """Upstream backup that was rebuilt once: its seed is of the past, and so is what was read.

    What is read of the branch's state would let producers forget what the stable one needs.
    """
    w = world()
    w.both(0, 2)
    w.until(lambda: w.replica.committed == 2)
    read: list[fork.Start] = []
    monkeypatch.setattr(Replica, "_read_oldest", lambda self, began: read.append(began))
    stopped = threading.Event()
    w.replica._oldest = SimpleNamespace(stop=stopped.set, trouble="")  # type: ignore[assignment]
    w.replica._seed = Seed(1, 2, Marks(5, (5,)))
    assert w.replica.silent_since is None, "it has spoken"
    w.feed("east", 3, 4)
    w.until(lambda: w.said == [3, 4])
    assert stopped.is_set()
    w.feed("west", 3, 4)
    w.until(lambda: w.replica.branch is None and w.stable() == complete(5))
    assert [began.epoch for began in read] == [2], "of the fork that was parked"
    assert w.replica._seed is None
