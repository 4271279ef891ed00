"""Serving streams at a door: headers, bodies and acks, the same for sources and fragments.

    extent  {stream}                       the first epoch that is there, and the next number
    headers {stream, from}                 those from there on; waits a while for the first
    epoch   {stream, number}               header and rows
    expect  {stream, consumer, term, like} this consumer holds back trimming from now on
    ack     {stream, consumer, term, processed, need}
    consumers {stream}                     the clients that it keeps epochs for, by name
    release {stream, consumer, term}       it will not come back

What consumers said under which term is kept on disk beside the log: a producer that restarted must
not believe a replica that was replaced before (invariant 5).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from unbroken.errors import UnbrokenError
from unbroken.streams import disk
from unbroken.streams.flight import POLL_S, Command, Door, checked_consumer
from unbroken.streams.log import EpochLog
from unbroken.streams.needs import Needs


class Served:
    """One stream at the door: its log, its consumers, and what may be trimmed."""

    def __init__(
        self,
        log: EpochLog,
        consumers: Iterable[str],
        *,
        keep: int,
        trim: Callable[[int], Any] | None = None,
    ) -> None:
        self.log = log
        self._keep = keep
        self._trim = trim or log.trim
        self._lock = threading.Lock()
        self._file = log.folder / "consumers.json"
        known = json.loads(self._file.read_bytes()) if self._file.exists() else {}
        self.needs = Needs(known.get("terms"), known.get("ruled"))
        self._declared: set[str] = set(known.get("declared", []))
        self._saved = self._note()
        for consumer in [*consumers, *self._declared]:
            if not self.needs.barred(consumer):
                self.needs.expect(consumer)

    def expect(self, consumer: str, *, term: int = 0, like: str | None = None) -> None:
        """`consumer` holds back trimming from now on, also after a restart of this producer."""
        with self._lock:
            self.needs.expect(consumer, term=term, like=like)
            if not self.needs.barred(consumer):
                self._declared.add(consumer)
            self._save()

    def release(self, consumer: str, *, term: int = 0) -> None:
        """`consumer` will not come back."""
        with self._lock:
            self.needs.remove(consumer, term=term)
            if term == 0 or self.needs.barred(consumer):
                self._declared.discard(consumer)
            self._save()

    def ack(self, consumer: str, *, term: int, processed: int, need: int) -> None:
        """Takes an ack and trims what nobody may ask for any more."""
        with self._lock:
            self.needs.record(consumer, term=term, processed=processed, need=need)
        self.trim()

    def trim(self) -> None:
        """Trims what nobody may ask for any more; for streams that nobody acks, now and then."""
        # Under the lock: whoever is expected meanwhile must find what it was promised.
        with self._lock:
            self._save()
            self._trim(self.needs.trim_below(newest=self.log.next - 1, keep=self._keep))

    @property
    def consumers(self) -> list[str]:
        """All that are expected."""
        with self._lock:
            return list(self.needs.processed)

    @property
    def clients(self) -> list[str]:
        """Consumers that declared themselves; not replicas, which control declares."""
        with self._lock:
            return sorted(name for name in self._declared if "@" not in name)

    @property
    def holder(self) -> str | None:
        """The consumer that holds back the most, by name."""
        with self._lock:
            return self.needs.holder

    def _note(self) -> str:
        return json.dumps(
            {
                "terms": self.needs.terms,
                "declared": sorted(self._declared),
                "ruled": self.needs.ruled,
            }
        )

    def _save(self) -> None:
        """Writes what changed; compared with the disk, so that a failed write is made up for."""
        note = self._note()
        if note != self._saved:
            disk.write_whole(self._file, [note.encode()], sync=True)
            self._saved = note

    def status(self) -> dict[str, Any]:
        """What `unbroken status` shows of the stream."""
        last = self.log.last_header
        with self._lock:
            return {
                "first": self.log.first,
                "next": self.log.next,
                "bytes": self.log.bytes,
                "rows_last": last.rows if last else 0,
                "consumers": self.needs.processed,
                "holder": self.needs.holder,
            }


class StreamDoor:
    """The streams that one process serves."""

    def __init__(self, door: Door) -> None:
        self.streams: dict[str, Served] = {}
        door.on_act("extent", self._extent)
        door.on_act("headers", self._headers)
        door.on_get("epoch", self._epoch)
        door.on_act("expect", self._expect)
        door.on_act("release", self._release)
        door.on_act("ack", self._ack)
        door.on_act("consumers", self._consumers)

    def __getitem__(self, name: str) -> Served:
        found = self.streams.get(name)
        if found is None:
            known = ", ".join(sorted(self.streams)) or "none"
            raise UnbrokenError(f"no stream {name!r} at this door", hint=f"its streams: {known}")
        return found

    def _headers(self, command: Command) -> list[str]:
        log = self[command["stream"]].log
        start = log.first if command["from"] is None else int(command["from"])
        log.wait(start, POLL_S)
        return [header.to_json() for header in log.headers(start)]

    def _epoch(self, command: Command) -> pa.Table:
        return self[command["stream"]].log.read(int(command["number"])).stamped()

    def _extent(self, command: Command) -> dict[str, int]:
        log = self[command["stream"]].log
        return {"first": log.first, "next": log.next}

    def _expect(self, command: Command) -> dict[str, int]:
        self[command["stream"]].expect(
            checked_consumer(command["consumer"]), term=int(command.get("term", 0)),
            like=command.get("like"),
        )  # fmt: skip
        return self._extent(command)

    def _release(self, command: Command) -> None:
        self[command["stream"]].release(
            checked_consumer(command["consumer"]), term=int(command.get("term", 0))
        )

    def _ack(self, command: Command) -> None:
        self[command["stream"]].ack(
            checked_consumer(command["consumer"]), term=int(command["term"]),
            processed=int(command["processed"]), need=int(command["need"]),
        )  # fmt: skip

    def _consumers(self, command: Command) -> list[str]:
        return self[command["stream"]].clients
