"""Shipping: how a replica goes from one node to another, as a delta.

    giver   term 4 ─ fork ─▶ shipments/7f… ─ manifest: name, bytes, checksum ─▶ taker
            (goes on)                      ◀─ only the layers that it lacks ──  incoming.tmp
            output 80 … 105                ◀─ epochs 80 to 103 ───────────────  output 80 … 103
            shipments/7f… is removed       ◀─ shipped ────────────────────────  a rename: term 1

* Never from a living directory (scenario 25): a fork is shipped, and the replica goes on.
* A replica is its checkpoint *and* its output log (scenario 1).  The term gets its name after the
  last byte of both is there, so `fork.start` finds all of it or nothing.
* A layer that is here already, with name, bytes and checksum, is linked: of a term of this folder,
  or of an attempt that was broken off.  Every checksum is of bytes read here, none is believed.
* Names and sizes come from outside and are checked before anything is written.
* A giver that dies is `Unreachable`; whoever takes asks again, or asks another.

>>> import json, tempfile
>>> here, there = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
>>> spark = fork.start(here, with_watermarks=False).checkpoint.spark
>>> for kind, text in [("offsets", 'v1\\n{}\\n{"epoch": 103}'), ("commits", "v1")]:
...     (spark / kind).mkdir(parents=True)
...     _ = (spark / kind / "3").write_text(text)
>>> door = Door()
>>> giver = Giver(door, lambda fragment: Origin(here, term=1, fingerprint="f1"))
>>> with door, Peer(door.address) as peer:
...     take(peer, "alerts", there, with_watermarks=False)
Shipped(epoch=103, bytes_fetched=22, files_fetched=2, files_reused=0, term=1, fingerprint='f1')
>>> fork.start(there, with_watermarks=False).epoch
103
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from unbroken.checkpoints import fork
from unbroken.checkpoints.layers import Checkpoint
from unbroken.epochs import STABLE, Epoch, Header
from unbroken.errors import CheckpointLost, DivergenceError, EpochGone, UnbrokenError, Unreachable
from unbroken.streams import disk
from unbroken.streams.flight import Command, Door, Peer, checked_name
from unbroken.streams.log import EpochLog, drop_torn_tail

CHUNK_BYTES_MAX = 4 << 20
LAYERS_MAX = 100_000
SHIPMENT_BYTES_MAX = 1 << 40
#: A shipment is a fork, and its checksums are computed: gigabytes are read.
SHIPMENT_S_MAX = 120.0
BODY_S_MAX = 30.0
#: Forks kept for takers of one fragment; beyond it the one that was quiet for longest goes.
SHIPMENTS_KEPT = 4
LOG_ATTEMPTS = 10
INCOMING = f"incoming{disk.TEMPORARY}"

#: What a fork makes for itself.
_OWN = {"boot", "spark/metadata"}
_NAME = re.compile(
    r"(?:spark/offsets|spark/commits|watermarks)/[0-9]{1,18}"
    r"|spark/state(?:/[A-Za-z0-9_][A-Za-z0-9_.-]{0,150}){2,8}"
)
_CHECKSUM = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Origin:
    """What a node says of a replica that it can give: its folder, term and fingerprint."""

    folder: Path
    term: int
    fingerprint: str


@dataclass(frozen=True)
class Shipped:
    """What was taken; `term` and `fingerprint` are the giver's."""

    epoch: int
    bytes_fetched: int
    files_fetched: int
    files_reused: int
    term: int
    fingerprint: str


@dataclass(frozen=True)
class Layer:
    """One file of a shipment."""

    name: str
    bytes: int
    checksum: str


