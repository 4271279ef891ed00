"""What happens to a simulated cluster: each kind of fault, and how it ends.

    crash, fuse, die at, lose, power      a process ends: now, in the middle of a call, at a point
    stumble, lag, pause                   it goes on badly, or not at all for a while
    cut, cut one way, isolate, slow, repeat   the network
    full, drift, jump                     disk and clocks

* A fault ends after its time; when the safety phase is over all of them end at once.
* `die at` is for what chance would rarely hit, mostly in lives that are made by hand: a process
  dies when its engine has *planned* or *sealed* a certain epoch, or a fragment has *given up* what
  it said, in a fork, or has written the *gap* of a number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unbroken.testing.life import Fault
from unbroken.testing.world import Killed, Process


class Faults:
    """Carries out the faults of one life."""

    def __init__(self, sim: Any) -> None:
        self._sim, self._world = sim, sim.world
        self.count = 0
        #: No more of them: all is to be healed.
        self.over = False
        #: Processes that will die in the middle of something.
        self._fuses: dict[str, Fault] = {}

    def happen(self, fault: Fault) -> None:
        """A fault begins; its end is scheduled."""
        if self.over:
            return
        self.count += 1
        self._world.say(fault.text.split(": ", 1)[1], "fault")
        getattr(self, "_" + fault.what.replace(" ", "_"))(fault)

    def died(self, process: Process) -> None:
        """A process has ended; if that was on purpose it is started again later."""
        fault = self._fuses.pop(process.name, None)
        if fault is not None:
            self._after(fault, self._restart, process.name)

    def point(self, process: Process, where: str, fragment: str, epoch: int) -> None:
        """An engine has come to a point: its process may be meant to die there."""
        fault = self._fuses.get(process.name)
        if fault is None or fault.what != "die at" or fault.other != f"{where} {fragment}":
            return
        if fault.much <= epoch:
            self._world.say(f"is killed: it has {where} epoch {epoch}", process.name)
            process.kill()
            raise Killed(process.name)

    def heal(self) -> None:
        """Everything is as it should be, except that some processes are down."""
        self.over = True
        self._fuses.clear()
        self._sim.network.heal_all()
        for node in self._sim.nodes:
            self._sim.watch.slow(node, 1.0)
        for disk in self._sim.disks.values():
            disk.full = False
        for process in self._world.processes.values():
            process.fuse = None
            process.drift(1.0)
            process.resume()
            self._sim.watch.excuse(process.name)

    def _after(self, fault: Fault, do: Callable[..., Any], *arguments: Any) -> None:
        self._world.at(fault.for_s, None, self._unless_over, do, arguments)

    def _unless_over(self, do: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        if not self.over:
            do(*arguments)

    def _restart(self, name: str) -> None:
        if not self._world.process(name).alive:
            self._world.say("starts again", name)
            self._sim.boot(name)

    def _crash(self, fault: Fault) -> None:
        self._sim.kill(fault.who)
        self._after(fault, self._restart, fault.who)

    def _fuse(self, fault: Fault) -> None:
        self._world.process(fault.who).fuse = int(fault.much)
        self._fuses[fault.who] = fault

    def _lose(self, fault: Fault) -> None:
        self._sim.kill(fault.who)
        self._sim.disk(fault.who).lose()
        self._sim.watch.lost(fault.who)
        self._after(fault, self._restart, fault.who)

    def _power(self, fault: Fault) -> None:
        self._sim.kill(fault.who)
        self._sim.disk(fault.who).power_cut()
        self._sim.watch.lost(fault.who)
        self._after(fault, self._restart, fault.who)

    def _stumble(self, fault: Fault) -> None:
        for run in self._sim.watch.runs:
            line = "stable" if run.branch is None else "branch"
            if run._process.name == fault.who and fault.other in ("", line):
                run.stumble()

    def _pause(self, fault: Fault) -> None:
        self._world.process(fault.who).pause()
        self._after(fault, self._resume, fault.who)

    def _resume(self, name: str) -> None:
        self._world.process(name).resume()
        self._sim.watch.excuse(name)

    def _cut(self, fault: Fault) -> None:
        for ends in ((fault.who, fault.other), (fault.other, fault.who)):
            self._sim.network.cut(*ends)
            self._after(fault, self._sim.network.heal, *ends)

    def _cut_one_way(self, fault: Fault) -> None:
        self._sim.network.cut(fault.who, fault.other)
        self._after(fault, self._sim.network.heal, fault.who, fault.other)

    def _isolate(self, fault: Fault) -> None:
        for other in self._world.processes:
            if other != fault.who:
                for ends in ((fault.who, other), (other, fault.who)):
                    self._sim.network.cut(*ends)
                    self._after(fault, self._sim.network.heal, *ends)

    def _slow(self, fault: Fault) -> None:
        for ends in ((fault.who, fault.other), (fault.other, fault.who)):
            self._sim.network.slow(*ends, fault.much)
            self._after(fault, self._sim.network.slow, *ends, 0.0)

    def _repeat(self, fault: Fault) -> None:
        self._sim.network.repeats = fault.much
        self._after(fault, setattr, self._sim.network, "repeats", 0.0)

    def _lag(self, fault: Fault) -> None:
        self._sim.watch.slow(fault.who, fault.much)
        self._after(fault, self._sim.watch.slow, fault.who, 1.0)

    def _full(self, fault: Fault) -> None:
        self._sim.disk(fault.who).full = True
        self._after(fault, self._empty, fault.who)

    def _empty(self, name: str) -> None:
        self._sim.disk(name).full = False
        self._sim.watch.excuse(name)

    def _drift(self, fault: Fault) -> None:
        self._world.process(fault.who).drift(fault.much)
        self._after(fault, self._world.process(fault.who).drift, 1.0)

    def _jump(self, fault: Fault) -> None:
        self._world.process(fault.who).wall_off_s += fault.much

    def _die_at(self, fault: Fault) -> None:
        self._fuses[fault.who] = fault
