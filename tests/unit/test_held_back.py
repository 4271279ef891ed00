"""Output that is held back, and whoever may go on although nobody has heard of it for long.

    node-1 writes      … 57 58 59 60            × then this one
    node-2 held 57     … 57   × first                          comes back: 58 is drawn again
    node-3 coming      … 57 58 59 60            × and this one

So nobody may have seen 58.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from layers_by_hand import run_batches
from repair_hand import Hand

from unbroken.checkpoints import fork
from unbroken.control.intentions import Step
from unbroken.control.orders import Orders
from unbroken.epochs import Epoch
from unbroken.errors import Unreachable
from unbroken.node import standby as standby_module
from unbroken.node.staged import Confirmed, Staged
from unbroken.node.standby import Standby
from unbroken.policies import Passive
from unbroken.streams.flight import Door, Peer
from unbroken.streams.log import EpochLog
from unbroken.streams.serve import StreamDoor
from unbroken.streams.served import Served


def told(hand: Hand, node: str) -> dict[str, Any]:
    return Orders({"a": Passive()}, hand.replicas, hand.repairs, hand.writers).of(node, {})


def agree(confirmed: Confirmed, hand: Hand, writer: str) -> None:
    """The writer hears who could go on."""
    confirmed.agree(**told(hand, writer)["backups"]["a"], asked_s=hand.now_s)


def test_s6_who_is_gone_and_may_come_back_is_waited_for_also_by_a_new_writer():
    """It has not said to this writer what it has; it may be less than what was shown.

    Goal: one version of every epoch, whoever dies.
    Method: 2 takes over from 1 and gets 3 as its standby; before 1 is released, 2 and 3 die.
    """
    hand = Hand({"a": "12"}, "123", passive="a")
    hand.repairs.dead("1")
    hand.take_over(n2=57)
    by_2 = Confirmed()
    hand.to(Step.LIVE)
    by_2.holds("a@3", 60, now_s=hand.now_s)
    agree(by_2, hand, "2")
    assert by_2.by_all == -1, "1 is gone, may come back, and has said nothing"
    for node in "23":
        hand.repairs.dead(node)
    hand.repairs.alive("1")
    assert told(hand, "1")["run"] == ["a"], "it goes on from what it has"


def test_s6_who_is_released_is_not_waited_for_and_does_not_come_back():
    """The same day, a moment later."""
    hand = Hand({"a": "12"}, "123", passive="a")
    hand.repairs.dead("1")
    hand.take_over(n2=57)
    by_2 = Confirmed()
    hand.to(Step.RELEASE)
    by_2.holds("a@3", 60, now_s=hand.now_s)
    agree(by_2, hand, "2")
    assert by_2.by_all == 60
    for node in "23":
        hand.repairs.dead(node)
    hand.repairs.alive("1")
    assert told(hand, "1")["run"] == []
    assert told(hand, "1")["forget"] == [], "what it has stays until the fragment is whole"


def test_who_is_to_be_released_is_waited_for_until_that_is_on_record():
    """Control may be killed before: then nobody knows that it should have gone."""
    hand = Hand({"a": "12"}, "123", passive="a", wanted=3)
    hand.to(Step.LIVE)
    by_1 = Confirmed()
    by_1.holds("a@3", 60, now_s=hand.now_s)
    assert hand.repairs.held("a", "2", "the log of clicks is full, it holds it")
    agree(by_1, hand, "1")
    assert by_1.by_all == -1
    assert Step.RELEASE in {intention.step for intention in hand.decide()}
    agree(by_1, hand, "1")
    assert by_1.by_all == 60


# What a standby does with what it is given.


def epoch(number: int, draw: str) -> Epoch:
    return Epoch.of("ids", number, pa.table({"draw": [draw]}))


def draws(log: EpochLog) -> dict[int, str]:
    return {n: log.read(n).table.column("draw")[0].as_py() for n in range(log.first, log.next)}


class Writer:
    """Epochs 0 to 3 computed, 0 and 1 of them shown."""

    def __init__(self, folder: Path, door: Door) -> None:
        self.log = EpochLog(folder / "output", "ids")
        self.staged = Staged(folder / "staged", self.log, committed=-1)
        for number in range(4):
            self.staged.append(epoch(number, "writer"))
        self.staged.show(1)
        streams = StreamDoor(door).streams
        for log in (self.log, self.staged.log):
            streams[log.stream] = Served(log, [], keep=0)


class Taker:
    """A standby of `ids` in `folder`, whose layers come as a test wants."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.log = EpochLog(folder / "output", "ids")
        self.replica: Any = SimpleNamespace(
            fragment=SimpleNamespace(name="ids"), name="ids@2", folder=folder, log=self.log,
            notes_watermarks=False, term=0, holding=False,
            staged=Staged(folder / "staged", self.log, committed=None),
        )  # fmt: skip
        nothing: Any = None
        self.standby = Standby(
            self.replica, nothing, rehearse=nothing, book=nothing, giver="", interval_s=1.0
        )
        self.breaks = False
        monkeypatch.setattr(standby_module, "take", self._taken)
        self._epoch = -1

    def _taken(self, peer: Peer, name: str, folder: Path, *, before_seen: Any, **_: Any) -> Any:
        if self.breaks:
            raise Unreachable("the writer died")
        before_seen(self._epoch)
        return SimpleNamespace(epoch=self._epoch, bytes_fetched=0)

    def take(self, peer: Peer, newest: int) -> None:
        self._epoch = newest
        self.standby._take(peer)


