"""Behind a gap: what must hold of streams that are not given up, but made of one that is.

    a (gap)        48   49   50   lost, from 49 on
    b on node-2    48   49   50   shown, and lost with a
    b on node-3    48   49'  50'  51  …         made of gaps: goes on
    sink of b      48   49   50   51  …         and hears with 51 what is lost

* An epoch may have two contents if one of them was made of epochs that are lost by now.  Each says
  how many are lost before it: for each number of them there is one content (invariant 1).
* What a sink has of each number is what the operator makes of the inputs that some copy was given,
  and each of its epochs goes on from the one before, or from a line that has lost more
  (invariant 9).
* It hears of all rows that the line it ends with was not given (invariant 9).
* The same holds of a gap fragment behind another one, which begins from nothing after its own gaps.
"""

from __future__ import annotations

from typing import Any

from unbroken.epochs import GAP, lost_since
from unbroken.testing.disk import Path
from unbroken.testing.epochs import Epoch
from unbroken.testing.pasts import Past, Replay, follows, lost


class Behind:
    """Told of everything that appears behind a gap."""

    def __init__(self, sim: Any, checkers: Any) -> None:
        self._sim, self._checkers = sim, checkers
        #: Fragments that are not under gap, but read what is, or is made of it.
        self.streams: set[str] = set()
        #: Those that are under gap themselves.
        self.gaps: set[str] = set()
        for piece in sim.life.pieces:
            before = (checkers.gaps | self.streams).intersection(piece.inputs)
            if before and piece.name not in checkers.gaps:
                self.streams.add(piece.name)
            elif before:
                self.gaps.add(piece.name)
        #: By stream, number, and how many epochs are lost before.
        self._contents: dict[tuple[str, int, int], Epoch] = {}
        #: What each was made of, by stream, number and digest.
        self._pasts: dict[tuple[str, int, str], list[Past]] = {}
        #: Stream to what was given up of it, by number.
        self._gaps: dict[str, dict[int, Epoch]] = {}

    def gap(self, gap: Epoch) -> None:
        """An epoch is given up."""
        self._gaps.setdefault(gap.header.stream, {})[gap.number] = gap

    def made(self, stream: str, past: Past, digest: str) -> None:
        """An engine has made something of its past."""
        self._pasts.setdefault((stream, past.number, digest), []).append(past)

    def known(self, epoch: Epoch) -> Epoch | None:
        """What appeared first under its number, with as much lost before."""
        header = epoch.header
        return self._contents.get((header.stream, header.number, header.gaps_total))

    def appended(self, folder: Path, epoch: Epoch) -> None:
        """Invariant 1: an epoch is in a log."""
        header = epoch.header
        key = header.stream, header.number, header.gaps_total
        known = self._contents.setdefault(key, epoch)
        if known.digest != epoch.digest:
            self._checkers.break_(
                1, f"epoch {header.number} of {header.stream} is {tuple(epoch.table)} in {folder}, "
                f"and was {tuple(known.table)}; both are behind {header.gaps_total} lost ones",
            )  # fmt: skip
        self._checkers.contents.setdefault(header.stream, {})[header.number] = epoch

    def check(self, sink: Any) -> None:
        """Invariant 9: what a sink has in the end."""
        operator = self._sim.plans[sink.stream].operator
        replay, heard = Replay(operator), 0
        last: Epoch | None = None
        pasts: list[Past] = []
        for number in range(sink.log.first, sink.next):
            epoch = sink.log.read(number)
            if epoch.kind == GAP:
                heard += lost_since(last.header if last is not None else None, epoch.header)
                pasts, last = [], epoch
                continue
            made = self._pasts.get((sink.stream, number, epoch.digest), [])
            if operator.name == "draw":
                before = last.table[0][2] if last is not None else 0
                if epoch.table[0][1] != before:
                    self._break(f"{sink.name}: epoch {number} does not follow the draw {before}")
            else:
                made = [past for past in made if replay.digest(past) == epoch.digest]
            if not made:
                rows = tuple(epoch.table)
                self._break(f"{sink.name}: epoch {number} is {rows}, which nobody could make")
                return
            why = [follows(past, then) for past in pasts for then in made]
            if why and all(why):
                self._break(f"{sink.name}: epoch {number} does not go on from its own: {why[0]}")
            heard += lost_since(last.header if last is not None else None, epoch.header)
            pasts, last = made, epoch
        if pasts and last is not None and self._counts(sink.stream):
            self._heard(sink, last, pasts, heard)

    def _heard(self, sink: Any, last: Epoch, pasts: list[Past], heard: int) -> None:
        least = min(lost(past, self._rows_known) for past in pasts)
        most = self._ever_lost(sink.stream, last.number) + last.header.lost_here
        if heard < least or last.header.lost_total > most:
            self._break(
                f"{sink.name} has heard of {heard} lost rows, {last.header.lost_total} in all, but "
                f"what it has in the end is without {least} to {most}"
            )

    def _counts(self, stream: str) -> bool:
        """Whether all gaps before a stream are right before it, and right behind the sources."""
        by_name = {piece.name: piece for piece in self._sim.life.pieces}
        inputs = by_name[stream].inputs
        gaps = [by_name[name] for name in inputs if name in self._checkers.gaps]
        simple = all(set(gap.inputs) <= set(self._sim.life.sources) for gap in gaps)
        return simple and not self.streams.intersection(inputs)

    def _ever_lost(self, stream: str, last: int) -> int:
        """All rows that were given up, for any consumer, in front of `stream`."""
        (piece,) = (p for p in self._sim.life.pieces if p.name == stream)
        gaps = [gap for name in piece.inputs for gap in self._gaps.get(name, {}).values()]
        return sum(self._rows(gap) for gap in gaps if gap.number <= last)

    def _rows(self, gap: Epoch) -> int:
        """The rows that a gap has cost."""
        (piece,) = (p for p in self._sim.life.pieces if p.name == gap.header.stream)
        contents = self._checkers.contents
        return sum(len(contents[name][gap.number].table) for name in piece.inputs)

    def _rows_known(self, gap: Epoch) -> int:
        """The same, if they could be counted when it was made."""
        countable = gap.number in self._checkers.countable[gap.header.stream]
        return self._rows(gap) if countable else 0

    def _break(self, what: str) -> None:
        self._checkers.break_(9, what)
