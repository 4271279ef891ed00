"""What control answers to a replica that starts empty: may it, whom to wait for, what is on record.

    successor ─ alone ─────▶ the one before it is given up; the term under which it stands alone
              ─ not_asking ▶ whom it need not wait for
              ─ hole ──────▶ recorded once, with all whom it overtakes
              ─ count_hole ▶ its rows, once they are known

* Only the newcomer of a rebuild that is under way may do any of it: one that was frozen meanwhile,
  and replaced, must not make a hole in another one's line.
* On disk before it is answered, in one change with what follows from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unbroken.control.records import Hole
from unbroken.control.repair import Repairs
from unbroken.control.store import Store
from unbroken.control.unheard import Unheard
from unbroken.errors import UnbrokenError
from unbroken.node import setup
from unbroken.streams.flight import Command, Door, checked_consumer, checked_name


class Holes:
    """The door for those who start empty; `lock` is control's own."""

    def __init__(
        self, door: Door, lock: Any, store: Store, repairs: Repairs,
        unheard: Callable[[str], Unheard],
    ) -> None:  # fmt: skip
        self._lock, self._store, self._repairs, self._unheard = lock, store, repairs, unheard
        door.on_act("alone", self.alone)
        door.on_act("not_asking", self.not_asking)
        door.on_act("hole", self.record)
        door.on_act("count_hole", self.count)

    def alone(self, command: Command) -> dict[str, Any]:
        """A replica is about to start empty; the answer is the term under which it stands alone,
        and what its stream has lost before.

        Consumers will take nothing from the one before it any more, so that one must not go on.
        """
        stream, node = checked_name(command["stream"]), checked_name(command["node"])
        with self._lock:
            gone = self._overtakes(stream, node)
            self._store.overtake(stream, gone)
            self._repairs.overtaken(stream, gone)
            holes = [(hole.first, hole.last, hole.rows) for hole in self._store.holes(stream)]
            return {"term": self._repairs.under_way[stream].term, "holes": holes}

    def not_asking(self, command: Command) -> dict[str, list[str]]:
        """The consumers of a stream whose word on how far they are is not waited for."""
        stream = checked_name(command["stream"])
        with self._lock:
            found = self._unheard(stream)
        return {kind: [setup.replica_name(*who) for who in whom]
                for kind, whom in found._asdict().items()}  # fmt: skip

    def record(self, command: Command) -> dict[str, int]:
        """A replica that starts empty tells what is lost; the answer is what is on record."""
        stream, node = checked_name(command["stream"]), checked_name(command["node"])
        first, last = int(command["first"]), int(command["last"])
        if not 0 <= first <= last:
            raise UnbrokenError(f"{stream}: a hole from {first} to {last}")
        replaced = [checked_consumer(name) for name in command.get("replaced", [])]
        with self._lock:
            gone = self._overtakes(stream, node)
            overtaken = [(stream, gone), *self._still_replaced(stream, replaced)]
            recorded = self._store.record_hole(
                Hole(stream, first, last), overtakes=overtaken,
                longer=bool(command.get("longer", False)),
            )  # fmt: skip
            for each in overtaken:
                self._repairs.overtaken(*each)
        print(recorded.sentence, flush=True)
        return {"first": recorded.first, "last": recorded.last}

    def count(self, command: Command) -> int:
        """How many rows are lost with a hole that is on record; tells how many are on record."""
        stream, node = checked_name(command["stream"]), checked_name(command["node"])
        with self._lock:
            self._overtakes(stream, node)
            return self._store.count_hole(stream, int(command["first"]), int(command["rows"]))

    def _overtakes(self, stream: str, node: str) -> str:
        """In whose place `node` starts a fragment empty."""
        gone = self._repairs.overtakes(stream, node)
        if gone is None:
            raise UnbrokenError(
                f"{stream}: {node} is not asked to start it empty",
                hint="it may have been, and was replaced; its next beat tells",
            )
        return gone

    def _still_replaced(self, stream: str, replaced: list[str]) -> list[tuple[str, str]]:
        """Consumers that were not waited for because another copy of them goes on."""
        now = {setup.replica_name(*who): who for who in self._unheard(stream).replaced}
        for name in replaced:
            if name not in now:
                raise UnbrokenError(
                    f"{stream}: {name} is back, or nobody goes on in its place",
                    hint="asked again how far everybody is",
                )
        return [now[name] for name in replaced]
