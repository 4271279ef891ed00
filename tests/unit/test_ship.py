"""Shipping through a real door, with checkpoints made by hand as Spark would have written them."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from test_fork import files, run_batches, write

from unbroken.checkpoints import fork, ship
from unbroken.checkpoints.layers import Checkpoint
from unbroken.checkpoints.ship import Giver, Origin, Shipped, copy_log, take, take_replica
from unbroken.epochs import Epoch
from unbroken.errors import (
    CheckpointLost,
    DiskError,
    DivergenceError,
    EpochGone,
    UnbrokenError,
    Unreachable,
)
from unbroken.streams.flight import Command, Door, Peer
from unbroken.streams.log import EpochLog
from unbroken.streams.serve import Served, StreamDoor


class Node:
    """A node that has a replica of `alerts`: epochs 100 to 105 committed, output from 80 on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        began = fork.start(folder, with_watermarks=False)
        self.checkpoint = began.checkpoint
        write(self.checkpoint.spark / "metadata", '{"id": "the first"}')
        run_batches(self.checkpoint, range(6))
        self.log = EpochLog(folder / "output", "alerts")
        self.log.start_at(80)
        self.seal(106)
        self.door = Door()
        self.giver = Giver(self.door, self.find)
        StreamDoor(self.door).streams["alerts"] = Served(self.log, [], keep=0)

    def find(self, fragment: str) -> Origin:
        if fragment != "alerts":
            raise UnbrokenError(f"no replica of {fragment!r} here")
        return Origin(self.folder, term=1, fingerprint="f1")

    def seal(self, below: int) -> None:
        for number in range(self.log.next, below):
            self.log.append(epoch(number))

    def shipments(self) -> list[Path]:
        return sorted((self.folder / "shipments").glob("*"))

    def before_each_layer(self, act: Callable[[int], None]) -> None:
        """Calls `act` with 1, 2, … whenever a layer is asked for."""
        count = iter(range(1, 10_000))

        def handler(command: Command) -> pa.Table:
            act(next(count))
            return self.giver._layer(command)

        self.door.on_get("layer", handler)


def epoch(number: int, value: int = 0) -> Epoch:
    return Epoch.of("alerts", number, pa.table({"n": [number, value]}), fingerprint="f1")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path / "node-1" / "alerts")
    with made.door:
        yield made


@pytest.fixture
def peer(node: Node) -> Iterator[Peer]:
    with Peer(node.door.address) as connected:
        yield connected


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The newcomer's folder."""
    return tmp_path / "node-2" / "alerts"


def taken(peer: Peer, folder: Path, **options: Any) -> Shipped:
    return take(peer, "alerts", folder, with_watermarks=True, **options)


def content(checkpoint: Checkpoint) -> dict[str, bytes]:
    own = {"boot", "manifest.json", "spark/metadata"}
    names = files(checkpoint) - own
    return {name: (checkpoint.folder / name).read_bytes() for name in names}


def visible(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.glob("*") if ".tmp" not in p.name and p.name != "output")


def test_a_newcomer_goes_on_from_the_survivors_checkpoint(node: Node, peer: Peer, there: Path):
    """Repair: the whole checkpoint comes over, and every start is a fork of it."""
    shipped = taken(peer, there)
    assert (shipped.epoch, shipped.files_reused, shipped.fingerprint) == (105, 0, "f1")
    direct = fork.start(node.folder, with_watermarks=True).checkpoint
    assert content(Checkpoint(there / "1")) == content(direct)
    assert shipped.files_fetched == len(content(direct))
    assert shipped.bytes_fetched == sum(map(len, content(direct).values()))
    began = fork.start(there, with_watermarks=True)
    assert (began.term, began.epoch) == (2, 105)
    assert began.checkpoint.watermarks(105) == [5, None]
    assert content(began.checkpoint) == content(direct)


def test_what_is_taken_has_an_id_and_a_boot_of_its_own(node: Node, peer: Peer, there: Path):
    """Two queries with one id stop each other; a boot is of the machine that has the files."""
    taken(peer, there)
    ids = {json.loads((folder / "spark" / "metadata").read_text())["id"]
           for folder in (there / "1", node.folder / "1")}  # fmt: skip
    assert len(ids) == 2
    assert (there / "1" / "boot").read_text() == fork.boot_id()
    assert json.loads((there / "1" / "manifest.json").read_bytes())["epoch"] == 105
    assert not fork.rebooted(there)


