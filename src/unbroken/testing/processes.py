"""The processes of a simulated cluster: thin loops around the real classes.

    keeper    the real Keeper; a loop that ticks
    control   the real Control; a loop that ticks
    node-1    the real Hosted and Questions; loops that beat, ack and trim, as `node.loop.Node`
    sink-a    follows a stream, writes each epoch to its disk, and acks

* A loop here is an event that schedules itself.  What happens in one round is the real code.
* A process that cannot start, or gives up, says so and is gone; whoever watches starts it again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from unbroken.errors import DiskError, UnbrokenError
from unbroken.node import setup
from unbroken.node.book import BookReader
from unbroken.node.control import Control
from unbroken.node.hosted import Hosted
from unbroken.node.keeper import Keeper
from unbroken.node.life import Life
from unbroken.node.loop import Node
from unbroken.node.questions import Questions
from unbroken.streams.needs import ACK_AGAIN_S, ack
from unbroken.streams.source_log import SourceLog
from unbroken.testing.branches import Both
from unbroken.testing.disk import Path
from unbroken.testing.epochs import Epoch, Log
from unbroken.testing.follow import Follower
from unbroken.testing.network import Peer
from unbroken.testing.tasks import block, spawn
from unbroken.testing.world import Process

#: The real loops run twice as often.  Nothing depends on it, what is urgent is asked for at once,
#: and silences are measured in seconds: four beats are missing then, not eight.
LOOP_S = 0.2
BEAT_S = 0.5
REPORT_S = 0.5
#: Epochs without rows when a life is over.
EPOCHS_AFTER = 20
SPARK_S = 0.3, 1.2
KEEPER, CONTROL = "grpc://keeper:0", "grpc://control:0"


class Sources:
    """The log of one source: rows that come out of nothing, on time, and are on disk."""

    def __init__(self, sim: Any, folder: Path, stream: str) -> None:
        self._sim, self.stream = sim, stream
        self.log = Log(folder, stream, sync=True)
        self.schema, self.event_time, self.set_aside, self.open_rows = None, None, 0, 0
        self._open_bytes, self._log_bytes_max = 0, sim.setup.log_bytes_max
        self._pushes_back = self._for_good = False
        self.given_up = {"epochs": 0, "rows": 0}

    @property
    def open_number(self) -> int:
        """The number of the epoch that takes rows now."""
        return self.log.next

    @property
    def full(self) -> bool:
        """Whether it pushes back."""
        return bool(self.log.bytes >= self._log_bytes_max)

    def _refuse(self) -> None:
        """The producer is pushed back, in the words of the real source, and gives up this send."""
        served = self._sim.world.process("keeper").door.acts["headers"].__self__[self.stream]
        for_good = served.standstill
        if not self._pushes_back or bool(for_good) != self._for_good:
            error = SourceLog._full(self, served.holder, for_good)  # type: ignore[arg-type]
            self._sim.watch.refuses_rows(error)
        self._pushes_back, self._for_good = True, bool(for_good)

    def seal_until(self, number: int) -> int:
        """Seals every epoch below `number`; of those that were missed only the first has rows.

        When the life is over a few more come, without rows: a hole may end only there.
        """
        number = min(number, self._sim.life.epochs + EPOCHS_AFTER)
        late = number - self.log.next > 3
        now_us = round(self._sim.world.process("keeper").wall_s() * 1e6)
        sealed = 0
        while self.log.next < number:
            rows = () if late and sealed else self._sim.rows(self.stream, self.log.next)
            if not self.full:
                self._pushes_back = False
            elif rows:
                self._refuse()
                rows = ()
            self.log.append(Epoch.of(self.stream, self.log.next, rows, sealed_us=now_us))
            sealed += 1
        return sealed

    def trim(self, below: int) -> None:
        """Consumers have acked."""
        self.log.trim(below)

    def sync(self) -> None:
        """Everything is on disk already."""


class KeeperShell:
    """The keeper's loop."""

    def __init__(self, sim: Any, process: Process) -> None:
        self._sim, self._process = sim, process
        self.keeper = Keeper(sim.folder(process), "keeper", 0)
        self._tick()

    def _tick(self) -> None:
        try:
            self.keeper.tick(self._process.monotonic_s())
        except UnbrokenError as error:
            self._sim.world.say(error.what)
        clock = self.keeper.clock
        assert clock is not None
        wait_s = min(0.5, max(0.01, clock.wait_s(self._process.monotonic_s())))
        self._sim.world.at(wait_s, self._process, self._tick)


