"""The real classes in a simulated world: which names of which modules mean something else there.

    node.standby.time  ─▶ the clock of the process     node.replica.Run  ─▶ the engine here
    streams.notes.disk ─▶ its disk                     node.control.Peer ─▶ the network here

* `Hosted`, `Replica`, `Standby`, `Staged`, `Served`, `StreamDoor`, `Control`, `Keeper`, the
  successor, the book and the copying of logs are the real ones.  They reach the outside through
  names of their modules: threads, clock, sockets, disk and Spark.  Only those are replaced.
* For the time of a simulation, and in the whole process: do not run a real node beside it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

from unbroken.control.intentions import Intention, Step
from unbroken.control.records import Hole
from unbroken.control.store import Store
from unbroken.node import (
    alone,
    beginnings,
    book,
    branch,
    control,
    health,
    holes,
    hosted,
    keeper,
    life,
    lines,
    loop,
    lost,
    oldest,
    preparation,
    promises,
    questions,
    replica,
    second,
    setup,
    staged,
    standby,
    successor,
)  # fmt: skip
from unbroken.streams import branch_log, copy_log, log, notes, served
from unbroken.tentative import correction, hearing
from unbroken.testing import branches, checkpoints, engine, epochs, shipments
from unbroken.testing.inputs import Inputs
from unbroken.testing.network import Peer
from unbroken.testing.reached import GAP, TAKE_OVER
from unbroken.testing.speaker import Speaker
from unbroken.testing.threads import Executor, Threading, Time


@contextlib.contextmanager
def patched(changes: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Changes names of modules or classes, and puts them back.

    >>> import unbroken.streams.serve as module
    >>> with patched([(module, "POLL_S", 0.0)]): print(module.POLL_S)
    0.0
    >>> module.POLL_S > 0
    True
    """
    missing = object()
    before = [(module, name, vars(module).get(name, missing)) for module, name, _ in changes]
    for module, name, value in changes:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            if value is missing:
                delattr(module, name)
            else:
                setattr(module, name, value)


class _Rehearsals:
    """Nobody rehearses: there is no compiler to be warmed."""

    def __init__(self, *given: Any) -> None:
        self.running: dict[str, Any] = {}

    def run(self, *given: Any) -> int:
        return 0


class Records(Store):
    """The real store, in memory; control may die before or after each change."""

    def __init__(self, world: Any, disk: Any, watch: Any, reached: Any, path: Any) -> None:
        self._world, self._disk, self._watch, self._reached = world, disk, watch, reached
        #: Counts up with every change.
        self.version = 0
        super().__init__(path)

    @contextlib.contextmanager
    def _change(self) -> Iterator[Any]:
        self._disk.room("records")
        with super()._change() as db:
            yield db
        self.version += 1
        self._world.touch()

    def record(self, intention: Intention) -> Intention:
        """Writes a step; whoever becomes live is looked at."""
        recorded = super().record(intention)
        if recorded.step is Step.LIVE:
            self._watch.became_live(recorded.fragment, recorded.node)
        self._reached.recorded(self, recorded)
        return recorded

    def record_writer(self, fragment: str, node: str) -> int:
        """Writes who writes from now on."""
        term = super().record_writer(fragment, node)
        self._reached[TAKE_OVER] += 1
        return term

    def record_hole(
        self, hole: Hole, *, overtakes: Iterable[tuple[str, str]], longer: bool = False
    ) -> Hole:
        """Writes what is given up."""
        recorded = super().record_hole(hole, overtakes=overtakes, longer=longer)
        self._reached[GAP] += 1
        return recorded


