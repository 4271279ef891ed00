"""Tasks: code that blocks, run one at a time, in simulated time.

    hub   ──event──event──▶ resume ┄┄┄┄┄┄┄┄┄┄┄┄┄┄▶ event ──event──▶ resume ┄┄┄
    task                    ╰─ runs until it waits ─╯               ╰─ goes on

* The node's own classes are written for threads: they sleep, wait for conditions and call other
  processes.  Here each such thread is a task.  Only one of them, or the hub, runs at any moment,
  and it is handed on only where the code waits.  So there are no races but those of the protocol,
  and the same seed gives the same order.
* A task's stack is a greenlet.  Threads that hand a lock to each other took an eighth of a life.
* Outside of a task nothing can wait: a condition is looked at once.
* A task remembers the processes it is in: its own, and those that it calls.  If one of them dies,
  the task is woken, and `Killed` unwinds it up to the call.

>>> world = World(seed=1); node = world.process("node-1")
>>> def work():
...     for _ in range(3):
...         block(world, 0.5)
...     world.say("has slept")
>>> _ = spawn(world, node, work); world.run(until_s=5.0); world.story[-1].at_s
1.5
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from greenlet import greenlet

from unbroken.testing.world import Killed, Process, World


class Expired(BaseException):
    """The call on that level of the stack waits for a paused process, and its deadline is over."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.level = level


class Task:
    """One simulated thread."""

    def __init__(self, world: World, process: Process, do: Callable[[], Any]) -> None:
        self.world, self.do = world, do
        self.stack = [process]
        self.lives = [process.life]
        #: Of the calls above its own process.
        self.deadlines = [float("inf")]
        self.over = False
        self.error: BaseException | None = None
        self._expired: int | None = None
        #: Whatever wakes it must name its newest wait.
        self.wait = 0
        self._stack: greenlet | None = None

    def check(self) -> None:
        """Raises if a process that it is in is not the same any more."""
        for process, life in zip(self.stack, self.lives, strict=True):
            if process.life != life or not process.alive:
                raise Killed(process.name)
        if self._expired is not None:
            level, self._expired = self._expired, None
            raise Expired(level)

    def wake(self, wait: int) -> None:
        """Goes on after its wait number `wait`, unless that is over or a process is paused."""
        if self.over or wait != self.wait:
            return
        dead = False
        for process, life in zip(self.stack, self.lives, strict=True):
            dead = dead or process.life != life or not process.alive
        if not dead:
            for level, process in enumerate(self.stack):
                if process.paused:
                    if self.world.now_s >= self.deadlines[level]:
                        self._expired = level
                        break
                    process.late.append((process.life, self.wake, (wait,)))
                    if level:
                        late_s = self.deadlines[level] - self.world.now_s
                        self.world.at(late_s, None, self.wake, wait)
                    return
        self._resume()

    def _resume(self) -> None:
        world = self.world
        assert world.task is None, "one task at a time"
        if self._stack is None:
            self._stack = greenlet(self._run)
        world.task = self
        saved, world.stack = world.stack, []
        self._stack.switch()
        world.task, world.stack = None, saved
        if self.over:
            for process in set(self.stack):
                tasks_of(process).pop(self, None)
            if self.error is not None:
                raise self.error

    def _run(self) -> None:
        """On a stack of its own."""
        try:
            self.check()
            self.do()
        except (Killed, Expired):
            pass
        except BaseException as error:
            self.error = error
        self.over = True

    def give_way(self) -> None:
        """Lets the others go on, until it is woken; called in the task itself."""
        assert self._stack is not None
        self._stack.parent.switch()
        self.check()


def tasks_of(process: Process) -> dict[Task, None]:
    """The tasks that are in `process`, in the order in which they came."""
    found: dict[Task, None] | None = getattr(process, "tasks", None)
    if found is None:
        found = {}
        process.tasks = found  # type: ignore[attr-defined]
        process.when_killed.append(_unwind)
    return found


def _unwind(process: Process) -> None:
    for task in list(tasks_of(process)):
        process.world.at(0.0, None, task.wake, task.wait)


def spawn(world: World, process: Process, do: Callable[[], Any], delay_s: float = 0.0) -> Task:
    """Begins a task in `process`."""
    task = Task(world, process, do)
    tasks_of(process)[task] = None
    world.at(delay_s, process, task.wake, task.wait)
    return task


def block(world: World, delay_s: float) -> bool:
    """The running task waits for so long; False, at once, where nothing can wait."""
    task = world.task
    if task is None:
        return False
    task.wait += 1
    world.at(delay_s, None, task.wake, task.wait)
    task.give_way()
    return True
