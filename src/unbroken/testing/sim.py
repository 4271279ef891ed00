"""One simulated cluster from beginning to end: safety under faults, then liveness without them.

    0 ── start ── 2.5 s ── faults ── all epochs sealed, everything heals ── sinks there?
                safety: nothing wrong may be seen     liveness: they get there, in time

>>> result = simulate(random_life(3, epochs=40)); result.violation is None
True
"""

from __future__ import annotations

import gc
import traceback
from dataclasses import dataclass
from functools import partial
from pathlib import Path as RealPath
from random import Random
from typing import Any

from unbroken.control.intentions import Standing
from unbroken.control.placement import place
from unbroken.errors import UnbrokenError
from unbroken.node import setup
from unbroken.query import Query
from unbroken.testing.checkers import Checkers, Violation
from unbroken.testing.checkers.tentative import Tentative
from unbroken.testing.disk import Disk, Path
from unbroken.testing.engine import Plan
from unbroken.testing.epochs import Rows
from unbroken.testing.faults import Faults
from unbroken.testing.life import EPOCH_S, FULL, LOSE, POWER, Life, random_life
from unbroken.testing.network import Network
from unbroken.testing.operators import operator_for
from unbroken.testing.patches import Records, changes, patched
from unbroken.testing.processes import ControlShell, KeeperShell, NodeShell, SinkShell, Sources
from unbroken.testing.reached import Reached
from unbroken.testing.world import Killed, Process, Said, World

#: After the last fault everything must be there within so many simulated seconds: a detector's
#: patience, the longest pause between two attempts at a repair, and time to catch up.
CONVERGE_S_MAX = 150.0
LOOK_S = 1.0
#: How far rows are behind the clock; one is ahead, and holds the watermark for a while.
_BEHIND_MS = (0, 0, 50, 50, 100, 100, 200, 200, 400, 900, 900, -1200)
__all__ = ["Result", "Sim", "random_life", "simulate"]


@dataclass(frozen=True)
class Result:
    """What came out of one life."""

    life: Life
    violation: Violation | None
    story: tuple[Said, ...]
    epochs: int
    failures: int
    #: Processes that were started again before everything was healed.
    restarts: int
    #: How it recovered, and into which situations it came.
    reached: Reached
    now_s: float
    events: int


