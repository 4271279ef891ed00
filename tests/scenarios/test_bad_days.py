"""Bad days that can be shown without Spark, one test or more per row of the list.

11 source down, clocks jump · 12 answer lost · 18 a time in the future · 24 catch-up · 26 other code
28 reboot · and the keeper killed in the middle of it all.  (29, a full disk, has its own file.)
"""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from keepers import HandKeepers, RealKeeper, hand_keepers, prepare, until

from unbroken.checkpoints import fork
from unbroken.client.cluster import Cluster
from unbroken.client.producer import Producer
from unbroken.epochs import Epoch
from unbroken.errors import UnbrokenError
from unbroken.gate import Gate
from unbroken.node.keeper import Keeper
from unbroken.schemas import fit, parse
from unbroken.streams.flight import Door, Peer
from unbroken.streams.follow import Follower
from unbroken.streams.log import EpochLog
from unbroken.streams.serve import StreamDoor
from unbroken.streams.served import Served
from unbroken.streams.source_log import SourceLog

__all__ = ["hand_keepers"]


def rows_of(keeper: Keeper, source: str) -> dict[int, list[int]]:
    """Epoch number to rows, for those that have any."""
    log = keeper.sources[source].log
    epochs = (log.read(number) for number in range(log.first, log.next))
    return {e.number: e.table.column("n").to_pylist() for e in epochs if e.rows}


def test_s11_a_source_that_was_down_for_a_minute_is_level_with_the_others(
    hand_keepers: HandKeepers,
):
    """Without the rule joins lag for ever: the missed numbers are sealed, empty, on all sources."""
    keeper = hand_keepers.start()
    hand_keepers.time.pass_(10.0)
    hand_keepers.tick()
    producer = Producer(Peer(keeper.door.address), "right")
    producer.send([{"n": 1}])
    hand_keepers.stop()
    hand_keepers.time.pass_(60.0)
    keeper = hand_keepers.start()
    hand_keepers.tick()
    assert {log.open_number for log in keeper.sources.values()} == {70}
    assert rows_of(keeper, "right") == {10: [1]}
    assert rows_of(keeper, "left") == {}
    hand_keepers.time.pass_(1.0)
    hand_keepers.tick()
    assert keeper.sources["left"].open_number == 71


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("jump_s", [-3600.0, 365 * 86_400.0], ids=["back an hour", "on a year"])
def test_s11_a_wall_clock_that_jumps_repeats_no_number_and_seals_no_million(
    hand_keepers: HandKeepers, jump_s: float, restart: bool
):
    """In a living keeper its monotonic clock counts; after a restart the jump is not believed."""
    keeper = hand_keepers.start()
    hand_keepers.time.pass_(10.0)
    hand_keepers.tick()
    hand_keepers.time.wall_s += jump_s
    if restart:
        keeper = hand_keepers.start()
    hand_keepers.tick()
    assert keeper.sources["left"].open_number == 10
    hand_keepers.time.pass_(2.0)
    hand_keepers.tick()
    assert keeper.sources["left"].open_number == 12
    keeper = hand_keepers.start()  # And the clock that it noted is one that a restart believes.
    hand_keepers.time.pass_(3.0)
    hand_keepers.tick()
    assert keeper.sources["left"].open_number == 15


def test_s11_sources_that_were_killed_between_two_seals_are_levelled(hand_keepers: HandKeepers):
    """Killed after the first source's seal: the second one catches up before anything else."""
    keeper = hand_keepers.start()
    keeper.sources["left"].seal()
    keeper = hand_keepers.start()
    hand_keepers.tick()
    assert {log.open_number for log in keeper.sources.values()} == {1}


def test_s12_a_send_whose_answer_was_lost_is_taken_once_also_across_a_restart(tmp_path: Path):
    """Method: the same (producer, sequence) again: at once, later, and after kill -9."""
    keeper = RealKeeper(tmp_path / "cluster", tmp_path / "keeper.log")
    try:
        producer = keeper.cluster.producer("right", name="till-1")
        assert not producer.send([{"n": 1}], sequence=0).repeated
        assert producer.send([{"n": 1}], sequence=0).repeated
        producer.close_epoch()
        assert producer.send([{"n": 1}], sequence=0).repeated
        assert not producer.send([{"n": 2}], sequence=1).repeated
        keeper.kill()
        keeper.start()
        assert producer.send([{"n": 2}], sequence=1).repeated
        assert keeper.cluster.producer("right", name="till-1").sequence == 2
        producer.close_epoch()
        follow = keeper.cluster.follow("right")
        assert [next(follow).table.column("n").to_pylist() for _ in range(2)] == [[1], [2]]
        follow.close()
    finally:
        keeper.kill()


