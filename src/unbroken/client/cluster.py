"""A running cluster, seen by a client: send, follow, look.

>>> import unbroken as ub
>>> ub.connect("grpc://127.0.0.1:1")            # doctest: +ELLIPSIS
Traceback (most recent call last):
...
unbroken.errors.Unreachable: no answer from grpc://127.0.0.1:1 to 'status': ...
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Generator
from typing import Any

from unbroken.client.producer import Producer
from unbroken.client.progress import raise_failure
from unbroken.epochs import FINAL, Epoch
from unbroken.errors import UnbrokenError, Unreachable
from unbroken.node.book import BookReader
from unbroken.streams.both import Both
from unbroken.streams.flight import Peer, checked_name
from unbroken.streams.follow import Follower
from unbroken.streams.needs import ack

POLL_S = 1.0
#: When an entry does not answer for so long, whoever follows is told.
AWAY_S = 5.0


class Cluster:
    """A cluster that runs elsewhere; made by `unbroken.connect`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._entry = Peer(address)
        self._book = BookReader(self._entry)
        #: Since when the entry has not answered; infinite when that was said, None if it does.
        self._away_s: float | None = None

    def producer(self, source: str, *, name: str | None = None) -> Producer:
        """Sends rows into `source`.  A producer with a `name` goes on where it stopped."""
        return Producer(self._entry, checked_name(source), name=name)

    def follow(
        self,
        stream: str,
        start: int | None = 0,
        *,
        consumer: str | None = None,
        has: int = 0,
        tentative: bool = True,
    ) -> Generator[Epoch]:
        """Epochs of `stream` from `start` on as they come, in order, each once; never ends.

        `start=None` begins with the oldest that is kept.  A follower with a `consumer` name is
        waited for: the stream keeps what it has not taken yet, also while it is away.  One that
        reads again what it took before says so: it `has` everything below that epoch.

        An epoch of kind `gap` has no rows because they are lost, which is not the same as none.

        While input is cut off, a fragment with `max_delay` goes on: its epochs are of kind
        `tentative` then, and each is replaced later by the stable one of its number, which says
        what has changed (`epoch.replaces`, `epoch.confirmed`).  `tentative=False` leaves them out.
        """
        self._check(checked_name(stream), start)
        if consumer is not None:
            self._book.agree(stream, {"do": "expect", "consumer": consumer})
        if start is None:
            start = self._book.ask(stream, {"do": "extent"})["first"]
        return self._follow(stream, start or 0, consumer, has, Both if tentative else Follower)

    def _check(self, stream: str, start: int | None) -> None:
        """Nobody would ever serve what is asked for."""
        if start is not None and (not isinstance(start, int) or start < 0):
            raise UnbrokenError(
                f"{stream} from {start!r} on",
                hint="the number of an epoch, from 0 on; or None: the oldest that is kept",
            )
        with contextlib.suppress(Unreachable):  # Those who serve it may be heard all the same.
            told = self._entry.act({"do": "status"}, timeout_s=POLL_S)
            known = told.get("streams", [stream])
            if stream not in known:
                raise UnbrokenError(
                    f"this query has no stream {stream!r}", hint=f"one of {', '.join(known)}"
                )

    def _follow(
        self,
        stream: str,
        start: int,
        consumer: str | None,
        has: int,
        kind: type[Both] | type[Follower],
    ) -> Generator[Epoch]:
        follower = kind(
            stream, start, lambda: self._book.replicas(stream), consumer=consumer or "", has=has
        )
        done = has - 1 if start >= has else -1
        try:
            while True:
                if consumer is not None and done >= 0:
                    # Also without news: a producer that was started again, with a full log, would
                    # wait for this word, and we for its next epoch.
                    self._book.tell(stream, ack(consumer, 1, done))
                epoch = follower.take(timeout_s=POLL_S)
                if epoch is None:
                    self._look_for_failures(stream)
                    continue
                yield epoch
                # Back here: the caller has done with it.  Only what is final can be done with.
                if epoch.kind in FINAL:
                    done = epoch.number
        finally:
            follower.close()

    def _look_for_failures(self, stream: str) -> None:
        """Nobody must wait for ever for a fragment that has failed, or one before it."""
        try:
            raise_failure(self._entry.act({"do": "status"}, timeout_s=POLL_S), stream)
            self._away_s = None
        except Unreachable:
            # It may be cut off, and those who serve the stream still be heard: waited for, aloud.
            now_s = time.monotonic()
            since_s = self._away_s = now_s if self._away_s is None else self._away_s
            if now_s >= since_s + AWAY_S:
                self._away_s = float("inf")  # Said once.
                print(f"no answer from {self.address}; still trying", file=sys.stderr, flush=True)

    def status(self) -> dict[str, Any]:
        """What every source, node and fragment does right now."""
        told: dict[str, Any] = self._entry.act({"do": "status"})
        return told

    def finish(self) -> int:
        """Nothing more will be sent: seals what is open; tells the number after the last epoch."""
        number: int = self._entry.act({"do": "finish"})["next"]
        return number

    def cut(self, a: str, b: str, *, one_way: bool = False) -> list[str]:
        """Pulls the cable between two processes until `heal`; tells all that are pulled now.

        Only of a cluster on one machine that was started with cables (`docs/partitions.md`).
        """
        return self._pull({"do": "cut", "a": a, "b": b, "one_way": one_way})

    def slow(self, a: str, b: str, seconds: float) -> list[str]:
        """Makes everything between two processes so much later, until `heal`."""
        return self._pull({"do": "slow", "a": a, "b": b, "seconds": seconds})

    def heal(self) -> list[str]:
        """Puts all cables back; tells which were pulled."""
        return self._pull({"do": "heal"})

    def pulled(self) -> list[str]:
        """What is cut or slow right now, in sentences; nothing, if there are no cables."""
        held_at = self._entry.act({"do": "setup"})["cables_held_at"]
        return self._ask_holder(held_at, {"do": "pulled"}) if held_at else []

    def _pull(self, word: dict[str, Any]) -> list[str]:
        held_at = self._entry.act({"do": "setup"})["cables_held_at"]
        if not held_at:
            raise UnbrokenError(
                f"the cluster at {self.address} has no cables to pull",
                hint="end it and start it with them: unbroken run FILE.py --cables",
            )
        return self._ask_holder(held_at, word)

    def _ask_holder(self, held_at: str, word: dict[str, Any]) -> list[str]:
        with Peer(held_at) as holder:
            pulled: list[str] = holder.act(word)
        return pulled


def connect(address: str) -> Cluster:
    """Connects to a cluster that runs in another process or on another machine."""
    cluster = Cluster(address)
    cluster.status()
    return cluster
