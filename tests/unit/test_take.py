"""Taking through a real door, with checkpoints made by hand as Spark would have written them."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from layers_by_hand import files, run_batches, write
from shipping import Node, content, epoch, rows, taken, visible

from unbroken.checkpoints import fetch, fork, give
from unbroken.checkpoints.give import Giver
from unbroken.checkpoints.known import Known
from unbroken.checkpoints.layers import Checkpoint
from unbroken.checkpoints.manifest import checksum
from unbroken.checkpoints.take import INCOMING, take, take_replica
from unbroken.errors import CheckpointLost, DiskError, Unreachable
from unbroken.streams.flight import Command, Peer
from unbroken.streams.log import EpochLog


def test_a_newcomer_goes_on_from_the_survivors_checkpoint(node: Node, peer: Peer, there: Path):
    """Repair: the whole checkpoint comes over, and every start is a fork of it."""
    shipped = taken(peer, there)
    assert (shipped.epoch, shipped.files_reused, shipped.fingerprint) == (105, 0, "f1")
    direct = fork.start(node.folder, with_watermarks=True).checkpoint
    assert content(Checkpoint(there / "shipped" / "1")) == content(direct)
    assert shipped.files_fetched == len(content(direct))
    assert shipped.bytes_fetched == sum(map(len, content(direct).values()))
    began = fork.start(there, with_watermarks=True)
    assert (began.term, began.epoch) == (1, 105)
    assert began.checkpoint.watermarks(105) == [5, None]
    assert content(began.checkpoint) == content(direct)


def test_what_is_taken_has_the_boot_of_this_machine_and_is_no_term(
    node: Node, peer: Peer, there: Path
):
    """A boot is of the machine that has the files.  No query runs on it, so it has no id."""
    taken(peer, there)
    made = there / "shipped" / "1"
    assert (made / "boot").read_text() == fork.boot_id()
    assert json.loads((made / "manifest.json").read_bytes())["epoch"] == 105
    assert not (made / "spark" / "metadata").exists()
    assert (fork.terms_in(there), fork.rebooted(there)) == ([], False)


def test_the_second_time_only_what_is_new_travels(node: Node, peer: Peer, there: Path):
    """A delta; what was here is linked, from a shipment or from a term."""
    first = taken(peer, there)
    began = fork.start(there, with_watermarks=True)
    run_batches(node.checkpoint, range(6, 8))
    before = content(Checkpoint(there / "shipped" / "1"))
    second = taken(peer, there)
    made = Checkpoint(there / "shipped" / "2")
    new = content(made).keys() - before.keys()
    assert (second.epoch, second.files_fetched) == (107, len(new))
    assert second.files_reused == len(content(made)) - len(new)
    assert 0 < second.files_fetched < first.files_fetched
    layer = "spark/state/0/1/6_0a1b-2c.changelog"
    assert os.path.samefile(began.checkpoint.folder / layer, made.folder / layer)
    began = fork.start(there, with_watermarks=True)
    shutil.rmtree(there / "shipped")
    assert (began.epoch, taken(peer, there).files_fetched) == (107, 0)


def test_the_newest_shipment_is_the_only_one(node: Node, peer: Peer, there: Path):
    """Numbers count up; older ones and what a crash left of them go after the rename."""
    for number in (1, 2):
        taken(peer, there)
        assert [path.name for path in (there / "shipped").iterdir()] == [str(number)]
    write(there / "shipped" / "1" / "boot")
    write(there / "shipped" / "7.0123.tmp" / "boot")
    taken(peer, there)
    assert [path.name for path in (there / "shipped").iterdir()] == ["3"]
    assert visible(there) == ["shipped"]
    assert not (there / INCOMING).exists()


def test_a_crash_before_the_older_one_is_removed_leaves_two(
    node: Node, peer: Peer, there: Path, monkeypatch
):
    """The newest counts, and the next one removes both."""
    taken(peer, there)
    run_batches(node.checkpoint, range(6, 7))

    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("unbroken.checkpoints.take._forget_all_but", crash)
        with pytest.raises(KeyboardInterrupt):
            taken(peer, there)
    assert [path.name for path in fork.shipped_in(there)] == ["2", "1"]
    assert fork.start(there, with_watermarks=True).epoch == 106
    taken(peer, there)
    assert [path.name for path in fork.shipped_in(there)] == ["3"]


def test_whoever_takes_again_and_again_reads_each_layer_once(node: Node, peer: Peer, there: Path):
    """Without memory a standby would read all of the state every second."""
    read: list[str] = []
    known = Known(lambda path: read.append(path.name) or checksum(path))
    for batch in range(6, 12):
        run_batches(node.checkpoint, range(batch, batch + 1))
        shipped = taken(peer, there, known=known)
        direct = fork.start(node.folder, with_watermarks=True).checkpoint
        newest = there / "shipped" / str(batch - 5)
        assert (shipped.epoch, content(Checkpoint(newest))) == (100 + batch, content(direct))
        assert [path.name for path in (there / "shipped").iterdir()] == [newest.name]
    assert read == [], "what was fetched was checked on its way"
    known = Known(lambda path: read.append(path.name) or checksum(path))
    shipped = taken(peer, there, known=known)
    assert (len(read), shipped.files_fetched) == (shipped.files_reused, 0), "it believes no other"


def test_what_is_known_is_bounded_by_the_last_shipment(node: Node, peer: Peer, there: Path):
    """Invariant 7: a standby lives for months."""
    known: Known[str] = Known(checksum)
    for batch in range(6, 40):
        run_batches(node.checkpoint, range(batch, batch + 1))
        for old in node.checkpoint.spark.glob(f"state/**/{batch - 4}_*.changelog"):
            old.unlink()
        shipped = taken(peer, there, known=known)
    assert len(known._now) <= shipped.files_fetched + shipped.files_reused


def test_a_layer_that_changed_under_its_name_is_noticed_from_memory_too(
    node: Node, peer: Peer, there: Path
):
    """Known is a file, not a name: another inode, size or time is another file."""
    layer = "spark/state/0/1/6_0a1b-2c.changelog"
    known: Known[str] = Known(checksum)
    for _ in range(2):
        taken(peer, there, known=known)
    right = (there / "shipped" / "2" / layer).read_bytes()
    (there / "shipped" / "2" / layer).write_bytes(b"y" * len(right))
    os.utime(there / "shipped" / "2" / layer, ns=(0, 0))
    assert taken(peer, there, known=known).files_fetched == 1
    assert (there / "shipped" / "3" / layer).read_bytes() == right


@pytest.mark.parametrize("text", ["bytes!!", "longer than it was"])
def test_a_damaged_file_under_the_right_name_is_fetched_again(
    node: Node, peer: Peer, there: Path, text: str
):
    """The same name is not enough, nor the same size: the checksum is of what is read here."""
    layer = "spark/state/0/1/6_0a1b-2c.changelog"
    taken(peer, there)
    right = (there / "shipped" / "1" / layer).read_bytes()
    os.link(there / "shipped" / "1" / layer, there / "aside")
    (there / "aside").write_text(text)
    assert taken(peer, there).files_fetched == 1
    assert (there / "shipped" / "2" / layer).read_bytes() == right
    assert (there / "aside").read_text() == text, "a damaged file is not written to"


def test_small_layers_come_together(node: Node, peer: Peer, there: Path):
    """A delta is a handful of small files: one answer, not one for each."""
    calls: list[list[object]] = []
    honest = node.giver._layers
    node.door.on_get("layers", lambda command: calls.append(command["parts"]) or honest(command))
    first = taken(peer, there)
    assert len(calls) == -(-first.files_fetched // fetch.LAYERS_AT_ONCE)
    calls.clear()
    run_batches(node.checkpoint, range(6, 7))
    shipped = taken(peer, there)
    assert [len(parts) for parts in calls] == [shipped.files_fetched]


def test_large_layers_come_in_chunks_and_empty_ones_too(
    node: Node, peer: Peer, there: Path, monkeypatch
):
    """Bounded memory on both sides, whatever the size of the state."""
    state = node.checkpoint.spark / "state" / "0" / "0"
    large = os.urandom(10_001)
    (state / "SSTs" / "000001-a.sst").write_bytes(large)
    (state / "SSTs" / "000002-a.sst").write_bytes(b"")
    for module in (fetch, give):
        monkeypatch.setattr(module, "CHUNK_BYTES_MAX", 1000)
    calls: list[int] = []
    node.before_each_layer(calls.append)
    shipped = taken(peer, there)
    assert len(calls) == shipped.files_fetched - 1 + 10
    assert (there / "shipped" / "1" / "spark/state/0/0/SSTs/000001-a.sst").read_bytes() == large
    assert (there / "shipped" / "1" / "spark/state/0/0/SSTs/000002-a.sst").read_bytes() == b""


def test_the_original_goes_on_while_its_fork_travels(node: Node, peer: Peer, there: Path):
    """Scenario 25: batches are added, old ones trimmed and one is rewritten: nothing is mixed."""
    expected = content(fork.start(node.folder, with_watermarks=True).checkpoint)
    shutil.rmtree(node.folder / "2")
    original = node.checkpoint.spark

    def go_on(call: int) -> None:
        run_batches(node.checkpoint, range(5 + call, 6 + call))
        for path in sorted(original.glob("state/0/*/*.changelog"))[:2]:
            path.unlink()
        rewritten = write(original / "again.tmp", "another attempt")
        rewritten.rename(original / "state" / "0" / "0" / "6_0a1b-2c.changelog")

    node.before_each_layer(go_on)
    assert taken(peer, there).epoch == 105
    assert content(Checkpoint(there / "shipped" / "1")) == expected


def test_the_term_itself_may_go_while_its_fork_travels(node: Node, peer: Peer, there: Path):
    """The survivor is started again in the middle: links outlive the original."""
    node.before_each_layer(lambda call: shutil.rmtree(node.checkpoint.folder, ignore_errors=True))
    assert taken(peer, there).epoch == 105
    assert fork.start(there, with_watermarks=True).epoch == 105


def test_with_watermarks_a_commit_is_shipped_only_with_its_note(
    node: Node, peer: Peer, there: Path
):
    """Scenario 21: the newcomer must know how far each watermark was."""
    (node.checkpoint.folder / "watermarks" / "105").unlink()
    assert take(peer, "alerts", there, with_watermarks=False).epoch == 105
    assert taken(peer, there).epoch == 104
    assert fork.start(there, with_watermarks=True).checkpoint.watermarks(104) == [4, None]


SERVE = """
import sys, time
from pathlib import Path
from unbroken.checkpoints.give import Giver, Origin
from unbroken.streams.flight import Door
door = Door()
giver = Giver(door, lambda fragment: Origin(Path(sys.argv[1]), term=1, fingerprint="f1"))
def slow(command):
    time.sleep(0.05)
    return giver._layers(command)
