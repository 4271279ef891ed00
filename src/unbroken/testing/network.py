"""The network: doors, calls and messages that are cut, slow, late and repeated.

    node-1 ── call ──▶ door of node-2        ── answer ──▶        an answer can be lost as well
    node-1 ── message ──▶ node-2 (paused: it comes when that one goes on)

* A cut has a direction: what is asked may arrive although the answer does not.
* Nobody refuses on behalf of a process that is paused or cut off: its callers wait until their
  deadline.  A door whose process is gone refuses at once, and that is proof (`refuses`).
* A call that was given up may still arrive later: it waited at a paused process's door, or on a
  line so slow that its deadline was over before.  While messages are repeated, so are actions: they
  arrive once more, some seconds later, and nobody hears the answer.  So everything is to be borne
  late, and twice.
* Doors have the methods of `streams.flight.Door`, peers those of `streams.flight.Peer`.

>>> world = World(seed=3); network = Network(world)
>>> node, keeper = world.process("node-1"), world.process("keeper")
>>> door = network.door(keeper, fixed=True); door.on_act("greet", lambda command: "hello")
>>> network.call(node, door.address, "act", {"do": "greet"})
'hello'
>>> network.cut("keeper", "node-1")                      # One way: the answer is lost.
>>> network.call(node, door.address, "act", {"do": "greet"})
Traceback (most recent call last):
...
unbroken.errors.Unreachable: keeper does not answer node-1
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unbroken.errors import UnbrokenError, Unreachable
from unbroken.testing.tasks import Expired, block, tasks_of
from unbroken.testing.world import Killed, Process, World

DELAY_S = 0.0005, 0.003
Handler = Callable[..., Any]


class Door:
    """What a process answers, by name."""

    def __init__(self, process: Process, address: str) -> None:
        self.address = address
        self.ready = True
        self.acts: dict[str, Handler] = {}
        self.gets: dict[str, Handler] = {}
        process.door = self

    def on_act(self, name: str, handler: Handler) -> None:
        """`handler` answers actions called `name`."""
        self.acts[name] = handler

    def on_get(self, name: str, handler: Handler) -> None:
        """`handler` answers gets called `name`."""
        self.gets[name] = handler

    def on_put(self, name: str, handler: Handler) -> None:
        """Nobody puts anything here."""

    def crossed(self, *left_out: str) -> int:
        """Bytes are not counted here."""
        return 0

    def shipped(self) -> int:
        """Nor those of shipments."""
        return 0


class Network:
    """Who reaches whom, and how fast."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: (from, to), and how many cuts lie there: two faults may overlap.
        self._cuts: dict[tuple[str, str], int] = {}
        #: (from, to) to extra seconds.
        self._slow: dict[tuple[str, str], float] = {}
        #: Addresses that were read before: the process, and which life of it (0: any).
        self._addresses: dict[str, tuple[Process | None, int]] = {}
        #: How often a message or an action comes a second time, some seconds later.
        self.repeats = 0.0

    def door(self, process: Process, *, fixed: bool = False) -> Door:
        """Opens the door of `process`: under an address of this life, or always the same one."""
        return Door(process, f"grpc://{process.name}:{0 if fixed else process.life}")

    def cut(self, source: str, target: str) -> None:
        """Nothing gets from `source` to `target` any more."""
        self._cuts[source, target] = self._cuts.get((source, target), 0) + 1

    def heal(self, source: str, target: str) -> None:
        """It does again, if no other cut lies there."""
        left = self._cuts.pop((source, target), 0) - 1
        if left > 0:
            self._cuts[source, target] = left

    def slow(self, source: str, target: str, extra_s: float) -> None:
        """Everything on this way takes so much longer; 0 ends it."""
        self._slow.pop((source, target), None)
        if extra_s:
            self._slow[source, target] = extra_s

    def heal_all(self) -> None:
        """The network is as new."""
        self._cuts.clear()
        self._slow.clear()
        self.repeats = 0.0

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing gets through."""
        return (source, target) in self._cuts

    def delay_s(self, source: str, target: str) -> float:
        """How long a message takes now."""
        chance = self._world.random.random()
        extra_s = self._slow.get((source, target), 0.0) if self._slow else 0.0
        return DELAY_S[0] + chance * (DELAY_S[1] - DELAY_S[0] + extra_s)

    def at(self, address: str) -> Process | None:
        """Who listens at `address`; None: nobody does any more."""
        known = self._addresses.get(address)
        if known is None:
            name, _, life = address.removeprefix("grpc://").rpartition(":")
            known = self._addresses[address] = self._world.processes.get(name), int(life or 0)
        process, wanted = known
        if process is None or not process.alive or process.door is None:
            return None
        return process if wanted in (0, process.life) else None

    def refuses(self, address: str) -> bool:
        """Whether a connection to `address` is refused, which is proof of death."""
        me, name = self._world.current, address.removeprefix("grpc://").rpartition(":")[0]
        assert me is not None
        cut = self.is_cut(me.name, name) or self.is_cut(name, me.name)
        return not cut and self.at(address) is None

    def message(
        self, source: Process, address: str, do: Handler, *arguments: Any, once: bool = False
    ) -> None:
        """`do` happens in the process at `address`, soon, late, twice or never.

        What nobody says again comes `once` at most.
        """
        target = self.at(address)
        if target is None or (self._cuts and (source.name, target.name) in self._cuts):
            return
        world, life = self._world, self._addresses[address][1]
        if self._slow:
            delay_s = self.delay_s(source.name, target.name)
        else:
            delay_s = DELAY_S[0] + world.random.random() * (DELAY_S[1] - DELAY_S[0])
        world.arrives(delay_s, target, life, do, arguments)
        if self.repeats and not once and world.random.random() < self.repeats:
            delay_s += world.random.uniform(0.0, 4.0)
            world.arrives(delay_s, target, life, do, arguments)

    def call(
        self, source: Process, address: str, kind: str, command: dict[str, Any],
        timeout_s: float = 20.0,
    ) -> Any:  # fmt: skip
        """Asks whoever listens at `address`, on the stack of the caller."""
        world = self._world
        world.touch()
        name = address.removeprefix("grpc://").rpartition(":")[0]
        end_s = world.now_s + timeout_s
        late_s = self._travel(source.name, name, end_s)
        if self.is_cut(source.name, name):
            raise self._silent(source, name, end_s)
        if late_s:
            self._again(address, late_s, kind, command)
            raise self._silent(source, name, end_s)
        while (target := self.at(address)) is not None and target.paused:
            if world.now_s >= end_s or world.task is None:
                # It will be found there when it wakes, and be done although nobody waits for it.
                target.late.append((target.life, self._late, (target, kind, command)))
                raise Unreachable(f"{name} does not answer {source.name}")
            block(world, min(0.25, max(0.001, end_s - world.now_s)))
        if target is None:
            raise Unreachable(f"{name} refuses connections")
        if self.repeats and kind == "act" and world.random.random() < self.repeats:
            self._again(address, world.random.uniform(0.0, 4.0), kind, command)
        answer = self._answer(target, kind, command, end_s)
        if self._travel(name, source.name, end_s) or self.is_cut(name, source.name):
            raise self._silent(source, name, end_s)
        world.touch()
        return answer

    def _travel(self, source: str, target: str, end_s: float) -> float:
        """A question or an answer is on its way; mostly so fast that nothing happens meanwhile.

        Tells how long it will take if the deadline is over before: then it was not waited for.
        """
        if not self._slow and self._world.random.random() >= 0.25:
            return 0.0
        delay_s = self.delay_s(source, target)
        if self._world.now_s + delay_s > end_s:
            return delay_s
        block(self._world, delay_s)
        return 0.0

    def _again(self, address: str, delay_s: float, kind: str, command: dict[str, Any]) -> None:
        """A call arrives at whoever listens there now, and nobody waits for its answer."""
        target = self.at(address)
        if target is not None:
            arguments = target, kind, command
            self._world.arrives(delay_s, target, target.life, self._late, arguments)

    def _silent(self, source: Process, name: str, end_s: float) -> Unreachable:
        block(self._world, max(0.0, end_s - self._world.now_s))
        return Unreachable(f"{name} does not answer {source.name}")

    def _handle(self, target: Process, kind: str, command: dict[str, Any]) -> Any:
        door = target.door
        handlers = door.acts if kind == "act" else door.gets
        if not door.ready or command["do"] not in handlers:
            raise Unreachable(f"{target.name} is not ready")
        return handlers[command["do"]](command)

    def _late(self, target: Process, kind: str, command: dict[str, Any]) -> None:
        try:
            self._handle(target, kind, command)
        except UnbrokenError as error:
            self._world.say(f"refuses what came late: {error.what}")

    def _answer(self, target: Process, kind: str, command: dict[str, Any], end_s: float) -> Any:
        """The handler's answer; a death on the other side is told as such."""
        world = self._world
        task = world.task
        if task is None:
            world.stack.append(target)
            try:
                return self._handle(target, kind, command)
            except Killed as death:
                if death.who != target.name:
                    raise
                raise Unreachable(f"{target.name} died") from None
            finally:
                if world.stack:
                    world.stack.pop()
        level = len(task.stack)
        task.stack.append(target)
        task.lives.append(target.life)
        task.deadlines.append(end_s)
        tasks_of(target)[task] = None
        try:
            return self._handle(target, kind, command)
        except Killed as death:
            if death.who != target.name:
                raise
            raise Unreachable(f"{target.name} died") from None
        except Expired as over:
            if over.level != level:
                raise
            raise Unreachable(f"{target.name} does not answer") from None
        finally:
            task.stack.pop()
            task.lives.pop()
            task.deadlines.pop()
            if target not in task.stack:
                tasks_of(target).pop(task, None)


class Peer:
    """Another process's door; as `streams.flight.Peer`."""

    def __init__(self, network: Network, world: World, address: str) -> None:
        self._network, self._world, self.address = network, world, address

    def act(self, command: dict[str, Any], *, timeout_s: float = 20.0) -> Any:
        """Asks for an action."""
        return self._call("act", command, timeout_s)

    def get(self, command: dict[str, Any], *, timeout_s: float = 20.0) -> Any:
        """Asks for a body."""
        return self._call("get", command, timeout_s)

    def _call(self, kind: str, command: dict[str, Any], timeout_s: float) -> Any:
        source = self._world.current
        assert source is not None
        if not self.address:
            raise Unreachable("nobody has that address")
        return self._network.call(source, self.address, kind, command, timeout_s)

    def close(self) -> None:
        """Nothing to close."""

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *error: object) -> None:
        pass
