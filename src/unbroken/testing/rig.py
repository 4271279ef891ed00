"""The simulated engine in a rig, for the suite that all engines pass (see `conformance`).

    one process, one disk, no network, no faults; the replica and its gate are the real ones

>>> from unbroken.testing.conformance import CHECKS
>>> with simulated_rig() as rig:
...     CHECKS["two inputs"](rig)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from unbroken.checkpoints.fork import Start
from unbroken.node import replica as replica_module
from unbroken.query import Query
from unbroken.testing.checkpoints import Checkpoint, Fork, folder_of
from unbroken.testing.disk import Disk, Path
from unbroken.testing.engine import Plan
from unbroken.testing.epochs import Epoch, Rows
from unbroken.testing.network import Network
from unbroken.testing.operators import OPERATORS
from unbroken.testing.patches import changes, patched
from unbroken.testing.tasks import spawn
from unbroken.testing.trial import Fed, Feed, Rig
from unbroken.testing.world import World

WAIT_S_MAX = 60.0
REST_S = 5.0


class _Nobody:
    """Checkers that look at nothing: what comes out is looked at by the suite."""

    runs: list[Any]

    def __init__(self) -> None:
        self.runs = []

    def slowness(self, node: str) -> float:
        return 1.0

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *said: None


class SimulatedRig(Rig):
    """One process that runs simulated queries."""

    def __init__(self, world: World, disk: Disk) -> None:
        self._world, self._disk = world, disk
        self._process = world.process("node-1")
        self._replicas: dict[str, Fed] = {}
        door = Network(world).door(self._process)
        door.on_act("held", lambda asked: self._asked(asked).wait_released(asked["term"]))
        door.on_get("gate", self._gate)

    def _asked(self, command: dict[str, Any]) -> Fed:
        return self._replicas[command["fragment"]]

    def _gate(self, command: dict[str, Any]) -> Any:
        term, rows, ahead = command["term"], command["rows"], command.get("ahead", False)
        return self._asked(command).ask(
            command["input"], command["after"], term, rows=rows, ahead=ahead
        )

    def _path(self, folder: str) -> Path:
        return Path(self._disk, folder)

    def _newest(self, folder: str) -> tuple[int, Checkpoint]:
        return max(folder_of(self._path(folder)).terms.items())

    def _do(self, do: Callable[[], Any]) -> Any:
        """Does it in the process, in a thread of its own; what comes of it."""
        made: list[Any] = []
        task = spawn(self._world, self._process, lambda: made.append(do()))
        self.wait(lambda: task.over, "it is done")
        return made[0]

    def replica(
        self, operator: str, inputs: Sequence[str], folder: str, feed: Feed,
        dies: tuple[str, int] | None,
    ) -> Fed:  # fmt: skip
        """A replica; its plan has a name of its own, by which it is found behind the door."""
        query, name = Query("rig", epoch="manual"), f"r{len(self._replicas)}"
        for stream in inputs:
            query.source(stream, "n INT")
        function: Callable[..., Any] = (lambda a: a) if len(inputs) == 1 else (lambda a, b: a)
        fragment = query.fragment(*inputs)(function, name=name)
        plan = Plan(name, OPERATORS[operator], tuple(inputs))
        # The code is the same, whatever the name.
        made: Fed = self._do(lambda: Fed(fragment, self._path(folder), plan, feed, dies))
        self._replicas[name] = made
        return made

    def start(self, replica: Fed, *, forked: bool = True) -> None:
        """Starts it, in the process."""
        fork = Fork() if forked else _NoFork()
        with patched([(replica_module, "fork", fork)]):
            self._do(lambda: replica.start(lambda term: replica._plan))

    def hold(self, replica: Fed) -> None:
        """Starts it in advance."""
        self._do(lambda: replica.hold(lambda term: replica._plan))
        self._do(lambda: replica.wait_held(WAIT_S_MAX))

    def fork(self, source: str, at: int, target: str) -> None:
        """Ships a fork."""
        newest = self._newest(source)[1]
        folder_of(self._path(target)).shipped = newest.fork(newest.commits[at])

    def give(self, feed: Feed, stream: str, epoch: Any) -> None:
        """It comes to the process, by whose clock it is noted when."""
        self._world.stack.append(self._process)
        try:
            feed.give(stream, epoch)
        finally:
            self._world.stack.clear()

    def epoch(self, stream: str, number: int, rows: Rows) -> Epoch:
        """Rows as an epoch."""
        return Epoch.of(stream, number, rows, sealed_us=1)

    def rows(self, epoch: Epoch) -> Rows:
        """An epoch as rows."""
        return tuple(sorted(epoch.table))

    def commits(self, folder: str) -> list[int]:
        """What was committed."""
        return sorted(self._newest(folder)[1].commits)

    def wait(self, until: Callable[[], object], what: str) -> None:
        """Lets time pass until it is so."""
        end_s = self._world.now_s + WAIT_S_MAX
        while not until():
            assert self._world.now_s < end_s, f"not within {WAIT_S_MAX:.0f} s: {what}"
            self._world.run(self._world.now_s + 0.01)

    def rest(self) -> None:
        """Lets time pass."""
        self._world.run(self._world.now_s + REST_S)


class _NoFork(Fork):
    """Starts where the last one was, as it is."""

    def start(self, path: Path, *, with_watermarks: bool) -> Start:
        term, checkpoint = max(folder_of(path).terms.items())
        return Start(checkpoint, term, max(checkpoint.commits))  # type: ignore[arg-type]


@contextlib.contextmanager
def simulated_rig(seed: int = 1) -> Iterator[SimulatedRig]:
    """A rig in a world of its own, for the time of a `with`."""
    world = World(seed)
    disk = Disk(world, "node-1")
    nobody = _Nobody()
    disk.watch = nobody
    parts = SimpleNamespace(
        world=world, network=Network(world), watch=nobody, plans={}, query=None, setup=None,
        records=None, source_log=None, life=SimpleNamespace(keep_epochs=0),
    )  # fmt: skip
    with patched(changes(parts)):
        yield SimulatedRig(world, disk)
