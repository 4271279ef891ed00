"""A served stream: who holds it back is known after a restart, and nobody is trimmed away."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from unbroken.epochs import Epoch, Header
from unbroken.errors import DiskError, EpochGone, FenceError, UnbrokenError, Unreachable
from unbroken.streams import disk, serve
from unbroken.streams import served as served_streams
from unbroken.streams.flight import Door, Peer
from unbroken.streams.hole import Begin
from unbroken.streams.log import EpochLog
from unbroken.streams.needs import CLIENTS_MAX, UNDECLARED_EPOCHS
from unbroken.streams.serve import StreamDoor
from unbroken.streams.served import Served


def log_of(folder: Path, count: int) -> EpochLog:
    log = EpochLog(folder, "s")
    for number in range(log.next, count):
        log.append(Epoch.of("s", number, pa.table({"n": [number]})))
    return log


def test_a_restarted_producer_trims_nothing_until_all_have_spoken(tmp_path: Path):
    """Invariant 3, scenario 2: declared followers count after a restart, as fragments do."""
    served = Served(log_of(tmp_path, 10), ["counts"], keep=0)
    served.expect("sink")
    served.ack("counts", term=1, processed=4, need=5)
    again = Served(EpochLog(tmp_path, "s"), ["counts"], keep=0)
    again.ack("counts", term=1, processed=8, need=9)
    assert again.log.first == 0
    assert again.holder == "sink"
    again.ack("sink", term=1, processed=2, need=3)
    assert again.log.first == 3


def test_a_term_is_known_after_a_restart(tmp_path: Path):
    """Invariant 5, scenario 3: also by a producer that restarted."""
    Served(log_of(tmp_path, 3), ["counts"], keep=0).ack("counts", term=4, processed=0, need=1)
    with pytest.raises(FenceError, match="term 4 has begun"):
        Served(EpochLog(tmp_path, "s"), ["counts"], keep=0).ack(
            "counts", term=3, processed=2, need=3
        )


def test_a_released_follower_holds_nothing_also_after_a_restart(tmp_path: Path):
    """A removal is recorded."""
    served = Served(log_of(tmp_path, 5), ["counts"], keep=0)
    served.expect("sink")
    served.release("sink")
    again = Served(EpochLog(tmp_path, "s"), ["counts"], keep=0)
    again.ack("counts", term=1, processed=3, need=4)
    assert again.log.first == 4


def test_a_stream_that_nobody_acks_keeps_its_newest_epochs_and_no_more(tmp_path: Path):
    """Invariant 7: undeclared followers hold nothing back, and without acks somebody must trim."""
    served = Served(log_of(tmp_path, 30), [], keep=10)
    served.trim()
    assert (served.log.first, served.log.next) == (20, 30)


def test_at_its_limit_a_log_gives_up_what_strangers_may_want_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Invariant 7: what is kept for those who may never come must not hold up everybody."""
    log = log_of(tmp_path, 30)
    size = log.header(0).bytes
    served = Served(log, [], keep=25, bytes_max=20 * size)
    served.trim()
    assert log.first == 5, "a moment ago it was not there to be asked"
    monkeypatch.setattr(served_streams, "MET_S", -1.0)
    served.trim()
    assert (log.first, log.bytes) == (20, 10 * size), "half of the limit stays"
    log = log_of(tmp_path / "needed", 30)
    served = Served(log, ["counts"], keep=25, bytes_max=20 * size)
    served.ack("counts", term=1, processed=6, need=7)
    assert log.first == 7, "who is expected is waited for"


def test_a_client_that_asks_by_name_is_waited_for(tmp_path: Path):
    """It declared itself to whoever was there; this replica came later, and is started again."""
    served = Served(log_of(tmp_path, 30), [], keep=5)
    for name in ("", "counts@node-1"):
        served.asked(name, 3)
    assert served.consumers == []
    served.asked("sink", 3)
    served.trim()
    assert (served.log.first, served.clients) == (0, ["sink"])
    again = Served(EpochLog(tmp_path, "s"), [], keep=5)
    again.trim()
    assert (again.log.first, again.clients) == (0, ["sink"])
    again.ack("sink", term=1, processed=27, need=28)
    assert again.log.first == 25


