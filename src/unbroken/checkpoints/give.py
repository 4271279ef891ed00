"""Giving: a node hands the checkpoints of its replicas to other nodes.

    shipment {fragment, with_watermarks}   a fork is made: its manifest
    layers   {shipment, parts}             bytes of it, several layers in one answer
    shipped  {shipment}                    the taker is done with it; the fork goes

* A fork is given, never a living directory, and nothing but what is in its manifest.
* Forks of takers that never came back are bounded: beyond a few, the one quiet for longest goes.

See `take.py` for an example.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from unbroken.checkpoints.known import Known
from unbroken.checkpoints.links import files_in, remove_files
from unbroken.checkpoints.manifest import CHUNK_BYTES_MAX, OWN, Layer, Manifest, checksum
from unbroken.checkpoints.shipments import (
    SHIPMENTS,
    Snapshot,
    for_shipment,
    forget_shipments,
    ssts_named,
)
from unbroken.errors import CheckpointLost, UnbrokenError, Unreachable
from unbroken.streams.flight import Command, Door, checked_name

#: Forks kept for takers of one fragment; beyond it the one that was quiet for longest goes.
SHIPMENTS_KEPT = 4


@dataclass(frozen=True)
class Origin:
    """What a node says of a replica that it can give: its folder, term and fingerprint.

    >>> Origin(Path("alerts"), term=4, fingerprint="f1").term
    4
    """

    folder: Path
    term: int
    fingerprint: str


@dataclass(frozen=True)
class _Shipment:
    """A fork that some taker has the manifest of."""

    folder: Path
    layers: dict[str, Layer]


@dataclass
class _Memory:
    """What was read for the last shipment of a fragment: most layers are in the next one too."""

    making: threading.Lock = field(default_factory=threading.Lock)
    checksums: Known[str] = field(default_factory=lambda: Known(checksum))
    snapshots: Known[Snapshot] = field(default_factory=lambda: Known(ssts_named))


class Giver:
    """Gives checkpoints of this node's replicas to other nodes.

    `find` knows the replica of a fragment here, and raises an UnbrokenError if there is none.
    """

    def __init__(self, door: Door, find: Callable[[str], Origin]) -> None:
        self._find = find
        self._lock = threading.Lock()
        #: By id; the one that was quiet for longest comes first.
        self._open: OrderedDict[str, _Shipment] = OrderedDict()
        self._memories: defaultdict[str, _Memory] = defaultdict(_Memory)
        door.on_act("shipment", self._shipment)
        door.on_get("layers", self._layers)
        door.on_act("shipped", self._shipped)

    def _shipment(self, command: Command) -> dict[str, Any]:
        fragment = checked_name(command["fragment"])
        origin = self._find(fragment)
        with self._lock:
            memory = self._memories[fragment]
        # One at a time per fragment: a large first shipment must not hold up another's deltas.
        with memory.making:
            self._make_room(origin.folder)
            memory.checksums.begin()
            memory.snapshots.begin()
            made = for_shipment(
                origin.folder, with_watermarks=bool(command["with_watermarks"]),
                snapshots=memory.snapshots,
            )  # fmt: skip
            if made is None:
                raise CheckpointLost(
                    f"fragment {fragment!r} has no committed epoch here that could be shipped",
                    hint="ask again after its first epoch, or ask another replica",
                )
            checkpoint, commit = made
            shipment = checkpoint.folder.name
            layers = tuple(_layers_of(checkpoint.folder, memory.checksums))
            with self._lock:
                self._open[shipment] = _Shipment(
                    checkpoint.folder, {layer.name: layer for layer in layers}
                )
        return Manifest(shipment, commit.epoch, origin.term, origin.fingerprint, layers).to_dict()

    def _make_room(self, replica: Path) -> None:
        """Leftovers of an earlier process go, and the takers that were quiet for longest."""
        shipments = replica / SHIPMENTS
        with self._lock:
            mine = [key for key, made in self._open.items() if made.folder.parent == shipments]
            for key in mine[: max(0, len(mine) + 1 - SHIPMENTS_KEPT)]:
                del self._open[key]
            keep = set(self._open)
        forget_shipments(replica, keep)

    def _layers(self, command: Command) -> pa.Table:
        shipment = command["shipment"]
        with self._lock:
            if shipment not in self._open:
                raise _gone(shipment)
            self._open.move_to_end(shipment)
            made = self._open[shipment]
        parts = [
            # A name that was not in the manifest gets nowhere.
            (made.layers[name], int(offset), int(size))
            for name, offset, size in command["parts"]
        ]
        for layer, offset, size in parts:
            if size <= 0 or not 0 <= offset <= layer.bytes - size:
                raise UnbrokenError(f"{layer.name} has {layer.bytes} bytes, not {size} at {offset}")
        if sum(size for _, _, size in parts) > CHUNK_BYTES_MAX:
            raise UnbrokenError(f"more than {CHUNK_BYTES_MAX:,} bytes in one answer")
        try:
            chunks = [_read(made.folder / layer.name, at, size) for layer, at, size in parts]
        except FileNotFoundError:
            raise _gone(shipment) from None
        return pa.table({"bytes": pa.array(chunks, pa.binary())})

    def _shipped(self, command: Command) -> None:
        with self._lock:
            made = self._open.pop(command["shipment"], None)
        if made is not None:  # Else it was said twice, or forgotten meanwhile.
            remove_files(made.folder)


def _layers_of(folder: Path, checksums: Known[str]) -> Iterator[Layer]:
    """Every file of a fork, sorted by name."""
    prefix = len(str(folder)) + 1
    found = {entry.path[prefix:]: entry for entry in files_in(str(folder))}
    for name in sorted(found.keys() - OWN):
        stat = found[name].stat()
        yield Layer(name, stat.st_size, checksums.of(found[name].path, stat))


def _read(path: Path, offset: int, size: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(size)


def _gone(shipment: object) -> Unreachable:
    return Unreachable(f"shipment {str(shipment)[:40]} is no longer here", hint="ask for a new one")