def test_a_keeper_killed_in_the_middle_of_many_sends_has_every_row_once(tmp_path: Path):
    """Goal: every row whose send returned is there exactly once.

    Method: four producers send as fast as they can, the clock cuts epochs, the keeper is killed
    three times and started again at its address; nobody is told.
    """
    sends = 60
    keeper = RealKeeper(tmp_path / "cluster", tmp_path / "keeper.log", epoch="50ms")
    # By name: for a stranger 600 epochs are kept, half a minute, and a busy machine takes longer.
    follow = keeper.cluster.follow("right", consumer="reader")
    returned: list[int] = []
    failed: list[Exception] = []

    def produce(name: int) -> None:
        try:
            producer = Cluster(keeper.cluster.address).producer("right", name=f"p{name}")
            for sequence in range(sends):
                row = name * 1000 + sequence
                producer.send([{"n": row}])
                returned.append(row)
        except Exception as error:
            failed.append(error)

    producers = [threading.Thread(target=produce, args=(name,)) for name in range(4)]
    try:
        for thread in producers:
            thread.start()
        for enough in (30, 90, 150):
            until(lambda enough=enough: failed or len(returned) >= enough, "sends return")
            keeper.kill()
            keeper.start()
        for thread in producers:
            thread.join(60)
        assert failed == []
        last = keeper.cluster.finish()
        taken = [row for _ in range(last) for row in next(follow).table.column("n").to_pylist()]
        follow.close()
        assert sorted(taken) == sorted(returned)
        assert len(taken) == 4 * sends
    finally:
        keeper.kill()


def test_s18_one_row_from_next_year_makes_nobody_else_late(hand_keepers: HandKeepers):
    """It is set aside and counted; the epoch's bounds, which move watermarks, do not see it."""
    keeper = hand_keepers.start()
    now_s = hand_keepers.time.wall_s
    with Peer(keeper.door.address) as peer:
        told = Producer(peer, "left").send(
            [
                {"ts": now_s, "n": 1},
                {"ts": now_s + 365 * 86_400, "n": 2},
                {"ts": now_s + 59, "n": 3},
            ]
        )
        assert (told.rows, told.set_aside) == (2, 1)
        hand_keepers.time.pass_(1.0)
        hand_keepers.tick()
        assert rows_of(keeper, "left") == {0: [1, 3]}
        assert keeper.sources["left"].log.header(0).event_us_max == int((now_s + 59) * 1e6)
        assert peer.act({"do": "status"})["sources"]["left"]["set_aside"] == 1


def test_s24_a_backlog_of_ten_epochs_is_never_grouped():
    """Late-row decisions depend on where batches end: ten epochs are ten batches."""
    gate = Gate(["a", "b"], committed=-1)
    for number in range(10):
        gate.offer("a", number)
        gate.offer("b", number)
    released, committed = [], -1
    while (number := gate.asked(after=committed)) is not None:
        assert gate.asked(after=committed) == number, "the second input gets the same one"
        assert number == committed + 1
        released.append(number)
        committed = number
    assert released == list(range(10))


def test_s26_a_replica_with_other_code_does_not_merge_and_is_told(tmp_path: Path):
    """Its epochs may even have the right digests: nobody takes them, and a sentence says why."""

    def replica(name: str, fingerprint: str, count: int) -> Door:
        door, log = Door(), EpochLog(tmp_path / name, "s")
        for number in range(count):
            log.append(Epoch.of("s", number, pa.table({"n": [number]}), fingerprint=fingerprint))
        StreamDoor(door).streams["s"] = Served(log, [], keep=600)
        return door

    with replica("r1", "aaaaaaaa1", 2) as first, replica("r2", "bbbbbbbb2", 5) as second:
        book = {"r1": first.address}
        follower = Follower("s", 0, lambda: book)
        try:
            assert follower.take(30.0).table.column("n").to_pylist() == [0]
            book["r2"] = second.address
            assert follower.take(30.0).number == 1
            until(lambda: follower.take(0.05) is None and follower.refused, "r2 is refused")
            assert follower.refused == [
                "refused s from r2: its code or settings are bbbbbbbb, ours came from aaaaaaaa"
            ]
            assert follower.next == 2
        finally:
            follower.close()