def test_s17_a_log_that_is_full_of_history_says_so_and_one_whose_consumer_is_behind_does_not(
    tmp_path: Path, monkeypatch
):
    """The consumer has processed all of it; only its state, or who reads it, still needs it."""
    now_s = 100.0
    monkeypatch.setattr(served_streams, "time", SimpleNamespace(monotonic=lambda: now_s))
    log = log_of(tmp_path, 10)
    served = Served(log, ["b@node-1"], keep=0, bytes_max=log.bytes)

    def told(processed: int, owed_to: str, seed: dict[str, int] | None = None) -> str:
        nonlocal now_s
        said = {"term": 1, "processed": processed, "need": 0, "owed_to": owed_to}
        served.ack("b@node-1", **said, seed=seed)
        first, now_s = served.standstill, now_s + 60.0
        assert first == "", "an ack may be on its way"
        return served.standstill

    assert told(8, "") == ""
    assert told(9, "sink_b", {"first": 0}) == ""
    # Its reader has caught up, and it was started again: its history is not known anew.
    assert "b@node-1 has processed all of it" in told(9, "")


def test_whoever_is_promised_an_epoch_finds_it(tmp_path: Path):
    """Invariant 3 between threads: `expect` comes in while an ack is about to trim."""
    log = log_of(tmp_path, 10)
    trimming, expected = threading.Event(), threading.Event()

    def slow_trim(below: int) -> None:
        trimming.set()
        expected.wait(0.2)  # Long enough for the newcomer, were it let in.
        log.trim(below)

    served = Served(log, ["counts"], keep=0, trim=slow_trim)
    acking = threading.Thread(
        target=lambda: served.ack("counts", term=1, processed=7, need=8), daemon=True
    )
    acking.start()
    assert trimming.wait(30)
    served.expect("newcomer")
    promised = log.first
    expected.set()
    acking.join(30)
    assert log.first == promised


def test_status_can_be_read_while_consumers_come_and_go(tmp_path: Path, monkeypatch):
    """Two threads on one dictionary: neither may stumble."""
    monkeypatch.setattr(disk, "write_whole", lambda *given, **more: None)
    served, errors = Served(log_of(tmp_path, 2), [], keep=0), []
    stop = threading.Event()

    def look() -> None:
        try:
            while not stop.is_set():
                served.status()
        except Exception as error:
            errors.append(error)

    looking = threading.Thread(target=look)
    looking.start()
    for number in range(200):
        served.expect(f"c{number}")
    stop.set()
    looking.join(30)
    assert errors == []


def test_a_replica_that_was_removed_stays_barred_when_the_producer_restarts(tmp_path: Path):
    """Scenario 3: it was only paused; neither its acks nor the first placement let it in again."""
    served = Served(EpochLog(tmp_path, "s"), ["r@node-1", "r@node-2"], keep=0)
    served.ack("r@node-2", term=4, processed=8, need=9)
    served.expect("r@node-3", term=7, like="r@node-2")
    served.release("r@node-1", term=8)
    again = Served(EpochLog(tmp_path, "s"), ["r@node-1", "r@node-2"], keep=0)
    assert sorted(again.needs.processed) == ["r@node-2", "r@node-3"]
    with pytest.raises(FenceError):
        again.ack("r@node-1", term=9, processed=8, need=9)
    again.release("r@node-3", term=6)  # Late: it was expected under a newer term.
    assert "r@node-3" in again.needs.processed


def test_a_newcomer_learns_which_clients_are_waited_for(tmp_path: Path):
    """What a survivor keeps for a client that is away its new copy must keep too."""
    served = Served(EpochLog(tmp_path, "s"), ["r@node-1"], keep=0)
    served.expect("nightly")
    served.expect("r@node-3", term=7, like="r@node-1")
    assert served.clients == ["nightly"]


SEED = {"first": 3, "speak": 7}


def test_need_and_seed_are_known_after_a_kill(tmp_path: Path):
    """Upstream backup: a producer that was killed still knows how a successor begins."""
    served = Served(log_of(tmp_path, 10), ["counts"], keep=0)
    served.ack("counts", term=1, processed=6, need=3, seed=SEED)
    served.ack("counts", term=1, processed=7, need=3)
    again = Served(EpochLog(tmp_path, "s"), ["counts"], keep=0)
    assert again.seed("counts") == (3, SEED)
    again.expect("counts@node-2", term=4, like="counts")
    again.release("counts", term=5)
    third = Served(EpochLog(tmp_path, "s"), ["counts"], keep=0)
    assert third.seed("counts") == (None, None), "a removal forgets it"
    assert third.seed("counts@node-2") == (3, SEED)
    third.trim()
    assert third.log.first == 3