def test_the_second_time_only_what_is_new_travels(node: Node, peer: Peer, there: Path):
    """A delta; what was here is linked, also when the newcomer has started a term meanwhile."""
    first = taken(peer, there)
    fork.start(there, with_watermarks=True)
    run_batches(node.checkpoint, range(6, 8))
    before = content(Checkpoint(there / "1"))
    second = taken(peer, there)
    made = Checkpoint(there / "3")
    new = content(made).keys() - before.keys()
    assert (second.epoch, second.files_fetched) == (107, len(new))
    assert second.files_reused == len(content(made)) - len(new)
    assert 0 < second.files_fetched < first.files_fetched
    layer = "spark/state/0/1/6_0a1b-2c.changelog"
    assert os.path.samefile(there / "1" / layer, made.folder / layer)
    assert (fork.start(there, with_watermarks=True).epoch, taken(peer, there).files_fetched) \
        == (107, 0)  # fmt: skip


@pytest.mark.parametrize("text", ["bytes!!", "longer than it was"])
def test_a_damaged_file_under_the_right_name_is_fetched_again(
    node: Node, peer: Peer, there: Path, text: str
):
    """The same name is not enough, nor the same size: the checksum is of what is read here."""
    layer = "spark/state/0/1/6_0a1b-2c.changelog"
    taken(peer, there)
    right = (there / "1" / layer).read_bytes()
    (there / "1" / layer).write_text(text)
    assert taken(peer, there).files_fetched == 1
    assert (there / "2" / layer).read_bytes() == right
    assert (there / "1" / layer).read_text() == text, "links to a damaged file are not written to"


def test_large_layers_come_in_chunks_and_empty_ones_too(
    node: Node, peer: Peer, there: Path, monkeypatch
):
    """Bounded memory on both sides, whatever the size of the state."""
    state = node.checkpoint.spark / "state" / "0" / "0"
    large = os.urandom(10_001)
    (state / "SSTs" / "000001-a.sst").write_bytes(large)
    (state / "SSTs" / "000002-a.sst").write_bytes(b"")
    monkeypatch.setattr(ship, "CHUNK_BYTES_MAX", 1000)
    calls: list[int] = []
    node.before_each_layer(calls.append)
    shipped = taken(peer, there)
    assert len(calls) == shipped.files_fetched - 1 + 10
    assert (there / "1" / "spark/state/0/0/SSTs/000001-a.sst").read_bytes() == large
    assert (there / "1" / "spark/state/0/0/SSTs/000002-a.sst").read_bytes() == b""


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
    assert content(Checkpoint(there / "1")) == expected


def test_the_term_itself_may_go_while_its_fork_travels(node: Node, peer: Peer, there: Path):
    """The survivor is started again in the middle: links outlive the original."""
    node.before_each_layer(lambda call: shutil.rmtree(node.checkpoint.folder, ignore_errors=True))
    assert taken(peer, there).epoch == 105
    assert fork.start(there, with_watermarks=True).epoch == 105


