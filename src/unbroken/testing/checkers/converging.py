"""What a fragment gives up instead of correcting it, and what goes on behind that.

    branch           412' 413' … 430' ┤ fork, with 19 headers     431' …
    output log       gap  gap  …  gap └ 431 432 …                 of what the branch knew after 430

* 4: given up is what the branch has done since it parted, all of it and nothing else, when all of
  its inputs are there.  A gap is in a log when the fork that has it is on disk, not before; and
  what a fork gives up is not made after all.
* 9: a gap says what its inputs had.  Every epoch behind it says how many are given up, and how many
  rows that is.  What the stable line makes from there on is what the operator makes of what that
  line was given: the branch's past, and then complete inputs (`outputs`).
* Who has heard a tentative epoch of such a number hears that nothing comes of it (`tentative`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unbroken.epochs import GAP
from unbroken.testing.checkers import Checkers
from unbroken.testing.checkers.base import Knows
from unbroken.testing.disk import Path
from unbroken.testing.epochs import Epoch


class Converging(Checkers):
    """Looks at branches whose own state goes on."""

    def __init__(self, sim: Any) -> None:
        super().__init__(sim)
        #: By the checkpoint of a branch: the last epoch before it parted.
        self._parted_after: dict[int, int] = {}
        #: By the checkpoint of a branch and number: what its operator alone would know.
        self._knows: dict[tuple[int, int], Knows] = {}
        #: By stream and number that was given up: how many were until then, and their rows.
        self._lost: dict[str, dict[int, tuple[int, int]]] = {name: {} for name in self.converging}

    def parted(self, run: Any) -> None:
        """A query goes on as a branch."""
        self._parted_after[id(run._checkpoint)] = run._after

    def knows(self, run: Any, number: int, knows: Knows) -> None:
        """What the operator of a branch knows after an epoch."""
        if run._plan.name in self.converging:
            self._knows[id(run._checkpoint), number] = knows

    def parked_later(self, folder: Path, source: Any, at: int, hole: Sequence[Any]) -> None:
        """Invariant 4: a branch is forked, and what it has done is given up."""
        stream = folder.name
        first, numbers = self._parted_after[id(source)] + 1, [header.number for header in hole]
        if numbers != list(range(first, at + 1)):
            self.break_(4, f"{stream} gives up {numbers}, its branch has done {first} to {at}")
        missing = [name for name in self.piece(stream).inputs if at not in self.contents[name]]
        if missing:
            self.break_(4, f"{stream} gives up {at}, and {', '.join(missing)} is not back yet")
        self.given_up[stream] |= dict.fromkeys(numbers)
        self.given_up[stream][at] = self._knows[id(source), at]
        self.countable[stream].update(numbers)
        gaps, rows = self._lost_until(stream, first)
        for number in numbers:
            inputs = [self.contents[name].get(number) for name in self.piece(stream).inputs]
            rows += sum(len(epoch.table) for epoch in inputs if epoch is not None)
            gaps += 1
            self._lost[stream][number] = gaps, rows
        self._point("given up", folder, stream, at)

    def _lost_until(self, stream: str, number: int) -> tuple[int, int]:
        """Epochs and rows that a stream itself has given up, of all up to a number."""
        lost = self._lost.get(stream, {})
        return lost.get(max((each for each in lost if each <= number), default=-1), (0, 0))

    def _point(self, where: str, folder: Path, stream: str, number: int) -> None:
        process = self._sim.world.process(folder.disk.name)
        self._sim.faults.point(process, where, stream, number)

    def appended(self, folder: Path, epoch: Epoch) -> None:
        """Invariants 4 and 9: what is in a log, of a fragment that converges or behind one."""
        super().appended(folder, epoch)
        stream, number = epoch.header.stream, epoch.number
        if folder.name != "output" or not self.converging or self.gaps:
            return
        given_up = number in self.given_up.get(stream, {})
        if (epoch.kind == GAP) != given_up:
            why = "which was given up" if given_up else "which no fork gives up"
            self.break_(4, f"{folder} has epoch {number} as {epoch.kind}, {why}")
        here, total = self._lost_until(stream, number), [0, 0]
        for name in self.piece(stream).inputs:
            before = self.contents[name][number].header
            total = [total[0] + before.gaps_total, total[1] + before.lost_total]
        told = epoch.header
        wanted = (*here, here[0] + total[0], here[1] + total[1])
        if (told.gaps_here, told.lost_here, told.gaps_total, told.lost_total) != wanted:
            self.break_(
                9, f"{number} of {stream} says that {told.gaps_here} epochs and {told.lost_here} "
                f"rows are lost here, {told.gaps_total} and {told.lost_total} in all, but that was "
                f"{wanted}",
            )  # fmt: skip
        if given_up:
            self._point("gap", folder, stream, number)
