"""Following a stream: bodies that fail, replicas that are damaged, consumers that are slow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from unbroken.epochs import HEADER_KEY, Epoch
from unbroken.errors import DiskError, DivergenceError, EpochGone, UnbrokenError, Unreachable
from unbroken.streams import follow, serve
from unbroken.streams.flight import Door, Peer
from unbroken.streams.follow import Follower
from unbroken.streams.log import EpochLog
from unbroken.streams.merge import Fetch, Serving
from unbroken.streams.serve import StreamDoor
from unbroken.streams.served import Served


@pytest.fixture(autouse=True)
def _short_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "POLL_S", 0.05)


class Replica:
    """A log at a door of its own."""

    def __init__(self, folder: Path) -> None:
        self.door, self.log = Door(), EpochLog(folder, "s")
        self.bodies_asked = self.headers_asked = 0
        self.streams = StreamDoor(self.door)
        self.streams.streams["s"] = Served(self.log, [], keep=600)
        self._count("_get", "epoch")
        self._count("_act", "headers")

    def _count(self, kind: str, name: str) -> None:
        handlers = getattr(self.door, kind)
        handler = handlers[name]

        def counted(command):
            self.bodies_asked += name == "epoch"
            self.headers_asked += name == "headers"
            return handler(command)

        handlers[name] = counted

    def append(self, first: int, last: int) -> None:
        for number in range(first, last + 1):
            self.log.append(Epoch.of("s", number, pa.table({"n": [number]})))


Make = Callable[[], Replica]


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Make]:
    made: list[Replica] = []

    def make() -> Replica:
        made.append(Replica(tmp_path / f"r{len(made) + 1}"))
        return made[-1]

    yield make
    for one in made:
        one.door.close()


def take(follower: Follower, count: int) -> list[int]:
    epochs = [follower.take(30.0) for _ in range(count)]
    assert None not in epochs
    return [epoch.table["n"][0].as_py() for epoch in epochs]


def until(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_body_that_did_not_come_is_asked_for_again(replica: Make):
    """The only replica answers for headers all the time, but one body is lost on its way.

    Without the rule nobody would announce that epoch again, and the consumer would wait for ever.
    """
    one = replica()
    one.append(0, 2)
    serve_body, losses = one.door._get["epoch"], [1, 1]

    def lossy(command):
        if command["number"] == 1 and losses:
            losses.pop()
            raise Unreachable("lost on its way")
        return serve_body(command)

    one.door._get["epoch"] = lossy
    follower = Follower("s", 0, lambda: {"r1": one.door.address})
    try:
        assert take(follower, 3) == [0, 1, 2]
    finally:
        follower.close()


@pytest.mark.parametrize("trouble", ["damaged", "trimmed"])
def test_what_one_replica_cannot_give_another_one_does(replica: Make, trouble: str):
    """Announced by both, damaged or trimmed at the first: the second is asked, nobody hears."""
    first, second = replica(), replica()
    for one in (first, second):
        one.append(0, 5)
    book = {"r1": first.door.address}
    follower = Follower("s", 0, lambda: book)
    try:
        until(lambda: follower._merge.wanted())
        book["r2"] = second.door.address
        follower._watch()
        until(lambda: len(follower._merge._copies[0].replicas) == 2)
        if trouble == "damaged":
            first.log.path(0).write_bytes(b"")
        else:
            first.log.trim(3)
        assert take(follower, 6) == list(range(6))
    finally:
        follower.close()


@pytest.mark.parametrize("listed", [1, 2])
@pytest.mark.parametrize(("trouble", "kind"), [("damaged", DiskError), ("trimmed", EpochGone)])
def test_what_nobody_can_give_is_an_error(
    replica: Make, trouble: str, kind: type[UnbrokenError], listed: int
):
    """Told to whoever takes, after all that could be given."""
    one, other = replica(), replica()
    one.append(0, 5)
    if listed == 2:
        other.log.start_at(6)  # It was repaired, and is of no help.
    if trouble == "damaged":
        one.log._recent.clear()
        one.log.path(0).write_bytes(b"")
    else:
        one.log.trim(3)
    book = {"r1": one.door.address, "r2": other.door.address}
    follower = Follower("s", 0, lambda: {name: book[name] for name in list(book)[:listed]})
    try:
        with pytest.raises(kind):
            take(follower, 1)
    finally:
        follower.close()


def test_one_that_is_not_listened_to_yet_may_have_what_another_has_trimmed(
    replica: Make, monkeypatch: pytest.MonkeyPatch
):
    one, two = replica(), replica()
    one.log.start_at(5)
    one.append(5, 9)
    two.append(0, 9)

    def late(address: str) -> Peer:
        if address == two.door.address:  # The other one has answered long ago.
            until(lambda: one.headers_asked + one.bodies_asked > 1)
        return Peer(address)

    monkeypatch.setattr(follow, "Peer", late)
    follower = Follower("s", 2, lambda: {"r1": one.door.address, "r2": two.door.address})
    assert take(follower, 3) == [2, 3, 4]
    follower.close()


def test_the_only_replica_is_followed_by_bodies_and_only_a_few_ahead(replica: Make):
    """Header and rows in one answer; invariant 7: what waits here is bounded."""
    one = replica()
    one.append(0, 19)
    follower = Follower("s", 0, lambda: {"r1": one.door.address})
    try:
        until(lambda: len(follower._at_hand) == follow.BODIES_AHEAD_MAX)
        assert one.bodies_asked == follow.BODIES_AHEAD_MAX
        assert take(follower, 20) == list(range(20))
        assert one.headers_asked == 0
        one.append(20, 20)
        assert take(follower, 1) == [20]
        assert not follower._at_hand
    finally:
        follower.close()


def test_a_body_at_hand_of_one_that_was_replaced_meanwhile_is_not_taken(replica: Make):
    """The word that another one stands alone may come between looking and taking."""
    one = replica()
    one.append(0, 3)
    follower = Follower("s", 0, lambda: {"r1": one.door.address})
    try:
        until(lambda: ("r1", 0) in follower._at_hand)
        with follower._changed:
            fetch = follower._merge.wanted()
            assert fetch == Fetch("r1", 0)
            follower._merge.only(7, "r2")
        assert follower._take_at_hand(fetch, None) is None
        assert follower.next == 0
    finally:
        follower.close()


def test_bodies_at_hand_are_dropped_when_another_replica_was_faster(replica: Make):
    """From one replica to two and back: each epoch comes once, and nothing stays behind."""
    one, two = replica(), replica()
    one.append(0, 3)
    book = {"r1": one.door.address}
    follower = Follower("s", 0, lambda: book)
    try:
        until(lambda: follower._at_hand)
        book["r2"] = two.door.address
        follower._watch()
        two.append(0, 9)
        assert take(follower, 10) == list(range(10))
        one.append(4, 10)
        assert take(follower, 1) == [10]
        until(lambda: not follower._at_hand)
    finally:
        follower.close()


def test_each_body_is_fetched_once_however_many_replicas_there_are(replica: Make):
    """Later copies are dropped by number: two replicas, six epochs, six bodies."""
    first, second = replica(), replica()
    for one in (first, second):
        one.append(0, 5)
    follower = Follower("s", 0, lambda: {"r1": first.door.address, "r2": second.door.address})
    try:
        assert take(follower, 6) == list(range(6))
        assert first.bodies_asked + second.bodies_asked == 6
    finally:
        follower.close()


def test_a_dead_replica_costs_nothing_while_another_lives(replica: Make):
    """Nothing is detected, nothing is switched: its connection is refused, the other one serves."""
    first, second = replica(), replica()
    first.append(0, 2)
    second.append(0, 5)
    follower = Follower("s", 0, lambda: {"r1": first.door.address, "r2": second.door.address})
    try:
        assert take(follower, 1) == [0]
        first.door.shutdown()
        assert take(follower, 5) == [1, 2, 3, 4, 5]
    finally:
        follower.close()


def test_a_replica_that_comes_back_elsewhere_is_found_in_the_book(replica: Make, tmp_path: Path):
    """A node that was started again has another port; the consumer goes on where it was."""
    first = replica()
    first.append(0, 2)
    book = {"r1": first.door.address}
    follower = Follower("s", 0, lambda: book)
    try:
        assert take(follower, 2) == [0, 1]
        first.door.shutdown()
        moved = Replica(tmp_path / "r1")
        moved.append(3, 4)
        book["r1"] = moved.door.address
        assert take(follower, 3) == [2, 3, 4]
        moved.door.close()
    finally:
        follower.close()


def test_headers_are_read_only_so_far_ahead_of_a_slow_consumer(replica: Make, monkeypatch):
    """Invariant 7: a consumer that is stuck for a day does not collect a day of headers."""
    monkeypatch.setattr(follow, "AHEAD_EPOCHS_MAX", 10)
    one, quiet = replica(), replica()
    one.append(0, 199)
    follower = Follower("s", 0, lambda: {"r1": one.door.address, "r2": quiet.door.address})
    try:
        until(lambda: len(follower._merge._copies) == 64)  # One page may go beyond the limit.
        asked = one.headers_asked
        assert take(follower, 54) == list(range(54))
        assert one.headers_asked == asked, "not asked while there is enough"
        assert take(follower, 146) == list(range(54, 200))
    finally:
        follower.close()


def test_replicas_that_disagree_stop_the_consumer_with_a_reason(replica: Make):
    """Invariant 1: a divergence is raised where the epochs are taken, not in some thread."""
    first, second = replica(), replica()
    first.append(0, 3)
    second.log.append(Epoch.of("s", 0, pa.table({"n": [77]})))
    follower = Follower("s", 0, lambda: {"r1": first.door.address, "r2": second.door.address})
    try:
        until(lambda: follower._error)
        with pytest.raises(DivergenceError, match="epoch 0 has digest") as caught:
            follower.take(30.0)
        assert "only at r2: {'n': 77}" in caught.value.what
        assert "only at r1: {'n': 0}" in caught.value.what
    finally:
        follower.close()


@pytest.mark.parametrize("listed", [1, 2])
def test_headers_of_another_version_are_told(replica: Make, listed: int):
    """Half of a cluster was upgraded: an error that says so, not a thread that died."""
    one, quiet = replica(), replica()
    text = '{"stream": "s", "number": 0, "new": 1}'
    one.door._act["headers"] = lambda command: [text]
    one.door._get["epoch"] = lambda command: pa.table({"n": [0]}).replace_schema_metadata(
        {HEADER_KEY: text.encode()}
    )
    book = {"r1": one.door.address, "r2": quiet.door.address}
    follower = Follower("s", 0, lambda: {name: book[name] for name in list(book)[:listed]})
    try:
        with pytest.raises(UnbrokenError, match="what r1 says of 's' cannot be read") as caught:
            take(follower, 1)
        assert "one version" in caught.value.hint
    finally:
        follower.close()


def test_a_replica_that_froze_after_its_header_is_not_waited_for(replica: Make):
    """It announced first, so it is asked first; its body never comes, the other one's does."""
    frozen, lively = replica(), replica()
    asked, thaw = threading.Event(), threading.Event()
    serve_body = frozen.door._get["epoch"]

    def freeze(command):
        asked.set()
        thaw.wait(60)
        return serve_body(command)

    frozen.door._get["epoch"] = freeze
    frozen.append(0, 5)
    book = {"r1": frozen.door.address, "r2": lively.door.address}
    follower = Follower("s", 0, lambda: book)
    try:
        until(lambda: follower._merge.wanted())
        taking = threading.Thread(target=lambda: taken.extend(take(follower, 6)))
        taken: list[int] = []
        taking.start()
        assert asked.wait(30)
        lively.append(0, 5)
        taking.join(20)
        assert taken == [0, 1, 2, 3, 4, 5]
        assert not thaw.is_set()
    finally:
        thaw.set()
        follower.close()


