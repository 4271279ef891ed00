"""The world of a simulation: one clock, one heap of events, processes that die and come back.

    heap   0.250 node-1 beat │ 0.251 keeper ack │ 0.300 node-2 batch done │ 0.301 fault: kill node-1
             └─ popped in order: the clock jumps there, the process acts, and schedules what follows

* Nothing happens at the same time, nothing waits for real time, and all chance comes from one
  `random.Random(seed)`: the same seed is the same life, to the last event.
* An event belongs to one life of one process.  If the process was killed since, the event is
  gone with it; if it is paused, the event waits until it goes on, and comes late.
* A process that is killed keeps its disk, as after `kill -9`.
* Code that may block (it sleeps, waits for a lock, or calls another process) runs in a *task*:
  see `tasks`.

>>> world = World(seed=7)
>>> node = world.process("node-1")
>>> world.at(1.5, node, world.say, "beats"); world.run(until_s=2.0)
>>> [line.text for line in world.story], world.now_s
(['beats'], 2.0)
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

#: Events of one life; more of them is a lock or an endless loop (invariant 7).
EVENTS_MAX = 2_000_000


class Killed(BaseException):
    """The process that runs was killed in the middle of what it does.

    >>> Killed("node-1").who
    'node-1'
    """

    def __init__(self, who: str) -> None:
        super().__init__(who)
        self.who = who


class Said(NamedTuple):
    """One line of the story: when, who, what.

    >>> str(Said(1.25, "control", "node-1 is dead"))
    '   1.250 s  control   node-1 is dead'
    """

    at_s: float
    who: str
    text: str

    def __str__(self) -> str:
        return f"{self.at_s:8.3f} s  {self.who:<9} {self.text}"


class Process:
    """One process: its name, its life, its clock.

    >>> node = World(seed=1).process("node-1"); node.alive, node.life
    (True, 1)
    """

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        #: Counts up with every start.
        self.life = 1
        self.alive, self.paused = True, False
        #: Seconds of its clock in a second of the world, and how far its wall clock is off.
        self.rate, self.wall_off_s = 1.0, 0.0
        self._born_s, self._clock_s = world.now_s, 100.0
        #: Crashes when so many more doings are done; None: not on purpose.
        self.fuse: int | None = None
        #: What came while it was paused, in order.
        self.late: list[tuple[int, Callable[..., Any], tuple[Any, ...]]] = []
        #: Called when it dies, with the process.
        self.when_killed: list[Callable[[Process], None]] = []
        #: What answers at its door, by name of the command; None while the door is closed.
        self.door: Any = None

    def monotonic_s(self) -> float:
        """Its own clock, which may be too fast or too slow, and never goes back."""
        return self._clock_s + (self.world.now_s - self._born_s) * self.rate

    def wall_s(self) -> float:
        """Its wall clock, which may jump."""
        return 1e6 + self.world.now_s + self.wall_off_s

    def drift(self, rate: float) -> None:
        """From now on its clock runs at `rate`."""
        self._clock_s, self._born_s, self.rate = self.monotonic_s(), self.world.now_s, rate

    def kill(self) -> None:
        """Ends it, at once; what is on its disk stays."""
        if not self.alive:
            return
        self.alive, self.paused, self.door, self.fuse = False, False, None, None
        self.late.clear()
        for told in list(self.when_killed):
            told(self)

    def start(self) -> None:
        """A new life; nothing of the old one is left but the disk."""
        assert not self.alive, f"{self.name} lives"
        self.alive, self.life = True, self.life + 1

    def pause(self) -> None:
        """Stops it where it is; nobody can tell that from a cut."""
        self.paused = self.alive

    def resume(self) -> None:
        """Goes on with all that came meanwhile."""
        if self.paused:
            self.paused = False
            late, self.late = self.late, []
            for life, do, arguments in late:
                if life == self.life:
                    self.world.at(0.0, self, do, *arguments)


class World:
    """The clock and the events of one simulation."""

    def __init__(self, seed: int) -> None:
        self.now_s = 0.0
        self.random = Random(seed)
        self.story: list[Said] = []
        self.processes: dict[str, Process] = {}
        self.events = 0
        self._heap: list[Any] = []
        self._order = 0
        #: Whose code runs, the caller of a call below the one that is called.
        self.stack: list[Process] = []
        #: The task that runs, if one does (see `tasks`).
        self.task: Any = None
        self.stopped = False

    def process(self, name: str) -> Process:
        """The process called `name`; made if there is none."""
        if name not in self.processes:
            self.processes[name] = Process(self, name)
        return self.processes[name]

    @property
    def current(self) -> Process | None:
        """The process whose code runs now; None between events, and for faults."""
        stack = self.task.stack if self.task is not None else self.stack
        return stack[-1] if stack else None

    def at(
        self, delay_s: float, process: Process | None, do: Callable[..., Any], *args: Any
    ) -> None:
        """In `delay_s` `process` does something, if it still lives this life."""
        self._order += 1
        life = process.life if process is not None else 0
        event = (self.now_s + delay_s, self._order, process, life, do, args)
        heapq.heappush(self._heap, event)

    def arrives(
        self, delay_s: float, process: Process, life: int, do: Callable[..., Any], args: Any
    ) -> None:
        """In `delay_s` something arrives at `process`, if it lives that life; 0 is any life."""
        self._order += 1
        event = (self.now_s + delay_s, self._order, process, life, do, args)
        heapq.heappush(self._heap, event)

    def say(self, text: str, who: str | None = None) -> None:
        """A sentence for the story."""
        current = self.current
        name = who or (current.name if current is not None else "world")
        self.story.append(Said(self.now_s, name, text))

    def touch(self) -> None:
        """The current process does something that others can see: a chance to die here."""
        if self.task is not None:
            self.task.check()  # What unwinds after a death is not seen by anybody.
        process = self.current
        if process is None or process.fuse is None:
            return
        process.fuse -= 1
        if process.fuse <= 0:
            self.say("is killed in the middle of what it does", process.name)
            process.kill()
            raise Killed(process.name)

    def run(self, until_s: float) -> None:
        """Lets everything happen up to `until_s`."""
        heap, stack, pop = self._heap, self.stack, heapq.heappop
        while heap and heap[0][0] <= until_s and not self.stopped:
            self.now_s, _, process, life, do, arguments = pop(heap)
            self.events += 1
            assert self.events < EVENTS_MAX, "events without end"
            if process is None:
                do(*arguments)
                continue
            if process.life != life:
                if life or process.door is None:
                    continue
                life = process.life  # It arrives at whoever has that address by now.
            if not process.alive:
                continue
            if process.paused:
                process.late.append((life, do, arguments))
                continue
            stack.append(process)
            try:
                do(*arguments)
            except Killed:
                pass
            finally:
                stack.clear()
        self.now_s = max(self.now_s, until_s)