def test_a_seed_is_on_disk_before_anything_is_trimmed_because_of_it(tmp_path: Path):
    """Goal: no crash leaves an older seed, whose epochs are gone.

    Method: fail where the log would be trimmed, and look at what a restart knows by then.
    """
    log, known = log_of(tmp_path, 10), []

    def killed_here(below: int) -> None:
        known.append((below, Served(EpochLog(tmp_path, "s"), ["c"], keep=0).seed("c")))

    served = Served(log, ["c"], keep=0, trim=killed_here)
    served.ack("c", term=1, processed=6, need=3, seed=SEED)
    served.ack("c", term=1, processed=8, need=5, seed={"first": 5})
    assert known == [(3, (3, SEED)), (5, (5, {"first": 5}))]


def test_a_disk_that_takes_no_seed_is_not_trimmed(tmp_path: Path, monkeypatch):
    """Scenario 29: the ack fails, the epochs stay, and the next ack makes up for it."""
    served = Served(log_of(tmp_path, 10), ["c"], keep=0)
    served.ack("c", term=1, processed=6, need=3, seed=SEED)
    with monkeypatch.context() as patched:
        patched.setattr(disk, "write_whole", full)
        with pytest.raises(DiskError):
            served.ack("c", term=1, processed=8, need=5, seed={"first": 5})
        assert served.log.first == 3
    served.trim()
    assert served.log.first == 5
    assert Served(EpochLog(tmp_path, "s"), ["c"], keep=0).seed("c") == (5, {"first": 5})


def full(*given: object, **more: object) -> None:
    raise DiskError("no room")


def test_without_seeds_nothing_more_is_written_and_a_torn_note_is_none(tmp_path: Path, monkeypatch):
    written: list[str] = []
    write = disk.write_whole
    monkeypatch.setattr(
        disk, "write_whole", lambda path, *a, **b: (written.append(path.name), write(path, *a, **b))
    )
    served = Served(log_of(tmp_path, 5), ["c"], keep=0)
    written.clear()
    for number in range(4):
        served.ack("c", term=1, processed=number, need=number + 1)
    assert written == ["consumers.json"], "the term, once"
    served.ack("c", term=1, processed=4, need=4, seed=SEED)
    served.ack("c", term=1, processed=4, need=4, seed=SEED)
    assert written == ["consumers.json", "seeds.json"], "what has not changed is not written"
    (tmp_path / "seeds.json").write_text('{"c": {"ne')
    assert Served(EpochLog(tmp_path, "s"), ["c"], keep=0).seed("c") == (None, None)


def test_what_is_owed_is_what_consumers_may_still_ask_for(tmp_path: Path):
    """Scenario 1: D, from which a successor must speak."""
    served = Served(log_of(tmp_path, 100), ["a", "b"], keep=0)
    assert served.owed == 0, "nobody has spoken"
    served.ack("a", term=1, processed=79, need=80)
    assert served.owed == 0
    served.ack("b", term=1, processed=59, need=60)
    assert served.owed == 60
    served.release("b")
    assert served.owed == 80
    served.ack("a", term=1, processed=200, need=201)
    assert served.owed == 100, "ahead of this copy: it owes what it makes next"
    served.release("a")
    assert served.owed == 100
    served.expect("late")
    assert served.owed == served.log.first, "what was trimmed cannot be owed"


def test_a_take_over_carries_along_what_undeclared_followers_may_be_reading(tmp_path: Path):
    served = Served(log_of(tmp_path, 100), ["c"], keep=600)
    served.ack("c", term=1, processed=99, need=100)
    assert served.owed == 100 - UNDECLARED_EPOCHS
    assert Served(log_of(tmp_path / "new", 5), [], keep=600).owed == 0


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[StreamDoor, Peer]]:
    monkeypatch.setattr(serve, "POLL_S", 0.05)
    with Door() as opened, Peer(opened.address) as peer:
        yield StreamDoor(opened), peer


