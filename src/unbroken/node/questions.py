"""What a node is asked about its replicas: by Spark, by standbys, by nodes that take a copy.

    Spark      held        may I begin?
               gate, slice the next epoch, or a slice of it
               part        an executor's part of the output
    standby    shippable   I hold 41: is there news?
    taker      shipment …  see `checkpoints.give`

Fragment names come from outside: whoever asks for one that is not here is told so.
"""

from __future__ import annotations

from typing import Any

from unbroken.checkpoints.give import Giver, Origin
from unbroken.errors import UnbrokenError, Unreachable
from unbroken.node.hosted import Hosted
from unbroken.node.replica import Replica
from unbroken.streams.flight import Command, Door, checked_consumer, checked_name

#: What only this node's own Spark asks and brings; with one machine per node it is not traffic.
OWN_SPARK = ("held", "gate", "slice", "part")


class Questions:
    """Answers at the door of a node, for what is `hosted` there."""

    def __init__(self, node: str, door: Door, hosted: Hosted) -> None:
        self._node = node
        self._hosted = hosted
        Giver(door, self._origin)
        door.on_act("held", self._held)
        door.on_act("shippable", self._shippable)
        door.on_get("gate", self._gate)
        door.on_get("slice", self._slice)
        door.on_put("part", self._part)

    def _replica(self, command: Command) -> Replica:
        """Whoever runs here under that name, in earnest, to be ready, or for a rehearsal."""
        name, hosted = command["fragment"], self._hosted
        standby = hosted.standbys.get(name)
        replica = hosted.replicas.get(name) or hosted.rehearsals.running.get(name)
        if replica is None and standby is not None:
            replica = standby.replica
        if replica is None:
            raise UnbrokenError(f"{self._node} has no replica of {str(name)[:100]!r}")
        return replica

    def _origin(self, fragment: str) -> Origin:
        """What another node takes when it takes our replica."""
        replica = self._hosted.replicas.get(fragment)
        if replica is None:
            raise UnbrokenError(f"{self._node} has no replica of {fragment!r} to give")
        fingerprint = self._hosted.known(fragment).fingerprint
        return Origin(self._hosted.folder(fragment), replica.term, fingerprint)

    def _held(self, command: Command) -> int | None:
        return self._replica(command).wait_released(int(command["term"]))

    def _shippable(self, command: Command) -> int | None:
        replica = self._hosted.replicas.get(command["fragment"])
        if replica is None:  # It is about to start, or has moved.
            raise Unreachable(f"{self._node} does not run {str(command['fragment'])[:100]!r}")
        for client in command.get(
            "clients", []
        ):  # They have found the standby, and perhaps not us.
            self._hosted.streams[command["fragment"]].meet(checked_name(client))
        return replica.wait_shippable(
            checked_consumer(command["taker"]), int(command["after"]), float(command["wait_s"])
        )

    def _gate(self, command: Command) -> Any:
        rows_max = int(command["rows"])
        table = self._replica(command).ask(
            command["input"], int(command["after"]), int(command["term"]), rows=rows_max > 0,
            ahead=command.get("ahead") is True,
        )  # fmt: skip
        if rows_max and table is not None and table.num_rows > rows_max:
            return table.slice(0, 0)  # They are fetched slice by slice; the header says so.
        return table

    def _slice(self, command: Command) -> Any:
        return self._replica(command).slice(
            command["input"], int(command["number"]), int(command["index"]),
            int(command["count"]), int(command["term"]),
        )  # fmt: skip

    def _part(self, command: Command, table: Any) -> None:
        self._replica(command).put_part(
            int(command["epoch"]), int(command["part"]), int(command["attempt"]), table,
            int(command["term"]),
        )  # fmt: skip