door.on_get("layers", slow)
print(door.address, flush=True)
time.sleep(60)
"""


def test_a_giver_that_is_killed_in_the_middle(node: Node, peer: Peer, there: Path):
    """Unreachable, nothing visible; the next attempt uses what came, from whoever gives.

    Method: a giver in a process of its own, kill -9 when some layers have come.
    """
    command = [sys.executable, "-c", SERVE, str(node.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            with Peer(process.stdout.readline().strip()) as dying:

                def kill_in_the_middle() -> None:
                    deadline_s = time.monotonic() + 30
                    came = there / INCOMING / "spark" / "offsets" / "5"
                    while not came.exists() and time.monotonic() < deadline_s:
                        time.sleep(0.01)
                    process.kill()

                threading.Thread(target=kill_in_the_middle, daemon=True).start()
                with pytest.raises(Unreachable):
                    taken(dying, there)
        finally:
            process.kill()
    assert visible(there) == []
    assert len(node.shipments()) == 1, "the dead giver's fork"
    shipped = taken(peer, there)
    assert shipped.files_reused > 0
    assert shipped.files_fetched > 0
    assert node.shipments() == [], "leftovers went with the next shipment"
    assert fork.start(there, with_watermarks=True).epoch == 105


def test_a_giver_that_was_started_again_in_the_middle(node: Node, peer: Peer, there: Path):
    """Its forks are gone: as if it were unreachable, and the second attempt is a whole one."""

    def restart(call: int) -> None:
        if call == 5:
            node.giver = Giver(node.door, node.find)

    node.before_each_layer(restart)
    with pytest.raises(Unreachable, match="no longer here"):
        taken(peer, there)
    assert visible(there) == []
    run_batches(node.checkpoint, range(6, 7))
    shipped = taken(peer, there)
    assert (shipped.epoch, shipped.files_reused > 0) == (106, True)
    left = files(Checkpoint(there / "shipped" / "1"))
    assert "spark/offsets/4" not in left, "of the attempt at epoch 105"


def test_a_start_after_a_broken_attempt_sees_nothing_of_it(node: Node, peer: Peer, there: Path):
    """A newcomer that died in the middle and was started without the rest: empty, not half."""

    def die(call: int) -> None:
        if call == 5:
            raise Unreachable("gone")

    node.before_each_layer(die)
    with pytest.raises(Unreachable):
        taken(peer, there)
    assert (there / INCOMING / "spark" / "offsets" / "5").exists()
    assert fork.start(there, with_watermarks=True).epoch is None
    assert not (there / INCOMING).exists()
    assert taken(peer, there).files_reused == 0
    assert fork.start(there, with_watermarks=True).epoch == 105


def test_s29_full_while_taking(node: Node, peer: Peer, there: Path):
    """Scenario 29: the error says which disk, nothing is visible, with room again it works.

    Method: from the third layer on no file of this process may grow.
    """
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(call: int) -> None:
        if call == 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))

    node.before_each_layer(fill)
    try:
        with pytest.raises(DiskError, match=r"cannot write .*disk mounted at"):
            taken(peer, there)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert visible(there) == []
    assert not (there / INCOMING).exists(), "what came would keep the disk full"
    assert taken(peer, there).epoch == 105


def test_a_replica_is_its_checkpoint_and_its_log(node: Node, peer: Peer, there: Path):
    """Scenario 1: the newcomer serves from the oldest epoch that is owed, up to its checkpoint."""
    node.seal(109)
    assert take_replica(peer, "alerts", there, with_watermarks=True).epoch == 105
    log = EpochLog(there / "output", "alerts")
    assert (log.first, log.next) == (80, 106)
    assert rows(log) == {n: [n, 0] for n in range(80, 106)}
    assert log.header(90) == node.log.header(90)
    assert visible(there) == ["shipped"]


def test_the_shipment_is_seen_only_with_its_log(node: Node, peer: Peer, there: Path):
    """Killed between the two there would be a checkpoint that nobody can start from."""
    honest, calls = node.door._get["epoch"], iter(range(100))

    def dying(command: Command) -> pa.Table | None:
        if next(calls) == 10:
            raise Unreachable("gone")
        return honest(command)

    node.door.on_get("epoch", dying)
    with pytest.raises(Unreachable):
        take_replica(peer, "alerts", there, with_watermarks=True)
    assert visible(there) == []
    shipped = take_replica(peer, "alerts", there, with_watermarks=True)
    assert (shipped.epoch, shipped.files_fetched) == (105, 0), "all layers had come"
    assert next(calls) == 27, "26 epochs and the one that did not come"
    assert EpochLog(there / "output", "alerts").next == 106


def test_nothing_up_to_the_checkpoint_is_owed_any_more(node: Node, peer: Peer, there: Path):
    """The log begins after the checkpoint; epochs computed again before it are dropped."""
    node.seal(120)
    node.log.trim(112)
    take_replica(peer, "alerts", there, with_watermarks=True)
    log = EpochLog(there / "output", "alerts")
    assert (log.first, log.next) == (112, 113)
    assert log.append(epoch(106)) is False


def test_a_log_that_ends_before_its_checkpoint_is_no_replica(node: Node, peer: Peer, there: Path):
    """The giver itself has lost its log: it is said, and no term appears."""
    run_batches(node.checkpoint, range(6, 9))
    with pytest.raises(CheckpointLost, match="ends before epoch 106, 108 is needed"):
        take_replica(peer, "alerts", there, with_watermarks=True)
    assert visible(there) == []
