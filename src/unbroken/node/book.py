"""The book: who serves which stream, and where.

    connections   keeper  grpc://127.0.0.1:4715
    suspects      suspects@node-1  grpc://127.0.0.1:40121
    spikes        spikes@node-3    grpc://127.0.0.1:40233    alone, under term 7

* Nodes write themselves in with every report; everybody else reads.  A reader keeps the last page
  it saw: while the keeper is away, data flows on between those who know each other.
* Whoever begins a stream anew behind a hole is written in as standing *alone*: from then on the
  book names nobody else for it, and no reader goes back to an older term.
* On a cluster whose cables can be cut, a reader goes through its own cable to each of them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping, MutableMapping
from typing import Any

from unbroken.errors import UnbrokenError, Unreachable
from unbroken.node.speaker import Speaker
from unbroken.streams.flight import Peer
from unbroken.streams.merge import Serving

Page = dict[str, dict[str, str]]
FRESH_S = 0.5


class BookReader:
    """The book as another process sees it."""

    def __init__(self, entry: Peer, *, cables: Mapping[str, str] | None = None) -> None:
        """`cables`: process to the address through which this reader reaches it."""
        self._entry = entry
        self._cables = cables or {}
        #: The door of each process to the cable that leads there.
        self._cable_to: dict[str, str] = {}
        self._lock = threading.Lock()
        self._page: Page = {}
        #: What was said of a stream since the page was read: asked for with every ack.
        self._served: dict[str, Serving] = {}
        #: Stream to the highest term under which one replica stands alone, and which.
        self._alone: dict[str, tuple[int, str]] = {}
        self._peers: dict[str, Peer] = {}
        self._speakers: dict[str, Speaker] = {}
        self._read_s = float("-inf")
        #: Until when the entry was last found silent: nobody could read the book.
        self.silent_s = float("-inf")

    def report(self, report: dict[str, Any], *, timeout_s: float) -> None:
        """Tells the entry what its process serves; should it be away, the next report tells."""
        asked_s = time.monotonic()
        try:
            self._entry.act(report, timeout_s=timeout_s)
        except Unreachable:
            self.silent_s = time.monotonic()
        if time.monotonic() - asked_s > FRESH_S:
            self.silent_s = time.monotonic()

    def replicas(self, stream: str) -> Serving:
        """Replica name to address, for everybody who serves `stream`."""
        with self._lock:
            stale = time.monotonic() - self._read_s > FRESH_S
            if stale:
                self._read_s = time.monotonic()  # One asks; the others take the last page.
        if stale:
            with contextlib.suppress(UnbrokenError):  # The last page will do.
                page = self._entry.act({"do": "book"}, timeout_s=5.0)
                with self._lock:
                    streams = page["streams"]
                    self._page = self._through_cables(streams) if self._cables else streams
                    for name, (term, replica) in page["alone"].items():
                        if term > self._alone.get(name, (0, ""))[0]:
                            self._alone[name] = int(term), str(replica)
                    self._served.clear()
                    self._let_go(self._peers)
                    self._let_go(self._speakers)
        with self._lock:
            known = self._served.get(stream)
            if known is None:
                term, alone = self._alone.get(stream, (0, ""))
                doors = self._page.get(stream, {})
                named = {name: door for name, door in doors.items() if alone in ("", name)}
                known = self._served[stream] = Serving(named, alone=(term, alone))
            return known

    def stand_alone(self, stream: str, replica: str, term: int) -> None:
        """From now on nobody but `replica` is named for `stream`, unless under a higher term."""
        word = {"do": "alone", "stream": stream, "replica": replica, "term": term}
        self._entry.act(word, timeout_s=5.0)

    def _through_cables(self, page: Page) -> Page:
        """A source is served by the process of its name, a replica by its node."""
        self._cable_to |= {
            address: self._cables.get(name.rpartition("@")[2], address)
            for replicas in page.values()
            for name, address in replicas.items()
        }
        return {
            stream: {name: self._cable_to[address] for name, address in replicas.items()}
            for stream, replicas in page.items()
        }

    def through(self, door: str) -> str:
        """Where to call whoever has this door: there, or at the cable that leads there."""
        if self._cables:
            self.replicas("")
        with self._lock:
            return self._cable_to.get(door, door)

    def _peer(self, address: str) -> Peer:
        """One connection per door; doors that the book no longer names are let go."""
        with self._lock:
            if address not in self._peers:
                self._peers[address] = Peer(address)
            return self._peers[address]

    def _speaker(self, address: str) -> Speaker:
        with self._lock:
            if address not in self._speakers:
                self._speakers[address] = Speaker(address)
            return self._speakers[address]

    def _let_go(self, doors: MutableMapping[str, Any]) -> None:
        named = {a for replicas in self._page.values() for a in replicas.values()}
        for gone in doors.keys() - named:
            doors.pop(gone).close()

    def streams(self) -> list[str]:
        """All streams that somebody serves."""
        self.replicas("")
        return sorted(self._page)

    def tell(self, stream: str, command: dict[str, Any]) -> None:
        """Says `command` to every replica of `stream`'s producer, to each as soon as it listens."""
        for address in self.replicas(stream).values():
            self._speaker(address).say(stream, command)

    def agree(self, stream: str, command: dict[str, Any]) -> Any:
        """Says `command` to every replica of `stream`'s producer; the last answer, if any came."""
        answers = self.ask_all(stream, command)
        return answers[-1] if answers else self.ask(stream, command)

    def ask_all(self, stream: str, command: dict[str, Any]) -> list[Any]:
        """The answers of all replicas of `stream`'s producer that can be reached."""
        answers = []
        for address in self.replicas(stream).values():
            with contextlib.suppress(Unreachable):
                answers.append(
                    self._peer(address).act({**command, "stream": stream}, timeout_s=5.0)
                )
        return answers

    def wait_for(self, stream: str, timeout_s: float) -> dict[str, Any]:
        """The extent of `stream`, once somebody serves it."""
        deadline = time.monotonic() + timeout_s
        while not self.replicas(stream) and time.monotonic() < deadline:
            time.sleep(FRESH_S)
        extent: dict[str, Any] = self.ask(stream, {"do": "extent"})
        return extent

    def ask(self, stream: str, command: dict[str, Any]) -> Any:
        """Asks any replica of `stream`'s producer."""
        for address in self.replicas(stream).values():
            with contextlib.suppress(Unreachable):
                return self._peer(address).act({**command, "stream": stream}, timeout_s=5.0)
        raise Unreachable(
            f"nobody serves the stream {stream!r}",
            hint=f"streams that are served now: {', '.join(self.streams()) or 'none'}",
        )