def test_forks_are_removed_when_the_taker_is_done_or_has_failed(
    node: Node, peer: Peer, there: Path
):
    """A fork holds on to layers that Spark has trimmed: disk space."""
    taken(peer, there)
    assert node.shipments() == []
    with pytest.raises(ZeroDivisionError):
        taken(peer, there, before_seen=lambda number: 1 // 0)
    assert node.shipments() == []
    assert visible(there) == ["1"]
    assert peer.act({"do": "shipped", "shipment": "unknown"}) is None


def test_forks_of_takers_that_never_came_back_are_bounded(node: Node, peer: Peer):
    """Invariant 7: leftovers of an earlier process go, and of this one the quietest."""
    write(node.folder / "shipments" / "0123" / "spark" / "offsets" / "5")
    write(node.folder / "shipments" / "4567.tmp" / "boot")
    ask = {"do": "shipment", "fragment": "alerts", "with_watermarks": True}
    first, second, *_ = [peer.act(ask) for _ in range(ship.SHIPMENTS_KEPT)]
    assert len(node.shipments()) == ship.SHIPMENTS_KEPT
    layer = {"do": "layer", "name": "spark/commits/5", "offset": 0}
    assert peer.get({**layer, "shipment": first["shipment"]}) is not None
    peer.act(ask)
    assert len(node.shipments()) == ship.SHIPMENTS_KEPT
    assert peer.get({**layer, "shipment": first["shipment"]}) is not None, "it was used last"
    with pytest.raises(Unreachable, match="no longer here"):
        peer.get({**layer, "shipment": second["shipment"]})


def test_checksums_are_computed_once_per_layer(node: Node, peer: Peer, there: Path, monkeypatch):
    """A standby asks after every epoch: gigabytes are not read again for a few kilobytes."""
    ask = {"do": "shipment", "fragment": "alerts", "with_watermarks": True}
    peer.act(ask)
    read: list[str] = []
    checksum = ship._checksum
    monkeypatch.setattr(ship, "_checksum", lambda path: read.append(path.name) or checksum(path))
    peer.act(ask)
    assert read == []
    other = write(node.checkpoint.spark / "new", "other attempt")
    other.rename(node.checkpoint.spark / "state" / "0" / "0" / "6_0a1b-2c.changelog")
    run_batches(node.checkpoint, range(6, 7))
    peer.act(ask)
    assert sorted(read) == ["106", "6", "6", "6", "6_0a1b-2c", "6_0a1b-2c.changelog",
                            "7_0a1b-2c.changelog", "7_0a1b-2c.changelog"]  # fmt: skip


@pytest.mark.parametrize(
    "request_",
    [{"name": "../../output/x", "offset": 0}, {"name": "/etc/passwd", "offset": 0},
     {"name": "boot", "offset": 0}, {"name": None, "offset": 0}, {"name": [], "offset": 0},
     {"name": "spark/commits/5", "offset": -1}, {"name": "spark/commits/5", "offset": 10**30},
     {"name": "spark/commits/5", "offset": "x"}, {"name": "spark/commits/5"}],
)  # fmt: skip
def test_a_giver_gives_what_is_in_its_manifest_and_nothing_else(
    node: Node, peer: Peer, request_: dict[str, Any]
):
    """A taker is a stranger too."""
    ask = {"do": "shipment", "fragment": "alerts", "with_watermarks": True}
    shipment = peer.act(ask)["shipment"]
    with pytest.raises(UnbrokenError):
        peer.get({"do": "layer", "shipment": shipment, **request_})
    for strange in ("..", shipment + "/..", None, [], {}):
        with pytest.raises(UnbrokenError):
            peer.get({"do": "layer", "shipment": strange, "name": "spark/commits/5", "offset": 0})


def test_what_cannot_be_given_is_said(node: Node, peer: Peer, there: Path):
    """No such replica, a bad name, nothing committed yet, lost in a reboot (scenario 28)."""
    with pytest.raises(UnbrokenError, match="no replica of 'clicks' here"):
        take(peer, "clicks", there, with_watermarks=False)
    with pytest.raises(UnbrokenError, match="is not a name"):
        take(peer, "../alerts", there, with_watermarks=False)
    (node.folder / "1" / "boot").write_text("an earlier boot")
    with pytest.raises(CheckpointLost, match="no committed epoch here"):
        taken(peer, there)
    assert visible(there) == []


def test_with_watermarks_a_commit_is_shipped_only_with_its_note(
    node: Node, peer: Peer, there: Path
):
    """Scenario 21: the newcomer must know how far each watermark was."""
    (node.checkpoint.folder / "watermarks" / "105").unlink()
    assert take(peer, "alerts", there, with_watermarks=False).epoch == 105
    assert taken(peer, there).epoch == 104
    assert fork.start(there, with_watermarks=True).checkpoint.watermarks(104) == [4, None]


class Liar:
    """A giver that says whatever a test wants."""

    def __init__(self, door: Door, honest: Node) -> None:
        self.address = door.address
        ask = {"fragment": "alerts", "with_watermarks": True}
        self.manifest: Any = honest.giver._shipment(ask)
        self.layer: Callable[[Command], pa.Table | None] = honest.giver._layer
        door.on_act("shipment", lambda command: self.manifest)
        door.on_get("layer", lambda command: self.layer(command))
        door.on_act("shipped", lambda command: None)


@pytest.fixture
def liar(node: Node) -> Iterator[Liar]:
    with Door() as door:
        yield Liar(door, node)


def refused(liar: Liar, folder: Path, match: str) -> None:
    """Nothing of it is visible, nothing is kept, nothing lies outside, and the honest one works."""
    before = sorted(folder.parent.parent.rglob("*"))
    with Peer(liar.address) as peer, pytest.raises(UnbrokenError, match=match):
        taken(peer, folder)
    assert visible(folder) == []
    assert not (folder / ship.INCOMING).exists()
    assert set(folder.parent.parent.rglob("*")) - set(before) <= {folder, folder.parent}


@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", "spark/../../x", "spark/state/../../../x", "spark/state/0/..", "",
             ".", "..", "boot", "spark/metadata", "manifest.json", "spark/state/0/.hidden",
             "spark/state/0/a.tmp", "spark/state/0/a\0b", "spark/state/0/a\n", "spark/state//a",
             "spark/state/0/ä", "spark/offsets/٣", "spark/offsets/x", "spark/offsets/5/6",
             "watermarks/-1", "spark\\state\\0\\a", "spark/state/0/" + "a" * 200, "output/1.arrow",
             "spark/state" + "/a" * 20, "C:/x", None, 7, ["spark/commits/1"], {"a": 1}],
)  # fmt: skip
def test_names_that_leave_the_folder_are_refused(liar: Liar, there: Path, name: object):
    """Only the shapes that Spark's layers have; checked before anything is written."""
    liar.manifest["layers"].insert(0, [name, 1, "0" * 32])
    refused(liar, there, "is not the name of a layer")


