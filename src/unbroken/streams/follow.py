"""Following a stream: the merge, fed by the doors of its producer's replicas.

    door of r1 ─ headers ─▶ listener thread ┐
    door of r2 ─ headers ─▶ listener thread ┴▶ Merge ─▶ fetch the body once ─▶ take()

* One listener per replica asks for headers from where the consumer is and waits for news; a replica
  that is gone is asked for again until it is back or the book names another.
* `take` fetches the body of the next epoch from whoever announced it first (`bodies.py`).
* Who has to know soon that a line is whole again tries other connections while an answer is overdue
  (`overdue.py`).
* A stream with one replica is followed by its bodies, header and rows in one answer: there is no
  choice to be made between the two.
* Headers are read at most `AHEAD_EPOCHS_MAX` ahead of the consumer.
* Every question says who asks and what it has taken: should the stream have a hole, it begins after
  that (`hole.py`).  Headers that were heard do not count, for their bodies may never come.
* If the book says that one replica stands alone, all others are dropped *before* anybody is told
  what was taken: the word is a promise, and bodies that are still under way are thrown away.
* The promise must outlast a restart, as an ack does (invariant 6).  Whoever loses with its process
  some of what was taken here makes no promise with this follower: it is told (`begin_anew`), gives
  that back, and follows anew from what it has for good.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from unbroken.epochs import Epoch, Header
from unbroken.errors import DivergenceError, EpochGone, UnbrokenError, Unreachable
from unbroken.streams import answers
from unbroken.streams.bodies import Bodies
from unbroken.streams.flight import Peer
from unbroken.streams.merge import Fetch, Merge, Serving
from unbroken.streams.overdue import Overdue

#: Replica name to address of its door.
Replicas = Mapping[str, str]
RETRY_S = 0.1
#: How often the book is asked for replicas that have come since.
WATCH_S = 0.5
AHEAD_EPOCHS_MAX = 256
#: Bodies that may wait here.
BODIES_AHEAD_MAX = 2


class Follower(Bodies):
    """Reads one stream from `start` on, whoever serves it."""

    def __init__(
        self,
        stream: str,
        start: int,
        find: Callable[[], Replicas],
        *,
        consumer: str = "",
        has: int = 0,
        by_headers: bool = False,
        begin_anew: Callable[[], None] | None = None,
        wait_s: float | None = None,
    ) -> None:
        """`consumer` is its name, if it has one; everything below `has` was taken before.

        `by_headers`: headers come first, also of an only replica: rows may be known already.
        `begin_anew` is called, until this follower is closed, when one replica stands alone and
        something was taken here; without it what was taken is had.
        `wait_s`: producers without news say so that soon; later than that an answer is overdue.
        """
        super().__init__()
        self.stream = stream
        self._overdue = None if wait_s is None else Overdue(wait_s=wait_s)
        self._find = find
        self._consumer, self._has = consumer, has
        self._start, self._begin_anew = start, begin_anew
        #: Of a tentative branch: what its stable line lacks, or None if that speaks for itself.
        self._lacks: Callable[[], int | None] | None = None
        self._merge = Merge(stream, start=start)
        self._changed = threading.Condition()
        self._error: UnbrokenError | None = None
        self._closed = threading.Event()
        self._watching = threading.Lock()
        self._listeners: dict[str, threading.Thread] = {}
        self._peers: dict[str, Peer] = {}
        #: Replicas that no longer have what we need.
        self._gone: set[str] = set()
        #: Whom the book named last; not everybody is listened to yet.
        self._named: set[str] = set()
        self.by_headers = by_headers
        #: Whether the book names one replica: nobody else could announce an epoch.
        self._alone = False
        #: Bodies that came with their announcement, by replica and number.
        self._at_hand: dict[tuple[str, int], Epoch] = {}
        #: The next header to ask each replica for.
        self._ask_from: dict[str, int] = {}
        self._watch()
        threading.Thread(target=self._keep_watching, daemon=True, name=f"watch-{stream}").start()
        if self._overdue is not None:
            threading.Thread(
                target=self._keep_trying, args=(self._overdue,), daemon=True, name=f"try-{stream}"
            ).start()

    @property
    def next(self) -> int:
        """The number of the next epoch to be taken."""
        return self._merge.next

    @property
    def refused(self) -> list[str]:
        """Replicas that were refused, in sentences."""
        return list(self._merge.refused.values())

    def take(
        self,
        timeout_s: float,
        *,
        unless: Callable[[], bool] = lambda: False,
        known: Callable[[Header], Epoch | None] = lambda header: None,
    ) -> Epoch | None:
        """The next epoch, in order, none skipped; None after `timeout_s`.

        `unless`: there is something else to do; looked at again after `wake`, and while a body
        stalls, which the next call goes on waiting for.  `known` gives an epoch whose rows need not
        be fetched.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            with self._changed:
                wait_s = max(0.0, deadline - time.monotonic())
                self._changed.wait_for(
                    lambda: (
                        self._merge.wanted() or self._error or self._closed.is_set() or unless()
                    ),
                    wait_s,
                )
                if self._error is not None:
                    raise self._error
                fetch = self._merge.wanted()
                header = self._merge.header(fetch.number) if fetch else None
            if fetch is None:
                return None
            said = known(header) if header else None
            epoch = self._take_at_hand(fetch, said) or self._fetch_first(fetch, unless)
            if epoch is not None or self._stalled:
                return epoch

    def _take_at_hand(self, fetch: Fetch, said: Epoch | None) -> Epoch | None:
        """One whose rows are known, or a body that came with its announcement."""
        with self._changed:
            epoch = self._at_hand.pop((fetch.replica, fetch.number), None)
            epoch = epoch if said is None else said
            if epoch is not None and self._merge.allows(fetch.replica):
                self._merge.taken(fetch.number)
                self._changed.notify_all()
                return epoch
        return None

    def speak_for(self, lacks: Callable[[], int | None]) -> None:
        """What is taken from now on does not count: another still has to take it."""
        self._lacks = lacks

    def _position(self) -> int | None:
        """The first epoch that whoever asks here lacks; None: nothing is said about that."""
        return max(self._has, self._merge.next) if self._lacks is None else self._lacks()

    def wake(self) -> None:
        """Somebody else has news for whoever waits in `take`."""
        with self._changed:
            self._changed.notify_all()

    def _keep_watching(self) -> None:
        while not self._closed.wait(WATCH_S):
            with contextlib.suppress(UnbrokenError):  # The book is away: the next look finds it.
                self._watch()

    def _watch(self) -> None:
        """Listens to every replica that the book names."""
        found = self._find()
        if isinstance(found, Serving) and not self._heeds(*found.alone):
            return
        self._alone = len(found) == 1
        self._named = set(found)
        with self._watching:
            for replica, address in found.items():
                listener = self._listeners.get(replica)
                if self._closed.is_set() or (listener is not None and listener.is_alive()):
                    continue
                self._listen_by(replica, Peer(address))

    def _listen_by(self, replica: str, peer: Peer) -> None:
        """Under `watching`: listens to a replica by this connection from now on."""
        if replica in self._peers:
            self._peers[replica].close()
        self._peers[replica] = peer
        self._listeners[replica] = threading.Thread(
            target=self._listen, args=(replica, peer), daemon=True,
            name=f"listen-{self.stream}-{replica}",
        )  # fmt: skip
        self._listeners[replica].start()

    def _keep_trying(self, overdue: Overdue) -> None:
        """Tries other connections to whoever owes an answer."""
        while not self._closed.wait(overdue.wait_s / 2):
            with self._changed:
                due = overdue.due(time.monotonic())
            for replica in due:
                reached = self._try(replica, overdue.wait_s)
                with self._changed:
                    overdue.tried(replica, reached=reached)

    def _try(self, replica: str, timeout_s: float) -> bool:
        """Whether another connection gets through; then the questions go there."""
        old = self._peers[replica]
        peer, reached = Peer(old.address, apart=True), False
        with contextlib.suppress(UnbrokenError):
            peer.act({"do": "extent", "stream": self.stream}, timeout_s=timeout_s)
            reached = True
        with self._watching:
            if reached and self._peers[replica] is old and not self._closed.is_set():
                self._listen_by(replica, peer)
                return True
        peer.close()
        return False

    def _heeds(self, term: int, replica: str) -> bool:
        """Drops everybody but `replica`; False: that is for another follower to do."""
        with self._changed:
            if term <= self._merge.alone[0]:
                return True
            taken = self._lacks is None and self._merge.next > self._start
            if self._begin_anew is None or not taken:
                self._merge.only(term, replica)
                # What it was asked before others were dropped is older than what was taken.
                self._ask_from[replica] = self._merge.next
                self._changed.notify_all()
                return True
        self._begin_anew()
        return False

    def _listen(self, replica: str, peer: Peer) -> None:
        with self._changed:
            self._ask_from[replica] = self._merge.next
        while not self._closed.is_set() and self._peers[replica] is peer:
            if not self._merge.allows(replica):
                with self._watching:
                    self._listeners.pop(replica, None)
                return
            try:
                self._hear(replica, peer)
            except Unreachable:
                with self._changed:
                    self._merge.lost(replica)
                    self._ask_from[replica] = self._merge.next
                if self._closed.wait(RETRY_S) or self._moved(replica, peer.address):
                    return
            except EpochGone as error:
                with self._changed:
                    self._merge.lost(replica)
                    self._gone.add(replica)
                    nobody = self._gone >= self._everybody
                    if nobody:
                        self._error = error
                        self._changed.notify_all()
                    self._ask_from[replica] = self._merge.next
                if nobody or self._closed.wait(RETRY_S):
                    return
            except UnbrokenError as error:
                if isinstance(error, DivergenceError):
                    error = answers.with_sample(error, self._merge.diverged, self._body)
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                return

    @property
    def _everybody(self) -> set[str]:
        """Who may have what one of them has not."""
        return self._named | set(self._listeners)

    def _hear(self, replica: str, peer: Peer) -> None:
        """Asks for news once, and tells the merge."""
        with self._changed:
            # Where nobody else could be asked for a body, it comes with its announcement.
            alone = self._alone and not self.by_headers
            ahead = BODIES_AHEAD_MAX if alone else AHEAD_EPOCHS_MAX
            self._changed.wait_for(
                lambda: self._closed.is_set() or self._ask_from[replica] < self._merge.next + ahead
            )
            start = self._ask_from[replica]
            asks: dict[str, Any] = {
                "stream": self.stream, "consumer": self._consumer, "next": self._position(),
                "term": self._merge.alone[0],
            }  # fmt: skip
            if self._overdue is not None:
                asks["wait_s"] = self._overdue.wait_s
                self._overdue.asked(replica, now_s=time.monotonic())
        try:
            if alone:
                epoch = answers.epoch(peer, replica, start, asks)
                epochs = [epoch] if epoch is not None else []
                headers = [each.header for each in epochs]
            else:
                epochs, command = [], {"do": "headers", "from": start, **asks}
                headers = answers.headers(peer, replica, command)
        except EpochGone:
            with self._changed:
                if start < self._merge.next:  # Others were faster: nobody needs it any more.
                    self._ask_from[replica] = self._merge.next
                    return
            raise
        finally:
            with self._changed:
                if self._overdue is not None and self._peers[replica] is peer:
                    self._overdue.answered(replica)
        with self._changed:
            self._gone.discard(replica)
            self._merge.announced(replica, headers)
            if self._merge.refused.keys() >= self._everybody:
                raise DivergenceError(
                    "; ".join(self._merge.refused.values()),
                    hint="all replicas must run one version of the query, with equal settings",
                )
            # What others brought meanwhile is not needed any more.
            kept = {key: e for key, e in self._at_hand.items() if key[1] >= self._merge.next}
            self._at_hand = kept | {(replica, epoch.number): epoch for epoch in epochs}
            # Unless a body did not come meanwhile: then it is asked for again from there.
            if headers and self._ask_from[replica] == start:
                self._ask_from[replica] = headers[-1].number + 1
            self._changed.notify_all()

    def _moved(self, replica: str, address: str) -> bool:
        """Whether the book has another address now, or none; a new listener takes over then."""
        try:
            found = self._find().get(replica)
        except Unreachable:
            return False
        if found == address:
            return False
        with self._watching:
            self._listeners.pop(replica, None)
        self._watch()
        return True

    def close(self) -> None:
        """Stops listening."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
        with self._watching:
            for peer in self._peers.values():
                peer.close()
