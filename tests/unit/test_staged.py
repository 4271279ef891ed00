"""Output that is held back: who must have it before it is shown, what a restart leaves of it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from unbroken.epochs import Epoch
from unbroken.node.staged import Confirmed, Staged
from unbroken.streams.flight import Door, Peer
from unbroken.streams.log import EpochLog
from unbroken.streams.serve import StreamDoor
from unbroken.streams.served import Served


def epoch(number: int, draw: int = 0) -> Epoch:
    return Epoch.of("ids", number, pa.table({"n": [number], "draw": [draw]}))


def opened(folder: Path, *, committed: int | None) -> tuple[EpochLog, Staged]:
    log = EpochLog(folder / "output", "ids")
    return log, Staged(folder / "staged", log, committed=committed)


def draws(log: EpochLog) -> list[tuple[int, int]]:
    numbers = range(log.first, log.next)
    return [(n, log.read(n).table.column("draw")[0].as_py()) for n in numbers]


@pytest.fixture
def staged(tmp_path: Path) -> Staged:
    """Epochs 0 to 3 computed, 0 and 1 of them shown."""
    _, staged = opened(tmp_path, committed=-1)
    for number in range(4):
        staged.append(epoch(number))
    staged.show(1)
    return staged


def test_s6_nothing_is_shown_on_the_word_of_one_who_could_not_take_over():
    """It holds the epoch, but control would have another take over."""
    confirmed = Confirmed()
    confirmed.holds("ids@2", 9, now_s=0.0)
    assert confirmed.by_all == -1, "nobody could take over"
    confirmed.agree(["ids@3"], [], ["ids@2", "ids@3"], asked_s=1.0)
    assert confirmed.by_all == -1, "ids@3 could, and has said nothing"
    confirmed.holds("ids@3", 4, now_s=2.0)
    assert confirmed.by_all == 4
    confirmed.holds("ids@2", 2, now_s=2.0)
    assert confirmed.by_all == 2, "ids@2 may be next, whatever the list said"


def test_s6_one_that_came_after_the_question_counts_though_the_answer_does_not_know_it():
    """The answer was on its way; the newcomer may be live before the next one."""
    confirmed = Confirmed()
    confirmed.holds("ids@2", 9, now_s=0.0)
    confirmed.holds("ids@3", 5, now_s=2.0)
    confirmed.agree(["ids@2"], [], ["ids@2"], asked_s=1.0)
    assert confirmed.by_all == 5
    confirmed.agree(["ids@2"], [], ["ids@2"], asked_s=3.0)
    assert confirmed.by_all == 9, "now it is known that it has no place"


def test_without_anybody_who_could_take_over_nothing_is_shown():
    """Whoever is released is no longer waited for; but then somebody else must be there."""
    confirmed = Confirmed()
    confirmed.agree(["ids@2"], [], ["ids@2"], asked_s=0.0)
    confirmed.holds("ids@2", 7, now_s=0.5)
    confirmed.agree([], [], [], asked_s=1.0)
    assert confirmed.by_all == -1


def test_what_is_shown_twice_is_there_once(staged: Staged, tmp_path: Path):
    """Control's word and the standby's question come in any order."""
    log = staged._shown
    assert (log.first, log.next, staged.log.first, staged.next) == (0, 2, 2, 4)
    staged.show(0)
    staged.show(1)
    assert (log.next, staged.log.first) == (2, 2)
    staged.show(99)
    assert (log.next, staged.next) == (4, 4), "no more than there is"


def test_s6_what_was_computed_and_not_committed_is_computed_again(staged: Staged, tmp_path: Path):
    """With other rows: those of before must not be shown, nor mixed with the new ones."""
    log, again = opened(tmp_path, committed=2)
    assert (log.next, again.log.first, again.next) == (2, 2, 3)
    again.append(epoch(3, draw=1))
    again.show(3)
    assert draws(log) == [(0, 0), (1, 0), (2, 0), (3, 1)]


def test_one_that_is_closed_shows_nothing_more(staged: Staged, tmp_path: Path):
    """Whoever is started again has logs of its own in these folders."""
    staged.close()
    staged.show(3)
    assert (staged._shown.next, staged.log.first) == (2, 2)


def test_a_crash_between_showing_and_trimming_shows_nothing_twice(staged: Staged, tmp_path: Path):
    """The epoch is in both places then."""
    staged._shown.append(epoch(2))
    log, again = opened(tmp_path, committed=3)
    again.show(3)
    assert draws(log) == [(0, 0), (1, 0), (2, 0), (3, 0)]


def test_a_standby_has_what_was_shown_and_what_was_not(staged: Staged, tmp_path: Path):
    """Taking over it shows what it holds, under the same numbers with the same rows."""
    with Door() as door, Peer(door.address) as peer:
        streams = StreamDoor(door).streams
        for log in (staged._shown, staged.log):
            streams[log.stream] = Served(log, [], keep=0)
        log, mine = opened(tmp_path / "standby", committed=None)
        mine.take(peer, 2)
        assert (log.next, mine.next, draws(log)) == (2, 3, [(0, 0), (1, 0)])
        staged.show(3)
        mine.take(peer, 3)
        assert mine.log.first >= 3, "what was shown does not wait any more"
    mine.show(3)
    assert draws(log) == draws(staged._shown)
