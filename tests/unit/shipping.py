"""What the tests of shipping share: a node that has a replica, and one that lies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from layers_by_hand import files, run_batches, write

from unbroken.checkpoints import fetch, fork
from unbroken.checkpoints.give import Giver, Origin
from unbroken.checkpoints.layers import Checkpoint
from unbroken.checkpoints.take import INCOMING, Shipped, take
from unbroken.epochs import Epoch
from unbroken.errors import UnbrokenError
from unbroken.streams.flight import Command, Door, Peer
from unbroken.streams.log import EpochLog
from unbroken.streams.serve import StreamDoor
from unbroken.streams.served import Served


class Node:
    """A node that has a replica of `alerts`: epochs 100 to 105 committed, output from 80 on."""

    def __init__(self, folder: Path, patched: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._patched = patched
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
        """Calls `act` with 1, 2, … whenever a layer is asked for, which is one by one from now."""
        self._patched.setattr(fetch, "LAYERS_AT_ONCE", 1)
        count = iter(range(1, 10_000))

        def handler(command: Command) -> pa.Table:
            act(next(count))
            return self.giver._layers(command)

        self.door.on_get("layers", handler)


def epoch(number: int, value: int = 0) -> Epoch:
    return Epoch.of("alerts", number, pa.table({"n": [number, value]}), fingerprint="f1")


def taken(peer: Peer, folder: Path, **options: Any) -> Shipped:
    return take(peer, "alerts", folder, with_watermarks=True, **options)


def content(checkpoint: Checkpoint) -> dict[str, bytes]:
    own = {"boot", "manifest.json", "spark/metadata"}
    names = files(checkpoint) - own
    return {name: (checkpoint.folder / name).read_bytes() for name in names}


def visible(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.glob("*") if ".tmp" not in p.name and p.name != "output")


class Liar:
    """A giver that says whatever a test wants."""

    def __init__(self, door: Door, honest: Node) -> None:
        self.address = door.address
        ask = {"fragment": "alerts", "with_watermarks": True}
        self.manifest: Any = honest.giver._shipment(ask)
        self.layer: Callable[[Command], pa.Table | None] = honest.giver._layers
        door.on_act("shipment", lambda command: self.manifest)
        door.on_get("layers", lambda command: self.layer(command))
        door.on_act("shipped", lambda command: None)


def refused(liar: Liar, folder: Path, match: str) -> None:
    """Nothing of it is visible, nothing is kept, nothing lies outside, and the honest one works."""
    before = sorted(folder.parent.parent.rglob("*"))
    with Peer(liar.address) as peer, pytest.raises(UnbrokenError, match=match):
        taken(peer, folder)
    assert visible(folder) == []
    assert not (folder / INCOMING).exists()
    assert set(folder.parent.parent.rglob("*")) - set(before) <= {folder, folder.parent}


def rows(log: EpochLog) -> dict[int, list[int]]:
    numbers = range(log.first, log.next)
    return {n: log.read(n).table.column("n").to_pylist() for n in numbers}