@dataclass(frozen=True)
class Manifest:
    """What a shipment consists of, sorted by name.

    >>> Manifest("ab", 7, 1, "f", (Layer("../x", 1, "0" * 32),)).checked()
    Traceback (most recent call last):
    ...
    unbroken.errors.UnbrokenError: shipment refused: '../x' is not the name of a layer
      → all processes of a cluster must run one version of Unbroken; take from another replica
    """

    shipment: str
    epoch: int
    term: int
    fingerprint: str
    layers: tuple[Layer, ...]

    @classmethod
    def of(cls, answer: Any) -> Manifest:
        """Reads what `to_dict` made, and believes none of it."""
        with _refusing("its manifest cannot be read"):
            layers = tuple(Layer(*entry) for entry in answer["layers"])
            return cls(**{**answer, "layers": layers}).checked()

    def to_dict(self) -> dict[str, Any]:
        """The manifest for the wire and the disk."""
        entries = [[layer.name, layer.bytes, layer.checksum] for layer in self.layers]
        return {**vars(self), "layers": entries}

    def checked(self) -> Manifest:
        """This manifest, if nothing in it leaves its folder or its limits."""
        if not all(isinstance(text, str) for text in (self.shipment, self.fingerprint)):
            raise _refused("its id and fingerprint are not text")
        if not all(type(number) is int and number >= 0 for number in (self.epoch, self.term)):
            raise _refused(f"epoch {self.epoch!r}, term {self.term!r}")
        if len(self.layers) > LAYERS_MAX:
            raise _refused(f"{len(self.layers):,} layers, {LAYERS_MAX:,} is the limit")
        before, total = "", 0
        for layer in self.layers:
            name = layer.name
            if not isinstance(name, str) or not _NAME.fullmatch(name) or disk.TEMPORARY in name:
                raise _refused(f"{name!r} is not the name of a layer")
            if name <= before:
                raise _refused(f"{name!r} comes after {before!r}")
            if type(layer.bytes) is not int or layer.bytes < 0:
                raise _refused(f"{name} has {layer.bytes!r} bytes")
            if not isinstance(layer.checksum, str) or not _CHECKSUM.fullmatch(layer.checksum):
                raise _refused(f"{name} has the checksum {layer.checksum!r}")
            before, total = name, total + layer.bytes
        if total > SHIPMENT_BYTES_MAX:
            raise _refused(f"{total:,} bytes, {SHIPMENT_BYTES_MAX:,} is the limit")
        return self