def test_a_seed_travels_with_acks_and_is_asked_for(tmp_path: Path, door):
    streams, peer = door
    streams.streams["s"] = Served(log_of(tmp_path, 10), ["c"], keep=0)
    asked = {"do": "seed", "stream": "s", "consumer": "c"}
    assert peer.act(asked) == {"need": None, "seed": None, "term": 0}
    ack = {"do": "ack", "stream": "s", "consumer": "c", "term": 1, "processed": 6, "need": 3}
    peer.act({**ack, "seed": SEED})
    assert peer.act(asked) == {"need": 3, "seed": SEED, "term": 1}
    for wrong in ("text", {"x": "y" * 40_000}):
        with pytest.raises(UnbrokenError, match="its seed is"):
            peer.act({**ack, "need": 9, "seed": wrong})
    assert peer.act(asked) == {"need": 3, "seed": SEED, "term": 1}


def test_s13_a_consumer_that_was_replaced_gets_nothing_until_it_is_expected_anew(
    tmp_path: Path, door
):
    """It is only silent to control: beside the copy that took its place it must not go on."""
    streams, peer = door
    served = Served(EpochLog(tmp_path, "s"), ["c@node-1", "c@node-2"], keep=0, begins_later=True)
    streams.streams["s"] = served
    headers = {"do": "headers", "stream": "s"}
    peer.act({**headers, "from": 51, "consumer": "c@node-1"})
    peer.act({**headers, "from": 48, "consumer": "c@node-2"})
    assert served.hole(without=["c@node-1"]) == 48
    served.turn_away(["c@node-1"])
    served.begin(48, [Epoch.gap("s", 48, pa.schema([("n", pa.int64())]), lost=7)])
    with pytest.raises(EpochGone, match="another copy of it goes on"):
        peer.act({**headers, "from": 51, "consumer": "c@node-1"})
    assert len(peer.act({**headers, "from": 48, "consumer": "c@node-2"})) == 1
    served.expect("c@node-1", term=9, like="c@node-2")
    assert len(peer.act({**headers, "from": 48, "consumer": "c@node-1"})) == 1


def test_s13_a_fragment_that_is_behind_all_others_is_given_gaps_and_no_client_is(
    tmp_path: Path, door
):
    """No copy of it has what another consumer has: told that it is gone, it could never go on."""
    streams, peer = door
    served = Served(EpochLog(tmp_path, "s"), ["b@node-1", "c@node-2"], keep=0, begins_later=True)
    streams.streams["s"] = served
    headers = {"do": "headers", "stream": "s"}
    for name, number in {"b@node-1": 48, "c@node-2": 51, "c@node-3": 49, "sink": 49}.items():
        peer.act({**headers, "from": number, "consumer": name})
    assert served.where() == Begin(51, 48, ["c@node-3"])
    served.turn_away(["c@node-3"])
    schema = pa.schema([("n", pa.int64())])
    served.begin(48, [Epoch.gap("s", n, schema) for n in range(48, 53)], shown_from=51)
    assert len(peer.act({**headers, "from": 48, "consumer": "b@node-1"})) == 5
    assert len(peer.act({**headers, "from": 51, "consumer": "c@node-2"})) == 2
    with pytest.raises(EpochGone, match="another copy of it goes on"):
        peer.act({**headers, "from": 49, "consumer": "c@node-3"})
    for client in ("sink", ""):
        with pytest.raises(EpochGone, match="others have it"):
            peer.act({**headers, "from": 49, "consumer": client})
        assert len(peer.act({**headers, "from": 51, "consumer": client})) == 2


@pytest.mark.parametrize("question", ["headers", "epoch"])
def test_s13_what_was_asked_before_there_was_a_hole_is_asked_again(
    tmp_path: Path, door, monkeypatch: pytest.MonkeyPatch, question: str
):
    """Whether it may have what the log begins with is known since: not when it was asked."""
    streams, peer = door
    served = Served(EpochLog(tmp_path, "s"), ["b@node-1", "c@node-2"], keep=0, begins_later=True)
    streams.streams["s"] = served
    schema, wait = pa.schema([("n", pa.int64())]), served.log.wait

    def late(number: int, timeout_s: float) -> bool:
        monkeypatch.setattr(served.log, "wait", wait)
        served.turn_away(["c@node-2"])
        served.begin(48, [Epoch.gap("s", n, schema) for n in range(48, 53)], shown_from=51)
        return wait(number, timeout_s)

    def ask(consumer: str) -> Any:
        told = {"stream": "s", "consumer": consumer}
        if question == "headers":
            return peer.act({"do": "headers", "from": 49, **told})
        return peer.get({"do": "epoch", "number": 49, "next": 49, **told})

    monkeypatch.setattr(served.log, "wait", late)
    # Nothing, and not an epoch without rows: a gap has none either.
    assert ask("sink") == ([] if question == "headers" else None)
    with pytest.raises(EpochGone, match="others have it"):
        ask("sink")
    with pytest.raises(EpochGone, match="another copy of it goes on"):
        ask("c@node-2")


