"""Pasts: what an epoch was made of, back to the first one, whoever made it.

    b on node-2   48 ── 49 ── 50                   of a's epochs, as they were
    b on node-3   48 ── 49'── 50'── 51             of gaps, because a and node-2 were lost together

* A state is made of all inputs that a line of checkpoints was given.  Two copies of a fragment have
  one past; behind a gap there may be two, if one of them was given epochs that are lost by now.
* `follows` says whether one line may go on where another one ended: it was given the same, or
  gaps where the other one had epochs.  `lost` counts the rows that a line was not given.

The checkers use it (see `checkers`).  It knows nothing of the protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from unbroken.epochs import GAP
from unbroken.policies.past import Marks
from unbroken.testing.epochs import Epoch, digest_of
from unbroken.testing.operators import Batch, Operator, observe, step


class Past(NamedTuple):
    """The inputs of one epoch, and what came before."""

    before: Past | None
    inputs: tuple[Epoch, ...]

    @property
    def number(self) -> int:
        """The epoch that it is the past of."""
        return self.inputs[0].number

    def line(self) -> list[Past]:
        """All of it, the oldest first."""
        found: list[Past] = []
        each: Past | None = self
        while each is not None:
            found.append(each)
            each = each.before
        return found[::-1]


class Replay:
    """What an operator makes of pasts; each part of a line is computed once."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        #: By identity of the past, which is kept: state, watermarks and digest after it.
        self._done: dict[int, tuple[Past, dict[Any, Any], Marks, int, str]] = {}

    def digest(self, past: Past) -> str:
        """Of what comes out at the end of it."""
        todo: list[Past] = []
        each: Past | None = past
        while each is not None and id(each) not in self._done:
            todo.append(each)
            each = each.before
        operator = self._operator
        state: dict[Any, Any] = {}
        marks, late_ms = Marks(0, (None,) * operator.watermarks), 0
        if each is not None:
            _, state, marks, late_ms, _ = self._done[id(each)]
        for one in reversed(todo):
            rows = [tuple(epoch.table) for epoch in one.inputs]
            state, out = step(operator, state, rows, Batch(late_ms, marks.current_ms))
            late_ms, marks = marks.current_ms, observe(marks, operator, rows)
            self._done[id(one)] = one, state, marks, late_ms, digest_of(out)
        return self._done[id(past)][4]


def follows(before: Past, after: Past) -> str:
    """Why the line of `after` may not go on where the one of `before` ended; "" if it may."""
    if after.before is before:
        return ""
    older = {each.number: each.inputs for each in before.line()}
    for each in after.line():
        for had, has in zip(older.get(each.number, ()), each.inputs, strict=False):
            same = had.digest == has.digest
            if not same and has.kind != GAP and has.header.gaps_total <= had.header.gaps_total:
                return f"epoch {each.number} of {has.header.stream} was another one there"
    return ""


def lost(past: Past, rows: Callable[[Epoch], int]) -> int:
    """The rows that this line was not given; `rows` tells how many a gap has cost."""
    gaps = [epoch for each in past.line() for epoch in each.inputs if epoch.kind == GAP]
    return sum(rows(gap) for gap in gaps)
