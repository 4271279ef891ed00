"""Following a stream through partitions: its stable epochs, and what is said tentatively meanwhile.

    doors ─ headers ────▶ Follower ─ stable ──┐
          ─ tentative ──▶ listener ─ Hearing ─┴▶ take()

* Stable epochs come as ever (`follow.py`).  A listener per replica asks what its branch says; of a
  stream that never has one it is told so at once, and ends.
* A stable epoch whose rows were said already is not fetched: it is *confirmed*.  So rows come with
  their announcement only while nobody speaks on a branch: without partitions that saves a question
  per epoch.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from unbroken.epochs import Epoch, Header
from unbroken.errors import UnbrokenError
from unbroken.streams.answers import BODY_S_MAX
from unbroken.streams.flight import Peer
from unbroken.streams.follow import RETRY_S, WATCH_S, Follower, Replicas
from unbroken.tentative.hearing import Hearing, Wanted


class Both:
    """Reads one stream from `start` on, stable and tentative epochs."""

    def __init__(
        self,
        stream: str,
        start: int,
        find: Callable[[], Replicas],
        *,
        consumer: str = "",
        has: int = 0,
        begin_anew: Callable[[], None] | None = None,
        wait_s: float | None = None,
    ) -> None:
        """As for `Follower`."""
        self.stream = stream
        self._find = find
        # By headers until it is known that nobody speaks.
        self._stable = Follower(
            stream, start, find, consumer=consumer, has=has, by_headers=True, begin_anew=begin_anew,
            wait_s=wait_s,
        )  # fmt: skip
        self._hearing = Hearing(start)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        #: Set when nobody needs to be looked for: it is over, or there never is a branch.
        self._enough = threading.Event()
        self._peers: dict[str, Peer] = {}
        #: Replicas that have to announce again: some rows did not come.
        self._again: set[str] = set()
        self._next = start
        threading.Thread(target=self._watch, daemon=True, name=f"branches-{stream}").start()

    @property
    def next(self) -> int:
        """The number of the next stable epoch to be taken."""
        return self._stable.next

    @property
    def refused(self) -> list[str]:
        """Replicas that were refused, in sentences."""
        return self._stable.refused

    def speak_for(self, lacks: Callable[[], int | None]) -> None:
        """As for `Follower`."""
        self._stable.speak_for(lacks)

    def take(self, timeout_s: float) -> Epoch | None:
        """The next epoch, stable if there is one; None after `timeout_s`."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            left_s = max(0.0, deadline_s - time.monotonic())
            epoch = self._stable.take(left_s, unless=self._has_tentative, known=self._known)
            if epoch is not None:
                with self._lock:
                    self._next = epoch.number + 1
                    return self._hearing.replaced(epoch)
            wanted = self._wanted()
            if wanted is None:
                return None
            said = self._body(wanted)
            with self._lock:
                if said is None:
                    self._hearing.failed(wanted)
                    self._again.add(wanted.replica)
                elif self._hearing.wanted(stable_next=self._next) == wanted:
                    return self._hearing.taken(wanted, said)

    def _wanted(self) -> Wanted | None:
        with self._lock:
            return self._hearing.wanted(stable_next=self._next)

    def _has_tentative(self) -> bool:
        return self._wanted() is not None

    def _known(self, header: Header) -> Epoch | None:
        with self._lock:
            return self._hearing.known(header)

    def _body(self, wanted: Wanted) -> Epoch | None:
        command = {
            "do": "said", "stream": self.stream, "branch": wanted.branch, "number": wanted.number,
        }  # fmt: skip
        with contextlib.suppress(UnbrokenError, KeyError):
            table = self._peers[wanted.replica].get(command, timeout_s=BODY_S_MAX)
            return None if table is None else Epoch.from_stamped(table)
        return None

    def _watch(self) -> None:
        """Listens to every replica that the book names."""
        listening: dict[str, tuple[str, threading.Thread]] = {}
        while True:
            with contextlib.suppress(UnbrokenError):  # The book is away: the next look finds it.
                found = self._find()
                for gone in listening.keys() - found.keys():
                    del listening[gone]
                    self._peers.pop(gone).close()
                    with self._lock:
                        self._hearing.silent(gone)
                for replica, address in found.items():
                    known = listening.get(replica)
                    if known is not None and known[0] == address:
                        continue
                    self._peers[replica] = peer = Peer(address)
                    thread = threading.Thread(
                        target=self._listen, args=(replica, peer), daemon=True,
                        name=f"branch-{self.stream}-{replica}",
                    )  # fmt: skip
                    listening[replica] = address, thread
                    thread.start()
            if self._enough.wait(WATCH_S):
                return

    def _listen(self, replica: str, peer: Peer) -> None:
        branch, start = "", 0
        while not self._closed.is_set() and self._peers.get(replica) is peer:
            if replica in self._again:
                self._again.discard(replica)
                branch, start = "", 0
            command = {"do": "tentative", "stream": self.stream, "branch": branch, "from": start}
            try:
                news = peer.act(command)
                if news is None:
                    # This stream never has a branch, whoever serves it: it is the query's choice.
                    self._stable.by_headers = False
                    self._enough.set()
                    return
                headers = [Header.from_json(text) for text in news["headers"]]
            except (UnbrokenError, TypeError, ValueError):
                with self._lock:
                    self._hearing.silent(replica)
                branch, start = "", 0
                self._closed.wait(RETRY_S)
                continue
            if news["branch"] != branch:
                branch, start = news["branch"], 0
            start = headers[-1].number + 1 if headers else start
            with self._lock:
                self._hearing.announced(replica, branch, headers)
                self._stable.by_headers = not self._hearing.quiet
            self._stable.wake()

    def close(self) -> None:
        """Stops listening."""
        self._closed.set()
        self._enough.set()
        self._stable.close()
        for peer in list(self._peers.values()):
            peer.close()
