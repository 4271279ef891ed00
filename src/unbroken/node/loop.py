"""A node: one process with one Spark session, some replicas and standbys, and a door.

    start: door ─▶ Spark session ─▶ plans ─▶ the replicas that control gives it ─▶ "running"
    loop:  send acks, report to the entry, beat to control, until whoever started us goes away
    beat:  "these run here" ─▶ control ─▶ "these shall run here; take that one from there"

* A node is a process tree (Python, its JVM, Spark's Python workers): the unit of failure.
* What control wants is said anew with every beat, so that a lost answer or a control plane that was
  away costs nothing.  While it is away the node goes on with what it has.  When something is urgent
  control asks for a beat.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from unbroken.control.detector import TIMINGS
from unbroken.engine import plan as plans
from unbroken.engine.session import jvm_has_ended, leave_with_jvm, session
from unbroken.engine.source import EpochSource
from unbroken.engine.warm import warm_up
from unbroken.errors import DiskError, UnbrokenError, Unreachable
from unbroken.node import setup
from unbroken.node.book import BookReader
from unbroken.node.checks import START_S_MAX
from unbroken.node.hosted import Hosted
from unbroken.node.life import Life
from unbroken.node.process import leave_with_parent, leave_with_threads, or_leave, or_noted
from unbroken.node.questions import OWN_SPARK, Questions
from unbroken.streams.flight import Door, Peer

LOOP_S = 0.1
REPORT_S = 0.5
#: Fragments that start at the same time.
STARTS_MAX = 2
#: How long a node that starts waits for control to say what it shall run.
CONTROL_S_MAX = 120.0


class Node:
    """Runs the fragments that the placement gives to this node."""

    def __init__(self, folder: Path, name: str, host: str = "127.0.0.1") -> None:
        self.name = name
        self._folder = folder / name
        self._life = Life(self._folder)
        self._query, self._setup = setup.load(folder)
        self._entry = Peer(self._setup.entry)
        self._book = BookReader(self._entry, cables=self._setup.cables.get(name))
        self.door = Door(host)
        self._control = Peer(self._setup.control)
        self._state = "starting Spark"
        self._hosted = Hosted(
            name, self._folder, self._query, self._setup, self.door, self._book, self._control,
            self._report,
        )  # fmt: skip
        Questions(name, self.door, self._hosted)
        #: Set when control asks for a beat.
        self._heed = threading.Event()
        self.door.on_act("heed", lambda command: self._heed.set())

    def start(self) -> None:
        """Starts Spark and this node's replicas; returns when they wait for epochs."""
        # From the first moment, and in a thread of its own: Spark takes long to start, and a
        # control plane that is frozen must not hold up acks.
        threading.Thread(target=self._beat_for_ever, daemon=True, name="beat").start()
        self._report()
        given = self._setup
        scratch = self._folder / "scratch"
        scratch.mkdir(parents=True, exist_ok=True)
        spark = session(
            f"{given.query}/{self.name}", master=given.master, scratch=scratch,
            memory=given.memory, settings=given.settings,
        )  # fmt: skip
        leave_with_jvm(spark)
        spark.dataSource.register(EpochSource)
        self._state = "reading plans"
        self._report()
        self._hosted.use(spark, plans.analyze_all(spark, self._query))
        wanted = self._wanted()
        self._hosted.place(wanted)
        replicas = self._hosted.replicas
        names = [s.name for s in self._query.check() if s.name in wanted["run"]]
        for place, name in enumerate(names):
            # Spark gives a Python process ten seconds to come up, and has no setting for it: a
            # dozen of them at once on two busy cores would not all make it.
            for earlier in names[: max(0, place + 1 - STARTS_MAX)]:
                if earlier in replicas:
                    replicas[earlier].wait_asked(START_S_MAX)
            self._hosted.run(name, wanted["consumers"][name])
        self._state = setup.RUNNING
        self._report()
        if not replicas:  # A spare: what it is given should not wait for Spark's first batch.
            threading.Thread(
                target=warm_up, args=(spark, scratch), daemon=True, name="warm-up"
            ).start()

    def _wanted(self) -> dict[str, Any]:
        """What control wants of a node that starts."""
        deadline = time.monotonic() + CONTROL_S_MAX
        while True:
            try:
                return self._beat()
            except (Unreachable, DiskError):
                # Started at the same time as we, or just being started again; or it has no room.
                if time.monotonic() > deadline:
                    raise
                time.sleep(LOOP_S)

    def _beat(self) -> dict[str, Any]:
        """Tells control what runs here; the answer is what it wants."""
        who = {"node": self.name, "address": self.door.address, "state": self._state}
        beat = {"do": "beat", **who, **self._life.next_beat(), **self._hosted.beat()}
        wanted: dict[str, Any] = self._control.act(beat, timeout_s=2.0)
        if self._life.is_over(wanted):
            raise Unreachable(
                f"control knows a later life of {self.name}", hint="said again under a higher one"
            )
        return wanted

    def _beat_for_ever(self) -> None:
        while True:
            self._heed.clear()
            asked_s, wanted = time.monotonic(), None
            with contextlib.suppress(UnbrokenError):  # Away: we go on with what we have.
                wanted = self._beat()
            if wanted is not None:
                self._obey(wanted, asked_s)
            self._heed.wait(TIMINGS[self._setup.timing].period_s)

    def _obey(self, wanted: dict[str, Any], asked_s: float) -> None:
        """Control's answer to a beat of `asked_s`."""
        if self._state != setup.RUNNING:
            return
        try:
            self._do(wanted)
            self._hosted.agree(wanted, asked_s)
        except UnbrokenError as error:
            # A full disk, say: whoever stops beating for that would be taken for dead.
            print(error, file=sys.stderr, flush=True)

    def _do(self, wanted: dict[str, Any]) -> None:
        """Makes true what control wants, as far as it is not."""
        hosted, consumers = self._hosted, wanted["consumers"]
        hosted.place(wanted)
        mine = {*hosted.replicas, *hosted.standbys}
        given = [*wanted["run"], *wanted["join"], *wanted["hold"], *wanted["rebuild"]]
        for name in mine.difference(given):
            hosted.apart(name, hosted.leave, "it was replaced while this node did not answer")
        for name in wanted["run"]:
            if name in hosted.standbys:
                hosted.apart(name, hosted.take_over)
            elif name not in {*hosted.replicas, *hosted.lost} and hosted.may_begin(name):
                hosted.apart(name, hosted.run, consumers[name])
        for name, giver in wanted["hold"].items():
            standby = hosted.standbys.get(name)
            if standby is not None:
                standby.giver = giver
            elif hosted.may_begin(name):
                hosted.apart(name, hosted.hold, giver, consumers[name], name in wanted["anew"])
        for name, giver in wanted["join"].items():
            if name not in hosted.replicas and hosted.may_begin(name):
                hosted.apart(name, hosted.join, giver, consumers[name], name in wanted["anew"])
        for name, gone in wanted["rebuild"].items():
            if name not in hosted.replicas and hosted.may_begin(name):
                hosted.apart(name, hosted.rebuild, gone, consumers[name])
        for name in wanted["forget"]:
            if name in self._query.fragments:
                hosted.forget(name)

    def live(self) -> None:
        """Tells producers and the entry what is new, for ever."""
        reported_s = 0.0
        while True:
            try:
                self._tell_and_trim()
                if time.monotonic() - reported_s > REPORT_S:
                    reported_s = time.monotonic()
                    self._hosted.pick_up()
                    self._report()
            except UnbrokenError as error:
                # Whoever refused may take it the next time; what runs here need not know.
                print(error, file=sys.stderr, flush=True)
            time.sleep(LOOP_S)

    def _tell_and_trim(self) -> None:
        """Acks leave, and what nobody may ask for any more goes."""
        for stream, ack in self._hosted.acks():
            self._book.tell(stream, ack)
        for served in list(self._hosted.streams.streams.values()):
            try:
                served.trim()
            except DiskError as error:
                # Nothing was trimmed that is not noted; it is tried again until there is room.
                print(error, file=sys.stderr, flush=True)
        self._hosted.make_room()

    def _report(self) -> None:
        report = {
            "do": "report", "node": self.name, "address": self.door.address, "pid": os.getpid(),
            "state": self._state, "sent_bytes": self.door.crossed(*OWN_SPARK),
            "shipped_bytes": self.door.shipped(), **self._hosted.report(),
        }  # fmt: skip
        self._book.report(report, timeout_s=5.0)


def main() -> None:
    """Runs a node until its parent goes away."""
    parser = argparse.ArgumentParser(description="One node of an Unbroken cluster.")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    given = parser.parse_args()
    leave_with_parent()
    leave_with_threads("beat", "fill-", "hold-", "say-")

    def started() -> Node:
        node = Node(given.folder, given.name, given.host)
        node.start()
        return node

    node = or_noted(given.folder, given.name, started, passing=jvm_has_ended)
    or_leave(node.live)


if __name__ == "__main__":
    main()