def test_a_replica_that_begins_later_does_not_stop_a_consumer(replica: Make):
    """One that was repaired has no old epochs: they come from the other, the rest from either."""
    old, new = replica(), replica()
    new.log.start_at(3)
    new.append(3, 5)
    follower = Follower("s", 0, lambda: {"r1": old.door.address, "r2": new.door.address})
    try:
        until(lambda: follower._gone)
        old.append(0, 2)
        assert take(follower, 6) == [0, 1, 2, 3, 4, 5]
    finally:
        follower.close()


def test_a_replica_that_comes_later_is_heard_without_a_pause_in_the_stream(replica: Make):
    """A consumer that always finds something to take learns of newcomers all the same."""
    first, second = replica(), replica()
    book = {"r1": first.door.address}
    follower = Follower("s", 0, lambda: book)
    try:
        first.append(0, 0)
        assert take(follower, 1) == [0]
        book["r2"] = second.door.address
        until(lambda: "r2" in follower._listeners)
    finally:
        follower.close()


def test_a_follower_says_who_it_is_and_what_it_has_taken(replica: Make):
    """Scenario 13: headers that it heard do not count, bodies that came do."""
    one, quiet = replica(), replica()
    one.append(0, 9)
    asked: list[dict[str, object]] = []
    handler = one.door._act["headers"]
    one.door._act["headers"] = lambda command: (asked.append(command), handler(command))[1]
    book = {"r1": one.door.address, "r2": quiet.door.address}
    follower = Follower("s", 0, lambda: book, consumer="c@node-1")
    assert take(follower, 2) == [0, 1]
    until(lambda: asked[-1]["next"] == 2)
    assert {command["consumer"] for command in asked} == {"c@node-1"}
    assert (asked[0]["from"], asked[0]["next"]) == (0, 0)
    assert (asked[-1]["from"], asked[-1]["next"]) == (10, 2)
    follower.close()