class ControlShell:
    """The control plane's loop."""

    def __init__(self, sim: Any, process: Process) -> None:
        self._sim, self._process = sim, process
        self.control = Control(sim.folder(process))
        self._tick()

    def _tick(self) -> None:
        self.look()
        self._sim.world.at(BEAT_S, self._process, self._tick)

    def look(self) -> None:
        """Tries the doors, decides, acts, and tells."""
        now_s = self._process.monotonic_s()
        try:
            self.control.tick(now_s, self.control._refusing())
        except DiskError as error:
            self._sim.world.say(error.what)
        self.control._publish(now_s)


class NodeShell:
    """The loops of one node; as `node.loop.Node`."""

    def __init__(self, sim: Any, process: Process) -> None:
        self._sim, self._process, self.name = sim, process, process.name
        self._query = sim.query
        self._life = Life(sim.folder(process))
        self._state = "starting Spark"
        self._entry = Peer(sim.network, sim.world, KEEPER)
        self._book = BookReader(self._entry)  # type: ignore[arg-type]
        self.door = sim.network.door(process)
        self._hosted = Hosted(
            self.name, sim.folder(process), sim.query, sim.setup, self.door, self._book,
            Peer(sim.network, sim.world, CONTROL), self._report,  # type: ignore[arg-type]
        )  # fmt: skip
        Questions(self.name, self.door, self._hosted)
        self.door.on_act("heed", lambda command: self._beat())
        self._beat_s = -10.0
        self._wanted: dict[str, Any] | None = None
        self._reported_s = -10.0
        self._beats()
        spawn(sim.world, process, self._start)

    @property
    def hosted(self) -> Hosted:
        """What runs here."""
        return self._hosted

    def _start(self) -> None:
        world = self._sim.world
        block(world, world.random.uniform(*SPARK_S))
        self._hosted.use(None, self._sim.plans)
        while self._wanted is None:
            block(world, 0.1)
        wanted = self._wanted
        self._hosted.place(wanted)
        try:
            for stream in self._query.check():
                if stream.name in wanted["run"]:
                    self._hosted.run(stream.name, wanted["consumers"][stream.name])
        except UnbrokenError as error:
            world.say(f"gives up: {error.what}")
            self._sim.watch.gave_up(self._process, error)
            self._process.kill()
            return
        self._state = setup.RUNNING
        self._report()
        self._loop()

    def _loop(self) -> None:
        Node._tell_and_trim(self)  # type: ignore[arg-type]
        if self._sim.world.now_s - self._reported_s > REPORT_S:
            self._hosted.pick_up()
            self._report()
            for replica in self._hosted.replicas.values():
                run: Any = replica._run
                if run is not None and (replica._failed_by_itself or run.waits_for_nothing):
                    run.poke()
        self._sim.world.at(LOOP_S, self._process, self._loop)

    def _report(self) -> None:
        self._reported_s = self._sim.world.now_s
        report = {
            "do": "report", "node": self.name, "address": self.door.address, "pid": 0,
            "state": self._state, **self._hosted.report(),
        }  # fmt: skip
        self._sim.watch.status(self.name, report["fragments"])
        self._book.report(report, timeout_s=1.0)

    def _beats(self) -> None:
        if self._sim.world.now_s - self._beat_s > BEAT_S * 0.9:
            self._beat()
        self._sim.world.at(BEAT_S, self._process, self._beats)

    def _beat(self) -> None:
        self._beat_s = self._sim.world.now_s
        who = {"node": self.name, "address": self.door.address, "state": self._state}
        beat = {"do": "beat", **who, **self._life.next_beat(), **self._hosted.beat()}
        asked_s = self._process.monotonic_s()
        self._sim.network.message(self._process, CONTROL, self._asked, asked_s, beat)

    def _asked(self, asked_s: float, beat: dict[str, Any]) -> None:
        """At control."""
        there = self._sim.world.current
        handler: Callable[..., Any] | None = there.door.acts.get("beat")
        if handler is None:
            return
        try:
            wanted = handler(beat)
        except UnbrokenError as error:
            self._sim.world.say(error.what)
            return
        self._sim.network.message(there, self.door.address, self._told, asked_s, wanted, once=True)

    def _has(self, name: str) -> bool:
        path, disk = str(self._hosted.folder(name)), self._sim.disk(self.name)
        there = path in disk.checkpoints or f"{path}/output" in disk.logs
        return there or name in self._hosted.lost

    def _told(self, asked_s: float, wanted: dict[str, Any]) -> None:
        if self._life.is_over(wanted):
            return
        self._wanted = wanted
        # Removing what is not there would only cost time.
        wanted["forget"] = [name for name in wanted["forget"] if self._has(name)]
        Node._obey(self, wanted, asked_s)  # type: ignore[arg-type]

    def _do(self, wanted: dict[str, Any]) -> None:
        Node._do(self, wanted)  # type: ignore[arg-type]


