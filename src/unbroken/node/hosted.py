"""What a node hosts: replicas that run, and standbys that hold what another node's replica ships.

    run ──────────────────────▶ replica          from what it left here
    join ── ship ─────────────▶ replica          a copy of another node's, checkpoint and log
    rebuild ── seed ──────────▶ replica          empty, from the watermarks that its acks carried
    hold ─────────────────────▶ standby ── take over ──▶ replica
    leave: it ends, and what it has stays until the fragment is whole

One thing at a time happens to a fragment, beside the beat: whoever beats must never wait for Spark,
or control takes the node for dead.  What finds the fragment busy is left out; control says it anew
with every beat.

What fails is left, says why, and is tried again when control says it anew (`tries`).  A full disk
is such a failure: the checkpoint is as good as before.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
import traceback
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
from unbroken.node.book import BookReader
from unbroken.node.lines import PlanFor
from unbroken.node.rehearsal import Rehearsals
from unbroken.node.replica import Replica
from unbroken.node.room import Room
from unbroken.node.staged import STAGED
from unbroken.node.standby import Standby
from unbroken.node.telling import Telling
from unbroken.policies import Passive, Restart
from unbroken.query import Query
from unbroken.streams.copy_log import extend_log
from unbroken.streams.flight import Door, Peer
from unbroken.streams.needs import KEEP_EPOCHS
from unbroken.streams.serve import StreamDoor
from unbroken.streams.served import Served

#: A replica that stumbles more often than this within `STUMBLES_S` has failed.
STUMBLES_MAX = 6
STUMBLES_S = 300.0
#: A newcomer goes on from what it has if its query does not wait by then.
HELD_S_MAX = 60.0


class Hosted(Telling):
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
        self._beginning = threading.Lock()
        #: Until then this node knows who is expected: whoever is silent for longer may have been
        #: replaced, and others be expected whom it has not heard of.
        self._trusted_until_s = 0.0
        self._stumbles: dict[str, list[float]] = {}
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

    def apart(self, name: str, do: Callable[..., None], *arguments: Any) -> None:
        """Does something about a fragment beside the caller, unless something is being done."""
        with self._beginning:
            if name in self.under_way:
                return
            self.under_way[name] = f"about to {do.__name__.strip('_').replace('_', ' ')} {name}"

        def act() -> None:
            try:
                do(name, *arguments)
            except DiskError as error:
                self._try_later(name, f"{name} cannot be started", error)
            except UnbrokenError as error:
                print(f"{name} cannot be started: {error}", file=sys.stderr, flush=True)
                self.lost.add(name)
            except Exception as error:  # Of Spark or py4j: it must not stay half started.
                traceback.print_exc()
                mistake = UnbrokenError(f"{type(error).__name__} {error}"[:500])
                self._try_later(name, f"{name} cannot be started", mistake)
            finally:
                del self.under_way[name]

        threading.Thread(target=act, daemon=True, name=f"{do.__name__}-{name}").start()

    def may_begin(self, name: str) -> bool:
        """Whether `name` may be started here now."""
        return self._tries.may_begin(name, now_s=time.monotonic())

    def _try_later(self, name: str, what: str, error: UnbrokenError) -> None:
        """Leaves what could not be started; control asks again with its next answer."""
        print(f"{what}: {error}", file=sys.stderr, flush=True)
        if not isinstance(error, Unreachable):
            self._empty.discard(name)
        self._tries.failed(name, f"{what}: {error.what}", now_s=time.monotonic())
        self.leave(name, "it could not be started")

    def _succeeded(self, name: str) -> None:
        self._empty.discard(name)
        self._tries.done(name, now_s=time.monotonic())

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
            if isinstance(self._query.fragments[name].policy, Restart):
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

    def _give_up(self, name: str, error: UnbrokenError | str) -> None:
        print(error, file=sys.stderr, flush=True)
        self.lost.add(name)
        self.leave(name, "it has to be taken from another node")

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
        keep = KEEP_EPOCHS if name in self._query.sinks else 0
        self.streams.streams[name] = served = Served(
            replica.log, consumers, keep=keep, begins_later=begins_later,
            may_trim=lambda: time.monotonic() < self._trusted_until_s,
            bytes_max=self._setup.log_bytes_max,
        )  # fmt: skip
        if self._query.gives_up(name):
            schema = self._plans[name].schema
            replica.room = Room(replica.log, schema, bytes_max=self._setup.log_bytes_max)
        served.tentative = replica.said
        replica.holder = lambda: served.holder or "nobody"
        replica.standstill = lambda: served.standstill
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

    def pick_up(self) -> None:
        """Starts replicas again that have stumbled: from a fork of their last commit, as ever."""
        for name, replica in list(self.replicas.items()):
            if name in self.under_way:
                continue
            if replica.lost and not isinstance(replica.fragment.policy, Restart):
                self.apart(name, self._give_up, replica.failed)
            elif replica.stumbled and not replica.given_up:
                self._pick_up(name, replica)

    def _pick_up(self, name: str, replica: Replica) -> None:
        now_s = time.monotonic()
        recent = [t for t in self._stumbles.get(name, []) if t > now_s - STUMBLES_S]
        # A busy machine is the usual reason: being in a hurry makes it busier.
        if recent and now_s - recent[-1] < 2.0 ** len(recent):
            return
        self._stumbles[name] = [*recent, now_s]
        if len(recent) >= STUMBLES_MAX:
            replica.give_up()
            return
        print(f"{name} has stumbled and is started again: {replica.stumbled}",
              file=sys.stderr, flush=True)  # fmt: skip
        self.apart(name, self._start_again, replica)

    def _start_again(self, name: str, replica: Replica) -> None:
        replica.stop()
        consumers, seed = self.streams[name].consumers, replica.silent_since
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
        for stream in (name, name + STAGED):
            self.streams.streams.pop(stream, None)
        if replica is not None:
            self._tell()
            replica.stop()
            print(f"left {name}: {why}", flush=True)

    def forget(self, name: str) -> None:
        """The fragment is whole without this node: what it left here may go."""
        self._succeeded(name)
        if name not in self.replicas and name not in self.standbys:
            self.apart(name, self._remove)

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
