"""Followers without threads: the real merge, fed by messages.

    follower ── headers from 7? ──▶ door of r1     answered when there is news
             ◀── 7, 8 ──────────────
             ── body of 7? ───────▶                a stall: asked for at r2 too

* As `streams.follow.Follower`: one question per replica at a time, the body from whoever announced
  it first, from the next one after a stall; the book is read again now and then.
* Questions and answers are messages: they may be lost.  Whatever was not answered in time is asked
  again.
* The doors answer with the real `StreamDoor`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

from unbroken.errors import DivergenceError, EpochGone, UnbrokenError, Unreachable
from unbroken.streams.bodies import STALL_S
from unbroken.streams.follow import AHEAD_EPOCHS_MAX, WATCH_S
from unbroken.streams.merge import Fetch
from unbroken.testing.epochs import Epoch
from unbroken.testing.network import Network
from unbroken.testing.world import Process, World

#: A question that was not answered for so long is asked again.
LOST_S = 1.0


class Follower:
    """Reads one stream from `start` on, whoever serves it."""

    def __init__(
        self, world: World, network: Network, watch: Any, stream: str, start: int,
        find: Callable[[], Any], *, consumer: str, taken: Callable[[Epoch], None],
        failed: Callable[[UnbrokenError], None], room: Callable[[], bool] = lambda: True,
        has: int = 0, known: Callable[[Any], Epoch | None] | None = None,
        begin_anew: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        process = world.current
        assert process is not None
        self._world, self._network, self._process = world, network, process
        #: Of this life: what is answered late must not come to the next one.
        self._home = f"grpc://{process.name}:{process.life}"
        self._watch, self.stream, self._find = watch, stream, find
        self._consumer, self._has = consumer, has
        self._start, self._begin_anew = start, begin_anew
        #: Gives an epoch whose rows need not be fetched.
        self._known = known
        #: Of a tentative branch: what its stable line lacks, or None if that speaks for itself.
        self._lacks: Callable[[], int | None] | None = None
        self._taken, self._failed, self._room = taken, failed, room
        self.merge = watch.merge_class(stream, start=start)
        self._addresses: dict[str, str] = {}
        self._ask_from: dict[str, int] = {}
        #: Replica to the number and the time of the question that is out.
        self._asked: dict[str, tuple[int, float]] = {}
        self._questions = 0
        #: Bodies asked for, by replica, and when.
        self._fetching: dict[str, tuple[int, float]] = {}
        self._gone: set[str] = set()
        #: Whether a look for stalled bodies is scheduled.
        self._armed = False
        #: Whether an epoch waits for room.
        self._blocked = False
        self.closed = False
        self._look()

    @property
    def next(self) -> int:
        """The number of the next epoch to be taken."""
        return int(self.merge.next)

    def close(self) -> None:
        """Stops listening."""
        self.closed = True

    def _look(self) -> None:
        """Reads the book, asks again what was not answered, and looks again later."""
        if self.closed:
            return
        found = self._find()
        if self._begin_anew is not None and self._has_more(found.alone[0]):
            self._begin_anew()
            self._world.at(WATCH_S, self._process, self._look)
            return
        if self.merge.only(*found.alone):
            for replica in list(self._addresses):
                self._lost(replica)
                if not self.merge.allows(replica):
                    del self._addresses[replica]
        for replica, address in found.items():
            if self._addresses.get(replica) != address:
                self._lost(replica)
                self._addresses[replica] = address
        for replica in list(self._addresses):
            _number, since_s = self._asked.get(replica, (0, -1e9))
            if self._network.at(self._addresses[replica]) is None:
                self._lost(replica)
                if replica not in found:
                    del self._addresses[replica]
            elif self._world.now_s - since_s > LOST_S:
                if replica in self._asked:
                    self._lost(replica)
                self._ask(replica)
        self._fetch()
        self._world.at(WATCH_S, self._process, self._look)

    def _has_more(self, term: int) -> bool:
        """Whether a promise under `term` would not outlast a restart."""
        return term > self.merge.alone[0] and self._lacks is None and self.next > self._start

    def _lost(self, replica: str) -> None:
        self.merge.lost(replica)
        self._asked.pop(replica, None)
        self._fetching.pop(replica, None)
        self._ask_from[replica] = self.merge.next

    def _ask(self, replica: str) -> None:
        """One question for headers to `replica`."""
        start = max(self._ask_from.get(replica, 0), 0)
        if self.closed or start >= self.merge.next + AHEAD_EPOCHS_MAX:
            return
        self._questions += 1
        self._asked[replica] = self._questions, self._world.now_s
        command = {
            "do": "headers", "stream": self.stream, "from": start,
            "consumer": self._consumer, "next": self._position(),
            "term": self.merge.alone[0],
        }  # fmt: skip
        address = self._addresses[replica]
        self._network.message(
            self._process, address, self._heard, replica, address, self._questions, command
        )

    def speak_for(self, lacks: Callable[[], int | None]) -> None:
        """What is taken from now on does not count: another still has to take it."""
        self._lacks = lacks

    def _position(self) -> int | None:
        return max(self._has, self.merge.next) if self._lacks is None else self._lacks()

    def _heard(
        self,
        replica: str,
        address: str,
        question: int,
        command: dict[str, Any],
        waited: bool = False,
    ) -> None:
        """At the producer: the answer, now or when there is news."""
        there = self._world.current
        assert there is not None
        if self.closed or self._asked.get(replica, (0, 0.0))[0] != question:
            return  # Asked anew since.
        try:
            answer: Any = self._look_up(there, command, waited)
        except KeyError:
            answer = Unreachable("not ready")
        except UnbrokenError as error:
            answer = error
        if answer == []:
            served = there.door.acts["headers"].__self__.streams[self.stream]
            again = partial(self._heard, replica, address, question, command, True)
            if served.begins_later:
                self._world.at(0.2, there, again)
            else:
                served.log.waiting.append(again)
            return
        self._network.message(there, self._home, self._told, replica, question, answer)

    def _look_up(self, there: Process, command: dict[str, Any], waited: bool) -> Any:
        handler = there.door.acts["headers"]
        if waited:
            # The handler has waited for news since it was asked, as the real one does.
            served = handler.__self__[self.stream]
            return [] if served.begins_later else served.log.headers(command["from"])
        return handler(command)

    def _told(self, replica: str, question: int, answer: Any) -> None:
        if self.closed or self._asked.get(replica, (0, 0.0))[0] != question:
            return
        del self._asked[replica]
        if isinstance(answer, EpochGone):
            self._lost(replica)
            self._gone.add(replica)
            if self._gone >= set(self._addresses):
                self._fail(answer)
            return  # Asked again with the next look.
        if isinstance(answer, Unreachable):
            self._lost(replica)
            if self._find().get(replica) != self._addresses[replica]:
                del self._addresses[replica]  # It has moved, or serves it no more.
            return
        if isinstance(answer, UnbrokenError):
            self._fail(answer)
            return
        self._gone.discard(replica)
        try:
            self.merge.announced(replica, answer)
        except DivergenceError as error:
            self._watch.broken(error)
            self._fail(error)
            return
        self._ask_from[replica] = answer[-1].number + 1
        self._ask(replica)
        self._fetch()

    def _fail(self, error: UnbrokenError) -> None:
        self.closed = True
        self._failed(error)

    def _fetch(self) -> None:
        """Asks for the next body, at the next replica too if the first one stalls."""
        if self.closed:
            return
        now_s, out = self._world.now_s, []
        if self._fetching:
            next_epoch = self.merge.next
            out = [r for r, (number, _) in self._fetching.items() if number == next_epoch]
            if any(now_s - self._fetching[r][1] < STALL_S for r in out):
                self._arm()
                return
        wanted = self.merge.wanted(besides=out)
        if wanted is None:
            for replica in out:  # Whoever stalls has to announce again.
                self._lost(replica)
            return
        self._blocked = not self._room()
        if self._blocked:
            return
        if self._known is not None:
            said = self._known(self.merge.header(wanted.number))
            if said is not None:
                self._take(said)
                return
        self._fetching[wanted.replica] = wanted.number, now_s
        address = self._addresses.get(wanted.replica, "")
        self._network.message(self._process, address, self._body, wanted)
        self._arm()

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self._world.at(STALL_S * 1.01, self._process, self._stalled)

    def _stalled(self) -> None:
        self._armed = False
        if self._fetching:
            self._fetch()

    def _body(self, fetch: Fetch) -> None:
        """At the producer."""
        there = self._world.current
        assert there is not None
        answer: Any = None
        with contextlib.suppress(KeyError, UnbrokenError):
            answer = there.door.gets["epoch"]({"stream": self.stream, "number": fetch.number})
        self._network.message(there, self._home, self._came, fetch, answer)

    def _came(self, fetch: Fetch, epoch: Epoch | None) -> None:
        if self.closed or self._fetching.get(fetch.replica, (-1, 0.0))[0] != fetch.number:
            return
        del self._fetching[fetch.replica]
        if fetch.number != self.merge.next:
            return  # Another replica was faster.
        if epoch is None:
            self.merge.failed(fetch)
            self._ask_from[fetch.replica] = fetch.number
            self._fetch()
            return
        self._take(epoch)

    def _take(self, epoch: Epoch) -> None:
        self.merge.taken(epoch.number)
        self._watch.took(self, epoch)
        self._taken(epoch)
        self._fetch()

    def more(self) -> None:
        """There is room again."""
        if self._blocked:
            self._fetch()
