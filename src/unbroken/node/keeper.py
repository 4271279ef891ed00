"""The keeper: the process that takes rows in, cuts them into epochs, and knows who is who.

    producers ─ send ─▶ source logs ─▶ consumers          the epoch clock seals
    nodes ─ report ─▶ book, status ─▶ everybody           the entry of the cluster

It has no Spark and little to go wrong; when it is killed and started again, every row whose send
returned is there, and the clock seals what was missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from unbroken import schemas
from unbroken.errors import DiskError, UnbrokenError
from unbroken.node import setup
from unbroken.node.alone import Alone
from unbroken.node.process import leave_with_parent, leave_with_threads, or_leave, or_noted
from unbroken.streams import disk
from unbroken.streams.clock import EpochClock
from unbroken.streams.flight import Command, Door, checked_consumer, checked_name
from unbroken.streams.needs import KEEP_EPOCHS
from unbroken.streams.serve import StreamDoor
from unbroken.streams.served import Served
from unbroken.streams.source_log import SourceLog

SEND_WAIT_S = 10.0
TICK_S_MAX = 0.5
SYNC_S = 1.0
#: A node that has not reported for so long is shown as silent.
SILENT_S = 5.0
#: Control tells twice a second how fragments are protected.
CONTROL_SILENT_S = 2.0
#: And after so long it is left out of the book, until it reports again.
FORGET_S = 60.0
NODES_MAX = 1000
PRODUCER_CHARS_MAX = 200
#: What a node's report must have for the book and `status`.
_REPORT = {"address": str, "state": str, "streams": list, "fragments": dict}


class Keeper:
    """Sources, the epoch clock, and the book."""

    def __init__(self, folder: Path, host: str, port: int) -> None:
        self._folder = folder / "keeper"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._query, self._setup = setup.load(folder)
        self.door = Door(host, port, ready=False)
        self._streams = StreamDoor(self.door)
        self.sources: dict[str, SourceLog] = {}
        #: What each node said last, and when.
        self._reports: dict[str, tuple[dict[str, Any], float]] = {}
        #: What control said last of each fragment, and when.
        self._protection: tuple[dict[str, Any], float] = {}, float("-inf")
        #: What keeps the keeper from its work, in a sentence; empty while nothing does.
        self.trouble = ""
        self._finished = threading.Event()
        self._sealed = threading.Event()
        #: Sealing all sources up to one number is one act: a tick and `finish` must not mix.
        self._ticking = threading.Lock()
        self._standing = Alone(self._folder / "alone.json")
        self._taking = threading.Lock()
        for name, source in self._query.sources.items():
            log = SourceLog(
                self._folder / "sources" / name, name, source.schema,
                event_time=source.event_time, future_s_max=source.future_s_max,
                log_bytes_max=self._setup.log_bytes_max, when_full=source.when_full,
            )  # fmt: skip
            self.sources[name] = log
            keep = KEEP_EPOCHS if name in self._query.sinks else 0
            consumers = self._setup.consumers(self._query, name)
            self._streams.streams[name] = Served(
                log.log, consumers, keep=keep, trim=log.trim, bytes_max=self._setup.log_bytes_max,
                by_clock=True,
            )  # fmt: skip
        self.clock: EpochClock | None = None
        if not self._setup.hold_clock or self._clock_note.exists():
            self._start_clock()
        self.door.on_put("send", self._send)
        self.door.on_act("sequence", self._sequence)
        self.door.on_act("close", self._close)
        self.door.on_act("begin", self._begin)
        self.door.on_act("finish", self._finish)
        self.door.on_act("report", self._report)
        self.door.on_act("protection", self._protected)
        self.door.on_act("book", self._book)
        self.door.on_act("alone", self._alone)
        self.door.on_act("status", self._status)
        self.door.on_act("schema", self._schema)
        self.door.on_act("setup", lambda command: asdict(self._setup))
        self.door.ready = True

    @property
    def _clock_note(self) -> Path:
        return self._folder / "clock.json"

    def _begin(self, command: Command) -> None:
        """The nodes are ready: a new query's clock starts.  Said again, it changes nothing."""
        with self._ticking:
            if self.clock is None:
                self._start_clock()

    def _start_clock(self) -> None:
        if self._setup.manual or self._query.epoch_s is None:
            return
        note = self._clock_note
        known = json.loads(note.read_bytes()) if note.exists() else {}
        self.clock = EpochClock(
            length_s=self._query.epoch_s,
            next_number=max((log.open_number for log in self.sources.values()), default=0),
            wall_s=time.time(),
            monotonic_s=time.monotonic(),
            t0_s=known.get("t0_s"),
        )
        self._note_t0(self.clock.t0_s)

    def _note_t0(self, t0_s: float) -> None:
        note = [json.dumps({"t0_s": t0_s}).encode()]
        disk.write_whole(self._clock_note, note, sync=True)
        self._noted_t0_s = t0_s

    def run(self) -> None:
        """Ticks and syncs, for ever."""
        threading.Thread(target=self._sync, daemon=True, name="sync").start()
        while True:
            try:
                self.tick(time.monotonic())
                self._told("")
            except DiskError as error:
                # Nothing is lost: the open epoch waits in its journal until there is room.
                self._told(error.what)
            wait_s = self.clock.wait_s(time.monotonic()) if self.clock else TICK_S_MAX
            time.sleep(min(TICK_S_MAX, wait_s) if not self.trouble else TICK_S_MAX)

    def tick(self, monotonic_s: float) -> None:
        """Seals what is over, and trims what nobody may ask for any more."""
        with self._ticking:
            if self.clock is not None and not self._finished.is_set():
                self._seal_all(self.clock.due(monotonic_s))
                if self.clock.t0_s != self._noted_t0_s:
                    self._note_t0(self.clock.t0_s)
        for served in list(self._streams.streams.values()):
            served.trim()

    def _told(self, trouble: str) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            print(trouble or "the disk takes epochs again", file=sys.stderr, flush=True)

    def _seal_all(self, below: int) -> None:
        if sum(log.seal_until(below) for log in self.sources.values()):
            self._sealed.set()

    def _sync(self) -> None:
        while True:
            self._sealed.wait()
            # A sync holds up Spark's own small files on the same disk: one for many epochs.
            time.sleep(SYNC_S)
            self._sealed.clear()
            try:
                for log in self.sources.values():
                    log.sync()
            except DiskError as error:
                print(error, file=sys.stderr, flush=True)
                time.sleep(TICK_S_MAX)
                self._sealed.set()

    def _source(self, name: object) -> SourceLog:
        found = self.sources.get(checked_name(name))
        if found is None:
            known = ", ".join(self.sources) or "none"
            raise UnbrokenError(f"no source {name!r}", hint=f"the sources are: {known}")
        return found

    def _send(self, command: Command, table: pa.Table) -> dict[str, Any]:
        log = self._source(command["stream"])
        sequence = int(command["sequence"])
        if sequence < 0:  # It would be taken for a repetition, and its rows dropped.
            raise UnbrokenError(f"sequence {sequence} of a send", hint="count from 0")
        served = self._streams[log.stream]
        receipt = log.send(
            schemas.fit(table, log.schema), _producer(command), sequence, now_s=time.time(),
            wait_s=SEND_WAIT_S, holder=self._with_failure(served.holder),
            standstill=lambda: served.standstill,
        )  # fmt: skip
        if self._finished.is_set() and self.clock is not None:
            with self._ticking:
                if log.open_rows:  # Somebody goes on after all: the clock seals again.
                    self._finished.clear()
        return {
            "epoch": receipt.epoch, "rows": receipt.rows, "set_aside": receipt.set_aside,
            "repeated": receipt.repeated,
        }  # fmt: skip

    def _with_failure(self, consumer: str | None) -> str | None:
        """A consumer's name, and why it does not go on if its node has said so."""
        fragment, _, node = (consumer or "").partition("@")
        if node not in self._reports:
            return consumer
        told = self._reports[node][0]["fragments"].get(fragment) or {}
        failed = str(told.get("failed") or "").partition("\n")[0]
        return f"{consumer}, which has failed: {failed}" if failed else consumer

    def _sequence(self, command: Command) -> int:
        return self._source(command["stream"]).sequence(_producer(command))

    def _close(self, command: Command) -> dict[str, int]:
        log = self._source(command["stream"])
        if not self._setup.manual:
            raise UnbrokenError(
                f"query {self._query.name!r} has an epoch clock: its epochs close by themselves",
                hint='write Query(..., epoch="manual") to close them yourself',
            )
        number = int(command["number"])
        with self._ticking:
            if number == log.open_number:
                log.seal()
                self._sealed.set()
            elif number > log.open_number:
                raise UnbrokenError(f"epoch {number} of {log.stream!r} is not open yet")
        # Closed before: the answer to an earlier call was lost, or another producer was faster.
        return {"epoch": number}

    def _finish(self, command: Command) -> dict[str, int]:
        """Nothing more will come: seals what is open, all sources up to one number.

        The clock rests until somebody sends again.
        """
        with self._ticking:
            self._finished.set()
            last = max((log.open_number for log in self.sources.values()), default=0)
            if any(log.open_rows for log in self.sources.values()):
                last += 1
            self._seal_all(last)
        return {"next": last}

    def _report(self, command: Command) -> None:
        node = checked_name(command["node"])
        report = {k: v for k, v in command.items() if k not in ("do", "node")}
        # Checked here, where the culprit hears of it, and not by everybody who reads the book.
        for field, kind in _REPORT.items():
            if not isinstance(report.get(field), kind):
                raise UnbrokenError(f"the report of {node} has no {field} ({kind.__name__})")
        for stream in report["streams"]:
            checked_name(stream)
        if node not in self._reports and len(self._reports) >= NODES_MAX:
            raise UnbrokenError(f"{NODES_MAX} nodes have reported already: {node} is not taken")
        self._reports[node] = report, time.monotonic()

    def _protected(self, command: Command) -> dict[str, str]:
        """Control tells how each fragment is protected right now, for `status`.

        The answer is which sources are full, and for whose sake alone.
        """
        if not isinstance(command["fragments"], dict):
            raise UnbrokenError("what control says of its fragments cannot be read")
        self._protection = command["fragments"], time.monotonic()
        full = [name for name, log in self.sources.items() if log.full]
        laggards = {name: self._streams[name].laggard() for name in full}
        return {name: laggard for name, laggard in laggards.items() if laggard}

    def _protection_now(self, now_s: float) -> dict[str, Any]:
        """What control said last; while it is silent nobody knows who is live."""
        told, heard_s = self._protection
        silent_s = now_s - heard_s
        if silent_s < CONTROL_SILENT_S:
            return told
        unknown = {"survives": None, "doing": [f"control is silent for {silent_s:.0f} s"]}
        return {name: {**fragment, **unknown} for name, fragment in told.items()}

    def _alone(self, command: Command) -> None:
        """One replica of a stream is the only one from now on, also after a restart of ours."""
        stream, replica = checked_name(command["stream"]), checked_consumer(command["replica"])
        if stream not in self._query.fragments:
            raise UnbrokenError(f"no fragment {stream!r}")
        with self._taking:
            self._standing.take(stream, replica, int(command["term"]))

    def _book(self, command: Command) -> dict[str, Any]:
        page = {name: {"keeper": self.door.address} for name in self.sources}
        now_s = time.monotonic()
        for node, (report, heard_s) in list(self._reports.items()):
            if now_s - heard_s > FORGET_S:
                continue  # Whoever looks for its streams need not knock there any more.
            for stream in report["streams"]:
                page.setdefault(stream, {})[setup.replica_name(stream, node)] = report["address"]
        return {"streams": page, "alone": self._standing.known}

    def _schema(self, command: Command) -> dict[str, str | None]:
        log = self._source(command["stream"])
        return {"ddl": schemas.to_ddl(log.schema), "event_time": log.event_time}

    def _status(self, command: Command) -> dict[str, Any]:
        now_s = time.monotonic()
        nodes = {}
        for name in sorted(self._reports):
            report, heard_s = self._reports[name]
            silent_s = now_s - heard_s
            state = report["state"] if silent_s < SILENT_S else f"silent for {silent_s:.0f} s"
            nodes[name] = {**report, "state": state, "silent_s": round(silent_s, 3)}
        return {
            "query": self._query.name,
            "epoch_s": None if self._setup.manual else self._query.epoch_s,
            "streams": [*self._query.sources, *self._query.fragments],
            "sinks": self._query.sinks,
            "timing": self._setup.timing,
            "trouble": self.trouble,
            "sources": {
                name: {
                    **self._streams[name].status(), "open_rows": log.open_rows,
                    "set_aside": log.set_aside, "given_up": log.given_up,
                }
                for name, log in self.sources.items()
            },
            "sent_bytes": self.door.crossed(),
            "nodes": nodes,
            "fragments": self._protection_now(now_s),
        }  # fmt: skip


def _producer(command: Command) -> str:
    # Refused, not cut: two names that begin alike would be taken for one producer's repetitions.
    name = command["producer"]
    if not isinstance(name, str) or not 0 < len(name) <= PRODUCER_CHARS_MAX:
        raise UnbrokenError(
            f"{str(name)[:50]!r}… is not a producer's name",
            hint=f"a text of at most {PRODUCER_CHARS_MAX} characters",
        )
    return name


def main() -> None:
    """Runs the keeper until its parent goes away."""
    parser = argparse.ArgumentParser(description="The keeper of an Unbroken cluster's sources.")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    leave_with_parent()
    keeper = or_noted(given.folder, "keeper", lambda: Keeper(given.folder, given.host, given.port))
    print(f"keeper of {keeper._query.name} at {keeper.door.address}", flush=True)
    leave_with_threads("sync")
    or_leave(keeper.run)


if __name__ == "__main__":
    main()
