"""Following a stream: the merge, fed by the doors of its producer's replicas.

    door of r1 ─ headers ─▶ listener thread ┐
    door of r2 ─ headers ─▶ listener thread ┴▶ Merge ─▶ fetch the body once ─▶ take()

* One listener per replica asks for headers from where the consumer is and waits for news; a replica
  that is gone is asked for again until it is back or the book names another.
* `take` fetches the body of the next epoch from whoever announced it first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from unbroken.epochs import Epoch, Header
from unbroken.errors import UnbrokenError, Unreachable
from unbroken.streams.flight import Peer
from unbroken.streams.merge import Fetch, Merge

#: Replica name to address of its door.
Replicas = Mapping[str, str]
RETRY_S = 0.1
BODY_S_MAX = 30.0


class Follower:
    """Reads one stream from `start` on, whoever serves it."""

    def __init__(self, stream: str, start: int, find: Callable[[], Replicas]) -> None:
        self.stream = stream
        self._find = find
        self._merge = Merge(stream, start=start)
        self._changed = threading.Condition()
        self._error: UnbrokenError | None = None
        self._closed = threading.Event()
        self._listeners: dict[str, threading.Thread] = {}
        self._peers: dict[str, Peer] = {}
        self._watch()

    @property
    def next(self) -> int:
        """The number of the next epoch to be taken."""
        return self._merge.next

    @property
    def refused(self) -> list[str]:
        """Replicas that were refused, in sentences."""
        return list(self._merge.refused.values())

    def take(self, timeout_s: float) -> Epoch | None:
        """The next epoch, in order, none skipped; None after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while True:
            with self._changed:
                wait_s = max(0.0, deadline - time.monotonic())
                self._changed.wait_for(
                    lambda: self._merge.wanted() or self._error or self._closed.is_set(), wait_s
                )
                if self._error is not None:
                    raise self._error
                fetch = self._merge.wanted()
            if fetch is None:
                self._watch()
                return None
            epoch = self._fetch(fetch)
            with self._changed:
                if epoch is not None:
                    self._merge.taken(fetch.number)
                    return epoch
                self._merge.failed(fetch)

    def _fetch(self, fetch: Fetch) -> Epoch | None:
        command = {"do": "epoch", "stream": self.stream, "number": fetch.number}
        try:
            table = self._peers[fetch.replica].get(command, timeout_s=BODY_S_MAX)
        except Unreachable:
            return None
        return None if table is None else Epoch.from_stamped(table)

    def _watch(self) -> None:
        """Listens to every replica that the book names."""
        for replica, address in self._find().items():
            listener = self._listeners.get(replica)
            if listener is None or not listener.is_alive():
                self._peers[replica] = Peer(address)
                self._listeners[replica] = threading.Thread(
                    target=self._listen, args=(replica, address), daemon=True,
                    name=f"listen-{self.stream}-{replica}",
                )  # fmt: skip
                self._listeners[replica].start()

    def _listen(self, replica: str, address: str) -> None:
        peer = self._peers[replica]
        heard = self._merge.next
        while not self._closed.is_set():
            try:
                answer = peer.act({"do": "headers", "stream": self.stream, "from": heard})
                headers = [Header.from_json(text) for text in answer]
                with self._changed:
                    self._merge.announced(replica, headers)
                    heard = max(heard, *(h.number + 1 for h in headers)) if headers else heard
                    if headers:
                        self._changed.notify_all()
            except Unreachable:
                with self._changed:
                    self._merge.lost(replica)
                    heard = self._merge.next
                if self._closed.wait(RETRY_S) or self._moved(replica, address):
                    return
            except UnbrokenError as error:
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                return

    def _moved(self, replica: str, address: str) -> bool:
        """Whether the book has another address now; then a new listener takes over."""
        try:
            found = self._find().get(replica)
        except Unreachable:
            return False
        if found in (None, address):
            return False
        self._listeners.pop(replica, None)
        self._watch()
        return True

    def close(self) -> None:
        """Stops listening."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
        for peer in self._peers.values():
            peer.close()