def test_s28_after_a_reboot_checkpoints_are_lost_and_rows_are_not(tmp_path: Path):
    """Spark did not sync its checkpoint; the source did sync its rows, so they can be replayed."""
    schema = parse("n BIGINT")
    source = SourceLog(tmp_path / "source", "s", schema)
    source.send(fit([{"n": 1}], schema), "p", 0, now_s=0.0, wait_s=0.0)
    source.seal()
    source.close()
    began = fork.start(tmp_path / "replica", with_watermarks=False, boot="before")
    spark = began.checkpoint.spark
    for kind, text in (("offsets", 'v1\n{}\n{"epoch": 0}'), ("commits", "{}")):
        (spark / kind).mkdir(parents=True)
        (spark / kind / "0").write_text(text)
    assert fork.start(tmp_path / "replica", with_watermarks=False, boot="before").epoch == 0
    after = fork.start(tmp_path / "replica", with_watermarks=False, boot="after")
    assert (after.epoch, after.term) == (None, 3)
    assert after.lost == "the machine was rebooted and Spark does not sync its checkpoints"
    again = SourceLog(tmp_path / "source", "s", schema)
    assert again.log.read(0).table.column("n").to_pylist() == [1]
    again.close()


def test_rows_sent_after_the_end_are_not_left_behind(hand_keepers: HandKeepers):
    """`finish` stops the clock; somebody who goes on all the same starts it again."""
    keeper = hand_keepers.start()
    with Peer(keeper.door.address) as peer:
        producer = Producer(peer, "right")
        producer.send([{"n": 1}])
        assert peer.act({"do": "finish"}) == {"next": 1}
        hand_keepers.time.pass_(5.0)
        hand_keepers.tick()
        assert keeper.sources["right"].open_number == 1, "the clock rests"
        producer.send([{"n": 2}])
        hand_keepers.tick()
        assert rows_of(keeper, "right") == {0: [1], 1: [2]}


STRANGE = [
    ({"do": "report", "node": "n1"}, "the report of n1 has no address"),
    ({"do": "report", "node": "../x"}, "'../x' is not a name"),
    ({"do": "report", "node": "n1", "address": "a", "state": "s", "fragments": {}, "streams": [7]},
     "7 is not a name"),
    ({"do": "sequence", "stream": "right", "producer": 7}, "is not a producer's name"),
    ({"do": "sequence", "stream": "right", "producer": "x" * 201}, "is not a producer's name"),
    ({"do": "schema", "stream": "nothing"}, "no source 'nothing'"),
    ({"do": "schema", "stream": ["left"]}, "is not a name"),
    ({"do": "ack", "stream": "left", "consumer": "c", "term": "x", "processed": 1, "need": 1},
     "malformed command: ValueError"),
    ({"do": "headers", "stream": "left", "from": {}}, "malformed command: TypeError"),
    ({"do": "headers", "stream": "left"}, "malformed command: KeyError 'from'"),
    ({"do": "close", "stream": "left"}, "its epochs close by themselves"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "answer"), STRANGE)
def test_what_a_stranger_says_harms_nobody_else(
    hand_keepers: HandKeepers, command: dict[str, object], answer: str
):
    """He is told what is wrong; book and status stay readable for everybody."""
    keeper = hand_keepers.start()
    with Peer(keeper.door.address) as peer:
        with pytest.raises(UnbrokenError) as caught:
            peer.act(command)
        assert answer in caught.value.what
        assert peer.act({"do": "status"})["nodes"] == {}
        assert set(peer.act({"do": "book"})["streams"]) == {"left", "right"}


@pytest.mark.parametrize(("sequence", "producer"), [(-1, "p"), (0, "x" * 201), (0, ""), (0, None)])
def test_a_send_that_could_be_taken_for_another_is_refused(
    hand_keepers: HandKeepers, sequence: int, producer: str | None
):
    """Silently dropped as a repetition, its rows would be lost."""
    keeper = hand_keepers.start()
    command = {"do": "send", "stream": "right", "producer": producer, "sequence": sequence}
    with Peer(keeper.door.address) as peer, pytest.raises(UnbrokenError):
        peer.put(command, fit([{"n": 1}], parse("n BIGINT")))
    assert keeper.sources["right"].open_rows == 0


def test_a_keeper_that_cannot_start_says_why(tmp_path: Path):
    """The note that the starter reads has the error's type, text and hint; the exit code is 3."""
    prepare(tmp_path)
    damaged = tmp_path / "keeper" / "sources" / "left" / "000000000000.00000000.arrow"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"nonsense")
    with pytest.raises(AssertionError, match="no readable header"):
        RealKeeper(tmp_path, tmp_path / "keeper.log")
    kind, what, hint = (tmp_path / "keeper.error").read_text().split("\n", 2)
    assert kind == "DiskError"
    assert what.endswith(f"{damaged.name} is damaged: it has no readable header")
    assert "restore the file" in hint