def test_who_waits_for_room_is_told_when_there_is_some(tmp_path: Path):
    """And may ask for whom the log is kept: that is not held by whoever tells."""
    log = log_of(tmp_path, 10)
    served = Served(log, ["c"], keep=0, bytes_max=log.bytes)
    told: list[int] = []

    def look() -> None:
        looks = threading.Thread(target=lambda: told.append(len(served.consumers)), daemon=True)
        looks.start()
        looks.join(10)

    served.made_room = look
    served.ack("c", term=1, processed=-1, need=0)
    assert told == [], "nothing has gone"
    served.ack("c", term=1, processed=6, need=7)
    assert told == [1]
    served.ack("c", term=1, processed=7, need=8)
    assert told == [1], "it is not full any more"


def test_one_that_is_closed_writes_and_trims_nothing_more(tmp_path: Path):
    """Another one serves the same folder by now: what it hears must not be noted by this one."""
    served = Served(log_of(tmp_path, 10), ["c"], keep=0)
    served.close()
    for word in (
        lambda: served.expect("d@node-2", term=3),
        lambda: served.release("c"),
        lambda: served.ack("c", term=1, processed=6, need=7),
    ):
        with pytest.raises(Unreachable, match="started again"):
            word()
    served.agree(["d@node-2"], asked_s=time.monotonic())
    served.trim()
    assert (served.log.first, served.consumers) == (0, ["c"])
    assert not (tmp_path / "consumers.json").exists()


def test_a_stream_that_begins_later_hears_its_consumers_and_tells_nothing(tmp_path: Path, door):
    """Scenario 13: the hole begins after the highest epoch that any consumer has."""
    streams, peer = door
    served = Served(EpochLog(tmp_path, "s"), ["c@node-1", "c@node-2"], keep=0, begins_later=True)
    streams.streams["s"] = served
    headers = {"do": "headers", "stream": "s"}
    assert peer.act({**headers, "from": 51, "consumer": "c@node-1"}) == []
    assert (served.hole(), served.unheard) == (None, ["c@node-2"])
    with pytest.raises(Unreachable, match=r"missing: c@node-2"):
        peer.act({"do": "extent", "stream": "s"})
    assert peer.act({**headers, "from": 50, "next": 50, "consumer": "c@node-2"}) == []
    assert peer.act({**headers, "from": 20}) == []
    assert served.hole() == 51
    served.expect("sink")
    assert served.hole() is None
    peer.act({**headers, "from": 52, "next": 53, "consumer": "sink"})
    assert served.hole() == 53
    served.release("sink")
    first = served.hole(at_most=60)
    assert first == 51
    served.begin(first)
    served.log.append(Epoch.gap("s", 51, pa.schema([("n", pa.int64())]), lost=7))
    assert [Header.from_json(text).kind for text in peer.act({**headers, "from": 51})] == ["gap"]
    extent = peer.act({"do": "extent", "stream": "s"})
    assert (extent["first"], extent["next"]) == (51, 52)
    assert extent["processed"].keys() == set(served.consumers), "replicas, no clients"
    with pytest.raises(EpochGone, match="epoch 20 is gone: the log begins at 51, after the loss"):
        peer.act({**headers, "from": 20})


def test_nobody_can_claim_a_name_that_is_none(tmp_path: Path, door):
    streams, peer = door
    streams.streams["s"] = Served(log_of(tmp_path, 1), [], keep=0)
    with pytest.raises(UnbrokenError, match="is not a name"):
        peer.act({"do": "headers", "stream": "s", "from": 0, "consumer": "../x"})
    peer.act({"do": "headers", "stream": "s", "from": None})
    assert streams["s"].hole() == 0, "who asks for the oldest has nothing"


