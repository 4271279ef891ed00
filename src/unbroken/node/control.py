"""The control plane: notices who is gone, and restores what they held.  A process of its own.

    nodes ─ beat ─▶ detector ─▶ writers, repairs ─▶ records (SQLite) ─▶ expect, release ─▶ producers
          ◀─ orders: "these shall run with you; take that one from there" ─┘

* Look, decide, record, act.  Everything that it knows is in its records or is said again with the
  next beat: it may be killed at any time, data flows on meanwhile, and it finds all of it again.
* Fail-over of active replicas does not need it: consumers have the other copy.  It restores the
  number of copies afterwards.  Fragments with one writer wait for its word: so doors are tried many
  times a second, and whoever has new orders is asked for a beat at once.
* A node's door that refuses connections is proof of its death; a silent node is suspected first.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unbroken.control.detector import TIMINGS, Dead, Detector, Suspected
from unbroken.control.intentions import KEEPER, Action, Producer, Standing, Step
from unbroken.control.lives import Lives
from unbroken.control.orders import Orders
from unbroken.control.protection import survives
from unbroken.control.repair import Repairs
from unbroken.control.replicas import Replicas
from unbroken.control.store import Store
from unbroken.control.unheard import Unheard, unheard
from unbroken.control.writers import Writers
from unbroken.errors import DiskError, UnbrokenError, Unreachable
from unbroken.node import setup
from unbroken.node.holes import Holes
from unbroken.node.process import leave_with_parent, or_leave, or_noted
from unbroken.policies import Active, Gap, Passive, Policy, Upstream
from unbroken.streams.flight import Command, Door, Peer, checked_consumer, checked_name
from unbroken.streams.ports import refuses

SAY_S_MAX = 2.0
#: How often the doors of all nodes are tried.
DOORS_S = 0.05
PUBLISH_S = 0.5
#: How long after its own start control waits for nodes to be heard of for the first time: they
#: beat before they start Spark, but several Pythons may be starting at once.
START_S_MAX = 10.0


@dataclass
class Member:
    """What a node said last."""

    address: str
    #: Fragment to the newest epoch that its replica has committed.
    epochs: dict[str, int] = field(default_factory=dict)
    #: Fragment to why it could not be started there the last time, in a sentence.
    troubles: dict[str, str] = field(default_factory=dict)
    #: Fragments that have nothing there to go on from.
    empty: frozenset[str] = frozenset()


class Control:
    """Membership, placement and repair of one cluster."""

    def __init__(self, folder: Path) -> None:
        self._query, self._setup = setup.load(folder)
        (folder / "control").mkdir(exist_ok=True)
        self._store = Store(folder / "control" / "records.sqlite")
        for name, nodes in self._setup.placement.items():
            self._store.place(name, nodes)  # Only of a new query: later placements are repairs.
        fragments = self._query.fragments
        self._policies = {name: fragment.policy for name, fragment in fragments.items()}
        self._lock = threading.Lock()
        self._replicas = Replicas(
            {name: fragment.inputs for name, fragment in fragments.items()},
            self._store.placement(),
            [],  # Nobody counts as up before it was heard of.
        )
        self._writers = Writers(
            {n: self._setup.placement[n] for n in self._having(Passive)},
            self._replicas,
            self._store.writers(),
        )
        self._repairs = Repairs(
            {n: self._policies[n].copies for n in self._having(Active, Passive, Upstream, Gap)},
            self._replicas,
            self._store.unfinished(),
            rebuilt=self._having(Upstream, Gap),
            writers=self._writers,
            overtaken=self._store.overtaken(),
        )
        self._orders = Orders(self._policies, self._replicas, self._repairs, self._writers)
        self._timing = TIMINGS[self._setup.timing]
        self._detector = Detector(self._timing, now_s=time.monotonic())
        self._members: dict[str, Member] = {}
        self._lives = Lives()
        #: Replicas that are live and not yet on record as such, because the disk was full.
        self._unrecorded: set[tuple[str, str]] = set()
        self._began_s = time.monotonic()
        #: Nodes whose Spark is up, spares included: they may be given replicas.
        self._running: set[str] = set()
        self._entry = Peer(self._setup.entry)
        #: Words on their way to producers, by whom they are for.
        self._saying: set[tuple[str, int, Producer]] = set()
        self._speakers = ThreadPoolExecutor(8, thread_name_prefix="say")
        self._published_s = float("-inf")
        host, _, port = self._setup.control.removeprefix("grpc://").rpartition(":")
        self.door = Door(host, int(port), ready=False)
        self.door.on_act("beat", self._beat)
        self.holes = Holes(
            self.door, self._lock, self._store, self._repairs,
            self._unheard,
        )  # fmt: skip
        self.door.ready = True

    def _unheard(self, stream: str) -> Unheard:
        """Whom a successor that begins `stream` anew does not wait for."""
        empty = {(name, node) for node, member in self._members.items() for name in member.empty}
        overtaken = self._repairs.all_overtaken
        return unheard(stream, self._policies, self._replicas, self._writers, empty, overtaken)

    def _having(self, *kinds: type[Policy]) -> list[str]:
        return [name for name, policy in self._policies.items() if isinstance(policy, kinds)]

    # What nodes say, and what they are told.

    def _beat(self, command: Command) -> dict[str, Any]:
        """A node tells what runs with it; the answer is what shall."""
        node = checked_name(command["node"])
        life, beat = int(command["life"]), int(command["beat"])
        with self._lock:
            if self._lives.is_over(node, life):
                return {"over": self._lives.newest(node)}
            if life > self._lives.newest(node) >= 0:
                self._repairs.started_again(node)
            if self._lives.is_news(node, life, beat):
                self._take(node, command)
            doors = {name: member.address for name, member in self._members.items()}
            return self._orders.of(node, doors)

    def _take(self, node: str, command: Command) -> None:
        """Takes in what a beat says."""
        replicas = {checked_name(name): dict(told) for name, told in command["replicas"].items()}
        self._detector.heard(node, time.monotonic())
        if command["state"] == setup.RUNNING and node not in self._running:
            self._running.add(node)
            self._repairs.alive(node)
        epochs = {name: int(told["epoch"]) for name, told in replicas.items()}
        troubles = {name: str(why) for name, why in command.get("troubles", {}).items()}
        empty = frozenset(map(checked_name, command.get("empty", [])))
        self._members[node] = Member(str(command["address"]), epochs, troubles, empty)
        for name, told in replicas.items():
            if not told["failed"]:
                self._hear(node, name, epochs[name])
        for name in command["lost"]:
            self._repairs.lost(checked_name(name), node)
        self._held(command["full"])
        # Now, not with the next tick: a backup that is back while its writer is not would be
        # told to hold what nobody writes, and throw away what it has for that.
        for urgent in self._take_over() - {node}:
            self._speakers.submit(self._ask_for_beat, urgent)

    def _hear(self, node: str, fragment: str, epoch: int) -> None:
        if fragment not in self._policies:
            return
        before = self._replicas.of(fragment).get(node)
        # One that is back is recorded too: a restart would take it for gone.
        waited_for = before in (Standing.STARTING, Standing.GONE)
        if self._repairs.live(fragment, node, epoch):
            self._unrecorded |= {(fragment, node)} if waited_for else set()
            if (fragment, node) in self._unrecorded:
                self._store.stand(fragment, node, Standing.LIVE)
                self._unrecorded.discard((fragment, node))
        repair = self._repairs.under_way.get(fragment)
        if repair is None or repair.node != node:
            return
        if repair.step is Step.SHIP:  # It runs, or holds: all of it has arrived.
            self._repairs.shipped(fragment, repair.term)
        elif repair.step is Step.CATCH_UP:
            # A backup need not be close, and whoever was rebuilt is alone.
            others = [
                member.epochs[fragment]
                for name, member in self._members.items()
                if isinstance(self._policies[fragment], Active)
                and name != node and fragment in member.epochs
            ]  # fmt: skip
            self._repairs.progress(
                fragment, repair.term, newcomer=epoch, others=max(others, default=None)
            )

    def _held(self, full: Mapping[str, str]) -> None:
        """Logs are full for the sake of one replica: it goes, if another one is live."""
        for stream, holder in full.items():
            fragment, _, node = checked_consumer(holder).partition("@")
            if node and fragment in self._policies:
                self._repairs.held(fragment, node, f"the log of {stream} is full, it holds it")

    # Look, decide, record, act.

    def run(self) -> None:
        """Tries doors and ticks, for ever."""
        ticked_s = float("-inf")
        while True:
            now_s = time.monotonic()
            refusing = self._refusing()
            if refusing or now_s - ticked_s >= self._timing.period_s:
                ticked_s = now_s
                try:
                    self.tick(now_s, refusing)
                except DiskError as error:
                    # Nothing is done that is not on record: it is decided again when there is room.
                    print(error, file=sys.stderr, flush=True)
                self._publish(now_s)
            time.sleep(max(0.0, now_s + DOORS_S - time.monotonic()))

    def _refusing(self) -> dict[str, str]:
        """The doors that refuse connections, by node."""
        with self._lock:
            doors = {node: member.address for node, member in self._members.items()}
        return {node: address for node, address in doors.items() if refuses(address)}

    def tick(self, now_s: float, refusing: Mapping[str, str]) -> None:
        """Looks who is there, decides, records, and acts."""
        with self._lock:
            for node, address in refusing.items():
                # Unless it has come back meanwhile, with another door.
                if self._members[node].address == address:
                    self._detector.refused(node, now_s)
            # A node that was not heard of yet may still be starting.
            patient = now_s - self._began_s < START_S_MAX
            heard = self._detector.nodes
            # Who was replaced does not count: another is live in its place.
            placed = {
                name: [
                    node
                    for node, standing in self._replicas.of(name).items()
                    if standing is not Standing.LEAVING and (node in heard or not patient)
                ]
                for name in self._query.fragments
            }
            k = {name: max(1, policy.copies - 1) for name, policy in self._policies.items()}
            self._detector.watch(placed, k=k)
            self._notice(now_s)
            urgent = self._decide(now_s)
            actions = self._repairs.actions
        for action in actions:
            self._act(action)
        for node in urgent:
            self._speakers.submit(self._ask_for_beat, node)

    def _decide(self, now_s: float) -> set[str]:
        """Decides and records; whose orders have changed."""
        urgent = self._take_over()
        for intention in self._repairs.decide(now_s):
            recorded = self._store.record(intention)
            self._repairs.recorded(recorded)
            print(recorded.sentence, flush=True)
            if recorded.step in (Step.SHIP, Step.CATCH_UP):
                urgent.add(recorded.node)
        return urgent

    def _take_over(self) -> set[str]:
        """Decides and records who writes from now on; whose orders have changed."""
        urgent = set()
        epochs = {
            (name, node): epoch
            for node, member in self._members.items()
            for name, epoch in member.epochs.items()
        }
        for takeover in self._writers.decide(epochs, self._repairs.all_overtaken):
            term = self._store.record_writer(takeover.fragment, takeover.node)
            self._writers.recorded(takeover.under(term))
            self._repairs.took_over(takeover.fragment)
            print(takeover.under(term).sentence, flush=True)
            urgent.add(takeover.node)
        return urgent

    def _ask_for_beat(self, node: str) -> None:
        with contextlib.suppress(UnbrokenError), Peer(self._address(node)) as peer:
            peer.act({"do": "heed"}, timeout_s=SAY_S_MAX)

    def _notice(self, now_s: float) -> None:
        for decision in self._detector.tick(now_s):
            print(decision.sentence, flush=True)
            if isinstance(decision, Dead):
                if decision.proven:
                    self._lives.ended(decision.node)
                self._repairs.dead(decision.node)
                self._running.discard(decision.node)
                self._members.pop(decision.node, None)
            elif isinstance(decision, Suspected):
                self._repairs.suspected(decision.node)
            elif decision.node in self._running:
                self._repairs.alive(decision.node)

    def _act(self, action: Action) -> None:
        """Tells producers whom to expect or to release; nodes hear with the answer to a beat."""
        intention = action.intention
        if intention.step not in (Step.EXPECT, Step.RELEASE):
            return
        do = "expect" if intention.step is Step.EXPECT else "release"
        words = {
            "do": do, "term": intention.term,
            "consumer": setup.replica_name(intention.fragment, intention.node),
        }  # fmt: skip
        if do == "expect":
            words["like"] = setup.replica_name(intention.fragment, intention.survivor)
        for producer in action.producers:
            key = intention.fragment, intention.term, producer
            if key not in self._saying:
                self._saying.add(key)
                self._speakers.submit(self._say, key, {**words, "stream": producer.stream})

    def _say(self, key: tuple[str, int, Producer], words: dict[str, Any]) -> None:
        fragment, term, producer = key
        try:
            with Peer(self._address(producer.node)) as peer:
                peer.act(words, timeout_s=SAY_S_MAX)
            with self._lock:
                self._repairs.confirmed(fragment, term, producer)
        except Unreachable:
            pass  # Said again with the next tick, until it answers or is dead.
        except UnbrokenError as error:
            print(f"{words['do']} {words['consumer']} at {producer}: {error}", file=sys.stderr)
        finally:
            self._saying.discard(key)

    def _address(self, node: str) -> str:
        with self._lock:
            if node != KEEPER and node not in self._members:
                raise Unreachable(f"{node} has not been heard of")
            return self._setup.entry if node == KEEPER else self._members[node].address

    def _troubles(self, fragment: str) -> list[str]:
        """Why nodes that should have it could not start it, in sentences."""
        return [
            f"{node}: {member.troubles[fragment]}"
            for node, member in self._members.items()
            if fragment in member.troubles
        ]

    def _publish(self, now_s: float) -> None:
        """Tells the entry how every fragment is protected, for `status`."""
        if now_s - self._published_s < PUBLISH_S:
            return
        self._published_s = now_s
        with self._lock:
            sentences = self._writers.sentences + self._repairs.sentences
            told = {}
            for name, fragment in self._query.fragments.items():
                nodes = self._replicas.serving(name)
                number, why = survives(name, fragment.policy, self._replicas)
                told[name] = {
                    "policy": fragment.policy.text,
                    "wanted": fragment.policy.copies,
                    "nodes": nodes,
                    "writer": self._writers.of(name)
                    if isinstance(fragment.policy, Passive)
                    else None,
                    "survives": number,
                    "weakness": why,
                    "holes": [hole.sentence for hole in self._store.holes(name)],
                    "doing": [
                        *(s for s in sentences if s.startswith((f"{name}:", f"{name} "))),
                        *self._troubles(name),
                    ],
                }
        with contextlib.suppress(UnbrokenError):  # It is away: the next word tells.
            full = self._entry.act({"do": "protection", "fragments": told}, timeout_s=SAY_S_MAX)
            with self._lock:
                self._held(full)


def main() -> None:
    """Runs the control plane until its parent goes away."""
    parser = argparse.ArgumentParser(description="The control plane of an Unbroken cluster.")
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args()
    leave_with_parent()
    control = or_noted(given.folder, "control", lambda: Control(given.folder))
    print(f"control of {control._query.name} at {control.door.address}", flush=True)
    or_leave(control.run)


if __name__ == "__main__":
    main()
