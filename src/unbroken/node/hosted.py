"""What a node hosts: replicas that run, and standbys that hold what another node's replica ships.

    run ──────────────────────▶ replica          from what it left here
    join ── ship ─────────────▶ replica          a copy of another node's, checkpoint and log
    rebuild ── seed ──────────▶ replica          empty, from the watermarks that its acks carried
    hold ─────────────────────▶ standby ── take over ──▶ replica
    leave: it ends, and what it has stays until the fragment is whole

One thing at a time happens to a fragment, and what fails is tried again (see `beginnings`).
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from unbroken.checkpoints.shipments import forget_shipments
from unbroken.checkpoints.take import take, take_replica
from unbroken.control.detector import TIMINGS
from unbroken.engine import plan as plans
from unbroken.engine.source import READ_BY_EXECUTORS, READ_BY_PLANNER
from unbroken.errors import CheckpointLost, DiskError, UnbrokenError, Unreachable
from unbroken.node import setup, successor
from unbroken.node.beginnings import Beginnings
from unbroken.node.book import BookReader
from unbroken.node.lines import PlanFor
from unbroken.node.rehearsal import Rehearsals
from unbroken.node.replica import Replica
from unbroken.node.room import Room
from unbroken.node.staged import STAGED
from unbroken.node.standby import Standby
from unbroken.policies import Passive, Restart
from unbroken.query import Query
from unbroken.streams.copy_log import extend_log
from unbroken.streams.flight import Door, Peer
from unbroken.streams.needs import KEEP_EPOCHS
from unbroken.streams.serve import StreamDoor
from unbroken.streams.served import Served

#: A newcomer goes on from what it has if its query does not wait by then.
HELD_S_MAX = 60.0


class Hosted(Beginnings):
    """The replicas and standbys of one node: how they begin and end."""

    def __init__(
        self, node: str, folder: Path, query: Query, given: setup.Setup, door: Door,
        book: BookReader, control: Peer, tell: Callable[[], None],
    ) -> None:  # fmt: skip
        super().__init__(StreamDoor(door))
        self._node = node
        self._folder = folder
        self._query = query
        self._setup = given
        self._door = door
        self._book = book
        self._control = control
        #: Tells the entry what is served here now.
        self._tell = tell
        self.rehearsals = Rehearsals(folder / "scratch" / "rehearsals", book)
        #: Until then this node knows who is expected: whoever is silent for longer may have been
        #: replaced, and others be expected whom it has not heard of.
        self._trusted_until_s = 0.0
        #: The terms under which control places replicas here.
        self._placed: dict[str, int] = {}
        #: Fragments of which nobody was ever live: whoever has nothing has lost nothing.
        self._first: frozenset[str] = frozenset()
        self._spark: Any = None
        self._plans: dict[str, plans.Plan] = {}
        self._schemas: dict[str, Any] = {}

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

    def place(self, wanted: Mapping[str, Any]) -> None:
        """Control's word under which term each fragment is placed here, and where nobody was."""
        terms = wanted["placed"]
        with self._beginning:
            self._placed.update(terms)
            self._first = frozenset(wanted["first"])
            standbys = {name: standby.replica for name, standby in list(self.standbys.items())}
            for name, replica in [*list(self.replicas.items()), *standbys.items()]:
                # One that runs goes on as what is placed anew.  Not one that is about to end: what
                # it has promised is not true of whoever begins here after it.
                if name in terms and name not in self.under_way:
                    replica.placed = terms[name]

    def run(self, name: str, consumers: Collection[str]) -> None:
        """Runs a replica from what it left here; control is told if that is not enough."""
        try:
            self._start(self._serve(name, consumers))
            self._succeeded(name)
        except DiskError as error:
            # What it has is as good as before: it goes on from there when there is room.
            self._try_later(name, f"{name} cannot be started", error)
        except Unreachable as error:
            # Only one without a checkpoint asks where its inputs begin.  Should one of them be
            # about to begin anew, it must not wait for this one in turn.
            self._empty.add(name)
            if name in self._first or isinstance(self._query.fragments[name].policy, Restart):
                self._try_later(name, f"{name} cannot be started", error)
            else:
                self._give_up(name, error)  # Another node may have it.
        except CheckpointLost as error:
            self._empty.add(name)
            if not isinstance(self._query.fragments[name].policy, Restart):
                self._give_up(name, error)
                return
            # Nobody else has it.  It says so, and what else should run here does.
            print(error, file=sys.stderr, flush=True)
            self.replicas[name].cannot_start(error)

    def _serve(
        self, name: str, consumers: Collection[str], *, clients: Sequence[str] = (),
        begins_later: bool = False,
    ) -> Replica:  # fmt: skip
        """A replica that does not run yet; what is in its log is served."""
        folder = self.folder(name)
        forget_shipments(folder)
        replica = Replica(
            self._query.fragments[name], folder, self._book, self._plans[name],
            name=setup.replica_name(name, self._node), log_bytes_max=self._setup.log_bytes_max,
        )  # fmt: skip
        replica.placed = self._placed.get(name, 0)
        keep = KEEP_EPOCHS if name in self._query.sinks else 0
        served = Served(
            replica.log, consumers, keep=keep, begins_later=begins_later,
            may_trim=lambda: time.monotonic() < self._trusted_until_s,
            bytes_max=self._setup.log_bytes_max,
        )  # fmt: skip
        if self._query.gives_up(name):
            schema = self._plans[name].schema
            replica.room = Room(replica.log, schema, bytes_max=self._setup.log_bytes_max)
        served.tentative, served.made_room = replica.said, replica.has_room
        replica.holder = lambda: served.holder or "nobody"
        replica.standstill = lambda: served.standstill
        for client in clients:
            served.expect(client)
        # At the door when all is ready: it is asked, and trimmed, from then on.
        self.streams.streams[name] = served
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

    def hold(
        self, name: str, giver: str, consumers: Collection[str], anew: bool = False
    ) -> None:  # fmt: skip
        """Holds what the writer at `giver` ships; a replica that ran here was replaced: it ends.

        `anew`: what it left is of no use, and must not be gone on from.
        """
        self.leave(name, "another node writes it now")
        if anew:
            self._remove(name)
        fragment, known = self._query.fragments[name], self._plans[name]
        assert isinstance(fragment.policy, Passive)
        rehearse = partial(
            self.rehearsals.run, fragment, known, self.folder(name), partial(self._plan_for, name)
        )
        replica = self._serve(name, consumers)
        self.standbys[name] = Standby(
            replica, self._plan_for(name), book=self._book, giver=giver,
            interval_s=fragment.policy.interval_s, rehearse=rehearse,
            expect=lambda client: self.streams[name].expect(client),
            clients=lambda: self.streams[name].clients,
        )  # fmt: skip
        # What was of no use here is superseded; said on, it would be replaced again and again.
        self.lost.discard(name)
        self.standbys[name].begin()  # Its query asks this node, which must know it by now.
        self._succeeded(name)
        self._tell()

    def take_over(self, name: str) -> None:
        """A standby becomes the writer: it goes on from what was shipped."""
        began_s = time.monotonic()
        standby = self.standbys[name]
        standby.end()
        try:
            self._start(standby.replica)  # Its query finds it in one of the two.
            del self.standbys[name]
        except DiskError as error:
            self._try_later(name, f"{name} cannot be taken over", error)
            return
        except UnbrokenError as error:
            self._give_up(name, error)
            return
        took_s = time.monotonic() - began_s
        print(f"took over {name} after epoch {standby.epoch} in {took_s:.2f} s", flush=True)

    def join(
        self, name: str, giver: str, consumers: Collection[str], anew: bool = False
    ) -> None:  # fmt: skip
        """Takes the replica at `giver`, and runs it here, for the same consumers.

        `anew`: what an earlier life left here is of no use, and must not be gone on from.
        """
        began_s = time.monotonic()
        self.under_way[name] = f"taking {name} from {giver}"
        try:
            if anew:
                self._remove(name)
            with Peer(self._book.through(giver)) as peer:
                told = peer.act({"do": "consumers", "stream": name})
                shipped = take_replica(
                    peer, name, self.folder(name),
                    with_watermarks=self._plans[name].notes_watermarks,
                )  # fmt: skip
                print(
                    f"took {name} after epoch {shipped.epoch} from {giver}: "
                    f"{shipped.bytes_fetched:,} bytes in {time.monotonic() - began_s:.1f} s",
                    flush=True,
                )
                replica = self._serve(name, consumers, clients=told)
                self._catch_up(peer, replica)
            self._start(replica)
            self.lost.discard(name)
            self._succeeded(name)
        except UnbrokenError as error:
            self._try_later(name, f"taking {name}", error)

    def _catch_up(self, peer: Peer, replica: Replica) -> None:
        """Takes what `peer` has made while a query was started here, so that little is left to do.

        A query takes seconds to start, and as a newcomer it is slower than the others for a while:
        what it does not have to compute again brings it live earlier.
        """
        name = replica.fragment.name
        self.replicas[name] = replica  # Its query asks this node, which must know it.
        replica.hold(self._plan_for(name))
        replica.wait_held(HELD_S_MAX)
        with contextlib.suppress(Unreachable):  # What it has is whole, only older.
            take(
                peer, name, replica.folder, with_watermarks=replica.notes_watermarks,
                before_seen=lambda epoch: extend_log(peer, replica.log, last=epoch),
            )  # fmt: skip

    def rebuild(self, name: str, gone: str, consumers: Collection[str]) -> None:
        """Starts a replica with empty state where `gone` left off; nothing of it is left."""
        self.under_way[name] = f"rebuilding {name}"
        try:
            self._remove(name)  # What an earlier life left here is of no use.
            replica = self._serve(name, consumers, begins_later=True)
            self._tell()
            seed = successor.begin(
                replica, self.streams[name], gone, self._book, self._control, self._plans[name],
                list(self._query.sources),
            )  # fmt: skip
            self._start(replica, seed=seed)
            self.lost.discard(name)
            self._succeeded(name)
            print(
                f"{name} is rebuilt from epoch {seed.first} on and speaks from {seed.speak}",
                flush=True,
            )
        except UnbrokenError as error:
            self._try_later(name, f"rebuilding {name}", error)

    def agree(self, wanted: Mapping[str, Any], asked_s: float) -> None:
        """Control's word, asked for at `asked_s`: who is expected, and who could take over."""
        for name, backups in wanted["backups"].items():
            replica = self.replicas.get(name)
            if replica is not None:
                replica.confirmed.agree(**backups, asked_s=asked_s)
                replica.show()
        for name, replicas in wanted["consumers"].items():
            served = self.streams.streams.get(name)
            if served is not None:
                served.agree(replicas, asked_s=asked_s)
        self._trusted_until_s = asked_s + TIMINGS[self._setup.timing].trust_s

    def _start_again(self, name: str, replica: Replica) -> None:
        replica.stop()
        consumers, seed = self.streams[name].consumers, replica.silent_since
        self._withdraw(name)  # Two of them must not write and trim in one folder.
        if seed is None:
            self.run(name, consumers)
            return
        # It was rebuilt and has not spoken yet.  Where it begins is in no checkpoint.
        losses = replica.losses
        replica = self._serve(name, consumers)
        replica.losses = losses
        if replica.log.next == replica.log.first:
            replica.log.start_at(seed.speak)
        self._start(replica, seed=seed)

    def leave(self, name: str, why: str) -> None:
        """Ends a replica or standby; what it has stays until the fragment is whole."""
        standby = self.standbys.pop(name, None)
        if standby is not None:
            standby.end()
        replica = self.replicas.pop(name, None) or (standby.replica if standby else None)
        self._withdraw(name)
        if replica is not None:
            self._tell()
            replica.stop()
            print(f"left {name}: {why}", flush=True)

    def _withdraw(self, name: str) -> None:
        """What is in its log is not served here any more."""
        for stream in (name, name + STAGED):
            served = self.streams.streams.pop(stream, None)
            if served is not None:
                served.close()

    def forget(self, name: str) -> None:
        """The fragment is whole without this node: what it left here may go."""
        self._succeeded(name)
        if name not in self.replicas and name not in self.standbys:
            self.apart(name, self._forget)

    def _forget(self, name: str) -> None:
        if name not in self.replicas and name not in self.standbys:  # It may have begun meanwhile.
            self._remove(name)

    def _remove(self, name: str) -> None:
        shutil.rmtree(self.folder(name), ignore_errors=True)
        self.lost.discard(name)

    def make_room(self) -> None:
        """Full logs whose users would rather lose the oldest than stop."""
        for replica in list(self.replicas.values()):
            replica.make_room()

    def known(self, fragment: str) -> plans.Plan:
        """What is known of the plan of `fragment`."""
        return self._plans[fragment]

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