class Sim:
    """A cluster, its world, and what happens to it."""

    def __init__(self, life: Life, checkers: type[Checkers] = Checkers) -> None:
        life.check()
        self.life = life
        self.world = World(life.seed)
        self.network = Network(self.world)
        self.watch: Any = _with_bounds(checkers, life)(self)
        self.disks: dict[str, Disk] = {}
        self.shells: dict[str, Any] = {}
        #: What must not be forgotten, because its identity is remembered.
        self.keep: list[Any] = []
        self.faults = Faults(self)
        self._restarts, self._ends = 0, False
        self._rows: dict[str, list[Rows]] = {}
        self.plans = {
            p.name: Plan(p.name, operator_for(p.operator, len(p.inputs)), p.inputs)
            for p in life.pieces
        }
        self.query = self._query()
        nodes = [f"node-{i + 1}" for i in range(life.nodes)]
        self.nodes = nodes
        copies = {piece.name: piece.policy.copies for piece in life.pieces}
        self.setup = setup.Setup(
            "sim", {name: list(on) for name, on in place(copies, nodes).nodes.items()},
            "grpc://keeper:0", "grpc://control:0", manual=False,
            log_bytes_max=life.log_bytes_max or 1 << 30,
        )  # fmt: skip
        self.reached = Reached()
        self.records = Records(
            self.world, self.disk("control"), self.watch, self.reached, RealPath(":memory:")
        )
        self.source_log = lambda folder, stream, schema, **how: Sources(self, folder, stream)

    def _query(self) -> Query:
        query = Query("sim", epoch=f"{round(EPOCH_S * 1000)}ms")
        for name in self.life.sources:
            query.source(name, "n INT")
        for piece in self.life.pieces:
            declared = query.fragment(*piece.inputs, policy=piece.policy, **piece.bound)
            declared(_first, name=piece.name)
        for name in self.life.sinks:
            query.sink(self.life.stream_of(name))
        return query

    # What others look up.

    def disk(self, name: str) -> Disk:
        """The disk of a process."""
        if name not in self.disks:
            self.disks[name] = Disk(self.world, name)
            self.disks[name].watch = self.watch
        return self.disks[name]

    def folder(self, process: Process) -> Path:
        """The folder of a process."""
        return Path(self.disk(process.name), process.name)

    def fragment_folder(self, node: str, fragment: str) -> Path:
        """Where a node keeps checkpoint and log of a fragment."""
        return Path(self.disk(node), node) / "fragments" / fragment

    def sinks(self) -> list[SinkShell]:
        """The sinks, as they were last."""
        return [self.shells[f"sink-{name}"] for name in self.life.sinks
                if f"sink-{name}" in self.shells]  # fmt: skip

    def rows(self, stream: str, number: int) -> Rows:
        """What comes to a source in one epoch."""
        if number >= self.life.epochs:
            return ()
        if stream not in self._rows:
            chance = Random(f"{self.life.seed}-{stream}")
            self._rows[stream] = [_rows_of(chance, each) for each in range(self.life.epochs)]
        return self._rows[stream][number]

    # Starting and failing.

    def boot(self, name: str) -> None:
        """Starts a process."""
        process = self.world.process(name)
        if not process.alive:
            process.start()
        kind = {"keeper": KeeperShell, "control": ControlShell}.get(name.split("-")[0])
        shell = kind or (SinkShell if name.startswith("sink-") else NodeShell)
        self.world.at(0.0, process, partial(self._boot, process, shell))

    def _boot(self, process: Process, shell: Any) -> None:
        try:
            self.shells[process.name] = shell(self, process)
        except UnbrokenError as error:
            self.world.say(f"cannot start: {error.what}")
            process.kill()

    def kill(self, name: str) -> None:
        """Ends a process."""
        self.world.process(name).kill()

    def _died(self, process: Process) -> None:
        """Control tries doors many times a second."""
        self.watch.died(process.name)
        if not self._ends:
            self.reached.died(self, process.name)
        self.faults.died(process)
        control = self.world.process("control")
        if control.alive and "control" in self.shells:
            self.world.at(self.world.random.uniform(0.0, 0.05), control, self._look)

    def _look(self) -> None:
        self.shells["control"].look()

    # Two phases.

    def run(self) -> Result:
        """Lives."""
        with patched(changes(self)):
            for name in ("keeper", "control", *self.nodes, *(f"sink-{s}" for s in self.life.sinks)):
                self.world.process(name).when_killed.append(self._died)
                self.boot(name)
            for fault in self.life.faults:
                self.world.at(fault.at_s, None, self.faults.happen, fault)
            try:
                self.world.run(self.life.epochs * EPOCH_S)
                self._heal()
                self._converge()
                if self.watch.violation is None:
                    self.watch.outputs()
            except Exception as error:
                # The world goes on with whatever the protocol raised: that is what is looked for.
                place = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{RealPath(place.filename).name}:{place.lineno}"
                self.watch.break_(11, f"{type(error).__name__}: {error} ({where})")
            finally:
                self._end()
        self.reached.over(self)
        return Result(
            self.life, self.watch.violation, tuple(self.world.story),
            sum(len(made) for made in self.watch.contents.values()), self.faults.count,
            self._restarts, self.reached, self.world.now_s, self.world.events,
        )  # fmt: skip

    def _started_again(self) -> int:
        return sum(max(0, process.life - 1) for process in self.world.processes.values())

    def _heal(self) -> None:
        """No more faults: everything that is down is started, and what is paused goes on."""
        if self.world.stopped:
            return
        self.faults.over = True
        self._restarts = self._started_again()
        self.world.say("no more faults")
        self.watch.calm_from = len(self.world.story)
        self.faults.heal()
        everything = self.world.random.random() < 0.2
        for process in self.world.processes.values():
            # Now and then everything is started again.
            shell = self.shells.get(process.name)
            node = process.alive and isinstance(shell, NodeShell)
            if node and (everything or self._is_mended(shell)):
                self.kill(process.name)
            if not process.alive:
                self.boot(process.name)

    def _is_mended(self, shell: Any) -> bool:
        """Whether a replica failed for a reason that people have mended, and start it again.

        What failed without such a reason is the protocol's own: it gets there alone, or never.
        """
        disk = any(f.who == shell.name and f.what in (FULL, POWER, LOSE) for f in self.life.faults)
        failed = [replica for replica in shell.hosted.replicas.values() if replica.failed]
        return any(disk or replica.given_up for replica in failed)

    def _failures(self) -> list[str]:
        """What has failed, in its own words."""
        shells = [shell for shell in self.shells.values() if isinstance(shell, NodeShell)]
        return [
            replica.failed.partition("\n")[0]
            for shell in shells if self.world.process(shell.name).alive
            for replica in shell.hosted.replicas.values() if replica.failed
        ]  # fmt: skip

    def _converge(self) -> None:
        end_s = self.world.now_s + CONVERGE_S_MAX
        late: list[str] = []
        while self.world.now_s < end_s and not self.world.stopped:
            self.world.run(self.world.now_s + LOOK_S)
            for process in self.world.processes.values():
                if not process.alive:
                    self.boot(process.name)
            late = [why for sink in self.sinks() if (why := self._late(sink))]
            late += self._not_whole()
            late += self.watch.unsettled() if self.life.bounded else []
            if not late and self.world.now_s > end_s - CONVERGE_S_MAX + 3.0:
                return
        if not self.world.stopped:
            self.watch.break_(
                10, f"{', '.join(late)} (of {self.life.epochs} epochs) {CONVERGE_S_MAX:.0f} s "
                f"after the last fault: {'; '.join(self._sentences()) or 'nobody says why'}",
            )  # fmt: skip

    def _late(self, sink: SinkShell) -> str:
        """Why a sink is not where it should be; "" if it is, or it is said that it will not be."""
        if sink.next >= self.life.epochs:
            return ""
        late = f"{sink.stream} is at {sink.next}"
        if not self.watch.excused(sink.stream, sink):
            return late
        said = self.watch.explained(sink.stream, sink)
        return "" if said else f"{late} as it may be, and nobody says why"

    def _not_whole(self) -> list[str]:
        """Fragments that do not have their wanted number of live replicas."""
        wanted = {p.name: p.policy.copies for p in self.life.pieces if p.protection != "restart"}
        live = {
            name: list(self.watch.placement.get(name, {}).values()).count(Standing.LIVE)
            for name in wanted
        }
        return [
            f"{name} has {live[name]} of {wanted[name]} copies" for name in wanted
            if live[name] != wanted[name] and not self.watch.excused(name)
        ]  # fmt: skip

    def _sentences(self) -> list[str]:
        shell = self.shells.get("control")
        if shell is None:
            return self._failures()
        told = self._failures()
        return [*told, *shell.control._writers.sentences, *shell.control._repairs.sentences]

    def _end(self) -> None:
        """Unwinds what still waits."""
        self._ends = True
        self.world.stopped = False
        for process in self.world.processes.values():
            process.kill()
        self.world.run(self.world.now_s)
        self.records.close()


def _rows_of(chance: Random, number: int) -> Rows:
    now_ms = int((number + 1) * EPOCH_S * 1000)
    return tuple(
        (max(0, now_ms - chance.choice(_BEHIND_MS)), chance.randrange(3), chance.randrange(1000))
        for _ in range(chance.choice((0, 0, 1, 2, 3)))
    )


def _first(*inputs: Any) -> Any:
    """Stands for the user's function, which nobody calls."""
    return inputs[0]


def _with_bounds(checkers: type[Checkers], life: Life) -> type[Checkers]:
    """The checkers, and those for delay bounds behind them if the life has any."""
    if not life.bounded or issubclass(checkers, Tentative):
        return checkers
    return Tentative if checkers is Checkers else type("Both", (checkers, Tentative), {})


def simulate(life: Life, checkers: type[Checkers] = Checkers) -> Result:
    """Lives one life, the same one every time; `checkers` are told of all that happens in it."""
    # A life makes much and lets go of it all at once, in the end.
    collects = gc.isenabled()
    gc.disable()
    try:
        return Sim(life, checkers).run()
    except Killed:  # pragma: no cover - a death outside of any process is a mistake of ours
        raise AssertionError("somebody died outside of an event") from None
    finally:
        if collects:
            gc.enable()
