"""A node: one process with one Spark session, some replicas, and a door.

    start: door ─▶ Spark session ─▶ plans ─▶ the replicas that control gives it ─▶ "running"
    loop:  send acks, report to the entry, beat to control, until whoever started us goes away
    beat:  "these run here" ─▶ control ─▶ "these shall run here; take that one from there"

* A node is a process tree (Python, its JVM, Spark's Python workers): the unit of failure.
* What control wants is said anew with every beat, so that a lost answer or a control plane that was
  away costs nothing.  While it is away the node goes on with what it has.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from unbroken.checkpoints import fork
from unbroken.checkpoints.ship import Giver, Origin, take_replica
from unbroken.engine import plan as plans
from unbroken.engine.session import session
from unbroken.engine.source import READ_BY_EXECUTORS, READ_BY_PLANNER, EpochSource
from unbroken.engine.warm import warm_up
from unbroken.errors import CheckpointLost, UnbrokenError, Unreachable
from unbroken.node import setup
from unbroken.node.book import BookReader
from unbroken.node.process import leave_with_parent, or_noted
from unbroken.node.replica import START_S_MAX, Replica
from unbroken.policies import Active
from unbroken.query import Fragment
from unbroken.streams.flight import Command, Door, Peer
from unbroken.streams.needs import KEEP_EPOCHS
from unbroken.streams.serve import Served, StreamDoor

LOOP_S = 0.1
REPORT_S = 0.5
BEAT_S = 0.25
#: Fragments that start at the same time.
STARTS_MAX = 4
#: A replica that stumbles more often than this within `STUMBLES_S` has failed.
STUMBLES_MAX = 3
STUMBLES_S = 300.0
#: How long a node that starts waits for control to say what it shall run.
CONTROL_S_MAX = 120.0


class Node:
    """Runs the fragments that the placement gives to this node."""

    def __init__(self, folder: Path, name: str, host: str = "127.0.0.1") -> None:
        self.name = name
        self._folder = folder / name
        self._query, self._setup = setup.load(folder)
        self._entry = Peer(self._setup.entry)
        self._book = BookReader(self._entry)
        self.door = Door(host)
        self._streams = StreamDoor(self.door)
        self._control = Peer(self._setup.control)
        #: Fragments that run here, and those on their way: being taken from another node.
        self._replicas: dict[str, Replica] = {}
        self._joining: dict[str, str] = {}
        #: One at a time starts or ends a replica: the loop, a beat's answer, a join.
        self._changing = threading.RLock()
        self._stumbles: dict[str, list[float]] = {}
        #: Fragments whose checkpoint here is of no use: they have to be taken from another node.
        self._lost: set[str] = set()
        self._giver = Giver(self.door, self._origin)
        self._spark: Any = None
        self._plans: dict[str, plans.Plan] = {}
        self._schemas: dict[str, Any] = {}
        self._state = "starting Spark"
        self.door.on_get("gate", self._gate)
        self.door.on_get("slice", self._slice)
        self.door.on_put("part", self._part)

    def start(self) -> None:
        """Starts Spark and this node's replicas; returns when they wait for epochs."""
        # From the first moment, and in a thread of its own: Spark takes long to start, and a
        # control plane that is frozen must not hold up acks.
        threading.Thread(target=self._beat_for_ever, daemon=True, name="beat").start()
        self._report()
        given = self._setup
        scratch = self._folder / "scratch"
        scratch.mkdir(parents=True, exist_ok=True)
        self._spark = session(
            f"{given.query}/{self.name}", master=given.master, scratch=scratch,
            memory=given.memory, settings=given.settings,
        )  # fmt: skip
        self._spark.dataSource.register(EpochSource)
        self._state = "reading plans"
        self._report()
        self._plans = plans.analyze_all(self._spark, self._query)
        self._schemas = {name: source.schema for name, source in self._query.sources.items()}
        self._schemas |= {name: plan.schema for name, plan in self._plans.items()}
        wanted = self._wanted()
        names = [s.name for s in self._query.check() if s.name in wanted["run"]]
        for place, name in enumerate(names):
            # Spark gives a Python process ten seconds to come up, and has no setting for it: a
            # dozen of them at once on two busy cores would not all make it.
            for earlier in names[: max(0, place + 1 - STARTS_MAX)]:
                if earlier in self._replicas:
                    self._replicas[earlier].wait_asked(START_S_MAX)
            self._go_on(name, wanted["run"][name])
        self._state = setup.RUNNING
        self._report()
        if not self._replicas:  # A spare: what it is given should not wait for Spark's first batch.
            threading.Thread(
                target=warm_up, args=(self._spark, scratch), daemon=True, name="warm-up"
            ).start()

    def _wanted(self) -> dict[str, Any]:
        """What control wants of a node that starts."""
        deadline = time.monotonic() + CONTROL_S_MAX
        while True:
            try:
                return self._beat()
            except Unreachable:  # Started at the same time as we, or just being started again.
                if time.monotonic() > deadline:
                    raise
                time.sleep(LOOP_S)

    def _go_on(self, name: str, consumers: list[str]) -> None:
        """Runs a replica from what it left here; control is told if that is not enough."""
        try:
            self._run(name, consumers)
        except CheckpointLost as error:
            if not isinstance(self._query.fragments[name].policy, Active):
                raise
            print(error, file=sys.stderr, flush=True)
            self._lost.add(name)
            del self._replicas[name], self._streams.streams[name]

    def _run(self, name: str, consumers: list[str], clients: Sequence[str] = ()) -> None:
        """Starts the replica of a fragment from what is in its folder."""
        fork.forget_shipments(self._fragment_folder(name))
        replica = Replica(
            self._query.fragments[name], self._fragment_folder(name), self._book,
            name=setup.replica_name(name, self.name), log_bytes_max=self._setup.log_bytes_max,
        )  # fmt: skip
        keep = KEEP_EPOCHS if name in self._query.sinks else 0
        self._replicas[name] = replica
        self._streams.streams[name] = served = Served(replica.log, consumers, keep=keep)
        for client in clients:
            served.expect(client)
        # In the book before it runs: a consumer on this node may start first.
        self._report()
        replica.start(
            self._plan_for(self._spark, self._query.fragments[name], self._schemas),
            watermarks=len(self._plans[name].watermarks),
        )

    def _fragment_folder(self, name: str) -> Path:
        return self._folder / "fragments" / name

    def _origin(self, fragment: str) -> Origin:
        """What another node takes when it takes our replica."""
        replica = self._replicas.get(fragment)
        if replica is None:
            raise UnbrokenError(f"{self.name} has no replica of {fragment!r} to give")
        fingerprint = self._plans[fragment].fingerprint
        return Origin(self._fragment_folder(fragment), replica.term, fingerprint)

    def _join(self, name: str, givers: list[str], consumers: list[str]) -> None:
        """Takes a replica from whoever has one, and runs it here, for the same consumers."""
        began_s = time.monotonic()
        try:
            for address in givers:
                self._joining[name] = f"taking {name} from {address}"
                with contextlib.suppress(Unreachable), Peer(address) as peer:
                    told = peer.act({"do": "consumers", "stream": name})
                    shipped = take_replica(
                        peer, name, self._fragment_folder(name),
                        with_watermarks=len(self._plans[name].watermarks) > 1,
                    )  # fmt: skip
                    print(
                        f"took {name} after epoch {shipped.epoch} from {address}: "
                        f"{shipped.bytes_fetched:,} bytes in {time.monotonic() - began_s:.1f} s",
                        flush=True,
                    )
                    with self._changing:
                        self._run(name, consumers, clients=told)
                    self._lost.discard(name)
                    return
        except UnbrokenError as error:
            # Control asks again with its next answer.
            print(f"taking {name}: {error}", file=sys.stderr, flush=True)
            self._leave(name, "it could not be started")
        finally:
            self._joining.pop(name, None)

    def _pick_up(self) -> None:
        """Starts replicas again that have stumbled: from a fork of their last commit, as ever."""
        for name, replica in list(self._replicas.items()):
            if not replica.stumbled:
                continue
            now_s = time.monotonic()
            recent = [t for t in self._stumbles.get(name, []) if t > now_s - STUMBLES_S]
            with self._changing:
                if self._replicas.get(name) is not replica or replica.given_up:
                    continue
                self._stumbles[name] = [*recent, now_s]
                if len(recent) >= STUMBLES_MAX:
                    replica.give_up()
                    continue
                print(f"{name} has stumbled and is started again", file=sys.stderr, flush=True)
                replica.stop()
                self._go_on(name, self._streams[name].consumers)

    def _leave(self, name: str, why: str) -> None:
        """Ends a replica; what it has stays until the fragment is whole."""
        with self._changing:
            replica = self._replicas.pop(name, None)
            self._streams.streams.pop(name, None)
            self._report()
            if replica is not None:
                replica.stop()
                print(f"left {name}: {why}", flush=True)

    def _beat(self) -> dict[str, Any]:
        """Tells control what runs here; the answer is what it wants."""
        beat = {
            "do": "beat", "node": self.name, "address": self.door.address, "state": self._state,
            "replicas": {
                name: {"epoch": replica.committed, "failed": replica.failed}
                for name, replica in list(self._replicas.items())
                if replica.asking  # Until then it cannot serve, and must not count as live.
            },
            "lost": sorted(self._lost),
        }  # fmt: skip
        wanted: dict[str, Any] = self._control.act(beat, timeout_s=2.0)
        return wanted

    def _beat_for_ever(self) -> None:
        while True:
            with contextlib.suppress(UnbrokenError):  # Away: we go on with what we have.
                wanted = self._beat()
                if self._state == setup.RUNNING:
                    self._do(wanted)
            time.sleep(BEAT_S)

    def _do(self, wanted: dict[str, Any]) -> None:
        """Makes true what control wants, as far as it is not."""
        for name in set(self._replicas) - set(wanted["run"]) - set(wanted["join"]):
            self._leave(name, "it was replaced while this node did not answer")
        for name, how in wanted["join"].items():
            if name not in self._replicas and name not in self._joining:
                self._joining[name] = f"about to take {name}"
                threading.Thread(
                    target=self._join, args=(name, how["givers"], how["consumers"]), daemon=True,
                    name=f"join-{name}",
                ).start()  # fmt: skip
        for name in wanted["forget"]:
            if name in self._query.fragments and name not in self._replicas:
                shutil.rmtree(self._fragment_folder(name), ignore_errors=True)

    def _plan_for(
        self, spark: Any, fragment: Fragment, schemas: dict[str, Any]
    ) -> Callable[[int], plans.Plan]:
        """The plan as it will run: its sources know this door and the replica's term."""
        local = self._setup.master.startswith("local")
        reader = READ_BY_PLANNER if local else READ_BY_EXECUTORS

        def for_term(term: int) -> plans.Plan:
            replica = self._replicas[fragment.name]
            options = {
                "door": self.door.address, "fragment": fragment.name, "term": str(term),
                "first": str(replica.first), "reader": reader,
            }  # fmt: skip
            known = self._plans[fragment.name].traits
            return plans.analyze(spark, self._query, fragment, schemas, options, traits=known)

        return for_term

    def _gate(self, command: Command) -> Any:
        return self._replicas[command["fragment"]].ask(
            command["input"], int(command["after"]), int(command["term"]),
            rows=bool(command["rows"]),
        )  # fmt: skip

    def _slice(self, command: Command) -> Any:
        return self._replicas[command["fragment"]].slice(
            command["input"], int(command["number"]), int(command["index"]),
            int(command["count"]), int(command["term"]),
        )  # fmt: skip

    def _part(self, command: Command, table: Any) -> None:
        self._replicas[command["fragment"]].put_part(
            int(command["epoch"]), int(command["part"]), int(command["attempt"]), table,
            int(command["term"]),
        )  # fmt: skip

    def live(self) -> None:
        """Starts, and tells producers and the entry what is new, for ever."""
        self.start()
        reported_s = 0.0
        while True:
            for replica in list(self._replicas.values()):
                for stream, ack in replica.acks():
                    self._book.tell(stream, ack)
            for served in list(self._streams.streams.values()):
                served.trim()
            if time.monotonic() - reported_s > REPORT_S:
                self._pick_up()
                self._report()
                reported_s = time.monotonic()
            time.sleep(LOOP_S)

    def _report(self) -> None:
        report = {
            "do": "report",
            "node": self.name,
            "address": self.door.address,
            "pid": os.getpid(),
            "state": self._state,
            "streams": list(self._streams.streams),
            "fragments": {
                name: {**replica.status(), "output": self._streams[name].status()}
                for name, replica in list(self._replicas.items())
            },
            "joining": dict(self._joining),
        }
        with contextlib.suppress(Unreachable):  # The keeper is away: the next report tells.
            self._entry.act(report, timeout_s=5.0)


def main() -> None:
    """Runs a node until its parent goes away."""
    parser = argparse.ArgumentParser(description="One node of an Unbroken cluster.")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    given = parser.parse_args()
    leave_with_parent()
    or_noted(given.folder, given.name, lambda: Node(given.folder, given.name, given.host).live())


if __name__ == "__main__":
    main()
