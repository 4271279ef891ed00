"""What a client heard through a network partition, in figures: said, corrected, how late.

    412'  413'  414'   412 confirmed   413 replaced: 2 rows withdrawn, 3 added   414 confirmed

A new result is the first epoch of a number, tentative or stable; it is as late as it came after
the oldest of its inputs was sealed at its source.

>>> import pyarrow as pa
>>> said = Said()
>>> rows = pa.table({"n": [1]})
>>> said.heard(Epoch.of("alerts", 0, rows, kind=TENTATIVE, sealed_us=5_000_000), 8.5)
>>> said.heard(Epoch.of("alerts", 0, rows), 20.0)
>>> said.tentative, said.stable[0].number, said.longest_s()
(1, 0, 3.5)
"""

from __future__ import annotations

from unbroken.epochs import TENTATIVE, Epoch


class Said:
    """Counts what is heard of one stream."""

    def __init__(self) -> None:
        self.stable: list[Epoch] = []
        #: Tentative epochs that were said, and what became of them.
        self.tentative = self.confirmed = self.replaced = 0
        #: Rows of replaced epochs.
        self.withdrawn = self.added = 0
        #: Numbers that were said and that no stable epoch has replaced yet.
        self.open: set[int] = set()
        #: Epoch to how late the first of its number was, and when it came.
        self._late_s: dict[int, tuple[float, float]] = {}

    def heard(self, epoch: Epoch, at_s: float) -> None:
        """An epoch came at `at_s`, by the clock on the wall."""
        if epoch.header.sealed_us:
            late_s = at_s - epoch.header.sealed_us / 1e6
            self._late_s.setdefault(epoch.number, (late_s, at_s))
        if epoch.kind == TENTATIVE:
            self.tentative += 1
            self.open.add(epoch.number)
            return
        self.stable.append(epoch)
        self.open.discard(epoch.number)
        if epoch.replaces is None:
            return
        self.confirmed += epoch.confirmed
        self.replaced += not epoch.confirmed
        for name in ("withdrawn", "added"):
            rows = getattr(epoch.replaces, name)
            setattr(self, name, getattr(self, name) + (0 if rows is None else rows.num_rows))

    def longest_s(
        self, since_s: float = 0.0, until_s: float = float("inf"), *, first: int = 0
    ) -> float:
        """How late the latest new result was, from epoch `first` on, that came in that time.

        >>> Said().longest_s()
        0.0
        """
        late = [
            late_s
            for number, (late_s, at_s) in self._late_s.items()
            if number >= first and since_s <= at_s < until_s
        ]
        return round(max(late, default=0.0), 3)