@pytest.mark.parametrize(
    ("entry", "why"),
    [(["spark/commits/4", -1, "0" * 32], "bytes"), (["spark/commits/4", True, "0" * 32], "bytes"),
     (["spark/commits/4", 1.5, "0" * 32], "bytes"), (["spark/commits/4", "1", "0" * 32], "bytes"),
     (["spark/commits/4", 1 << 50, "0" * 32], "is the limit"),
     (["spark/commits/4", 1, "0" * 31], "checksum"), (["spark/commits/4", 1, None], "checksum"),
     (["spark/commits/4", 1], "cannot be read"), ("spark/commits/4", "cannot be read"),
     (None, "cannot be read")],
)  # fmt: skip
def test_sizes_and_checksums_that_are_none_are_refused(
    liar: Liar, there: Path, entry: object, why: str
):
    """Nothing is fetched for a manifest that makes no sense."""
    liar.manifest["layers"] = [entry]
    refused(liar, there, why)


def test_a_manifest_is_sorted_bounded_and_complete(liar: Liar, there: Path, monkeypatch):
    """The same name twice would be written twice; a million names would fill a disk."""
    honest = dict(liar.manifest)
    liar.manifest = {**honest, "layers": [honest["layers"][0], *honest["layers"]]}
    refused(liar, there, "comes after")
    changes = [{"epoch": None}, {"epoch": -1}, {"term": "1"}, {"shipment": 7}, {"more": 1}]
    for answer in (None, [], "x", {}, *({**honest, **change} for change in changes)):
        liar.manifest = answer
        refused(liar, there, "shipment refused")
    liar.manifest = honest
    monkeypatch.setattr(ship, "LAYERS_MAX", 3)
    refused(liar, there, "3 is the limit")


@pytest.mark.parametrize(
    "lie",
    [lambda chunk: chunk + b"x", lambda chunk: chunk[:-1], lambda chunk: b"", lambda chunk: None,
     lambda chunk: b"y" * len(chunk), lambda chunk: bytes(10_000_000)],
    ids=["longer", "shorter", "empty", "null", "other bytes", "much longer"],
)  # fmt: skip
def test_bytes_that_are_not_what_was_announced_are_refused(
    liar: Liar, there: Path, lie: Callable[[bytes], bytes | None]
):
    """Sizes that lie, and bytes that do not have their checksum."""
    honest = liar.layer

    def layer(command: Command) -> pa.Table:
        table = honest(command)
        assert table is not None
        (chunk,) = table.column("bytes").to_pylist()
        return pa.table({"bytes": pa.array([lie(chunk)], pa.binary())})

    liar.layer = layer
    refused(liar, there, "does not have")