def test_who_reads_again_what_it_has_says_so(replica: Make):
    one = replica()
    one.append(0, 9)
    served = one.streams.streams["s"]
    follower = Follower("s", 3, lambda: {"r1": one.door.address}, consumer="sink", has=4)
    until(lambda: served.hole())
    assert served.hole() == 4
    follower.close()


def test_a_hole_is_followed_number_by_number(replica: Make, tmp_path: Path):
    """Invariant 2: a gap is delivered as such; it is asked for before its beginning is known."""
    one = replica()
    served = one.streams.streams["s"] = Served(one.log, ["c"], keep=0, begins_later=True)
    follower = Follower("s", 51, lambda: {"r1": one.door.address}, consumer="c")
    until(lambda: served.hole() == 51)
    assert follower.take(0.2) is None
    served.begin(51)
    for number in (51, 52):
        one.log.append(Epoch.gap("s", number, pa.schema([("n", pa.int64())]), lost=number))
    one.append(53, 53)
    came = [follower.take(30.0) for _ in range(3)]
    assert [(e.number, e.kind, e.header.lost) for e in came if e] == [
        (51, "gap", 51), (52, "gap", 52), (53, "stable", 0),
    ]  # fmt: skip
    follower.close()


def test_who_lacks_an_epoch_before_the_hole_is_told_so(replica: Make):
    one = replica()
    served = one.streams.streams["s"] = Served(one.log, ["c"], keep=0, begins_later=True)
    behind = Follower("s", 40, lambda: {"r1": one.door.address})
    until(lambda: served.asked("c", 51) or served.hole())
    served.begin(51, [Epoch.gap("s", 51, pa.schema([("n", pa.int64())]))])
    with pytest.raises(EpochGone, match="epoch 40 is gone: the log begins at 51") as caught:
        behind.take(30.0)
    assert "follow from 51" in caught.value.hint
    behind.close()


