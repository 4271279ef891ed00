"""Shipments of a simulation: a checkpoint goes to another node in steps, a few layers at a time.

    giver   fork ─ manifest: names, and of which run each layer is ─▶ taker
            goes on, rewrites, may die    ◀─ three layers at a time ── incoming
                                             output log, then the name: `shipped`

* As `checkpoints.give` and `take`: what is given is a fork, what was broken off is gone on with,
  what is here already is not fetched, and the name comes last.
* Each step is a call: giver or taker may die, be cut off, or go on between any two of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from unbroken.checkpoints.give import SHIPMENTS_KEPT
from unbroken.checkpoints.take import Shipped
from unbroken.errors import CheckpointLost, UnbrokenError, Unreachable
from unbroken.streams.copy_log import copy_log
from unbroken.testing.checkpoints import Checkpoint, Layer, folder_of, newest
from unbroken.testing.disk import Path
from unbroken.testing.tasks import block
from unbroken.testing.world import World

#: Layers in one answer.
STEP = 3


def same(layer: Layer, content: object) -> bool:
    """Whether what came, or is here, is that layer: in files, its checksum tells."""
    return content is layer.content


class Giver:
    """Gives checkpoints to other nodes; as `checkpoints.give.Giver`."""

    def __init__(self, door: Any, find: Callable[[str], Any]) -> None:
        self._find = find
        #: By number: the forks that somebody takes.
        self._open: dict[int, Checkpoint] = {}
        self._made = 0
        door.on_act("shipment", self._shipment)
        door.on_get("layers", self._layers)
        door.on_act("shipped", self._shipped)

    def _shipment(self, command: dict[str, Any]) -> dict[str, Any]:
        origin = self._find(command["fragment"])
        found = newest(origin.folder, with_watermarks=command["with_watermarks"])
        if found is None:
            raise CheckpointLost(f"{command['fragment']} has no committed epoch to be shipped")
        self._made += 1
        made = self._open[self._made] = self._fork(*found)
        for quiet in list(self._open)[:-SHIPMENTS_KEPT]:
            del self._open[quiet]
        return {
            "shipment": self._made, "epoch": found[1].epoch, "layers": made.layers(found[1]),
            "term": origin.term, "fingerprint": origin.fingerprint,
        }  # fmt: skip

    def _fork(self, checkpoint: Checkpoint, at: Any) -> Checkpoint:
        return checkpoint.fork(at)

    def _layers(self, command: dict[str, Any]) -> list[Any]:
        made = self._open.get(command["shipment"])
        if made is None:
            raise Unreachable("the shipment is not kept any more")
        return [made.read(name) for name in command["names"]]

    def _shipped(self, command: dict[str, Any]) -> None:
        self._open.pop(command["shipment"], None)


class Attempt:
    """One shipment on its way into a folder."""

    def __init__(self, peer: Any, fragment: str, folder: Path, given: dict[str, Any]) -> None:
        self._peer, self._fragment, self._folder, self._given = peer, fragment, folder, given
        self.epoch: int = given["epoch"]
        incoming = folder_of(folder).incoming
        #: What is here already: of an attempt that was broken off, a shipment or a term.
        self._here = {
            layer.name: layer.content for layer in given["layers"]
            if same(layer, incoming.get(layer.name)) or self._elsewhere(layer)
        }  # fmt: skip
        folder_of(folder).incoming = self._here

    def _elsewhere(self, layer: Layer) -> bool:
        return any(same(layer, each.read(layer.name)) for each in folder_of(self._folder).all())

    def bring(self) -> None:
        """Fetches what is not here, a few layers at a time."""
        lacking = [layer for layer in self._given["layers"] if layer.name not in self._here]
        for first in range(0, len(lacking), STEP):
            step = lacking[first : first + STEP]
            command = {
                "do": "layers", "shipment": self._given["shipment"],
                "names": [layer.name for layer in step],
            }  # fmt: skip
            for layer, content in zip(step, self._peer.get(command), strict=True):
                if not same(layer, content):
                    raise UnbrokenError(f"{layer.name} is not what was promised")
                self._folder.disk.room(self._folder)
                self._here[layer.name] = content

    def show(self) -> None:
        """Gives it its name: from now on it is there, whole."""
        disk = self._folder.disk
        disk.room(self._folder)
        made = folder_of(self._folder).shipped = Checkpoint.of(disk, self._here, self.epoch)
        folder_of(self._folder).incoming = {}
        disk.watch.shipped(self._folder, self._fragment, self.epoch, made)


def take(
    peer: Any, fragment: str, folder: Path, *, with_watermarks: bool, known: object = None,
    before_seen: Callable[[int], object] | None = None,
) -> Shipped:  # fmt: skip
    """Takes the newest checkpoint of `fragment` from `peer`; the output log comes before its name.

    As `checkpoints.take.take`.
    """
    command = {"do": "shipment", "fragment": fragment, "with_watermarks": with_watermarks}
    given = peer.act(command)
    try:
        steps(Attempt(peer, fragment, folder, given), before_seen)
    except Unreachable:
        raise  # What came is used by the next attempt.
    except UnbrokenError:
        folder_of(folder).incoming = {}
        raise
    finally:
        with contextlib.suppress(UnbrokenError):
            peer.act({"do": "shipped", "shipment": given["shipment"]}, timeout_s=5.0)
    return Shipped(given["epoch"], 0, 0, 0, given["term"], given["fingerprint"])


def steps(attempt: Attempt, before_seen: Callable[[int], object] | None) -> None:
    """The layers, then the output log, and the name last."""
    attempt.bring()
    if before_seen is not None:
        before_seen(attempt.epoch)
    attempt.show()


def take_more(peer: Any, fragment: str, folder: Path, **how: Any) -> Shipped:
    """Takes what was made since, as `checkpoints.take.take`: less than the first time."""
    block(folder.disk.world, folder.disk.world.random.choice((0.01, 0.1)))
    return take(peer, fragment, folder, **how)


def take_replica(peer: Any, fragment: str, folder: Path, *, with_watermarks: bool) -> Shipped:
    """Takes checkpoint and output log, as `checkpoints.take.take_replica`.

    A whole state takes its time; the giver goes on meanwhile.
    """
    world: World = folder.disk.world

    def copy(epoch: int) -> None:
        block(world, world.random.choice((0.01, 0.1, 1.5)))
        copy_log(peer, fragment, folder / "output", last=epoch)  # type: ignore[arg-type]

    return take(peer, fragment, folder, with_watermarks=with_watermarks, before_seen=copy)