def test_s6_a_standby_shows_only_what_the_writer_has_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The writer knows whom else to wait for; the standby does not."""
    with Door() as door, Peer(door.address) as peer:
        writer = Writer(tmp_path / "1", door)
        taker = Taker(tmp_path / "2", monkeypatch)
        taker.take(peer, 3)
        assert (taker.standby.epoch, taker.log.next, taker.replica.staged.next) == (3, 2, 4)
        writer.staged.show(2)
        held = fork.empty(taker.folder)
        taker.take(peer, 3)
        assert fork.terms_in(taker.folder) == [held.term], "a query waits on it"
        assert draws(taker.log) == dict.fromkeys(range(3), "writer")
    again = Staged(tmp_path / "2" / "staged", taker.log, committed=3)
    again.show(3)
    assert draws(taker.log) == dict.fromkeys(range(4), "writer"), "it has what was not shown"


def test_s16_what_a_standby_has_is_kept_until_it_has_something_newer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It wrote once, and drew epochs 2 and 3 that nobody saw; they are of no use to the new writer.

    But should the new writer die before it has given anything, they are all that is left.
    """
    old = EpochLog(tmp_path / "2" / "output", "ids")
    drawn = Staged(tmp_path / "2" / "staged", old, committed=-1)
    for number in range(4):
        drawn.append(epoch(number, "writer" if number < 2 else "former"))
    drawn.show(1)
    run_batches(fork.start(tmp_path / "2", with_watermarks=False).checkpoint, range(3))
    with Door() as door, Peer(door.address) as peer:
        Writer(tmp_path / "1", door)
        taker = Taker(tmp_path / "2", monkeypatch)
        taker.breaks = True
        with pytest.raises(Unreachable):
            taker.take(peer, 2)
        assert taker.replica.staged.next == 4
        assert fork.terms_in(tmp_path / "2") == [1]
        taker.breaks = False
        taker.take(peer, 3)
        assert fork.terms_in(tmp_path / "2") == [], "a later epoch in it must not win"
    assert draws(taker.log) == {0: "writer", 1: "writer"}
    assert draws(taker.replica.staged.log)[3] == "writer"
    assert draws(taker.replica.staged.log)[2] == "writer"
