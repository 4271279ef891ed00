"""A node: one process with one Spark session, some fragments, and a door.

    start: door ─▶ Spark session ─▶ plans ─▶ replicas ─▶ report "running"
    loop:  send acks, report to the entry, until the process that started us goes away

A node is a process tree (Python, its JVM, Spark's Python workers): the unit of failure.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from unbroken.engine import plan as plans
from unbroken.engine.session import session
from unbroken.engine.source import READ_BY_EXECUTORS, READ_BY_PLANNER, EpochSource
from unbroken.errors import UnbrokenError, Unreachable
from unbroken.node import setup
from unbroken.node.book import BookReader
from unbroken.node.process import leave_with_parent
from unbroken.node.replica import Replica
from unbroken.query import Fragment
from unbroken.streams.flight import Command, Door, Peer
from unbroken.streams.needs import KEEP_EPOCHS
from unbroken.streams.serve import Served, StreamDoor

LOOP_S = 0.1
REPORT_S = 0.5


class Node:
    """Runs the fragments that the placement gives to this node."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._folder = folder / name
        self._query, self._setup = setup.load(folder)
        self._entry = Peer(self._setup.entry)
        self._book = BookReader(self._entry)
        self.door = Door()
        self._streams = StreamDoor(self.door)
        self._replicas: dict[str, Replica] = {}
        self._state = "starting Spark"
        self.door.on_get("gate", self._gate)
        self.door.on_get("slice", self._slice)
        self.door.on_put("part", self._part)

    def start(self) -> None:
        """Starts Spark and this node's replicas; returns when they wait for epochs."""
        self._report()
        given = self._setup
        scratch = self._folder / "scratch"
        scratch.mkdir(parents=True, exist_ok=True)
        spark = session(
            f"{given.query}/{self.name}", master=given.master, scratch=scratch,
            memory=given.memory, settings=given.settings,
        )  # fmt: skip
        spark.dataSource.register(EpochSource)
        self._state = "reading plans"
        self._report()
        known = plans.analyze_all(spark, self._query)
        schemas = {name: source.schema for name, source in self._query.sources.items()}
        schemas |= {name: plan.schema for name, plan in known.items()}
        for name, fragment in self._query.fragments.items():
            if given.placement[name] != self.name:
                continue
            replica = Replica(
                fragment, self._folder / "fragments" / name, self._book,
                log_bytes_max=given.log_bytes_max,
            )  # fmt: skip
            consumers = self._query.consumers(name)
            keep = KEEP_EPOCHS if name in self._query.sinks else 0
            self._replicas[name] = replica
            self._streams.streams[name] = Served(replica.log, consumers, keep=keep)
            # In the book before it runs: a consumer on this node may start first.
            self._report()
            replica.start(
                self._plan_for(spark, fragment, schemas), watermarks=len(known[name].watermarks)
            )
        self._state = "running"
        self._report()

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
            return plans.analyze(spark, self._query, fragment, schemas, options)

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

    def loop(self) -> None:
        """Tells producers and the entry what is new, for ever."""
        reported_s = 0.0
        while True:
            for replica in list(self._replicas.values()):
                try:
                    for stream, ack in replica.acks():
                        self._book.tell(stream, ack)
                except UnbrokenError as error:
                    # A producer refuses for now (its disk is full, say): the next ack tells all.
                    print(f"ack of {replica.fragment.name} refused: {error}", file=sys.stderr)
            for served in list(self._streams.streams.values()):
                served.trim()
            if time.monotonic() - reported_s > REPORT_S:
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
                for name, replica in self._replicas.items()
            },
        }
        with contextlib.suppress(Unreachable):  # The keeper is away: the next report tells.
            self._entry.act(report, timeout_s=5.0)


def main() -> None:
    """Runs a node until its parent goes away."""
    parser = argparse.ArgumentParser(description="One node of an Unbroken cluster.")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--name", required=True)
    given = parser.parse_args()
    leave_with_parent()
    failed = given.folder / f"{given.name}.error"
    failed.unlink(missing_ok=True)
    try:
        node = Node(given.folder, given.name)
        node.start()
        node.loop()
    except UnbrokenError as error:
        print(error, file=sys.stderr, flush=True)
        failed.write_text(f"{type(error).__name__}\n{error.what}\n{error.hint}")
        sys.exit(3)
    except Exception:
        traceback.print_exc()
        failed.write_text(f"UnbrokenError\nnode {given.name} failed\n{traceback.format_exc()}")
        sys.exit(3)


if __name__ == "__main__":
    main()
