"""All cables of a local cluster, and the door at which another process pulls them.

    unbroken cut node-2 node-3 ─▶ entry: who holds the cables? ─▶ door ─▶ node-2 ✂ node-3

* Every node has a cable to each process that serves streams: the other nodes, and the keeper.
* Between two nodes there are two, since either may read from the other; they are cut together.
* The process that started the cluster holds them all.  Its door knows `cut`, `slow` and `heal`, and
  tells with every answer what is pulled at that moment.

>>> from unbroken.streams.flight import Peer
>>> with Cables("127.0.0.1", ["node-1", "node-2"], lambda name: None) as cables:
...     with Peer(cables.address) as peer:
...         peer.act({"do": "cut", "a": "node-1", "b": "keeper"})
...         peer.act({"do": "heal"})
['node-1 and keeper are cut off from each other']
['node-1 and keeper are cut off from each other']
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from functools import partial

from unbroken.errors import UnbrokenError
from unbroken.streams.cable import BACK, THERE, Cable
from unbroken.streams.flight import Command, Door

KEEPER = "keeper"
#: Whoever wants more cuts the cable.
SLOW_S_MAX = 60.0


class Cables:
    """A cable from every node to every other process; `door_of` tells where each leads."""

    def __init__(
        self, host: str, nodes: Sequence[str], door_of: Callable[[str], str | None]
    ) -> None:
        self._names = (KEEPER, *nodes)
        #: (reader, served) to the cable between them.
        self._laid = {
            (reader, served): Cable(partial(door_of, served), host)
            for reader in nodes
            for served in self._names
            if served != reader
        }
        #: What was done to which two, in a sentence.
        self._pulled: dict[tuple[str, ...], str] = {}
        #: Two processes may pull at the same time.
        self._pulling = threading.Lock()
        self._door = Door(host)
        self.address = self._door.address
        self._door.on_act("cut", self._cut)
        self._door.on_act("slow", self._slow)
        self._door.on_act("heal", lambda command: self.heal())
        self._door.on_act("pulled", lambda command: self.pulled)

    @property
    def doors(self) -> dict[str, dict[str, str]]:
        """Reader to process to the address through which the one reaches the other."""
        told: dict[str, dict[str, str]] = {}
        for (reader, served), cable in self._laid.items():
            told.setdefault(reader, {})[served] = cable.address
        return told

    @property
    def pulled(self) -> list[str]:
        """What is cut or slow, in sentences.

        >>> with Cables("127.0.0.1", ["node-1", "node-2"], lambda name: None) as cables:
        ...     cables.cut("node-1", "node-2", one_way=True)
        ['nothing that node-1 sends reaches node-2']
        """
        return list(self._pulled.values())

    def cut(self, a: str, b: str, *, one_way: bool = False) -> list[str]:
        """Pulls the cables between two; `one_way`: only what `a` sends is lost."""
        found, both_ways = self._between(a, b), ("cut", *sorted((a, b)))
        with self._pulling:
            for cable, a_connects in found:
                cable.cut(*([THERE if a_connects else BACK] if one_way else []))
            if not one_way:
                self._pulled[both_ways] = f"{a} and {b} are cut off from each other"
            elif both_ways not in self._pulled:
                self._pulled["lost", a, b] = f"nothing that {a} sends reaches {b}"
            return self.pulled

    def slow(self, a: str, b: str, seconds: float) -> list[str]:
        """Makes everything between two so much later."""
        if not (math.isfinite(seconds) and 0 < seconds <= SLOW_S_MAX):
            raise UnbrokenError(
                f"a cable that is slow by {seconds:g} s",
                hint=f"a number of seconds up to {SLOW_S_MAX:g}; cut it for more, heal for less",
            )
        found = self._between(a, b)
        with self._pulling:
            for cable, _ in found:
                cable.slow(seconds)
            late = f"{a} and {b} hear of each other {seconds:g} s late"
            self._pulled["slow", *sorted((a, b))] = late
            return self.pulled

    def heal(self) -> list[str]:
        """Puts all cables back; tells what was pulled."""
        with self._pulling:
            for cable in self._laid.values():
                cable.heal()
            healed, self._pulled = self.pulled, {}
            return healed

    def _between(self, a: str, b: str) -> list[tuple[Cable, bool]]:
        """The cables between two processes, and whether `a` is the one that connects."""
        for name in (a, b):
            if name not in self._names:
                raise UnbrokenError(
                    f"no cable leads to {name!r}",
                    hint=f"there are cables between: {', '.join(self._names)}",
                )
        if a == b:
            raise UnbrokenError(f"{a} needs no cable to itself", hint="name two processes")
        pairs = ((a, b), (b, a))
        return [(self._laid[pair], pair == (a, b)) for pair in pairs if pair in self._laid]

    def _cut(self, command: Command) -> list[str]:
        a, b = str(command["a"]), str(command["b"])
        return self.cut(a, b, one_way=bool(command.get("one_way")))

    def _slow(self, command: Command) -> list[str]:
        return self.slow(str(command["a"]), str(command["b"]), float(command["seconds"]))

    def close(self) -> None:
        """Nobody gets through any more, and nobody is listened to."""
        self._door.close()
        for cable in self._laid.values():
            cable.close()

    def __enter__(self) -> Cables:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
