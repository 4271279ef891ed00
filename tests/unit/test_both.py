"""Stable and tentative epochs of one stream, merged apart (scenario 7)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from unbroken.epochs import TENTATIVE, Epoch, Header
from unbroken.errors import Unreachable
from unbroken.streams import serve
from unbroken.streams.both import Both
from unbroken.streams.branch_log import BranchLog
from unbroken.streams.flight import Door
from unbroken.streams.log import EpochLog
from unbroken.streams.serve import StreamDoor
from unbroken.streams.served import Served
from unbroken.tentative import hearing
from unbroken.tentative.hearing import Hearing

WAIT_S = 10.0


@pytest.fixture(autouse=True)
def _short_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "POLL_S", 0.05)


class Replica:
    """A stable log and a branch, at a door of its own."""

    def __init__(self, folder: Path, *, parts: bool = True) -> None:
        self.door, self.log = Door(), EpochLog(folder / "output", "alerts")
        self.said = BranchLog(folder / "tentative", "alerts")
        self.streams = StreamDoor(self.door)
        self.served = self.streams.streams["alerts"] = Served(self.log, [], keep=600)
        self.served.tentative = self.said if parts else None
        self.bodies: list[int] = []
        handler = self.door._get["epoch"]

        def counted(command):
            self.bodies.append(command["number"])
            return handler(command)

        self.door._get["epoch"] = counted

    def stable(self, number: int, *values: int) -> None:
        self.log.append(Epoch.of("alerts", number, pa.table({"n": pa.array(values, pa.int64())})))

    def say(self, number: int, *values: int) -> None:
        table = pa.table({"n": pa.array(values, pa.int64())})
        self.said.append(
            Epoch.of("alerts", number, table, kind=TENTATIVE, branch=self.said.branch, stable_to=1)
        )


Make = Callable[..., Replica]


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Make]:
    made: list[Replica] = []

    def make(**how: bool) -> Replica:
        made.append(Replica(tmp_path / str(len(made)), **how))
        return made[-1]

    yield make
    for each in made:
        each.door.close()


@pytest.fixture
def follow() -> Iterator[Callable[..., Both]]:
    open_ones: list[Both] = []

    def make(*replicas: Replica, start: int = 0) -> Both:
        doors = {f"r{i}": each.door.address for i, each in enumerate(replicas)}
        open_ones.append(Both("alerts", start, lambda: doors))
        return open_ones[-1]

    yield make
    for each in open_ones:
        each.close()


def heard(both: Both, count: int) -> list[tuple[int, str, list[int]]]:
    found = []
    for _ in range(count):
        epoch = both.take(WAIT_S)
        assert epoch is not None
        found.append((epoch.number, epoch.kind, epoch.table["n"].to_pylist()))
    return found


def test_tentative_epochs_follow_the_stable_ones_and_are_replaced(replica, follow):
    """Results go on, and are corrected; where they were right no row travels twice."""
    r = replica()
    for number in (0, 1):
        r.stable(number, number)
    r.said.begin("3@node-1", after=1)
    r.say(2, 20)
    r.say(3, 30)
    both = follow(r)
    assert heard(both, 4) == [
        (0, "stable", [0]), (1, "stable", [1]), (2, "tentative", [20]), (3, "tentative", [30]),
    ]  # fmt: skip
    r.stable(2, 20)
    confirmed = both.take(WAIT_S)
    assert confirmed is not None
    assert (confirmed.number, confirmed.kind, confirmed.confirmed) == (2, "stable", True)
    assert 2 not in r.bodies, "what was said already is not sent again"
    r.stable(3, 30, 31)
    corrected = both.take(WAIT_S)
    assert corrected is not None
    assert corrected.replaces is not None
    assert not corrected.confirmed
    assert corrected.replaces.header.branch == "3@node-1"
    assert corrected.replaces.added["n"].to_pylist() == [31]
    assert corrected.replaces.withdrawn.num_rows == 0


def test_a_stable_copy_of_another_replica_wins(replica, follow):
    """Scenario 7: the cut replica's tentative 2 came first; the other's stable 2 is not dropped."""
    cut, whole = replica(), replica()
    for each in (cut, whole):
        each.stable(0, 0)
    cut.said.begin("3@node-1", after=0)
    cut.say(1, 5)
    both = follow(cut, whole)
    assert heard(both, 2) == [(0, "stable", [0]), (1, "tentative", [5])]
    whole.stable(1, 1)
    whole.stable(2, 2)
    assert heard(both, 2) == [(1, "stable", [1]), (2, "stable", [2])]
    cut.say(2, 7)
    assert both.take(0.3) is None, "what is stable is not said again"


def test_two_branches_are_one_stream_without_duplicates(replica, follow):
    """Medusa: whoever hears both sides of a partition sees each number once.

    One of them is followed as long as it keeps up: a mixture is what nobody has computed.
    """
    one, two = replica(), replica()
    for each in (one, two):
        each.stable(0, 0)
    one.said.begin("3@node-1", after=0)
    one.say(1, 11)
    both = follow(one, two)
    assert heard(both, 2)[1] == (1, "tentative", [11])
    two.said.begin("5@node-2", after=0)
    for number in (1, 2, 3):
        two.say(number, 20 + number)
    assert both.take(0.3) is None, "it is not far ahead"
    one.say(2, 12)
    assert heard(both, 1) == [(2, "tentative", [12])]
    for number in (4, 5, 6):
        two.say(number, 20 + number)
    assert heard(both, 4) == [(n, "tentative", [20 + n]) for n in (3, 4, 5, 6)]
    one.say(3, 13)
    assert both.take(0.3) is None


def test_a_branch_that_ends_leaves_what_was_heard_open_until_it_is_stable(replica, follow):
    """A crash loses tentative results only; the consumer knows which are still open."""
    r = replica()
    r.stable(0, 0)
    r.said.begin("3@node-1", after=0)
    r.say(1, 5)
    both = follow(r)
    heard(both, 2)
    r.said.end("3@node-1")
    assert both.take(0.3) is None
    r.stable(1, 6)
    epoch = both.take(WAIT_S)
    assert epoch is not None
    assert epoch.replaces is not None
    assert epoch.replaces.withdrawn["n"].to_pylist() == [5]


def test_a_stream_without_a_bound_is_followed_as_ever(replica, follow):
    """Its door says that there never is a branch: nobody asks again."""
    r = replica(parts=False)
    asked = []
    handler = r.door._act["tentative"]
    r.door._act["tentative"] = lambda command: asked.append(1) or handler(command)
    both = follow(r)
    r.stable(0, 0)
    assert heard(both, 1) == [(0, "stable", [0])]
    assert both.take(0.5) is None
    assert len(asked) == 1
    assert both._enough.is_set(), "nor is it looked up who else might have one"


def until(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_rows_come_with_their_announcement_while_nobody_speaks_on_a_branch(replica, follow):
    """What a bound costs while nothing is cut: no question more per epoch than without it."""
    r = replica()
    asked: list[int] = []
    handler = r.door._act["headers"]
    r.door._act["headers"] = lambda command: asked.append(1) or handler(command)
    both = follow(r)

    def turned(questions: list[int]) -> None:
        """What is under way is of before: it asks only these from now on."""
        began = len(questions)
        until(lambda: len(questions) > began + 2)
        asked.clear()

    until(lambda: not both._stable.by_headers)
    turned(r.bodies)
    r.stable(0, 0)
    assert heard(both, 1) == [(0, "stable", [0])]
    assert not asked

    r.said.begin("1@a", after=0)
    r.say(1, 10)
    assert heard(both, 1) == [(1, "tentative", [10])]
    turned(asked)
    r.stable(1, 1)
    assert heard(both, 1) == [(1, "stable", [1])]
    assert asked, "its rows may have been said already"

    r.said.end("1@a")
    until(lambda: not both._stable.by_headers)
    turned(r.bodies)
    r.stable(2, 2)
    assert heard(both, 1) == [(2, "stable", [2])]
    assert not asked


def test_rows_that_are_too_many_are_forgotten_but_not_that_they_were_said(
    monkeypatch: pytest.MonkeyPatch,
):
    """Invariants 4 and 7: a limit on memory, and never a silent correction."""
    monkeypatch.setattr(hearing, "SAID_BYTES_MAX", 100)
    listener = Hearing(start=0)
    epochs = [
        Epoch.of("alerts", n, pa.table({"n": list(range(10))}), kind=TENTATIVE) for n in range(3)
    ]
    listener.announced("r", "3@node-1", [epoch.header for epoch in epochs])
    for epoch in epochs:
        wanted = listener.wanted(stable_next=0)
        assert wanted is not None
        listener.taken(wanted, epoch)
    assert listener.open == [0, 1, 2]
    oldest = listener.replaced(Epoch.of("alerts", 0, pa.table({"n": [1]})))
    assert oldest.replaces is not None
    assert (oldest.replaces.withdrawn, oldest.replaces.confirmed) == (None, False)
    newest = listener.replaced(Epoch.of("alerts", 2, pa.table({"n": [1]})))
    assert newest.replaces.withdrawn.num_rows == 9


def test_a_tentative_epoch_carries_how_far_the_stream_is_stable():
    """And a stable one is as far as it says."""
    header = Header("alerts", 9, TENTATIVE, stable_to=4, branch="3@node-1", waited_s=2.7)
    again = Header.from_json(header.to_json())
    assert again == header
    assert Epoch(again, pa.table({"n": [1]})).stable_to == 4
    assert Epoch.of("alerts", 9, pa.table({"n": [1]})).stable_to == 9


def test_a_body_that_stalls_does_not_silence_a_branch(replica, follow):
    """Its only holder was cut off between header and rows; another replica goes on meanwhile."""
    whole, cut = replica(), replica()
    for each in (whole, cut):
        each.stable(0, 0)
    both = follow(whole, cut)
    assert heard(both, 1) == [(0, "stable", [0])]
    back, handler = threading.Event(), whole.door._get["epoch"]

    def stalls(command):
        assert back.wait(WAIT_S)
        return handler(command)

    whole.door._get["epoch"] = stalls
    cut.said.begin("3@node-1", after=0)
    whole.stable(1, 1)
    deadline_s = time.monotonic() + WAIT_S
    while both._stable._merge.wanted() is None:
        assert time.monotonic() < deadline_s, "it is announced"
        time.sleep(0.01)
    cut.say(1, 5)
    cut.say(2, 6)
    assert heard(both, 2) == [(1, "tentative", [5]), (2, "tentative", [6])]
    back.set()
    assert heard(both, 1) == [(1, "stable", [1])]
    assert whole.bodies.count(1) == 1, "it was on its way, and is not asked for twice"


def test_rows_that_did_not_come_are_asked_for_again(replica, follow):
    """A hiccup of the network must not end what is heard until the next partition."""
    r = replica()
    r.stable(0, 0)
    r.said.begin("3@node-1", after=0)
    handler, failures = r.door._get["said"], [1, 2]

    def stumbling(command):
        if failures:
            failures.pop()
            raise Unreachable("a hiccup")
        return handler(command)

    r.door._get["said"] = stumbling
    for number in (1, 2):
        r.say(number, number)
    both = follow(r)
    assert heard(both, 3)[1:] == [(1, "tentative", [1]), (2, "tentative", [2])]


def test_a_replica_that_is_gone_is_not_asked_for_ever(replica, follow):
    """The book no longer names it."""
    r = replica()
    doors = {"r": r.door.address}
    both = Both("alerts", 0, lambda: doors)
    try:
        r.stable(0, 0)
        assert heard(both, 1) == [(0, "stable", [0])]
        doors.clear()
        until_s = time.monotonic() + WAIT_S
        while both._peers and time.monotonic() < until_s:
            time.sleep(0.05)
        assert both._peers == {}
    finally:
        both.close()
