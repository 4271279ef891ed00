"""Fetching the rows of one epoch: from whoever announced it first, from others if that one stalls.

    announced by r1, r2     r1 ─ body of 7? ─┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄ (frozen)
                            r2      └ 0.1 s ─ body of 7? ─ rows ─▶ taken

* A body that takes longer than `STALL_S` is asked for at the next replica too, and the first one to
  come is taken: a replica that froze between header and body costs that much and no more.
* A replica whose body did not come is asked to announce again.
* If the connection to a replica was replaced meanwhile, because answers were overdue there, its
  body is asked for once more by the new one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import NamedTuple

from unbroken.epochs import Epoch
from unbroken.errors import DiskError, EpochGone, Unreachable
from unbroken.streams import answers
from unbroken.streams.flight import Peer
from unbroken.streams.merge import Fetch, Merge

STALL_S = 0.1


class _Asked(NamedTuple):
    """A body that is under way, and by which connection."""

    fetch: Fetch
    by: Peer


class Bodies:
    """Fetches each body once, for whoever follows a stream."""

    stream: str
    _merge: Merge
    _changed: threading.Condition
    _peers: dict[str, Peer]
    _ask_from: dict[str, int]

    def __init__(self) -> None:
        #: Bodies that stall, asked for by a `take` that had something else to do.
        self._stalled: dict[Future[Epoch | None], _Asked] = {}

    def _fetch_first(self, fetch: Fetch, unless: Callable[[], bool]) -> Epoch | None:
        """The body from `fetch.replica`, or from another that announced it if that one stalls."""
        before, self._stalled = self._stalled, {}
        out = {future: each for future, each in before.items() if each.fetch.number == fetch.number}
        out = out or self._ask(fetch)
        while out:
            done, _ = wait(out, STALL_S, return_when=FIRST_COMPLETED)
            for future in done:
                came_from = out.pop(future).fetch
                epoch = future.result()
                with self._changed:
                    # Under one lock: nobody is told of what was taken in between.
                    if epoch is not None and self._merge.allows(came_from.replica):
                        for stalled in out.values():
                            self._announce_again(stalled.fetch)
                        self._merge.taken(fetch.number)
                        self._changed.notify_all()
                        return epoch
                    self._merge.failed(came_from)
                    self._ask_from[came_from.replica] = fetch.number
                    self._changed.notify_all()
            with self._changed:
                another = self._merge.wanted(besides={each.fetch.replica for each in out.values()})
                another = another or self._by_a_new_connection(out)
            if another is not None:
                out |= self._ask(another)
            elif not done and unless():
                self._stalled = out
                return None
        return None

    def _by_a_new_connection(self, out: Mapping[Future[Epoch | None], _Asked]) -> Fetch | None:
        """A body that was asked for by a connection which is not used any more, and by no other."""
        asked = set(out.values())
        return next(
            (fetch for fetch, _ in asked if (fetch, self._peers[fetch.replica]) not in asked), None
        )

    def _ask(self, fetch: Fetch) -> dict[Future[Epoch | None], _Asked]:
        """Fetches in a thread that nobody has to wait for, also not at the end of the process."""
        answer: Future[Epoch | None] = Future()
        by = self._peers[fetch.replica]

        def run() -> None:
            try:
                answer.set_result(self._fetch(fetch, by))
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=run, daemon=True, name=f"fetch-{self.stream}").start()
        return {answer: _Asked(fetch, by)}

    def _announce_again(self, stalled: Fetch) -> None:
        """Whoever stalls is not asked first next time: what it said counts once it says it anew."""
        self._merge.lost(stalled.replica)
        self._ask_from[stalled.replica] = stalled.number + 1

    def _fetch(self, fetch: Fetch, by: Peer) -> Epoch | None:
        try:
            return answers.epoch(by, fetch.replica, fetch.number, {"stream": self.stream})
        except Unreachable:
            return None
        except (DiskError, EpochGone):
            if self._merge.others(fetch):
                return None  # Damaged or trimmed here; another replica still has it.
            raise

    def _body(self, replica: str, number: int) -> Epoch | None:
        return answers.epoch(self._peers[replica], replica, number, {"stream": self.stream})
