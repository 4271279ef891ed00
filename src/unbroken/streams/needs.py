"""How far each consumer has read a stream, and what may be trimmed.

    log     0 ........... 12 ........... 30 ........ 41
    needs                 ^ r2           ^ r1
                          [0, 12) may go

* A consumer counts from the moment it is *expected*, not from its first ack: otherwise a trim could
  race with a consumer that is still starting.  A producer that restarted has heard nobody, so it
  trims nothing until all expected consumers have spoken (invariant 3).
* An ack says two things: *processed* to p, and may still ask *from* f.  Only f counts for trimming.
* An ack of an older term is refused, also by a producer that restarted: the owner keeps `terms`
  on disk (invariant 5).
* Control expects and removes replicas under a term of its own, because what it says may arrive late
  and twice: an older term changes nothing.  A replica that was removed is barred: it was perhaps
  only paused, and must neither hold back trimming with its next word nor be believed.  A newcomer
  holds back what the survivor does whose state it is given.
* An ack says under which of control's terms its replica was *placed*.  One that is placed anew on
  the same node begins empty and counts its own terms from 1: a late ack of its life before, which
  promised more than this one has, could not be told from its own.
* A follower that nobody declared holds nothing back; for it the newest `KEEP_EPOCHS` stay.
* An ack may carry a *seed*: what the consumer's successor must know to begin at `need`.  What it
  says is nobody's business here; the newest one is kept with its need, and given to the successor.
  An ack that was overtaken does not bring an older one back.

This module only decides.  It does no I/O and reads no clock.

>>> needs = Needs(); needs.expect("r1"); needs.expect("r2")
>>> needs.record("r1", term=1, processed=30, need=31)
>>> needs.trim_below(newest=41, keep=0)        # r2 has not spoken yet, so nothing may go.
0
>>> needs.record("r2", term=1, processed=11, need=12)
>>> needs.trim_below(newest=41, keep=0), needs.holder
(12, 'r2')
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unbroken.errors import FenceError, UnbrokenError

#: How many epochs of a sink stay for followers that come late (ten minutes of 1 s epochs).
KEEP_EPOCHS = 600
#: How many of them a take-over carries along, because somebody may be reading them right now.
UNDECLARED_EPOCHS = 16
#: An ack is said again after so long without news: a producer that was started again may have
#: heard nothing, and if its log is full there will be no news.
ACK_AGAIN_S = 2.0
#: Clients of one stream that are waited for by name.
CLIENTS_MAX = 256
#: Their names go with it: a successor has to wait for all of them.
SEED_BYTES_MAX = 32 << 10

Seed = Mapping[str, Any]


def ack(consumer: str, term: int, processed: int, *, placed: int = 0) -> dict[str, Any]:
    """What a consumer tells its producers when it has processed an epoch for good.

    A replica says under which of control's terms it was `placed`.

    >>> ack("totals@node-1", 3, 41, placed=7)["need"]
    42
    """
    return {
        "do": "ack", "consumer": consumer, "term": term, "processed": processed,
        "need": processed + 1, "placed": placed,
    }  # fmt: skip


@dataclass
class _Need:
    term: int = 0
    processed: int = -1
    #: Invariant: nothing at or above it is trimmed; None until the consumer has spoken.
    need: int | None = None
    seed: Seed | None = None
    #: Who is behind, further on, for whose sake it may need more; "" for nobody.
    owed_to: str = ""


#: The term of what control said last, and whether it expects the consumer.
Ruling = tuple[int, bool]


class Needs:
    """What the consumers of one stream may still ask for."""

    def __init__(
        self,
        terms: dict[str, int] | None = None,
        ruled: dict[str, Ruling] | None = None,
        seeds: Mapping[str, Any] | None = None,
    ) -> None:
        self._needs: dict[str, _Need] = {}
        self._terms = dict(terms or {})
        self._seeds_before = dict(seeds or {})
        #: What control said last of each consumer, to be kept on disk by the owner.
        self.ruled: dict[str, Ruling] = {c: (t, e) for c, (t, e) in (ruled or {}).items()}

    def expect(self, consumer: str, *, term: int = 0, like: str | None = None) -> None:
        """From now on `consumer` holds back trimming, as much as `like` does.

        >>> needs = Needs(); needs.expect("r@node-1")
        >>> needs.record("r@node-1", term=1, processed=8, need=9)
        >>> needs.expect("r@node-3", term=5, like="r@node-1"); needs.trim_below(newest=20, keep=0)
        9
        """
        known, expected = self.ruled.get(consumer, (0, True))
        if not expected and term <= known:
            return  # Barred, and nothing newer lets it in.
        if 0 < term < known:
            return  # Said before the last ruling: late.
        pattern = self._needs.get(like or "")  # It may be the consumer itself, in its last life.
        if term > known:
            # A new life of that replica: it counts its own terms from anew.
            self.ruled[consumer] = (term, True)
            self._terms.pop(consumer, None)
            self._needs.pop(consumer, None)
        if consumer not in self._needs:
            pattern = pattern or self._known_before(consumer)
            self._needs[consumer] = _Need(
                self._terms.get(consumer, 0), need=pattern.need, seed=pattern.seed
            )

    def _known_before(self, consumer: str) -> _Need:
        """What a producer that restarted still knows; nothing of a life that has ended."""
        kept = self._seeds_before.pop(consumer, None)
        if kept is None or kept["ruled"] != self.ruling(consumer):
            return _Need()
        return _Need(need=kept["need"], seed=kept["seed"])

    def ruling(self, consumer: str) -> int:
        """The term of what control said last of `consumer`; 0: nothing.

        >>> needs = Needs(); needs.expect("r@node-1", term=5); needs.ruling("r@node-1")
        5
        """
        return self.ruled.get(consumer, (0, True))[0]

    def record(
        self, consumer: str, *, term: int, processed: int, need: int, seed: Seed | None = None,
        owed_to: str = "", overtakes: str = "", placed: int = 0,
    ) -> None:  # fmt: skip
        """Takes an ack; a consumer that was not expected is expected from now on.

        One whom it `overtakes` will not go on from where it was, which control has on record.

        >>> needs = Needs(); needs.expect("r@node-1"); needs.expect("r@node-3", like="r@node-1")
        >>> needs.record("r@node-3", term=1, processed=-1, need=150, overtakes="r@node-1")
        >>> needs.trim_below(newest=200, keep=0)
        150
        """
        if seed is not None:
            _check_seed(consumer, seed)
        known = self._terms.get(consumer, 0)
        if self.barred(consumer):
            raise FenceError(
                f"ack of {consumer} refused: it was removed",
                hint="this replica was replaced; it should stop and rejoin as a spare",
            )
        if placed < self.ruling(consumer):
            raise FenceError(
                f"ack of {consumer} refused: it was placed under term {placed}, and anew under "
                f"{self.ruling(consumer)}",
                hint="its next beat tells this replica where it stands",
            )
        if term < known:
            raise FenceError(
                f"ack of {consumer} under term {term} refused: term {known} has begun",
                hint="this replica was replaced; it should stop and rejoin as a spare",
            )
        self._terms[consumer] = term
        entry = self._needs.setdefault(consumer, _Need())
        if seed is not None and (need, processed) >= (entry.need or 0, entry.processed):
            entry.seed = seed
        entry.term, entry.processed = term, max(entry.processed, processed)
        entry.owed_to = owed_to
        for each in (entry, self._needs.get(overtakes, entry)):
            each.need = max(each.need or 0, need)

    def remove(self, consumer: str, *, term: int = 0) -> None:
        """`consumer` will not come back: it no longer holds anything.

        Removed under a term, it is not believed any more either.
        """
        known, _ = self.ruled.get(consumer, (0, True))
        if term < known:
            return  # It was expected again in the meantime.
        if term:
            self.ruled[consumer] = (term, False)
        self._needs.pop(consumer, None)
        self._seeds_before.pop(consumer, None)

    def barred(self, consumer: str) -> bool:
        """Whether `consumer` was removed and not expected since."""
        return not self.ruled.get(consumer, (0, True))[1]

    @property
    def terms(self) -> Mapping[str, int]:
        """The highest term heard of each consumer, to be kept on disk by the owner."""
        return self._terms

    @property
    def seeds(self) -> dict[str, dict[str, Any]]:
        """Need and seed of each consumer that sent one, to be kept on disk by the owner."""
        return {
            name: {"need": entry.need, "seed": entry.seed, "ruled": self.ruling(name)}
            for name, entry in self._needs.items()
            if entry.seed is not None
        }

    def owed_to(self, consumer: str) -> str:
        """Whom `consumer` said to wait for, with its last ack; "" for nobody.

        >>> needs = Needs()
        >>> needs.record("b@node-2", term=1, processed=9, need=3, owed_to="sink")
        >>> needs.owed_to("b@node-2"), needs.owed_to("c@node-1")
        ('sink', '')
        """
        return self._needs[consumer].owed_to if consumer in self._needs else ""

    def seed(self, consumer: str) -> tuple[int | None, Seed | None]:
        """Where a successor of `consumer` begins, and what it must know for that.

        >>> needs = Needs(); needs.record("r", term=1, processed=9, need=4, seed={"first": 4})
        >>> needs.expect("r@node-2", term=1, like="r"); needs.seed("r@node-2")
        (4, {'first': 4})
        """
        entry = self._needs.get(consumer, _Need())
        return entry.need, entry.seed

    @property
    def processed(self) -> dict[str, int]:
        """How far each expected consumer has got, for `status`."""
        return {name: entry.processed for name, entry in self._needs.items()}

    @property
    def holder(self) -> str | None:
        """The consumer that holds back the most, by name."""
        if not self._needs:
            return None
        return min(self._needs, key=lambda name: self._needs[name].need or 0)

    def laggard(self, *, first: int, after: int) -> str | None:
        """The one for whose sake alone at least half of the epochs from `first` to `after` stay.

        A log that is full because everybody is slow has none: removing one would free nothing.

        >>> needs = Needs()
        >>> for name, need in [("r@node-1", 3), ("r@node-2", 39)]:
        ...     needs.record(name, term=1, processed=need - 1, need=need)
        >>> needs.laggard(first=3, after=41), needs.laggard(first=3, after=90)
        ('r@node-1', None)
        """
        holder = self.holder
        rest = [entry.need or 0 for name, entry in self._needs.items() if name != holder]
        freed = min([*rest, after]) - first
        return holder if holder and 2 * freed >= after - first > 0 else None

    @property
    def lowest(self) -> int | None:
        """The lowest need of the expected, 0 of one that has not spoken; None if none is expected.

        >>> Needs().lowest is None
        True
        """
        return min((entry.need or 0 for entry in self._needs.values()), default=None)

    def trim_below(self, *, newest: int, keep: int) -> int:
        """The first epoch that must stay, given the newest one and how many to keep anyway."""
        needed = [entry.need or 0 for entry in self._needs.values()]
        return max(0, min([*needed, newest + 1 - keep]))


def _check_seed(consumer: str, seed: object) -> None:
    size = len(json.dumps(seed)) if isinstance(seed, dict) else 0
    if not 0 < size <= SEED_BYTES_MAX:
        raise UnbrokenError(
            f"ack of {consumer} refused: its seed is {size:,} bytes of {type(seed).__name__}",
            hint=f"a seed is an object of at most {SEED_BYTES_MAX:,} bytes as JSON",
        )