class Giver:
    """Gives checkpoints of this node's replicas to other nodes.

    `find` knows the replica of a fragment here, and raises an UnbrokenError if there is none.
    """

    def __init__(self, door: Door, find: Callable[[str], Origin]) -> None:
        self._find = find
        self._making = threading.Lock()
        self._lock = threading.Lock()
        #: Id to fork and layers; the one that was quiet for longest comes first.
        self._open: OrderedDict[str, tuple[Path, dict[str, Layer]]] = OrderedDict()
        #: Per fragment, of its last shipment: most layers are in the next one too.
        self._known: dict[str, dict[tuple[int, ...], str]] = {}
        door.on_act("shipment", self._shipment)
        door.on_get("layer", self._layer)
        door.on_act("shipped", self._shipped)

    def _shipment(self, command: Command) -> dict[str, Any]:
        fragment = checked_name(command["fragment"])
        origin = self._find(fragment)
        with self._making:
            self._make_room(origin.folder)
            made = fork.for_shipment(
                origin.folder, with_watermarks=bool(command["with_watermarks"])
            )
            if made is None:
                raise CheckpointLost(
                    f"fragment {fragment!r} has no committed epoch here that could be shipped",
                    hint="ask again after its first epoch, or ask another replica",
                )
            checkpoint, commit = made
            shipment = checkpoint.folder.name
            layers = tuple(self._layers_of(checkpoint.folder, fragment))
            with self._lock:
                self._open[shipment] = checkpoint.folder, {layer.name: layer for layer in layers}
        return Manifest(shipment, commit.epoch, origin.term, origin.fingerprint, layers).to_dict()

    def _make_room(self, replica: Path) -> None:
        """Leftovers of an earlier process go, and the takers that were quiet for longest."""
        shipments = replica / fork.SHIPMENTS
        with self._lock:
            mine = [key for key, (folder, _) in self._open.items() if folder.parent == shipments]
            for key in mine[: max(0, len(mine) + 1 - SHIPMENTS_KEPT)]:
                del self._open[key]
            keep = set(self._open)
        fork.forget_shipments(replica, keep)

    def _layers_of(self, folder: Path, fragment: str) -> Iterator[Layer]:
        """Every file of a fork; the checksums of those shipped before are known."""
        known = self._known.get(fragment, {})
        seen: dict[tuple[int, ...], str] = {}
        found = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}
        for name, path in sorted(found.items()):
            if name in _OWN:
                continue
            stat = path.stat()
            # A fork links: the same file has the same inode in every fork.
            key = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)
            seen[key] = known.get(key) or _checksum(path)
            yield Layer(name, stat.st_size, seen[key])
        self._known[fragment] = seen

    def _layer(self, command: Command) -> pa.Table:
        shipment, offset = command["shipment"], int(command["offset"])
        with self._lock:
            if shipment not in self._open:
                raise _gone(shipment)
            self._open.move_to_end(shipment)
            folder, layers = self._open[shipment]
        layer = layers[command["name"]]  # A name that was not in the manifest gets nowhere.
        if not 0 <= offset < layer.bytes:
            raise UnbrokenError(f"{layer.name} has {layer.bytes} bytes, not one at {offset}")
        try:
            with open(folder / layer.name, "rb") as file:
                file.seek(offset)
                chunk = file.read(min(CHUNK_BYTES_MAX, layer.bytes - offset))
        except FileNotFoundError:
            raise _gone(shipment) from None
        return pa.table({"bytes": pa.array([chunk], pa.binary())})

    def _shipped(self, command: Command) -> None:
        with self._lock:
            found = self._open.pop(command["shipment"], None)
        if found is not None:
            shutil.rmtree(found[0], ignore_errors=True)


def take_replica(peer: Peer, fragment: str, folder: Path, *, with_watermarks: bool) -> Shipped:
    """Takes checkpoint and output log of `fragment` into the replica's `folder`.

    Not while a replica runs there.  Afterwards `fork.start(folder, …)` goes on from it.
    """

    def copy(epoch: int) -> None:
        copy_log(peer, fragment, folder / "output", last=epoch)

    return take(peer, fragment, folder, with_watermarks=with_watermarks, before_seen=copy)


def take(
    peer: Peer,
    fragment: str,
    folder: Path,
    *,
    with_watermarks: bool,
    before_seen: Callable[[int], object] | None = None,
) -> Shipped:
    """Takes the newest checkpoint of `fragment` from `peer` as the newest term in `folder`.

    `before_seen` is called with its epoch when all layers are here and the term has no name yet;
    if it fails, there is no term.
    """
    with disk.disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    command = {"do": "shipment", "fragment": fragment, "with_watermarks": with_watermarks}
    manifest = Manifest.of(peer.act(command, timeout_s=SHIPMENT_S_MAX))
    try:
        return _take(peer, manifest, folder, with_watermarks, before_seen)
    except Unreachable:
        raise  # What came is used by the next attempt.
    except BaseException:
        shutil.rmtree(folder / INCOMING, ignore_errors=True)
        raise
    finally:
        # If it is not heard: the giver keeps a few, and removes the rest.
        with contextlib.suppress(UnbrokenError):
            peer.act({"do": "shipped", "shipment": manifest.shipment}, timeout_s=5.0)


