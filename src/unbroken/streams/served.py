"""A stream that is served: its log, whom it is kept for, and what may be trimmed.

    log ─▶ Served ─▶ StreamDoor (`serve`)        acks ─▶ Needs ─▶ trim
             └─ beside the log: terms and names of consumers; seeds (`notes`)

Nothing is trimmed before what allows it is noted: whoever is started again must not know less.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from unbroken.epochs import Epoch
from unbroken.errors import EpochGone, UnbrokenError, Unreachable
from unbroken.streams.branch_log import BranchLog
from unbroken.streams.hole import UNNAMED, Begin, Positions
from unbroken.streams.log import EpochLog
from unbroken.streams.needs import CLIENTS_MAX, UNDECLARED_EPOCHS, Needs, Seed
from unbroken.streams.notes import Notes
from unbroken.streams.standstill import Extent, Standstill, owed_to

#: Within this time whoever follows the stream has found a new replica of it, and asked by name:
#: until then nobody is a stranger.
MET_S = 3.0


class Served:
    """One stream at the door: its log, its consumers, and what may be trimmed."""

    def __init__(
        self,
        log: EpochLog,
        consumers: Iterable[str],
        *,
        keep: int,
        trim: Callable[[int], Any] | None = None,
        begins_later: bool = False,
        may_trim: Callable[[], bool] = lambda: True,
        bytes_max: int | None = None,
        by_clock: bool = False,
    ) -> None:
        """`begins_later`: the log is empty, and `begin` will tell its first epoch.

        `by_clock`: a source, which gets epochs also when it is full, without rows.

        A log that has reached `bytes_max` keeps nothing for followers that nobody declared.

        `may_trim` is asked before anything goes: a process that was paused does not know who was
        expected meanwhile.
        """
        self.log = log
        self._since_s = time.monotonic()
        #: What is said beyond the stable epochs while input is cut off; None if that never happens.
        self.tentative: BranchLog | None = None
        #: Called when a log that was full is trimmed; not under any lock of this one.
        self.made_room: Callable[[], None] = lambda: None
        #: While true, followers are heard and told nothing: where a hole begins depends on them.
        self.begins_later = begins_later
        #: The term under which this replica stands alone; 0: it does not, or has not begun to.
        self._alone = 0
        #: Consumers that another copy has replaced, until they are made anew from it.
        self._turned_away: set[str] = set()
        self._shown_from = 0
        self._closed = False
        self._keep = keep
        self._bytes_max, self._by_clock = bytes_max, by_clock
        self._standstill = Standstill()
        self._trim = trim or log.trim
        self._may_trim = may_trim
        #: When each consumer was last declared.
        self._expected_s: dict[str, float] = {}
        self._lock = threading.Lock()
        self._notes = Notes(log.folder)
        self.needs = Needs(**self._notes.found)
        self._declared = self._notes.declared
        self._let_in(consumers)
        for consumer in [*consumers, *self._declared]:
            if not self.needs.barred(consumer):
                self.needs.expect(consumer)
        self._positions = Positions(self.needs.processed)

    def expect(self, consumer: str, *, term: int = 0, like: str | None = None) -> None:
        """`consumer` holds back trimming from now on, also after a restart of this producer."""
        with self._lock:
            self._check_open()
            self._check_room(consumer)
            self.needs.expect(consumer, term=term, like=like)
            self._turned_away.discard(consumer)
            self._expected_s[consumer] = time.monotonic()
            if not self.needs.barred(consumer):
                self._declared.add(consumer)
                self._positions.expect(consumer)
            self._save()

    def meet(self, client: str) -> None:
        """`client` holds back trimming, but where a hole begins does not depend on it."""
        with self._lock:
            self._meet(client)

    def _meet(self, consumer: str) -> None:
        """A client that has a name is waited for; noted before anything is trimmed."""
        known = consumer == UNNAMED or "@" in consumer or consumer in self._declared
        if not known and self._has_room(consumer):
            self.needs.expect(consumer)
            self._declared.add(consumer)

    def _has_room(self, consumer: str) -> bool:
        """Whoever is waited for by name is told to a successor: there is a limit to that."""
        clients = [name for name in self._declared if "@" not in name]
        return "@" in consumer or consumer in clients or len(clients) < CLIENTS_MAX

    def _check_room(self, consumer: str) -> None:
        if not self._has_room(consumer):
            raise UnbrokenError(
                f"{self.log.stream}: {CLIENTS_MAX} clients are waited for already, {consumer} is "
                "not taken",
                hint="follow it without a name: nothing is kept for such a client while it is away",
            )

    def close(self) -> None:
        """Another one is about to serve this log: nothing is taken, noted or trimmed any more.

        Who has found this one before it went is told to say it again.
        """
        with self._lock:
            self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise Unreachable(f"{self.log.stream} is being started again", hint="say it again")

    def release(self, consumer: str, *, term: int = 0) -> None:
        """`consumer` will not come back."""
        with self._lock:
            self._check_open()
            self.needs.remove(consumer, term=term)
            if term == 0 or self.needs.barred(consumer):
                self._declared.discard(consumer)
            if consumer not in self.needs.processed:
                self._positions.removed(consumer)
            self._save()

    def agree(self, replicas: Iterable[str], *, asked_s: float) -> None:
        """Control's list of the replicas that are expected, as of an answer to a question of then.

        Whoever was expected since then may not be on it yet.  Clients declare themselves.
        """
        now = set(replicas)
        with self._lock:
            if self._closed:
                return  # Said anew to whoever serves it next.
            new = now - self.needs.processed.keys()
            if self._let_in(replicas):
                self._save()
            for consumer in new:
                if not self.needs.barred(consumer):
                    self.needs.expect(consumer)
                    self._positions.expect(consumer)
            for consumer in self.needs.processed.keys() - now:
                if "@" in consumer and self._expected_s.get(consumer, 0.0) < asked_s:
                    # Under the term of its last ruling, or that would outlive its release, which
                    # may have passed this producer by.
                    self.needs.remove(consumer, term=self.needs.ruling(consumer))
                    self._declared.discard(consumer)
                    self._positions.removed(consumer)

    def _let_in(self, consumers: Iterable[str]) -> list[str]:
        """Who is barred, and expected since: that word passed this producer by while it was away.

        Control's list has the terms under which it expects them; other lists have none.
        """
        terms = consumers if isinstance(consumers, Mapping) else {}
        barred = [consumer for consumer in terms if self.needs.barred(consumer)]
        for consumer in barred:
            self.needs.expect(consumer, term=terms[consumer])
        return [consumer for consumer in barred if not self.needs.barred(consumer)]

    def ack(
        self, consumer: str, *, term: int, processed: int, need: int, seed: Seed | None = None,
        owed_to: str = "", overtakes: str = "", placed: int = 0,
    ) -> None:  # fmt: skip
        """Takes an ack and trims what nobody may ask for any more."""
        with self._lock:
            self._check_open()
            self.needs.record(
                consumer, term=term, processed=processed, need=need, seed=seed, owed_to=owed_to,
                overtakes=overtakes, placed=placed,
            )  # fmt: skip
        self.trim()

    def seed(self, consumer: str) -> tuple[int | None, Seed | None]:
        """The need of `consumer`, and the newest seed that its acks carried."""
        with self._lock:
            return self.needs.seed(consumer)

    def term(self, consumer: str) -> int:
        """The newest of its own terms under which `consumer` has spoken; 0: it has not."""
        with self._lock:
            return self.needs.terms.get(consumer, 0)

    @property
    def owed(self) -> int:
        """D: the first epoch that consumers may still ask for; a successor must speak from it on.

        Of a sink the newest few count too: a take-over must not cut off followers that nobody
        declared.
        """
        with self._lock:
            first, after = self.log.first, self.log.next
            lowest = self.needs.lowest
            owed = after if lowest is None else min(lowest, after)
            if self._keep > 0:
                owed = min(owed, after - UNDECLARED_EPOCHS)
            return max(first, owed)

    @property
    def owed_to(self) -> str:
        """The consumer that is behind, for whose sake all from `owed` on is kept; "" if none is."""
        with self._lock:
            return owed_to(self._extent, self.needs)

    @property
    def standstill(self) -> str:
        """Why a full log will never have room again, in a sentence; "" if it may."""
        with self._lock:
            return self._stands_still()

    def _stands_still(self) -> str:
        return self._standstill.look(self._extent, self.needs, now_s=time.monotonic())

    @property
    def _extent(self) -> Extent:
        full = self._is_full
        first, after = self.log.first, self.log.next
        if full and self._by_clock:
            headers = reversed(self.log.held())
            after = next((header.number + 1 for header in headers if header.rows), first)
        return Extent(first, after, full)

    def asked(self, consumer: str, next_epoch: int, *, term: int = 0) -> None:
        """`consumer` has everything below `next_epoch`; one without a name is "".

        It has heard that who stands alone under `term` is the only one to be taken from.

        A client with a name is waited for: it declared itself to whoever served the stream then,
        and this replica may be here since.
        """
        with self._lock:
            self._meet(consumer)
            self._positions.asked(consumer, next_epoch, promised=term >= self._alone)
            if consumer in self._turned_away:
                raise EpochGone(
                    f"{self.log.stream}: {consumer} has what is lost by now, or lacks what is not, "
                    "and another copy of it goes on",
                    hint="it is repaired from that one",
                )
            if "@" not in consumer and next_epoch < self._shown_from:
                raise EpochGone(
                    f"{self.log.stream}: epoch {next_epoch} is gone: others have it, and it was "
                    "lost with a node",
                    hint=f"follow from {self._shown_from}",
                )

    def stand_alone(self, term: int) -> None:
        """From now on only those have asked who have heard of this term."""
        with self._lock:
            self._alone = term
            self._positions.ask_again()

    def hole(
        self, *, at_most: int | None = None, besides: Collection[str] = (),
        without: Collection[str] = (),
    ) -> int | None:  # fmt: skip
        """Where a hole would begin: `Positions.first`; None while an expected one has not asked."""
        with self._lock:
            return self._positions.first(at_most=at_most, besides=besides, without=without)

    def where(
        self, *, at_most: int | None = None, besides: Collection[str] = (),
        without: Collection[str] = (),
    ) -> Begin | None:  # fmt: skip
        """Where the stream would go on, for each: `Positions.begin`."""
        with self._lock:
            return self._positions.begin(at_most=at_most, besides=besides, without=without)

    def turn_away(self, consumers: Iterable[str]) -> None:
        """These get nothing until they are expected anew: another copy of them goes on.

        One of them may have what is lost, or lack what the other one has.
        """
        with self._lock:
            self._turned_away.update(consumers)

    @property
    def unheard(self) -> list[str]:
        """Expected consumers that have not asked since this process started."""
        with self._lock:
            return self._positions.missing

    def begin(self, first: int, hole: Iterable[Epoch] = (), *, shown_from: int = 0) -> None:
        """The empty log begins at `first`, with the epochs of a hole; followers are answered.

        What lies before `shown_from` is there for fragments that nobody could repair without it:
        some clients have it, so that no other one may be told that it is lost.
        """
        self._shown_from = shown_from
        self.log.start_at(first)
        for epoch in hole:
            self.log.append(epoch)
        self.begins_later = False

    def trim(self) -> None:
        """Trims what nobody may ask for any more; for streams that nobody acks, now and then."""
        # Under the lock: whoever is expected meanwhile must find what it was promised.
        with self._lock:
            if self._closed:
                return
            self._save()
            if not self._may_trim():
                return
            before, was_full = self.log.first, self._is_full
            newest = self.log.next - 1
            self._trim(self.needs.trim_below(newest=newest, keep=self._keep))
            met = time.monotonic() > self._since_s + MET_S
            if met and self._is_full:
                # Strangers go first, or everybody would wait for those who may never come.
                unneeded = self.needs.trim_below(newest=newest, keep=0)
                self._trim(min(unneeded, self._half()))
        if was_full and self.log.first > before:
            self.made_room()

    @property
    def _is_full(self) -> bool:
        return self._bytes_max is not None and self.log.bytes >= self._bytes_max

    def _half(self) -> int:
        """The first epoch of those that fill half of what the log may hold."""
        first, held = self.log.next, 0
        for header in reversed(self.log.held()):
            held += header.bytes
            if 2 * held > (self._bytes_max or 0):
                break
            first = header.number
        return first

    @property
    def consumers(self) -> list[str]:
        """All that are expected."""
        with self._lock:
            return list(self.needs.processed)

    @property
    def processed(self) -> dict[str, int]:
        """How far each replica that is expected has got, as far as it has said."""
        with self._lock:
            return {name: to for name, to in self.needs.processed.items() if "@" in name}

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

    def laggard(self) -> str | None:
        """The consumer for whose sake alone most of the log stays, if there is one."""
        with self._lock:
            return self.needs.laggard(first=self.log.first, after=self.log.next)

    def _save(self) -> None:
        self._notes.save(self.needs, self._declared)

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
                "standstill": self._stands_still(),
            }
