"""One suite for every engine: what the protocols ask of an engine, and how each is asked.

    rows by hand ─▶ a real replica ─▶ the engine under test ─▶ its log   ==   the operators alone

* An engine comes in a `Rig`, which knows how to start one, to fork its checkpoint and to wait.  The
  simulated engine is in `testing.rig`, Spark's is in `tests/features/spark_rig.py`.  Both pass
  `CHECKS`; that is why the simulator can be believed.
* What is expected is computed by `testing.operators` without any engine.  So the suite also says
  that those operators compute what Spark computes, late rows and watermarks included.
* The replica is the real one.  Only its inputs are fed by hand, and it can be made to die: between
  output and commit, or between commit and the note of the watermarks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from unbroken.testing.epochs import Rows
from unbroken.testing.operators import OPERATORS
from unbroken.testing.trial import COMMITTED, SEALED, Rig, Trial

#: How far rows are behind their epoch's time, in ms; one is ahead.
_BEHIND_MS = (0, 50, 100, 100, 200, 300, 400, 900, -600)
_STEP_MS = 250
#: How long an input may be missing before a fragment goes on without it.
BOUND_S = 1.0


def some_rows(seed: str, epoch: int, *, late: bool = True) -> Rows:
    """A few rows of an epoch, now and then none, some of them late.

    >>> some_rows("a", 3) == some_rows("a", 3), some_rows("b", 2, late=False)[0][0]
    (True, 750)
    """
    chance = Random(f"{seed}-{epoch}")
    now_ms = (epoch + 1) * _STEP_MS
    return tuple(
        (max(1, now_ms - (chance.choice(_BEHIND_MS) if late else 0)), chance.randrange(3),
         chance.randrange(1000))
        for _ in range(chance.choice((0, 2, 3, 4)))
    )  # fmt: skip


def computes(operator: str, rig: Rig, epochs: int = 10) -> None:
    """Epoch in, epoch out: the same number, what the operator alone computes, one batch each."""
    # Spark tells the newest time of a key, whenever it was seen: that is the same in order of time.
    late = operator != "count"
    trial = Trial(rig, operator)
    replica = trial.begin(operator)
    for number in range(epochs):
        trial.give_all(*(some_rows(name, number, late=late) for name in trial.inputs))
    trial.done(replica, epochs - 1)
    assert trial.said(replica) == trial.expected
    assert sum(map(len, trial.expected)) > epochs / 2, "it has something to say"
    assert rig.commits(operator)[-3:] == [epochs - 3, epochs - 2, epochs - 1]
    replica.stop()


def empty_epochs(rig: Rig) -> None:
    """An empty epoch is a batch: it closes what the watermark has passed, in that very epoch.

    Nothing is closed before it by a batch of its own, however long it takes to come.
    """
    trial = Trial(rig, "window")
    replica = trial.begin("empty")
    trial.give(0, ((100, 1, 7),))
    trial.give(0, ((2000, 1, 5),))
    trial.done(replica, 1)
    rig.rest()
    assert replica.log.next == 2
    trial.give(0, ())
    trial.give(0, ((600, 1, 9), (2100, 2, 1)))  # The first of them is late, since an empty epoch.
    trial.give(0, ())
    trial.done(replica, 4)
    assert trial.said(replica) == [(), (), ((500, 1, 7),), (), ()] == trial.expected
    replica.stop()


def two_inputs(rig: Rig) -> None:
    """A batch has one epoch of every input, however the inputs come."""
    trial = Trial(rig, "map", inputs=2)
    replica = trial.begin("two")
    trial.give(0, ((10, 0, 1),))
    rig.rest()
    assert replica.log.next == 0
    for number in range(3):
        trial.give(1, ((20 + number, 1, 2),))
    trial.done(replica, 0)
    rig.rest()
    assert replica.log.next == 1
    trial.give(0, ())
    trial.give(0, ((30, 2, 3),))
    trial.done(replica, 2)
    assert trial.said(replica) == trial.expected
    replica.stop()


def restart_in_the_middle(rig: Rig) -> None:
    """A death between output and commit: a fork asks for that epoch again, and it is the same.

    Whoever starts on the folder itself runs the planned batch again before anybody is asked: that
    is refused, and nothing is shown.
    """
    trial = Trial(rig, "window")
    replica = trial.begin("middle", dies=(SEALED, 4))
    for number in range(5):
        trial.give(0, some_rows("middle", number))
    trial.dead(replica)
    assert rig.commits("middle")[-1] == 3
    sealed = trial.said(replica)
    assert len(sealed) == 5
    orphan = trial.replica("middle")
    rig.start(orphan, forked=False)
    trial.dead(orphan)
    assert trial.said(orphan) == sealed
    assert rig.commits("middle")[-1] == 3
    again = trial.begin("middle")
    assert again.first == 4
    for number in range(5, 9):
        trial.give(0, some_rows("middle", number))
    trial.done(again, 8)
    assert trial.said(again) == trial.expected
    again.stop()


def watermarks_put_back(rig: Rig) -> None:
    """Scenario 21: after a restart every input's watermark is where it was, not only the lowest.

    The death is between commit and note, so the last epoch is done again.
    """
    trial = Trial(rig, "join")
    replica = trial.begin("marks", dies=(COMMITTED, 2))
    trial.give_all(((1200, 9, 1),), ((800, 9, 1),))  # Watermarks 900 and 500.
    trial.give_all((), ())
    trial.give_all((), ())
    trial.dead(replica)
    again = trial.begin("marks")
    assert again.first == 2, "epoch 2 is committed, but its watermarks are on no note"
    trial.give_all((), ((1200, 8, 1),))  # Both are at 900 now; who forgot the left one has 500.
    trial.give_all((), ())
    trial.give_all(((700, 1, 1),), ((650, 1, 1),))
    trial.give_all(((1300, 1, 2),), ((1250, 1, 3),))
    trial.done(again, 6)
    assert trial.said(again) == trial.expected
    assert trial.expected[5] == (), "both rows are late"
    assert len(trial.expected[6]) == 1
    again.stop()


def fork_and_restore(rig: Rig) -> None:
    """A fork at an earlier epoch goes on from there with the same epochs, and harms nobody.

    One that is started in advance goes on from what has come since.
    """
    trial = Trial(rig, "session")
    first = trial.begin("original")
    for number in range(7):
        trial.give(0, some_rows("fork", number))
    trial.done(first, 6)
    rig.fork("original", 3, "restored")
    held = trial.replica("restored")
    rig.hold(held)
    rig.fork("original", 4, "restored")
    rig.start(held)
    assert held.first == 5
    for number in range(7, 10):
        trial.give(0, some_rows("fork", number))
    for replica in (first, held):
        trial.done(replica, 9)
    assert trial.said(first) == trial.expected
    assert trial.said(held) == trial.expected[5:]
    digests = [[each.log.header(n).digest for n in range(5, 10)] for each in (first, held)]
    assert digests[0] == digests[1]
    for replica in (first, held):
        replica.stop()


def goes_on_without_an_input(rig: Rig) -> None:
    """The query that runs becomes a branch, its windows close, and a second one corrects it."""
    trial = Trial(rig, "union")
    replica = trial.replica("branch")
    replica.bind(BOUND_S)
    rig.start(replica)
    for number in range(4):
        trial.give_all(*(some_rows(name, number) for name in trial.inputs))
    trial.done(replica, 3)
    for number in range(4, 14):
        trial.give(0, some_rows("left", number))
    said = replica.said
    assert said is not None
    rig.wait(lambda: len(said.news("", 0, 0)[1]) == 10, "all of it is said")
    branch, headers = said.news("", 0, 0)
    assert [header.number for header in headers] == list(range(4, 14))
    rows = [rig.rows(said.read(branch, header.number)) for header in headers]
    assert rows == trial.without(1, after=3)
    assert sum(map(len, rows)) > 5, "windows have closed"
    assert replica.committed == 3, "nothing of it is stable"
    for number in range(4, 14):
        trial.give(1, some_rows("right", number))
    rig.wait(lambda: replica.committed == 13 and replica.branch is None, "it is stable again")
    assert trial.said(replica) == trial.expected
    replica.stop()


#: Every check by its name; each takes a rig.
CHECKS: dict[str, Callable[[Rig], None]] = {
    **{f"computes {name}": partial(computes, name) for name in OPERATORS if name != "draw"},
    "empty epochs": empty_epochs,
    "two inputs": two_inputs,
    "restart in the middle": restart_in_the_middle,
    "watermarks put back": watermarks_put_back,
    "fork and restore": fork_and_restore,
    "goes on without an input": goes_on_without_an_input,
}