def test_nothing_is_trimmed_by_a_process_that_may_have_been_replaced(tmp_path: Path):
    """A node that was paused wakes up, and an old consumer's ack is the first that it hears.

    Meanwhile a newcomer was expected at the others, which needs what this ack would trim.
    """
    trusted = False
    served = Served(log_of(tmp_path, 10), ["c@node-1"], keep=0, may_trim=lambda: trusted)
    served.ack("c@node-1", term=1, processed=8, need=9)
    assert served.log.first == 0
    served.agree(["c@node-1", "c@node-3"], asked_s=time.monotonic())
    trusted = True
    served.trim()
    assert served.log.first == 0, "node-3 has not spoken"
    served.ack("c@node-3", term=1, processed=3, need=4)
    assert served.log.first == 4


def test_an_answer_of_before_does_not_remove_who_was_expected_since(tmp_path: Path):
    """Control's list is as old as the question; a release that was missed is made up for by it."""
    served = Served(log_of(tmp_path, 10), ["c@node-1"], keep=0)
    served.expect("client")
    asked_s = time.monotonic()
    served.expect("c@node-3", term=7, like="c@node-1")
    served.agree(["c@node-1"], asked_s=asked_s)
    assert sorted(served.consumers) == ["c@node-1", "c@node-3", "client"]
    served.agree(["c@node-3"], asked_s=time.monotonic())
    assert sorted(served.consumers) == ["c@node-3", "client"]


def test_an_expectation_that_passed_a_producer_by_is_made_up_for(tmp_path: Path):
    """It was away when a consumer that it had heard to be removed was expected again, and control's
    list tells: with the answer to a beat, or when the producer starts.  A list of before that, or
    one of those that are leaving, lets nobody in."""
    served = Served(log_of(tmp_path, 10), ["c@node-1", "c@node-3"], keep=0)
    served.release("c@node-3", term=4)
    for older in ({"c@node-1": 1, "c@node-3": 3}, {"c@node-1": 1, "c@node-3": 0}):
        served.agree(older, asked_s=time.monotonic())
        assert served.consumers == ["c@node-1"]
    for meant in ("agree", "start"):
        listed = {"c@node-1": 1, "c@node-3": 6}
        if meant == "agree":
            served.agree(listed, asked_s=time.monotonic())
        else:
            served.release("c@node-3", term=5)
            served = Served(EpochLog(served.log.folder, "s"), listed, keep=0)
        served.ack("c@node-1", term=1, processed=8, need=9)
        assert (sorted(served.consumers), served.log.first) == (["c@node-1", "c@node-3"], 0)


def test_a_release_that_passed_a_producer_by_is_made_up_for(tmp_path: Path):
    """It was paused when its consumer was released, under a term: control's list tells it."""
    served = Served(log_of(tmp_path, 10), ["counts@node-2"], keep=0)
    served.expect("counts@node-1", term=2)
    served.agree(["counts@node-2"], asked_s=time.monotonic() + 1.0)
    served.ack("counts@node-2", term=1, processed=7, need=8)
    assert (served.consumers, served.log.first) == (["counts@node-2"], 8)
    served.expect("counts@node-1", term=2)
    assert served.consumers == ["counts@node-2"], "what was said before comes late"
    served.expect("counts@node-1", term=4)
    assert "counts@node-1" in served.consumers


def test_there_is_a_limit_to_clients_that_are_waited_for(tmp_path: Path, monkeypatch):
    """A successor that has to wait for all of them hears of them from one seed."""
    monkeypatch.setattr(disk, "write_whole", lambda *given, **more: None)
    served = Served(log_of(tmp_path, 10), [], keep=0)
    names = [f"{number:a>100}" for number in range(CLIENTS_MAX)]
    for name in names:
        served.expect(name)
    with pytest.raises(UnbrokenError, match="256 clients are waited for already"):
        served.expect("one_more")
    served.expect(names[0])
    served.expect("totals@node-1", term=1)
    assert served.clients == sorted(names)
    seed = {"first": 5, "clients": served.clients}
    served.ack("totals@node-1", term=1, processed=8, need=5, seed=seed, placed=1)
    assert served.seed("totals@node-1") == (5, seed)
    served.release(names[0])
    served.expect("one_more")
