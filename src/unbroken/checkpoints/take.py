"""Taking: how a replica goes from one node to another, as a delta.

    giver   term 4 ─ fork ─▶ shipments/7f… ─ manifest: name, bytes, checksum ─▶ taker
            (goes on)                      ◀─ only the layers that it lacks ──  incoming.tmp
            output 80 … 105                ◀─ epochs 80 to 103 ───────────────  output 80 … 103
            shipments/7f… is removed       ◀─ shipped ────────────────────────  a rename: shipped/2
                                                                                shipped/1 is removed

* A replica is its checkpoint *and* its output log (scenario 1).  The shipment gets its name after
  the last byte of both is there, so `fork.start` finds all of it or nothing.
* First the rename, then the older one goes: a crash in between leaves two, and the newest counts.
* A layer that is here already, with name, bytes and checksum, is linked: of a shipment or a term of
  this folder.  What is in `incoming` stays there: of an attempt that was broken off, or, for one
  who takes again and again, of the shipment before the last.  Every checksum is of bytes read here
  (`Known` remembers which), and none is believed.
* Names and sizes come from outside and are checked before anything is written.
* A giver that dies is `Unreachable`; whoever takes asks again, or asks another.

>>> import tempfile
>>> from unbroken.checkpoints.give import Giver, Origin
>>> from unbroken.streams.flight import Door
>>> here, there = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
>>> spark = fork.start(here, with_watermarks=False).checkpoint.spark
>>> for kind, text in [("offsets", 'v1\\n{}\\n{"epoch": 103}'), ("commits", "v1")]:
...     (spark / kind).mkdir(parents=True)
...     _ = (spark / kind / "3").write_text(text)
>>> door = Door()
>>> giver = Giver(door, lambda name: Origin(here, 1, "f1"))
>>> with door, Peer(door.address) as peer:
...     take(peer, "alerts", there, with_watermarks=False)
Shipped(epoch=103, bytes_fetched=22, files_fetched=2, files_reused=0, term=1, fingerprint='f1')
>>> fork.start(there, with_watermarks=False).epoch
103
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from unbroken.checkpoints import fork
from unbroken.checkpoints.fetch import fetched
from unbroken.checkpoints.known import Known
from unbroken.checkpoints.layers import Checkpoint
from unbroken.checkpoints.links import files_in, remove
from unbroken.checkpoints.manifest import Layer, Manifest, checksum
from unbroken.errors import UnbrokenError, Unreachable
from unbroken.streams import disk
from unbroken.streams.copy_log import copy_log
from unbroken.streams.flight import CALL_S_MAX, Peer
from unbroken.streams.refuse import refused, refusing

#: A shipment is a fork, and its checksums are computed: gigabytes are read.
SHIPMENT_S_MAX = 120.0
DONE_S_MAX = 5.0
INCOMING = f"incoming{disk.TEMPORARY}"


@dataclass(frozen=True)
class Shipped:
    """What was taken; `term` and `fingerprint` are the giver's."""

    epoch: int
    bytes_fetched: int
    files_fetched: int
    files_reused: int
    term: int
    fingerprint: str


