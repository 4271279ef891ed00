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
from pathlib import Path
from typing import Any

import pyarrow as pa

from unbroken import schemas
from unbroken.errors import UnbrokenError
from unbroken.node import setup
from unbroken.node.process import leave_with_parent
from unbroken.streams import disk
from unbroken.streams.clock import EpochClock
from unbroken.streams.flight import Command, Door, checked_name
from unbroken.streams.needs import KEEP_EPOCHS
from unbroken.streams.serve import Served, StreamDoor
from unbroken.streams.source_log import SourceLog

SEND_WAIT_S = 10.0
TICK_S_MAX = 0.5
#: A node that has not reported for so long is shown as silent.
SILENT_S = 5.0


class Keeper:
    """Sources, the epoch clock, and the book."""

    def __init__(self, folder: Path, host: str, port: int) -> None:
        self._folder = folder / "keeper"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._query, self._setup = setup.load(folder)
        self.door = Door(host, port)
        self._streams = StreamDoor(self.door)
        self.sources: dict[str, SourceLog] = {}
        self._reports: dict[str, dict[str, Any]] = {}
        self._heard_s: dict[str, float] = {}
        self._finished = threading.Event()
        self._sealed = threading.Event()
        #: Sealing all sources up to one number is one act: a tick and `finish` must not mix.
        self._ticking = threading.Lock()
        for name, source in self._query.sources.items():
            log = SourceLog(
                self._folder / "sources" / name, name, source.schema,
                event_time=source.event_time, future_s_max=source.future_s_max,
                log_bytes_max=self._setup.log_bytes_max,
            )  # fmt: skip
            self.sources[name] = log
            keep = KEEP_EPOCHS if name in self._query.sinks else 0
            consumers = self._query.consumers(name)
            self._streams.streams[name] = Served(log.log, consumers, keep=keep, trim=log.trim)
        self.clock = None if self._setup.manual else self._make_clock()
        self.door.on_put("send", self._send)
        self.door.on_act("sequence", self._sequence)
        self.door.on_act("close", self._close)
        self.door.on_act("finish", self._finish)
        self.door.on_act("report", self._report)
        self.door.on_act("book", self._book)
        self.door.on_act("status", self._status)
        self.door.on_act("schema", self._schema)

    def _make_clock(self) -> EpochClock:
        note = self._folder / "clock.json"
        known = json.loads(note.read_bytes()) if note.exists() else {}
        assert self._query.epoch_s is not None
        clock = EpochClock(
            length_s=self._query.epoch_s,
            next_number=max((log.open_number for log in self.sources.values()), default=0),
            wall_s=time.time(),
            monotonic_s=time.monotonic(),
            t0_s=known.get("t0_s"),
        )
        disk.write_whole(note, [json.dumps({"t0_s": clock.t0_s}).encode()], sync=True)
        return clock

    def run(self) -> None:
        """Ticks and syncs, for ever."""
        threading.Thread(target=self._sync, daemon=True, name="sync").start()
        while True:
            if self.clock is None or self._finished.is_set():
                self._finished.wait()
                time.sleep(TICK_S_MAX)
                continue
            with self._ticking:
                if not self._finished.is_set():
                    self._seal_all(self.clock.due(time.monotonic()))
            time.sleep(min(TICK_S_MAX, self.clock.wait_s(time.monotonic())))

    def _seal_all(self, below: int) -> None:
        if sum(log.seal_until(below) for log in self.sources.values()):
            self._sealed.set()

    def _sync(self) -> None:
        while True:
            self._sealed.wait()
            self._sealed.clear()
            for log in self.sources.values():
                log.sync()

    def _source(self, name: object) -> SourceLog:
        found = self.sources.get(checked_name(name))
        if found is None:
            known = ", ".join(self.sources) or "none"
            raise UnbrokenError(f"no source {name!r}", hint=f"the sources are: {known}")
        return found

    def _send(self, command: Command, table: pa.Table) -> dict[str, Any]:
        log = self._source(command["stream"])
        receipt = log.send(
            schemas.fit(table, log.schema), str(command["producer"])[:200],
            int(command["sequence"]), now_s=time.time(), wait_s=SEND_WAIT_S,
            holder=self._streams[log.stream].needs.holder,
        )  # fmt: skip
        return {
            "epoch": receipt.epoch, "rows": receipt.rows, "set_aside": receipt.set_aside,
            "repeated": receipt.repeated,
        }  # fmt: skip

    def _sequence(self, command: Command) -> int:
        return self._source(command["stream"]).sequence(str(command["producer"])[:200])

    def _close(self, command: Command) -> dict[str, int]:
        log = self._source(command["stream"])
        if self.clock is not None:
            raise UnbrokenError(
                f"query {self._query.name!r} has an epoch clock: its epochs close by themselves",
                hint='write Query(..., epoch="manual") to close them yourself',
            )
        epoch = log.seal()
        self._sealed.set()
        return {"epoch": epoch.number, "rows": epoch.rows}

    def _finish(self, command: Command) -> dict[str, int]:
        """Nothing more will come: seals what is open, all sources up to one number."""
        with self._ticking:
            self._finished.set()
            last = max((log.open_number for log in self.sources.values()), default=0)
            if any(log.open_rows for log in self.sources.values()):
                last += 1
            self._seal_all(last)
        return {"next": last}

    def _report(self, command: Command) -> None:
        node = checked_name(command["node"])
        self._reports[node] = {k: v for k, v in command.items() if k not in ("do", "node")}
        self._heard_s[node] = time.monotonic()

    def _book(self, command: Command) -> dict[str, dict[str, str]]:
        page = {name: {"keeper": self.door.address} for name in self.sources}
        for node, report in list(self._reports.items()):
            for stream in report["streams"]:
                page.setdefault(stream, {})[f"{stream}@{node}"] = report["address"]
        return page

    def _schema(self, command: Command) -> dict[str, str | None]:
        log = self._source(command["stream"])
        return {"ddl": schemas.to_ddl(log.schema), "event_time": log.event_time}

    def _status(self, command: Command) -> dict[str, Any]:
        now_s = time.monotonic()
        nodes = {}
        for name, report in sorted(self._reports.items()):
            silent_s = now_s - self._heard_s[name]
            state = report["state"] if silent_s < SILENT_S else f"silent for {silent_s:.0f} s"
            nodes[name] = {**report, "state": state, "silent_s": round(silent_s, 3)}
        return {
            "query": self._query.name,
            "epoch_s": self._query.epoch_s if self.clock is not None else None,
            "sinks": self._query.sinks,
            "sources": {
                name: {
                    **self._streams[name].status(), "open_rows": log.open_rows,
                    "set_aside": log.set_aside,
                }
                for name, log in self.sources.items()
            },
            "nodes": nodes,
        }  # fmt: skip


def main() -> None:
    """Runs the keeper until its parent goes away."""
    parser = argparse.ArgumentParser(description="The keeper of an Unbroken cluster's sources.")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    leave_with_parent()
    failed = given.folder / "keeper.error"
    failed.unlink(missing_ok=True)
    try:
        keeper = Keeper(given.folder, given.host, given.port)
    except UnbrokenError as error:
        failed.write_text(f"{type(error).__name__}\n{error.what}\n{error.hint}")
        print(error, file=sys.stderr, flush=True)
        sys.exit(3)
    print(f"keeper of {keeper._query.name} at {keeper.door.address}", flush=True)
    keeper.run()


if __name__ == "__main__":
    main()