def test_s13_whoever_says_where_it_is_takes_nothing_more_from_the_one_that_was_replaced(
    replica: Make, monkeypatch: pytest.MonkeyPatch
):
    """The old one is only silent to control, and still serves: its next epochs are lost by then.

    Method: the consumer's word to the successor counts only under its term; after it nothing of
    the old one is taken, although it goes on.
    """
    monkeypatch.setattr(follow, "WATCH_S", 0.05)
    old, new = replica(), replica()
    served = new.streams["s"]
    served.begins_later = True
    served.expect("c")
    served.stand_alone(5)
    old.append(0, 4)
    doors = {"s@1": old.door.address, "s@2": new.door.address}
    book = [Serving(doors)]
    follower = Follower("s", 0, lambda: book[-1], consumer="c")
    try:
        assert take(follower, 5) == [0, 1, 2, 3, 4]
        until(lambda: new.headers_asked > 1)
        assert served.hole() is None, "it has not heard yet that the new one stands alone"
        book.append(Serving({"s@2": new.door.address}, alone=(5, "s@2")))
        until(lambda: served.hole() == 5)
        old.append(5, 9)
        assert follower.take(0.5) is None
        schema = pa.schema([("n", pa.int64())])
        served.begin(5, [Epoch.gap("s", 5, schema, lost=1)])
        new.append(6, 7)
        epochs = [follower.take(30.0) for _ in range(3)]
        assert [epoch and (epoch.number, epoch.kind) for epoch in epochs] == [
            (5, "gap"), (6, "stable"), (7, "stable")
        ]  # fmt: skip
    finally:
        follower.close()


