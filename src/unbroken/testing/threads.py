"""What the node's classes take for `threading` and `time`: the same names, in simulated time.

    self._changed = threading.Condition()        a list of tasks that wait
    self._changed.wait_for(lambda: …, 5.0)       looks; waits in a task; looks once elsewhere
    time.monotonic()                             the clock of the process whose code runs

* Locks are needed only where somebody waits while holding one; the lock of a condition is not such
  a place, and is none.

>>> world = World(seed=1); node = world.process("node-1"); names = Threading(world)
>>> door = names.Condition(); opened = []
>>> def wait():
...     with door:
...         door.wait_for(lambda: opened, 5.0)
...     world.say("went in")
>>> _ = spawn(world, node, wait)
>>> def open_it():
...     opened.append(1); door.notify_all()
>>> world.at(0.5, node, open_it); world.run(until_s=9.0); world.story[0].at_s
0.5
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unbroken.testing.tasks import Task, block, spawn
from unbroken.testing.world import World


def _anything() -> bool:
    return True


class Condition:
    """As `threading.Condition`; `watchers` are told of every notification, outside of any task."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: Who waits, the number of its wait, and what it waits for.
        self._waiting: list[tuple[Task, int, Callable[[], Any]]] = []
        self.watchers: list[Callable[[], None]] = []

    def __enter__(self) -> Condition:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def notify_all(self) -> None:
        """Wakes whoever waits for what is true now.

        To wake the others would only cost: they would look, and wait on.
        """
        waiting, self._waiting = self._waiting, []
        for task, wait, predicate in waiting:
            if task.over or task.wait != wait:
                continue  # Its time was over before.
            if predicate():
                self._world.at(0.0, None, task.wake, wait)
            else:
                self._waiting.append((task, wait, predicate))
        for told in self.watchers:
            told()

    def wait(self, timeout_s: float) -> None:
        """Until somebody notifies, or the time is over.  Only a task can wait without an end."""
        task = self._world.task
        assert task is not None, "only a task can wait for whatever comes"
        self._waiting.append((task, task.wait + 1, _anything))
        block(self._world, timeout_s)

    def wait_for(self, predicate: Callable[[], Any], timeout_s: float | None = None) -> Any:
        """What `predicate` says when it is true, or when the time is over."""
        world = self._world
        end_s = world.now_s + (1e9 if timeout_s is None else timeout_s)
        while True:
            found = predicate()
            if found or world.task is None or world.now_s >= end_s:
                return found
            self._waiting.append((world.task, world.task.wait + 1, predicate))
            block(world, end_s - world.now_s)


class Event:
    """As `threading.Event`."""

    def __init__(self, world: World) -> None:
        self._changed = Condition(world)
        self._set = False

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._set

    def set(self) -> None:
        """Sets it, and wakes whoever waits."""
        self._set = True
        self._changed.notify_all()

    def clear(self) -> None:
        """Takes it back."""
        self._set = False

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until it is set."""
        return bool(self._changed.wait_for(self.is_set, timeout_s))


class Lock:
    """As `threading.Lock`: tasks wait for it; what is not a task finds it free, or takes it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._changed = Condition(world)
        self._holder: object = None
        self._depth = 0

    def __enter__(self) -> Lock:
        me = self._world.task
        if me is not None:
            self._changed.wait_for(lambda: self._holder in (None, me))
            self._holder = me
            self._depth += 1
        return self

    def __exit__(self, *error: object) -> None:
        if self._world.task is not None:
            self._depth -= 1
            if not self._depth:
                self._holder = None
                self._changed.notify_all()

    def acquire(self) -> None:
        """Waits until it is free."""
        self.__enter__()

    def release(self) -> None:
        """Others may have it."""
        self.__exit__()


class Thread:
    """As `threading.Thread`: a task of the process whose code starts it."""

    def __init__(
        self, world: World, target: Callable[..., Any], args: tuple[Any, ...] = (), **_: Any
    ) -> None:
        self._world = world
        self._do = lambda: target(*args)
        self._task: Task | None = None

    def start(self) -> None:
        """Begins."""
        process = self._world.current
        assert process is not None
        self._task = spawn(self._world, process, self._do)

    def is_alive(self) -> bool:
        """Whether it is still at it."""
        return self._task is not None and not self._task.over

    def join(self) -> None:
        """Waits for its end."""
        while self.is_alive() and block(self._world, 0.01):
            pass


class Threading:
    """The names that a module expects of `threading`, in this world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def Condition(self, lock: object = None) -> Condition:
        """A condition; a lock that it should share is not needed here."""
        return Condition(self._world)

    def Event(self) -> Event:
        """An event."""
        return Event(self._world)

    def Lock(self) -> Lock:
        """A lock."""
        return Lock(self._world)

    RLock = Lock

    def Thread(self, **given: Any) -> Thread:
        """A thread."""
        return Thread(self._world, **given)


class Time:
    """The names that a module expects of `time`, in this world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def monotonic(self) -> float:
        """The clock of the process whose code runs."""
        world = self._world  # Asked for so often that every call counts.
        stack = world.stack if world.task is None else world.task.stack
        return stack[-1].monotonic_s() if stack else world.now_s

    def time(self) -> float:
        """The wall clock of the process whose code runs."""
        process = self._world.current
        return process.wall_s() if process is not None else 1e6 + self._world.now_s

    def time_ns(self) -> int:
        """The same in nanoseconds."""
        return int(self.time() * 1e9)

    def sleep(self, seconds: float) -> None:
        """Sleeps, in a task."""
        assert block(self._world, seconds), "only a task can sleep"


class Executor:
    """As a thread pool: everything that is submitted is a task."""

    def __init__(self, world: World) -> None:
        self._world = world

    def submit(self, do: Callable[..., Any], *arguments: Any) -> None:
        """Does it soon."""
        process = self._world.current
        assert process is not None
        spawn(self._world, process, lambda: do(*arguments))