@pytest.mark.parametrize("table", [None, pa.table({}), pa.table({"bytes": [1]}),
                                   pa.table({"bytes": [b"a", b"b"]}),
                                   pa.table({"bytes": pa.array([], pa.binary())})])  # fmt: skip
def test_answers_of_another_shape_are_refused(liar: Liar, there: Path, table: pa.Table | None):
    """One row of bytes, and nothing else."""
    liar.layer = lambda command: table
    refused(liar, there, "does not have")


def test_a_file_cannot_be_a_folder_as_well(liar: Liar, there: Path):
    """Names that are fine each and impossible together."""
    for name in ("spark/state/0/a", "spark/state/0/a/b"):
        liar.manifest["layers"].append([name, 0, ship._checksum(Path(os.devnull))])
    liar.manifest["layers"].sort()
    refused(liar, there, "cannot write")


def test_another_epoch_than_promised_is_refused(liar: Liar, there: Path):
    """A replica goes on from the newest commit that it finds: that must be the promised one."""
    honest = liar.manifest
    liar.manifest = {**honest, "epoch": 106}
    refused(liar, there, "epoch 106 was promised")
    layers = [entry for entry in honest["layers"] if not entry[0].startswith("spark/commits")]
    liar.manifest = {**honest, "layers": layers}
    refused(liar, there, "epoch 105 was promised, None is in it")


SERVE = """
import sys, time
from pathlib import Path
from unbroken.checkpoints.ship import Giver, Origin
from unbroken.streams.flight import Door
door = Door()
giver = Giver(door, lambda fragment: Origin(Path(sys.argv[1]), term=1, fingerprint="f1"))
def slow(command):
    time.sleep(0.05)
    return giver._layer(command)
door.on_get("layer", slow)
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
                    came = there / ship.INCOMING / "spark" / "offsets" / "5"
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
    assert "spark/offsets/4" not in files(Checkpoint(there / "1")), "of the attempt at epoch 105"


def test_a_start_after_a_broken_attempt_sees_nothing_of_it(node: Node, peer: Peer, there: Path):
    """A newcomer that died in the middle and was started without the rest: empty, not half."""

    def die(call: int) -> None:
        if call == 5:
            raise Unreachable("gone")

    node.before_each_layer(die)
    with pytest.raises(Unreachable):
        taken(peer, there)
    assert (there / ship.INCOMING / "spark" / "offsets" / "5").exists()
    assert fork.start(there, with_watermarks=True).epoch is None
    assert not (there / ship.INCOMING).exists()
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
    assert not (there / ship.INCOMING).exists(), "what came would keep the disk full"
    assert taken(peer, there).epoch == 105


def test_s29_full_at_the_giver(node: Node, peer: Peer, there: Path, monkeypatch):
    """The taker hears whose disk it is."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", full)
        with pytest.raises(DiskError, match=str(node.folder)):
            taken(peer, there)
    assert node.shipments() == []
    assert taken(peer, there).epoch == 105


def rows(log: EpochLog) -> dict[int, list[int]]:
    numbers = range(log.first, log.next)
    return {n: log.read(n).table.column("n").to_pylist() for n in numbers}


def test_a_replica_is_its_checkpoint_and_its_log(node: Node, peer: Peer, there: Path):
    """Scenario 1: the newcomer serves from the oldest epoch that is owed, up to its checkpoint."""
    node.seal(109)
    assert take_replica(peer, "alerts", there, with_watermarks=True).epoch == 105
    log = EpochLog(there / "output", "alerts")
    assert (log.first, log.next) == (80, 106)
    assert rows(log) == {n: [n, 0] for n in range(80, 106)}
    assert log.header(90) == node.log.header(90)
    assert visible(there) == ["1"]


def test_the_term_is_seen_only_with_its_log(node: Node, peer: Peer, there: Path):
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


def test_a_log_goes_on_from_what_is_there(node: Node, peer: Peer, there: Path):
    """A delta here too; the epochs that both have are compared by their digests."""
    copy_log(peer, "alerts", there, last=99)
    node.log.trim(90)
    fetched: list[int] = []
    honest = node.door._get["epoch"]
    node.door.on_get("epoch", lambda c: fetched.append(c["number"]) or honest(c))
    log = copy_log(peer, "alerts", there, last=105)
    assert fetched == list(range(100, 106))
    assert (log.first, log.next) == (80, 106)


