"""The folder of a run: one run at a time, and what the next one has to know.

    .unbroken/intrusion/run.json     how files were cut, which files they were, how far all is done
    .unbroken/intrusion/run.lock     held by the process that runs

* What was sent and what was computed is in the logs and checkpoints; the note only says how the
  files were cut into epochs, so that a second run cuts them alike.
* A file that was replayed before is recognised by its name and its first bytes: another file of the
  same name would be taken for the rest of the first one, and its first rows left out.
* Processes of a run that was killed end themselves within a moment; the next run waits for that.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import psutil

from unbroken.client.replay import Pace, Trace
from unbroken.client.sinks import DirectorySink
from unbroken.errors import DefinitionError, UnbrokenError
from unbroken.query import Query
from unbroken.streams import disk

NOTE, LOCK = "run.json", "run.lock"
HEAD_BYTES_MAX = 64 << 10
#: Processes whose parent was killed need this long at most to notice and end.
LEAVE_S_MAX = 30.0


class RunFolder:
    """The folder of one query's runs; `with` holds it."""

    def __init__(self, folder: Path, query: Query, nodes: int) -> None:
        self.path = folder.absolute()
        self._query, self._nodes = query, nodes
        self._lock: IO[bytes] | None = None
        self.note: dict[str, Any] = {}

    def __enter__(self) -> RunFolder:
        with disk.disk_errors(self.path):
            try:
                self.path.mkdir(parents=True, exist_ok=True)
            except FileExistsError:
                raise UnbrokenError(
                    f"{self.path} is a file", hint="name a directory: --dir DIR"
                ) from None
            self._lock = open(self.path / LOCK, "ab")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise UnbrokenError(
                f"another run works in {self.path}",
                hint="end it first, or give this one a folder of its own: --dir DIR",
            ) from None
        try:
            _wait_until_left(self.path)
            note = self.path / NOTE
            self.note = json.loads(note.read_bytes()) if note.exists() else {}
            self._check()
        except BaseException:
            self._lock.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        if self._lock is not None:
            self._lock.close()

    @property
    def used(self) -> bool:
        """Whether there was a run before."""
        return bool(self.note)

    def _check(self) -> None:
        if not self.used:
            return
        if self.note["query"] != self._query.name:
            raise DefinitionError(
                f"{self.path} belongs to the query {self.note['query']!r}",
                hint=f"give {self._query.name!r} a folder of its own: --dir DIR",
            )
        if self.note["nodes"] != self._nodes:
            raise DefinitionError(
                f"{self.path} was made with {self.note['nodes']} nodes: with {self._nodes} its "
                "fragments would not find their state",
                hint=f"--nodes {self.note['nodes']} goes on; --dir DIR begins anew",
            )

    def check_files(self, traces: Iterable[Trace]) -> None:
        """Refuses a file that only shares its name with one that was replayed before."""
        for trace in traces:
            known = self.note.get("files", {}).get(trace.producer)
            if known is not None and _head(trace.path, known["bytes"]) != known["digest"]:
                raise UnbrokenError(
                    f"{trace.path} is not the file of this name that was replayed in {self.path}",
                    hint="rows may be added at its end, nothing else; give the file another name, "
                    "or begin anew with --dir DIR",
                )

    def base(self, traces: Iterable[Trace], pace: Pace, next_epoch: int) -> int:
        """The epoch that slice 0 of these files is: the same as before if they were cut alike."""
        cut = {"pace": asdict(pace), "files": sorted(trace.producer for trace in traces)}
        if self.note.get("cut") != cut:
            self.note["cut"], self.note["base"] = cut, next_epoch
        return int(self.note["base"])

    def save(self, traces: Iterable[Trace], done: int | None) -> None:
        """Notes how this run works; `done` is the number after the last epoch when all is done."""
        traces = list(traces)
        files = self.note.setdefault("files", {})
        for trace in traces:
            if trace.producer not in files:
                size = min(HEAD_BYTES_MAX, trace.path.stat().st_size)
                files[trace.producer] = {"bytes": size, "digest": _head(trace.path, size)}
        self.note |= {
            "query": self._query.name, "nodes": self._nodes, "done": done,
            "sizes": {trace.producer: trace.path.stat().st_size for trace in traces},
        }  # fmt: skip
        disk.write_whole(self.path / NOTE, [json.dumps(self.note, indent=1).encode()])

    def nothing_new(self, traces: Iterable[Trace], sinks: Iterable[DirectorySink]) -> bool:
        """Whether an earlier run did all of this already."""
        done = self.note.get("done")
        sizes = {trace.producer: trace.path.stat().st_size for trace in traces}
        return (
            done is not None
            and self.note["sizes"] == sizes
            and all(sink.next == done for sink in sinks)
        )


def _head(path: Path, size: int) -> str:
    with open(path, "rb") as file:
        return hashlib.blake2b(file.read(size), digest_size=16).hexdigest()


def _wait_until_left(folder: Path) -> None:
    """A run that was killed here may still have processes on their way out."""
    deadline = time.monotonic() + LEAVE_S_MAX
    while left := _working_in(folder):
        if time.monotonic() > deadline:
            raise UnbrokenError(
                f"processes of an earlier run still work in {folder}: {left}",
                hint="end them (kill -9), then start again",
            )
        time.sleep(0.1)


def _working_in(folder: Path) -> list[int]:
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        ours = any(word.startswith("unbroken.node.") for word in words) and str(folder) in words
        if ours and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found