def test_a_body_of_the_one_that_was_replaced_comes_too_late(replica: Make):
    """It was asked for before the promise, and is thrown away after it."""
    old, new = replica(), replica()
    old.append(0, 0)
    may_answer, asked = threading.Event(), threading.Event()
    body = old.door._get["epoch"]

    def late(command):
        asked.set()
        assert may_answer.wait(30)
        return body(command)

    old.door._get["epoch"] = late
    book = [Serving({"s@1": old.door.address})]
    follower = Follower("s", 0, lambda: book[-1], consumer="c")
    taken: list[object] = []
    taker = threading.Thread(target=lambda: taken.append(follower.take(30.0)))
    taker.start()
    try:
        assert asked.wait(30)
        book.append(Serving({"s@2": new.door.address}, alone=(5, "s@2")))
        follower._watch()
        may_answer.set()
        new.log.append(Epoch.gap("s", 0, pa.schema([("n", pa.int64())]), lost=1))
        taker.join(30)
        assert [epoch.kind for epoch in taken] == ["gap"]
    finally:
        may_answer.set()
        follower.close()


def losing(one: Replica, over: threading.Event, **lost: int) -> None:
    """The answers to these questions are lost, the first, second, … of each kind, until `over`."""
    for handlers in (one.door._get, one.door._act):
        for name in lost.keys() & handlers.keys():

            def answer(command, handler=handlers[name], last=lost[name], asked=[]):  # noqa: B006
                asked.append(command)
                if len(asked) == last:
                    over.wait(60.0)
                return handler(command)

            handlers[name] = answer


@pytest.mark.parametrize(
    ("by_headers", "lost"),
    [(True, {"headers": 1}), (True, {"epoch": 1, "headers": 2}), (False, {"epoch": 1})],
    ids=["headers", "body", "both in one"],
)
def test_a_lost_answer_is_asked_for_again_by_another_connection(
    replica: Make, by_headers: bool, lost: dict[str, int]
):
    """Who has a bound does not wait until TCP, or the deadline of the call, gives up."""
    one, over = replica(), threading.Event()
    one.append(0, 2)
    losing(one, over, **lost)
    find = lambda: {"r1": one.door.address}  # noqa: E731
    follower = Follower("s", 0, find, wait_s=0.1, by_headers=by_headers)
    try:
        assert take(follower, 3) == [0, 1, 2]
        assert not over.is_set()
    finally:
        over.set()
        follower.close()