def test_other_content_under_a_number_is_never_silent(node: Node, peer: Peer, there: Path):
    """Invariant 1: a former replica that diverged is told, not overwritten."""
    own = EpochLog(there, "alerts")
    own.start_at(95)
    for number in range(95, 100):
        own.append(epoch(number, value=int(number == 97)))
    with pytest.raises(DivergenceError, match="alerts: epoch 97 has digest"):
        copy_log(peer, "alerts", there, last=105)
    assert rows(EpochLog(there, "alerts"))[97] == [97, 1]


@pytest.mark.parametrize(("first", "after"), [(10, 20), (10, 79), (90, 95), (81, 106)])
def test_a_log_with_a_hole_before_what_is_owed_begins_anew(
    node: Node, peer: Peer, there: Path, first: int, after: int
):
    """It lacks what consumers may ask for, or has only what none of them will."""
    own = EpochLog(there, "alerts")
    own.start_at(first)
    for number in range(first, after):
        own.append(epoch(number))
    assert rows(copy_log(peer, "alerts", there, last=105)) == rows(node.log)


def test_what_a_power_cut_tore_is_copied_again(node: Node, peer: Peer, there: Path):
    """Logs of fragments are not synced: the checksum in the name tells."""
    log = copy_log(peer, "alerts", there, last=105)
    log.path(100).write_bytes(b"")
    assert rows(copy_log(peer, "alerts", there, last=105)) == rows(node.log)


def test_the_giver_trims_while_its_log_is_copied(node: Node, peer: Peer, there: Path):
    """Its consumers have gone on: less is owed, and the newcomer begins later."""
    honest = node.door._get["epoch"]

    def trimming(command: Command) -> pa.Table | None:
        if command["number"] == 85:
            node.log.trim(95)
        return honest(command)

    node.door.on_get("epoch", trimming)
    log = copy_log(peer, "alerts", there, last=105)
    assert rows(log) == {n: [n, 0] for n in range(95, 106)}


def test_nothing_up_to_the_checkpoint_is_owed_any_more(node: Node, peer: Peer, there: Path):
    """The log begins after the checkpoint; epochs computed again before it are dropped."""
    node.seal(120)
    node.log.trim(112)
    take_replica(peer, "alerts", there, with_watermarks=True)
    log = EpochLog(there / "output", "alerts")
    assert (log.first, log.next) == (112, 113)
    assert log.append(epoch(106)) is False


def test_a_giver_that_trims_faster_than_anybody_copies_is_told(
    node: Node, peer: Peer, there: Path, monkeypatch
):
    """Invariant 7: attempts have a limit."""

    def gone(command: Command) -> None:
        raise EpochGone("trimmed")

    node.door.on_get("epoch", gone)
    with pytest.raises(EpochGone, match="faster than it can be copied"):
        copy_log(peer, "alerts", there, last=105)


def test_a_log_that_ends_before_its_checkpoint_is_no_replica(node: Node, peer: Peer, there: Path):
    """The giver itself has lost its log: it is said, and no term appears."""
    run_batches(node.checkpoint, range(6, 9))
    with pytest.raises(CheckpointLost, match="ends before epoch 106, 108 is needed"):
        take_replica(peer, "alerts", there, with_watermarks=True)
    assert visible(there) == []


@pytest.mark.parametrize(
    "answer",
    [None, pa.table({"n": [1]}), epoch(99).stamped(), epoch(80).stamped().slice(0, 1),
     Epoch.of("clicks", 80, pa.table({"n": [1]})).stamped(),
     epoch(80).with_header(kind="tentative").stamped()],
    ids=["nothing", "no header", "another number", "fewer rows", "another stream", "tentative"],
)  # fmt: skip
def test_what_is_not_the_epoch_that_was_asked_for_is_refused(
    node: Node, peer: Peer, there: Path, answer: pa.Table | None
):
    """Shipments know stable epochs only, each under its number."""
    node.door.on_get("epoch", lambda command: answer)
    with pytest.raises(UnbrokenError, match="what came is not epoch 80"):
        copy_log(peer, "alerts", there, last=105)
    assert EpochLog(there, "alerts").next == 0
