"""Invariant 9: in the end every stream is what its operators make of its inputs.

The undisturbed run is computed by the operators alone, from what the sources sealed.  Behind a gap
it begins anew, from nothing; behind what a fragment has given up it goes on with what its branch
knew; behind a draw it takes what was drawn, and looks whether each draw follows from the one
before.
"""

from __future__ import annotations

from typing import Any

from unbroken.epochs import GAP
from unbroken.policies.past import Marks
from unbroken.testing.checkers.base import Looking, text_of
from unbroken.testing.epochs import Epoch, digest_of
from unbroken.testing.operators import Batch, observe, step


class Outputs(Looking):
    """Looks at all that was made, when it is over."""

    def outputs(self) -> None:
        """Invariant 9: every stream is what its operators make of its inputs."""
        for piece in self._sim.life.pieces:
            self._output(piece)
        for sink in self._sim.sinks():
            self._holes(sink.stream)
            if sink.stream in self._behind.streams | self._behind.gaps:
                self._behind.check(sink)

    def _output(self, piece: Any) -> None:
        if piece.name in self._behind.streams | self._behind.gaps:
            return  # Looked at with its sinks: who has none has no line of its own.
        if piece.name in self.gaps and piece.name not in self._sim.life.sinks:
            return  # Nobody has it but gap fragments, which may begin anew behind it.
        operator = self._sim.plans[piece.name].operator
        made = self.contents.get(piece.name, {})
        state: dict[Any, Any] = {}
        marks, late_ms, drawn = Marks(0, (None,) * operator.watermarks), 0, 0
        for number in range(max(made, default=-1) + 1):
            inputs = [self.contents.get(name, {}).get(number) for name in piece.inputs]
            there = made.get(number)
            gone = there is None or there.kind == GAP
            if any(epoch is None for epoch in inputs) and not gone:
                self.break_(9, f"{piece.name} has epoch {number}, and its inputs do not")
                return
            rows = [tuple(epoch.table) for epoch in inputs if epoch is not None]
            if there is not None and there.kind != GAP:
                rows = self._made_of.get((piece.name, number, there.digest), rows)
            given_up = self.given_up.get(piece.name, {})
            if there is not None and there.kind == GAP and number in given_up:
                # Behind it the branch's own line goes on.
                state, marks, late_ms = given_up[number] or (state, marks, late_ms)
                continue
            if there is not None and there.kind == GAP:
                if piece.protection != "gap":
                    self.break_(9, f"{piece.name} has a gap at {number}, it is {piece.protection}")
                state, marks, late_ms = {}, Marks(0, (None,) * operator.watermarks), 0
                continue
            if operator.name == "draw":
                if there is not None:
                    (_, before, number_drawn), *more = there.table
                    if before != drawn or more:
                        self.break_(
                            9, f"{piece.name}: epoch {number} follows the draw {before}, but "
                            f"{drawn} was shown",
                        )  # fmt: skip
                    drawn = number_drawn
                continue
            batch = Batch(late_ms, marks.current_ms)
            state, out = step(operator, state, rows, batch)
            late_ms, marks = marks.current_ms, observe(marks, operator, rows)
            if there is not None and there.header.digest != digest_of(out):
                self.break_(
                    9, f"{piece.name}: epoch {number} is {text_of(there)}, undisturbed it would be "
                    f"{out}",
                )  # fmt: skip
                return

    def lost_with(self, piece: Any, gap: Epoch) -> None:
        """A gap is made: it says what it has cost.  Later its inputs may be lost too."""
        inputs = [self.contents.get(name, {}).get(gap.number) for name in piece.inputs]
        there = [epoch for epoch in inputs if epoch is not None]
        cost = sum(len(epoch.table) + epoch.header.lost for epoch in there)
        told = gap.header.lost
        if told > cost or (gap.number in self.countable[piece.name] and told != cost):
            self.break_(
                9, f"{piece.name}: the gap at {gap.number} says {told} rows are lost, its inputs "
                f"had {cost}",
            )  # fmt: skip

    def _holes(self, stream: str) -> None:
        """Gaps that were delivered are those on record."""
        gaps = {n for n, epoch in self.contents.get(stream, {}).items() if epoch.kind == GAP}
        known = {
            n for hole in self._sim.records.holes(stream) for n in range(hole.first, hole.last + 1)
        }
        known |= self.given_up.get(stream, {}).keys()
        if not gaps <= known:
            self.break_(9, f"{stream}: gaps {sorted(gaps - known)} are on no record")