def _take(
    peer: Peer,
    manifest: Manifest,
    folder: Path,
    with_watermarks: bool,
    before_seen: Callable[[int], object] | None,
) -> Shipped:
    temporary = folder / INCOMING
    names = {layer.name for layer in manifest.layers}
    fetched = [layer for layer in manifest.layers if not _reuse(layer, folder)]
    for path in temporary.rglob("*"):
        if path.is_file() and str(path.relative_to(temporary)) not in names:
            path.unlink()  # Of an attempt that was broken off, and not of this epoch.
    for layer in fetched:
        disk.write_whole(temporary / layer.name, _chunks(peer, manifest.shipment, layer))
    _check_epoch(temporary, manifest, with_watermarks)
    if before_seen is not None:
        before_seen(manifest.epoch)
    id_of_its_own = json.dumps({"id": str(uuid.uuid4())}).encode()
    disk.write_whole(temporary / "spark" / "metadata", [id_of_its_own])
    disk.write_whole(temporary / "boot", [fork.boot_id().encode()])
    disk.write_whole(temporary / "manifest.json", [json.dumps(manifest.to_dict()).encode()])
    with disk.disk_errors(folder):
        (temporary / "watermarks").mkdir(exist_ok=True)
        os.rename(temporary, folder / str(max(fork.terms_in(folder), default=0) + 1))
    size = sum(layer.bytes for layer in fetched)
    reused = len(names) - len(fetched)
    return Shipped(manifest.epoch, size, len(fetched), reused, manifest.term, manifest.fingerprint)


def _reuse(layer: Layer, folder: Path) -> bool:
    """Whether a layer is in `incoming` now: it still was, or a term of this folder has it."""
    target = folder / INCOMING / layer.name
    with disk.disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        if _is(layer, target):
            return True
        for term in fork.terms_in(folder):
            target.unlink(missing_ok=True)
            # Linked first and read then: what is compared is what stays.
            with contextlib.suppress(FileNotFoundError):
                os.link(folder / str(term) / layer.name, target)
                if _is(layer, target):
                    return True
        target.unlink(missing_ok=True)
    return False


def _is(layer: Layer, path: Path) -> bool:
    if not path.is_file() or path.stat().st_size != layer.bytes:
        return False
    return _checksum(path) == layer.checksum


def _chunks(peer: Peer, shipment: str, layer: Layer) -> Iterator[bytes]:
    """The bytes of a layer, as many as were announced and with that checksum, or an error."""
    state, offset = hashlib.blake2b(digest_size=16), 0
    while offset < layer.bytes:
        command = {"do": "layer", "shipment": shipment, "name": layer.name, "offset": offset}
        with _refusing(f"{layer.name} does not have {layer.bytes} bytes"):
            (chunk,) = _valid(peer.get(command)).column("bytes").cast(pa.binary()).to_pylist()
            if not 0 < len(chunk) <= min(CHUNK_BYTES_MAX, layer.bytes - offset):
                raise ValueError(f"{len(chunk)} came at {offset}")
        state.update(chunk)
        offset += len(chunk)
        yield chunk
    if state.hexdigest() != layer.checksum:
        raise _refused(f"{layer.name} does not have the checksum {layer.checksum}")


def _check_epoch(temporary: Path, manifest: Manifest, with_watermarks: bool) -> None:
    """The newest commit in it must be the promised one: a replica will go on from there."""
    with _refusing("its offsets cannot be read"):
        commit = Checkpoint(temporary).last(with_watermarks=with_watermarks)
    if commit is None or commit.epoch != manifest.epoch:
        raise _refused(f"epoch {manifest.epoch} was promised, {commit} is in it")