def changes(sim: Any) -> list[tuple[Any, str, Any]]:
    """What is replaced for the world of `sim`."""
    world, network = sim.world, sim.network
    threading, time, peer = Threading(world), Time(world), partial(Peer, network, world)

    def say(*words: object, **how: object) -> None:
        text = " ".join(str(word).split("\n")[0] for word in words)
        world.say(text)
        sim.watch.heard(text)

    def write_whole(path: Any, parts: Any, *, sync: bool = False) -> None:
        path.disk.write_whole(path, parts, sync=sync)

    def run(name: str, plan: Any, mode: str, start: Any, seal: Any, take: Any, **how: Any) -> Any:
        bounded = seal.__self__.fragment.bound is not None
        kind = branches.BoundRun if bounded else engine.Run
        return kind(world, sim.watch, plan, start, seal)

    def valid(epoch: Any) -> Any:
        if epoch is None:
            raise ValueError("nothing came")
        return epoch

    def door(host: str, port: int, ready: bool = True) -> Any:
        return network.door(world.process(host), fixed=True)

    inputs = partial(Inputs, world, network, sim.watch)
    plans = SimpleNamespace(
        analyze=lambda spark, query, f, schemas, options, traits: sim.plans[f.name]
    )
    files = SimpleNamespace(write_whole=write_whole)
    quiet = SimpleNamespace(getloadavg=lambda: (0.0, 0.0, 0.0), cpu_count=lambda: 2)
    remove = SimpleNamespace(rmtree=lambda folder, **how: folder.disk.remove(folder))
    by_module: dict[ModuleType, dict[str, Any]] = {
        beginnings: {"threading": threading, "time": time, "print": say},
        hosted: {
            "time": time, "print": say, "Peer": peer, "plans": plans,
            "shutil": remove, "forget_shipments": lambda folder: None,
            "take": shipments.take_more, "take_replica": shipments.take_replica,
            "Rehearsals": _Rehearsals, "KEEP_EPOCHS": sim.life.keep_epochs,
        },
        # A life is short: its state is read more often.
        oldest: {"threading": threading, "time": time, "print": say, "PAUSE_S_MIN": 0.7},
        health: {"threading": threading, "time": time},
        promises: {"time": time},
        replica: {
            "threading": threading, "time": time, "fork": checkpoints.Fork(), "Run": run,
            "Epoch": epochs.Epoch, "Inputs": inputs, "EpochLog": epochs.Log,
            "reader": checkpoints.reader,
        },
        lines: {
            "threading": threading, "time": time, "fork": checkpoints.Fork(), "print": say,
            "Epoch": epochs.Epoch, "Header": epochs.Header, "remove": checkpoints.remove,
        },
        second: {"threading": threading, "print": say},
        branch: {
            "threading": threading, "time": time, "Epoch": epochs.Epoch,
            "difference": epochs.difference, "last_planned_ahead": lambda epoch: epoch,
        },
        branch_log: {"threading": threading, "shutil": remove, "EpochLog": epochs.Log},
        correction: {"Epoch": epochs.Epoch, "difference": epochs.difference},
        hearing: {"Epoch": epochs.Epoch},
        standby: {
            "threading": threading, "time": time, "fork": checkpoints.Fork(), "Peer": peer,
            "take": shipments.take, "print": say,
        },
        preparation: {"threading": threading, "time": time, "os": quiet, "print": say},
        staged: {"threading": threading, "EpochLog": epochs.Log},
        copy_log: {
            "EpochLog": epochs.Log, "Epoch": epochs.Epoch, "Header": epochs.Header, "valid": valid,
        },
        log: {"is_whole": epochs.is_whole},
        successor: {"time": time},
        lost: {"time": time, "Epoch": epochs.Epoch, "Header": epochs.Header},
        book: {
            "threading": threading, "time": time, "Peer": peer,
            "Speaker": partial(Speaker, world, network, sim.watch),
        },
        served: {"threading": threading, "time": time},
        notes: {"disk": files},
        questions: {"Giver": shipments.Giver},
        loop: {"print": say},
        life: {"disk": files},
        alone: {"disk": files},
        holes: {"print": say},
        setup: {"load": lambda folder: (sim.query, sim.setup)},
        control: {
            "threading": threading, "time": time, "print": say, "Peer": peer, "Door": door,
            "Store": lambda path: sim.records, "refuses": network.refuses,
            "ThreadPoolExecutor": lambda n, **how: Executor(world),
        },
        keeper: {
            "threading": threading, "time": time, "print": say, "Door": door, "disk": files,
            "SourceLog": sim.source_log, "KEEP_EPOCHS": sim.life.keep_epochs,
        },
    }  # fmt: skip
    told = [(module, name, value) for module, names in by_module.items()
            for name, value in names.items()]  # fmt: skip
    for module, name, _ in told:
        # What has moved to another module would be the real thing there.
        assert name == "print" or hasattr(module, name), f"{module.__name__} has no {name}"
    return told