def take_replica(peer: Peer, fragment: str, folder: Path, *, with_watermarks: bool) -> Shipped:
    """Takes checkpoint and output log of `fragment` into the replica's `folder`.

    Not while a replica runs there, or its log is served: a standby takes with `extend_log` in
    `before_seen`.  Afterwards `fork.start(folder, …)` goes on from it.
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
    known: Known[str] | None = None,
    before_seen: Callable[[int], object] | None = None,
    timeout_s: float = SHIPMENT_S_MAX,
) -> Shipped:
    """Takes the newest checkpoint of `fragment` from `peer` into `folder`/shipped.

    `known`, a `Known(checksum)`, is the memory of one who takes again and again.  `before_seen` is
    called with the epoch when all layers are here and the shipment has no name yet; if it fails,
    nothing was taken.  `timeout_s` bounds each call.
    """
    command = {"do": "shipment", "fragment": fragment, "with_watermarks": with_watermarks}
    manifest = Manifest.of(peer.act(command, timeout_s=timeout_s))
    attempt = _Attempt(peer, manifest, folder, known or Known(checksum), timeout_s)
    try:
        shipped = attempt.bring(with_watermarks)
        if before_seen is not None:
            before_seen(manifest.epoch)
        made = attempt.show()
    except Unreachable:
        raise  # What came is used by the next attempt.
    except BaseException:
        shutil.rmtree(folder / INCOMING, ignore_errors=True)
        raise
    finally:
        # If it is not heard: the giver keeps a few, and removes the rest.
        done = {"do": "shipped", "shipment": manifest.shipment}
        with contextlib.suppress(UnbrokenError):
            peer.act(done, timeout_s=min(timeout_s, DONE_S_MAX))
    _forget_all_but(made, park=known is not None)
    return shipped


def _forget_all_but(newest: Path, *, park: bool) -> None:
    """Removes older shipments; for one who will take again the last of them becomes `incoming`."""
    for older in newest.parent.iterdir():
        if older == newest:
            continue
        if park:
            # Most of the next shipment is in it: nothing to link, no folder to make and remove.
            with contextlib.suppress(OSError):  # Something is there already.
                os.rename(older, newest.parent.parent / INCOMING)
                continue
        remove(older)


class _Attempt:
    """One shipment on its way into a folder."""

    def __init__(
        self, peer: Peer, manifest: Manifest, folder: Path, known: Known[str], timeout_s: float
    ) -> None:
        self._peer = peer
        self._manifest = manifest
        self._folder = folder
        self._incoming = folder / INCOMING
        #: Whether something is there: of an attempt that was broken off, or an older shipment.
        self._begun = self._incoming.exists()
        self._known = known
        self._timeout_s = min(timeout_s, CALL_S_MAX)
        known.begin()

    def bring(self, with_watermarks: bool) -> Shipped:
        """Links what is here, fetches the rest, and looks whether it is what was promised."""
        given = self._manifest
        names = {layer.name for layer in given.layers}
        with disk.disk_errors(self._incoming):
            for parent in sorted({os.path.dirname(name) for name in names}):
                os.makedirs(f"{self._incoming}/{parent}", exist_ok=True)
            (self._incoming / "watermarks").mkdir(parents=True, exist_ok=True)
            if self._begun:
                self._drop_all_but(names)
            sources = [
                *map(str, fork.shipped_in(self._folder)),
                *(f"{self._folder}/{term}" for term in fork.terms_in(self._folder)),
            ]
            lacking = [layer for layer in given.layers if not self._reuse(layer, sources)]
        for layer, body in fetched(self._peer, given.shipment, lacking, self._timeout_s):
            path = self._incoming / layer.name
            disk.write_whole(path, body)
            self._known.note(path, layer.checksum)
        # The newest commit in it must be the promised one: a replica will go on from there.
        with refusing("its offsets cannot be read"):
            commit = Checkpoint(self._incoming).last(with_watermarks=with_watermarks)
        if commit is None or commit.epoch != given.epoch:
            raise refused(f"epoch {given.epoch} was promised, {commit} is in it")
        size, reused = sum(layer.bytes for layer in lacking), len(names) - len(lacking)
        return Shipped(given.epoch, size, len(lacking), reused, given.term, given.fingerprint)

    def show(self) -> Path:
        """Gives it its name: from now on it is there, whole."""
        disk.write_whole(self._incoming / "boot", [fork.boot_id().encode()])
        note = json.dumps(self._manifest.to_dict()).encode()
        disk.write_whole(self._incoming / "manifest.json", [note])
        newest = fork.shipped_in(self._folder)[:1]
        number = int(newest[0].name) + 1 if newest else 1
        made = self._folder / fork.SHIPPED / str(number)
        with disk.disk_errors(made):
            made.parent.mkdir(exist_ok=True)
            os.rename(self._incoming, made)
        return made

    def _drop_all_but(self, names: set[str]) -> None:
        """What is not of this epoch goes."""
        prefix = len(str(self._incoming)) + 1
        for entry in files_in(str(self._incoming)):
            if entry.path[prefix:] not in names:
                os.unlink(entry.path)

    def _reuse(self, layer: Layer, sources: list[str]) -> bool:
        """Whether a layer is in `incoming` now: it still was, or this folder has it elsewhere."""
        target = f"{self._incoming}/{layer.name}"
        if self._begun and self._is(layer, target):
            return True
        for source in sources:
            try:
                # Linked first and read then: what is compared is what stays.
                os.link(f"{source}/{layer.name}", target)
            except FileNotFoundError:
                continue
            if self._is(layer, target):
                return True
        return False

    def _is(self, layer: Layer, path: str) -> bool:
        """Whether a file is that layer; if not, it is gone."""
        try:
            stat = os.stat(path)
        except FileNotFoundError:
            return False
        if stat.st_size == layer.bytes and self._known.of(path, stat) == layer.checksum:
            return True
        os.unlink(path)
        return False