def copy_log(peer: Peer, stream: str, folder: Path, *, last: int) -> EpochLog:
    """Copies `stream` from its oldest epoch at `peer` up to `last` into the log in `folder`.

    Epochs that are there already are compared.  If no consumer needs anything up to `last` any
    more, the log begins with the oldest epoch that `peer` still has.

    >>> import tempfile
    >>> from unbroken.streams.serve import Served, StreamDoor
    >>> here, there = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
    >>> log, door = EpochLog(here, "alerts"), Door()
    >>> StreamDoor(door).streams["alerts"] = Served(log, [], keep=0)
    >>> log.start_at(80)
    >>> for number in (80, 81, 82):
    ...     _ = log.append(Epoch.of("alerts", number, pa.table({"n": [number]})))
    >>> with door, Peer(door.address) as peer:
    ...     copied = copy_log(peer, "alerts", there, last=81)
    >>> copied.first, copied.next
    (80, 82)
    """
    drop_torn_tail(folder)
    for _ in range(LOG_ATTEMPTS):
        # Trimmed meanwhile: the consumers have gone on, and less is owed now.
        with contextlib.suppress(EpochGone):
            log = EpochLog(folder, stream)
            first = _compare(peer, log)
            if not log.first <= first <= log.next:
                # It lacks what consumers may ask for, or has only what none will ask for.
                for path in sorted(folder.glob("*.arrow")):
                    path.unlink()
                log = EpochLog(folder, stream)
            extend_log(peer, log, last=last)
            return log
    raise EpochGone(
        f"{stream}: {peer.address} trims its log faster than it can be copied",
        hint="copy again: the log here goes on from what came",
    )


def extend_log(peer: Peer, log: EpochLog, *, last: int) -> None:
    """Appends what `log` lacks up to `last`; EpochGone if `peer` has trimmed what comes next."""
    first, after = _extent(peer, log.stream)
    end = max(first, last)
    if end >= after:
        raise CheckpointLost(
            f"{log.stream}: the log at {peer.address} ends before epoch {after}, {end} is needed",
            hint="take from another replica",
        )
    if log.first == log.next:
        log.start_at(first)
    for number in range(log.next, end + 1):
        table = peer.get({"do": "epoch", "stream": log.stream, "number": number},
                         timeout_s=BODY_S_MAX)  # fmt: skip
        with _refusing(f"what came is not epoch {number} of {log.stream!r}"):
            epoch = Epoch.from_stamped(_valid(table))
            said = (epoch.header.stream, epoch.number, epoch.kind, epoch.rows)
            if said != (log.stream, number, STABLE, epoch.table.num_rows):
                raise ValueError(f"it calls itself {said}")
        log.append(epoch)


def _compare(peer: Peer, log: EpochLog) -> int:
    """Where `peer`'s log begins; an error if an epoch has other content there (invariant 1)."""
    first, after = _extent(peer, log.stream)
    number, end = max(first, log.first), min(after, log.next)
    while number < end:
        answer = peer.act({"do": "headers", "stream": log.stream, "from": number})
        with _refusing(f"the headers of {log.stream!r} cannot be read"):
            theirs = {header.number: header for header in map(Header.from_json, answer)}
            if number not in theirs:
                raise ValueError(f"{number} is not among them")
        while number < end and number in theirs:
            digest = theirs[number].digest
            if digest != log.header(number).digest:
                raise DivergenceError(
                    f"{log.stream}: epoch {number} has digest {digest} at {peer.address} and "
                    f"{log.header(number).digest} in {log.folder}",
                    hint="one of the two is wrong: move the log here away to take theirs",
                )
            number += 1
    return first


def _extent(peer: Peer, stream: str) -> tuple[int, int]:
    answer = peer.act({"do": "extent", "stream": stream})
    with _refusing(f"the extent of {stream!r} cannot be read"):
        return int(answer["first"]), int(answer["next"])


def _checksum(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _valid(table: pa.Table | None) -> pa.Table:
    if table is None:
        raise ValueError("nothing came")
    table.validate(full=True)  # Broken offsets would end this process.
    return table


@contextlib.contextmanager
def _refusing(what: str) -> Iterator[None]:
    """What came from outside and cannot be used is refused in a sentence."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, pa.ArrowException) as error:
        raise _refused(f"{what}: {error}") from error


def _refused(why: str) -> UnbrokenError:
    return UnbrokenError(
        f"shipment refused: {why}",
        hint="all processes of a cluster must run one version of Unbroken; "
        "take from another replica",
    )


def _gone(shipment: object) -> Unreachable:
    return Unreachable(f"shipment {str(shipment)[:40]} is no longer here", hint="ask for a new one")
