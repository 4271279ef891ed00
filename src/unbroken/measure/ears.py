"""Ears: what a client heard through a partition, and what that says about one cut.

    sealed      1   2   3   4   5   6   7   8
                    ✂ cut           │ healed
    heard       1            2' 3'4'5' 6' 7' 2 3 4 … 7  8
                    ◀─ wait ─▶                       ▲ stable again: as new as all that was heard

* The *wait* of a result is from the moment when its rows were sealed until the client has the first
  epoch of that number, tentative or stable.  It counts for epochs first heard between the cut and
  the moment when all is stable again.
* *Stable again* is the first final epoch after healing that is as new as everything heard before it
  and as the newest that was sealed when the cable was put back.
* A tentative epoch is *confirmed* by a stable one that says the same, *replaced* by one that does
  not, *given up* by a gap; what is none of these is *open*, and must not be in the end.

Only the arithmetic is here.  It reads no clock: whoever hears an epoch says when.

>>> ears = Ears()
>>> for n in range(3): ears.take(n + 0.4, Heard(n, STABLE, rows=5, sealed_s=float(n)))
>>> ears.take(5.9, Heard(3, TENTATIVE, rows=4, sealed_s=3.0))
>>> ears.take(7.0, Heard(3, STABLE, rows=5, sealed_s=3.0, replaced=True))
>>> effect = ears.effect(cut_s=2.5, healed_s=6.0, last=3)
>>> effect.wait_s, effect.usual_s, effect.tentative_rows, effect.stable_s, effect.replaced
(2.9, 0.4, 4, 1.0, 1)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from unbroken.epochs import FINAL, GAP, STABLE, TENTATIVE, Epoch

#: So many results before a cut say what is usual.
USUAL_EPOCHS = 10


@dataclass(frozen=True)
class Heard:
    """An epoch as a client heard it.

    >>> import pyarrow as pa
    >>> Heard.of(Epoch.of("alerts", 7, pa.table({"n": [1, 2]}), sealed_us=5_000_000))
    Heard(number=7, kind='stable', rows=2, sealed_s=5.0, replaced=False, confirmed=False)
    """

    number: int
    kind: str
    rows: int
    #: When the oldest of its input was sealed at the source.
    sealed_s: float
    #: Whether a tentative epoch of this number was heard before.
    replaced: bool = False
    confirmed: bool = False

    @classmethod
    def of(cls, epoch: Epoch) -> Heard:
        """What counts of `epoch`."""
        return cls(
            epoch.number, epoch.kind, epoch.rows, epoch.header.sealed_us / 1e6,
            epoch.replaces is not None, epoch.confirmed,
        )  # fmt: skip


@dataclass(frozen=True)
class Effect:
    """What one cut did to a result; seconds.

    >>> Effect(wait_s=2.9, usual_s=0.5, stable_s=None).stable_s is None
    True
    """

    #: The longest wait of a new result, and that of the undisturbed system before.
    wait_s: float | None
    usual_s: float | None
    #: From healing until stable again; None: it was not.
    stable_s: float | None
    tentative_rows: int = 0
    #: Tentative epochs, and what became of them.
    said: int = 0
    confirmed: int = 0
    replaced: int = 0
    given_up: int = 0

    @property
    def open(self) -> int:
        """Tentative epochs of which nothing became."""
        return self.said - self.confirmed - self.replaced - self.given_up


@dataclass
class Ears:
    """Everything that was heard of one stream, and when.

    >>> ears = Ears(); ears.take(1.5, Heard(0, STABLE, rows=1, sealed_s=1.0)); ears.latest_s(1)
    0.5
    """

    heard: list[tuple[float, Heard]] = field(default_factory=list)

    def take(self, at_s: float, heard: Heard) -> None:
        """The client has it."""
        self.heard.append((at_s, heard))

    def _first(self) -> dict[int, tuple[float, float]]:
        """When each number was heard first, and how long that took."""
        found: dict[int, tuple[float, float]] = {}
        for at_s, heard in list(self.heard):
            found.setdefault(heard.number, (at_s, at_s - heard.sealed_s))
        return found

    def latest_s(self, epochs: int) -> float | None:
        """The longest wait of the newest results; None if there are not so many."""
        waits = [wait_s for _, wait_s in self._first().values()][-epochs:]
        return max(waits) if len(waits) == epochs else None

    def stable_again(self, *, healed_s: float, last: int) -> float | None:
        """When everything was stable again after a cut; None: not yet.

        `last` is the newest epoch that was sealed when it was healed.
        """
        newest = last
        for at_s, heard in list(self.heard):
            newest = max(newest, heard.number)
            if at_s >= healed_s and heard.kind in FINAL and heard.number >= newest:
                return at_s
        return None

    def effect(self, *, cut_s: float, healed_s: float, last: int) -> Effect:
        """What one cut did, as far as it was heard yet."""
        stable_s = self.stable_again(healed_s=healed_s, last=last)
        end_s = float("inf") if stable_s is None else stable_s
        first = self._first().values()
        waits = [wait_s for at_s, wait_s in first if cut_s <= at_s <= end_s]
        usual = [wait_s for at_s, wait_s in first if at_s < cut_s][-USUAL_EPOCHS:]
        during = [heard for at_s, heard in list(self.heard) if cut_s <= at_s <= end_s]
        said = [heard for heard in during if heard.kind == TENTATIVE]
        became = [heard for heard in during if heard.replaced]
        return Effect(
            _rounded(max(waits, default=None)), _rounded(max(usual, default=None)),
            None if stable_s is None else round(stable_s - healed_s, 3),
            tentative_rows=sum(heard.rows for heard in said), said=len(said),
            confirmed=sum(heard.confirmed for heard in became),
            replaced=sum(heard.kind == STABLE and not heard.confirmed for heard in became),
            given_up=sum(heard.kind == GAP for heard in became),
        )  # fmt: skip


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
