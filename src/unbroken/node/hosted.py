"""What a node hosts: replicas that run, and standbys that hold what another node's replica ships.

    run ──────────────────────▶ replica          from what it left here
    join ── ship ─────────────▶ replica          a copy of another node's, checkpoint and log
    rebuild ── seed ──────────▶ replica          empty, from the watermarks that its acks carried
    hold ─────────────────────▶ standby ── take over ──▶ replica
    leave: it ends, and what it has stays until the fragment is whole

One at a time starts or ends something: the loop, a beat's answer, a join.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from unbroken.checkpoints import fork
from unbroken.checkpoints.give import Giver, Origin
from unbroken.checkpoints.shipments import forget_shipments
from unbroken.checkpoints.take import take_replica
from unbroken.engine import plan as plans
from unbroken.engine.source import READ_BY_EXECUTORS, READ_BY_PLANNER
from unbroken.errors import CheckpointLost, UnbrokenError, Unreachable
from unbroken.node import setup, successor
from unbroken.node.book import BookReader
from unbroken.node.replica import PlanFor, Replica
from unbroken.node.staged import STAGED
from unbroken.node.standby import Standby
from unbroken.policies import Passive, Restart
from unbroken.policies.guarantee import holds_output
from unbroken.query import Query
from unbroken.streams.flight import Command, Door, Peer
from unbroken.streams.needs import KEEP_EPOCHS
from unbroken.streams.serve import Served, StreamDoor

#: A replica that stumbles more often than this within `STUMBLES_S` has failed.
STUMBLES_MAX = 6
STUMBLES_S = 300.0
#: After a fragment's name: its rehearsal.
REHEARSAL = "~rehearsal"
#: For so long after a question to control its answer is believed; shorter than any silence that
#: makes a node suspected.
TRUST_S = 1.5


class Hosted:
    """The replicas and standbys of one node."""

    def __init__(
        self, node: str, folder: Path, query: Query, given: setup.Setup, door: Door,
        book: BookReader, control: Peer, tell: Callable[[], None],
    ) -> None:  # fmt: skip
        self._node = node
        self._folder = folder
        self._query = query
        self._setup = given
        self._door = door
        self._book = book
        self._control = control
        #: Tells the entry what is served here now.
        self._tell = tell
        self.streams = StreamDoor(door)
        self.replicas: dict[str, Replica] = {}
        self.standbys: dict[str, Standby] = {}
        #: On their way: being taken from another node, or rebuilt.
        self.joining: dict[str, str] = {}
        #: Replicas that only warm up, by a name that no fragment can have.
        self._rehearsals: dict[str, Replica] = {}
        #: Fragments whose checkpoint here is of no use: they have to be taken from another node.
        self.lost: set[str] = set()
        self._changing = threading.RLock()
        #: Until then this node knows who is expected: whoever is silent for longer may have been
        #: replaced, and others be expected whom it has not heard of.
        self._trusted_until_s = 0.0
        self._stumbles: dict[str, list[float]] = {}
        self._spark: Any = None
        self._plans: dict[str, plans.Plan] = {}
        self._schemas: dict[str, Any] = {}
        Giver(door, self._origin)
        door.on_act("held", self._held)
        door.on_act("shippable", self._shippable)
        door.on_get("gate", self._gate)
        door.on_get("slice", self._slice)
        door.on_put("part", self._part)

    def use(self, spark: Any, analyzed: dict[str, plans.Plan]) -> None:
        """Spark is up, and the plans of all fragments are known."""
        self._spark = spark
        self._plans = analyzed
        self._schemas = {name: source.schema for name, source in self._query.sources.items()}
        self._schemas |= {name: plan.schema for name, plan in analyzed.items()}

    def folder(self, fragment: str) -> Path:
        """Where checkpoint and log of `fragment` are."""
        return self._folder / "fragments" / fragment

    # Starting and ending.

    def run(self, name: str, consumers: Sequence[str]) -> None:
        """Runs a replica from what it left here; control is told if that is not enough."""
        try:
            with self._changing:
                self._start(self._serve(name, consumers))
        except CheckpointLost as error:
            if isinstance(self._query.fragments[name].policy, Restart):
                raise  # Nobody else has it.
            self._give_up(name, error)

    def _give_up(self, name: str, error: UnbrokenError | str) -> None:
        print(error, file=sys.stderr, flush=True)
        self.lost.add(name)
        self.leave(name, "it has to be taken from another node")

    def _serve(
        self, name: str, consumers: Sequence[str], *, clients: Sequence[str] = (),
        begins_later: bool = False,
    ) -> Replica:  # fmt: skip
        """A replica that does not run yet; what is in its log is served."""
        folder = self.folder(name)
        forget_shipments(folder)
        replica = Replica(
            self._query.fragments[name], folder, self._book, self._plans[name],
            name=setup.replica_name(name, self._node), log_bytes_max=self._setup.log_bytes_max,
        )  # fmt: skip
        keep = KEEP_EPOCHS if name in self._query.sinks else 0
        self.streams.streams[name] = served = Served(
            replica.log, consumers, keep=keep, begins_later=begins_later,
            may_trim=lambda: time.monotonic() < self._trusted_until_s,
        )  # fmt: skip
        for client in clients:
            served.expect(client)
        self._serve_staged(replica)
        return replica

    def _serve_staged(self, replica: Replica) -> None:
        """What is not shown yet is there for the standby alone, which asks for it by name."""
        if replica.staged is not None:
            log = replica.staged.log
            self.streams.streams[log.stream] = Served(log, [], keep=0, may_trim=lambda: False)

    def _start(self, replica: Replica, **how: Any) -> None:
        name = replica.fragment.name
        self.replicas[name] = replica
        # In the book before it runs: a consumer on this node may start first.
        self._tell()
        replica.start(self._plan_for(name), **how)
        self._serve_staged(replica)

    def hold(self, name: str, giver: str, consumers: Sequence[str]) -> None:
        """Holds what the writer at `giver` ships; said again, with another writer, it turns there.

        A replica that ran here was replaced: it ends first.
        """
        with self._changing:
            if name in self.standbys:
                self.standbys[name].giver = giver
                return
            self.leave(name, "another node writes it now")
            if giver and self._holds_output(name):
                self.forget(name)  # What was not shown must not be taken for what the writer made.
            policy = self._query.fragments[name].policy
            assert isinstance(policy, Passive)
            self.standbys[name] = Standby(
                self._serve(name, consumers), self._plan_for(name), book=self._book, giver=giver,
                interval_s=policy.interval_s, rehearsal=partial(self._rehearse, name),
            )  # fmt: skip
            self.standbys[name].begin()  # Its query asks this node, which must know it by now.
        self._tell()

    def _holds_output(self, name: str) -> bool:
        policy = self._query.fragments[name].policy
        return holds_output(policy, self._plans[name].traits.operator_class)

    def _rehearse(self, name: str) -> Replica:
        """A replica that goes on from a fork of what was shipped, and says nothing."""
        folder, key = self._folder / "scratch" / "rehearsals" / name, f"{name}{REHEARSAL}"
        shutil.rmtree(folder, ignore_errors=True)
        rehearsal = Replica(
            self._query.fragments[name], folder, self._book, self._plans[name], name="", mute=True
        )
        fork.fork_newest(
            self.folder(name), folder / "1", with_watermarks=rehearsal.with_watermarks,
            boot=fork.boot_id(),
        )  # fmt: skip
        self._rehearsals[key] = rehearsal
        rehearsal.start(self._plan_for(name, key))
        return rehearsal

    def take_over(self, name: str) -> None:
        """A standby becomes the writer: it goes on from what was shipped."""
        began_s = time.monotonic()
        with self._changing:
            standby = self.standbys.pop(name)
            standby.end()
            try:
                self._start(standby.replica)
            except UnbrokenError as error:
                self._give_up(name, error)
                return
        took_s = time.monotonic() - began_s
        print(f"took over {name} after epoch {standby.epoch} in {took_s:.2f} s", flush=True)

    def join(self, name: str, giver: str, consumers: Sequence[str]) -> None:
        """Takes the replica at `giver`, and runs it here, for the same consumers."""
        began_s = time.monotonic()
        self.joining[name] = f"taking {name} from {giver}"
        try:
            with Peer(giver) as peer:
                told = peer.act({"do": "consumers", "stream": name})
                shipped = take_replica(
                    peer, name, self.folder(name),
                    with_watermarks=len(self._plans[name].watermarks) > 1,
                )  # fmt: skip
            print(
                f"took {name} after epoch {shipped.epoch} from {giver}: "
                f"{shipped.bytes_fetched:,} bytes in {time.monotonic() - began_s:.1f} s",
                flush=True,
            )
            with self._changing:
                self._start(self._serve(name, consumers, clients=told))
            self.lost.discard(name)
        except UnbrokenError as error:
            # Control asks again with its next answer.
            print(f"taking {name}: {error}", file=sys.stderr, flush=True)
            self.leave(name, "it could not be started")

    def rebuild(self, name: str, gone: str, consumers: Sequence[str]) -> None:
        """Starts a replica with empty state where `gone` left off; nothing of it is left."""
        self.joining[name] = f"rebuilding {name}"
        try:
            self.forget(name)  # What an earlier life left here is of no use.
            with self._changing:
                replica = self._serve(name, consumers, begins_later=True)
                self._tell()
            seed = successor.begin(
                replica, self.streams[name], gone, self._book, self._control, self._plans[name]
            )
            with self._changing:
                self._start(replica, seed=seed)
            self.lost.discard(name)
            print(
                f"{name} is rebuilt from epoch {seed.first} on and speaks from {seed.speak}",
                flush=True,
            )
        except UnbrokenError as error:
            # Control asks again with its next answer.
            print(f"rebuilding {name}: {error}", file=sys.stderr, flush=True)
            self.leave(name, "it could not be rebuilt")

    def agree(self, consumers: Mapping[str, Sequence[str]], asked_s: float) -> None:
        """Control's word on who is expected by what is served here, asked for at `asked_s`."""
        for name, replicas in consumers.items():
            served = self.streams.streams.get(name)
            if served is not None:
                served.agree(replicas, asked_s=asked_s)
        self._trusted_until_s = asked_s + TRUST_S

    def pick_up(self) -> None:
        """Starts replicas again that have stumbled: from a fork of their last commit, as ever."""
        for name, replica in list(self.replicas.items()):
            if replica.lost and not isinstance(replica.fragment.policy, Restart):
                self._give_up(name, replica.failed)
            if not replica.stumbled:
                continue
            now_s = time.monotonic()
            recent = [t for t in self._stumbles.get(name, []) if t > now_s - STUMBLES_S]
            # A busy machine is the usual reason: being in a hurry makes it busier.
            if recent and now_s - recent[-1] < 2.0 ** len(recent):
                continue
            with self._changing:
                if self.replicas.get(name) is not replica or replica.given_up:
                    continue
                self._stumbles[name] = [*recent, now_s]
                if len(recent) >= STUMBLES_MAX:
                    replica.give_up()
                    continue
                print(f"{name} has stumbled and is started again: {replica.stumbled}",
                      file=sys.stderr, flush=True)  # fmt: skip
                replica.stop()
                self.run(name, self.streams[name].consumers)

    def leave(self, name: str, why: str) -> None:
        """Ends a replica or standby; what it has stays until the fragment is whole."""
        with self._changing:
            standby = self.standbys.pop(name, None)
            if standby is not None:
                standby.end()
            replica = standby.replica if standby else self.replicas.pop(name, None)
            for stream in (name, name + STAGED):
                self.streams.streams.pop(stream, None)
            if replica is not None:
                self._tell()
                replica.stop()
                print(f"left {name}: {why}", flush=True)

    def forget(self, name: str) -> None:
        """The fragment is whole without this node: what it left here may go."""
        if name not in self.replicas and name not in self.standbys:
            shutil.rmtree(self.folder(name), ignore_errors=True)

    # What others ask.

    def acks(self) -> list[tuple[str, dict[str, Any]]]:
        """What to tell producers, of all that is hosted here: (stream, ack)."""
        told = []
        for name, replica in list(self.replicas.items()):
            served = self.streams.streams.get(name)
            if served is not None:
                told += replica.acks(owed=served.owed)
        for standby in list(self.standbys.values()):
            told += standby.acks()
        return told

    def beat(self) -> dict[str, Any]:
        """What control hears: who works here, how far it is, and what is of no use."""
        working = {
            name: {"epoch": replica.committed, "failed": replica.failed}
            for name, replica in list(self.replicas.items())
            if replica.asking  # Until then it cannot serve, and must not count as live.
        }
        ready = {
            name: {"epoch": standby.epoch, "failed": standby.trouble}
            for name, standby in list(self.standbys.items())
            if standby.ready
        }
        return {"replicas": working | ready, "lost": sorted(self.lost)}

    def report(self) -> dict[str, Any]:
        """What the entry hears, for the book and `status`."""
        return {
            "streams": [name for name in self.streams.streams if not name.endswith(STAGED)],
            "fragments": {
                name: {**replica.status(), "output": served.status()}
                for name, replica in list(self.replicas.items())
                # It may be leaving at this moment, in another thread.
                if (served := self.streams.streams.get(name)) is not None
            },
            "standbys": {name: held.status() for name, held in list(self.standbys.items())},
            "joining": dict(self.joining),
        }

    def _origin(self, fragment: str) -> Origin:
        """What another node takes when it takes our replica."""
        replica = self.replicas.get(fragment)
        if replica is None:
            raise UnbrokenError(f"{self._node} has no replica of {fragment!r} to give")
        fingerprint = self._plans[fragment].fingerprint
        return Origin(self.folder(fragment), replica.term, fingerprint)

    def _plan_for(self, name: str, key: str = "") -> PlanFor:
        """The plan as it will run: its sources know this door, and the replica by key and term."""
        local = self._setup.master.startswith("local")
        reader = READ_BY_PLANNER if local else READ_BY_EXECUTORS
        fragment, known = self._query.fragments[name], self._plans[name].traits

        def for_term(term: int) -> plans.Plan:
            options = {
                "door": self._door.address, "fragment": key or name, "term": str(term),
                "reader": reader,
            }  # fmt: skip
            return plans.analyze(
                self._spark, self._query, fragment, self._schemas, options, traits=known
            )

        return for_term

    def _replica(self, command: Command) -> Replica:
        name = command["fragment"]
        if name in self._rehearsals:
            return self._rehearsals[name]
        standby = self.standbys.get(name)
        if standby is not None:
            return standby.replica
        if name not in self.replicas:
            raise UnbrokenError(f"{self._node} has no replica of {str(name)[:100]!r}")
        return self.replicas[name]

    def _held(self, command: Command) -> int | None:
        return self._replica(command).wait_released(int(command["term"]))

    def _shippable(self, command: Command) -> int | None:
        replica = self.replicas.get(command["fragment"])
        if replica is None:  # It is about to start, or has moved.
            raise Unreachable(f"{self._node} does not run {str(command['fragment'])[:100]!r}")
        return replica.wait_shippable(int(command["after"]), float(command["wait_s"]))

    def _gate(self, command: Command) -> Any:
        return self._replica(command).ask(
            command["input"], int(command["after"]), int(command["term"]),
            rows=bool(command["rows"]),
        )  # fmt: skip

    def _slice(self, command: Command) -> Any:
        return self._replica(command).slice(
            command["input"], int(command["number"]), int(command["index"]),
            int(command["count"]), int(command["term"]),
        )  # fmt: skip

    def _part(self, command: Command, table: Any) -> None:
        self._replica(command).put_part(
            int(command["epoch"]), int(command["part"]), int(command["attempt"]), table,
            int(command["term"]),
        )  # fmt: skip