class SinkShell:
    """A client that writes a stream to its disk; as `client.sinks`: the file is the position."""

    def __init__(self, sim: Any, process: Process) -> None:
        self._sim, self._process = sim, process
        self.name = process.name
        self.stream = sim.life.stream_of(process.name.removeprefix("sink-"))
        #: Where results may be tentative they are shown too, as by `cluster.follow`.
        self._kind: Any = partial(Both, heard=self._hear) if sim.life.bounded else Follower
        #: What it follows with.
        self.both: Any = None
        self.log = Log(sim.folder(process) / "out", self.stream + "~out", sync=True)
        self._book = BookReader(Peer(sim.network, sim.world, KEEPER))  # type: ignore[arg-type]
        self.consumer = process.name.replace("-", "_")
        sim.network.door(process)
        self.error: UnbrokenError | None = None
        self._acked_s = -10.0
        spawn(sim.world, process, self._start)

    @property
    def next(self) -> int:
        """The number of the next epoch to be written."""
        return self.log.next

    def _start(self) -> None:
        while True:
            try:
                self._book.agree(self.stream, {"do": "expect", "consumer": self.consumer})
                break
            except UnbrokenError:
                block(self._sim.world, 0.3)
        self._sim.watch.known_sinks.add(self.name)
        self._follow()

    def _follow(self) -> None:
        self.both = self._kind(
            self._sim.world, self._sim.network, self._sim.watch, self.stream, self.log.next,
            partial(self._book.replicas, self.stream), consumer=self.consumer,
            taken=self._write, failed=self._broke,
        )  # fmt: skip
        self._acks()

    def _write(self, epoch: Epoch) -> None:
        try:
            self.log.append(epoch)
        except UnbrokenError as error:
            # The disk is full: the process ends, and is started again.
            if not isinstance(error, DiskError):
                self._sim.watch.break_(2, error.what)
            self._sim.world.say(error.what)
            self._process.kill()
            return
        self._sim.watch.wrote(self, epoch)
        self._ack()

    def _acks(self) -> None:
        """Also without news, as `client.cluster` does."""
        if self.error is None and self.log.next > 0:
            self._ack()
        self._sim.world.at(ACK_AGAIN_S, self._process, self._acks)

    def _ack(self) -> None:
        self._acked_s = self._sim.world.now_s
        self._book.tell(self.stream, ack(self.consumer, 1, self.log.next - 1))

    def _hear(self, epoch: Epoch) -> None:
        self._sim.watch.hears(self, epoch)

    def _broke(self, error: UnbrokenError) -> None:
        self._sim.world.say(f"stops: {error.what}")
        self.error = error
