"""What a node tells others of what it hosts: producers, control, and the entry.

    acks     ──▶ producers    how far each replica and standby is, and what it may ask for again
    beat     ──▶ control      who works here, how far it is, what is of no use, which log is full
    report   ──▶ the entry    for the book and `status`

How what is hosted begins and ends is in `hosted`.
"""

from __future__ import annotations

from typing import Any

from unbroken.node.replica import Replica
from unbroken.node.staged import STAGED
from unbroken.node.standby import Standby
from unbroken.node.tries import Tries
from unbroken.streams.serve import StreamDoor


class Telling:
    """What is hosted, as others hear of it."""

    def __init__(self, streams: StreamDoor) -> None:
        self.streams = streams
        self.replicas: dict[str, Replica] = {}
        self.standbys: dict[str, Standby] = {}
        #: What is being done about a fragment, in a few words.
        self.under_way: dict[str, str] = {}
        #: Fragments whose checkpoint here is of no use: they have to be taken from another node.
        self.lost: set[str] = set()
        self._tries = Tries()
        #: Fragments that have nothing here to go on from: they will not say how far they are.
        self._empty: set[str] = set()

    def acks(self) -> list[tuple[str, dict[str, Any]]]:
        """What to tell producers, of all that is hosted here: (stream, ack)."""
        told = []
        for name, replica in list(self.replicas.items()):
            served = self.streams.streams.get(name)
            if served is not None:
                told += replica.acks(served.owed, served.clients, served.owed_to)
        for standby in list(self.standbys.values()):
            told += standby.acks()
        return told

    def beat(self) -> dict[str, Any]:
        """What control hears: who works here, how far it is, and what is of no use."""
        working = {
            name: {"epoch": replica.committed, "failed": replica.failed}
            for name, replica in list(self.replicas.items())
            if replica.asking  # Until then it cannot serve, and must not count as live.
        }
        ready = {
            name: {"epoch": standby.epoch, "failed": standby.trouble}
            for name, standby in list(self.standbys.items())
            if standby.ready
        }
        return {
            "replicas": working | ready, "lost": sorted(self.lost), "full": self._full(),
            "troubles": dict(self._tries.troubles), "empty": sorted(self._empty),
        }  # fmt: skip

    def _full(self) -> dict[str, str]:
        """Streams whose log is full, and for whose sake."""
        held = {}
        for name, replica in list(self.replicas.items()):
            served = self.streams.streams.get(name)
            if replica.full and served is not None and (laggard := served.laggard()):
                held[name] = laggard
        return held

    def report(self) -> dict[str, Any]:
        """What the entry hears, for the book and `status`."""
        return {
            "streams": [name for name in list(self.streams.streams) if not name.endswith(STAGED)],
            "fragments": {
                name: {**replica.status(), "output": served.status()}
                for name, replica in list(self.replicas.items())
                # It may be leaving at this moment, in another thread.
                if (served := self.streams.streams.get(name)) is not None
            },
            "standbys": {name: held.status() for name, held in list(self.standbys.items())},
            "joining": {**self._tries.troubles, **self.under_way},
        }
