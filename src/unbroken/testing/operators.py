"""What fragments compute in a simulation: one operator of each class, as small as it can be.

    map      repeatable     rows changed and filtered, from one input or several
    window   convergent     sums by key and window of event time, when the watermark has passed
    union    convergent     the same of two inputs, when the watermarks of both have passed
    session  convergent     sums by key and session: rows that are close belong together
    join     convergent     pairs of two inputs with one key, close in event time; two watermarks
    count    deterministic  how often each key was seen, for ever
    draw     arbitrary      a random number per epoch, chained to the one before

* Batch n drops late rows by the watermark after n - 2 and evicts by the one after n - 1, as Spark
  does; every watermark operator has its own mark, and the query's is the lowest of them.
* Rows are `(event ms, key, value)`; of `draw` they are `(event ms, number before, number)`: each
  epoch names the one that its state came from, so that state and output can be compared.

>>> state, out = step(OPERATORS["count"], {}, [((10, 1, 5), (11, 1, 6))], Batch(0, 0))
>>> state, out
({1: 2}, ((11, 1, 2),))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

from unbroken.policies.past import Marks
from unbroken.policies.traits import Endless, OperatorClass, Traits
from unbroken.policies.traits import Operator as Named
from unbroken.testing.epochs import Rows

DELAY_MS, WINDOW_MS, CLOSE_MS, QUIET_MS = 300, 500, 400, 300
State = dict[Any, Any]


class Batch(NamedTuple):
    """The two watermarks of a batch: rows before `late_ms` are dropped, `evict_ms` empties state.

    >>> Batch(late_ms=3, evict_ms=5).evict_ms
    5
    """

    late_ms: int
    evict_ms: int


@dataclass(frozen=True)
class Operator:
    """What a fragment computes, and what is known about it.

    >>> OPERATORS["join"].watermarks
    2
    """

    name: str
    traits: Traits
    #: How many inputs it can have.
    inputs: tuple[int, ...] = (1, 2)
    watermarks: int = 0


_SESSIONS = Endless(Named("sessions"), "", "", bounded=True, readable=True)
_BOUNDED = {"stateful": True, "delay_s": DELAY_MS / 1000}
OPERATORS = {
    each.name: each
    for each in (
        Operator("map", Traits()),
        Operator(
            "window",
            Traits(OperatorClass.CONVERGENT, history_s=WINDOW_MS / 1000, **_BOUNDED),  # type: ignore[arg-type]
            inputs=(1,),
            watermarks=1,
        ),
        Operator(
            "session",
            Traits(OperatorClass.CONVERGENT, history_s=None, endless=(_SESSIONS,), **_BOUNDED),  # type: ignore[arg-type]
            inputs=(1,),
            watermarks=1,
        ),
        Operator(
            "union",
            Traits(OperatorClass.CONVERGENT, history_s=WINDOW_MS / 1000, **_BOUNDED),  # type: ignore[arg-type]
            inputs=(2,),
            watermarks=2,
        ),
        Operator(
            "join",
            Traits(OperatorClass.CONVERGENT, history_s=CLOSE_MS / 1000, **_BOUNDED),  # type: ignore[arg-type]
            inputs=(2,),
            watermarks=2,
        ),
        Operator("count", Traits(OperatorClass.DETERMINISTIC, stateful=True, history_s=None)),
        Operator("draw", Traits(OperatorClass.ARBITRARY, stateful=True, history_s=None)),
    )
}


def operator_for(name: str, inputs: int) -> Operator:
    """The operator, as it is with so many inputs: a union watches the watermark of each.

    >>> operator_for("union", 3).watermarks
    3
    """
    operator = OPERATORS[name]
    return replace(operator, watermarks=inputs) if operator.watermarks > 1 else operator


def step(
    operator: Operator, state: State, inputs: Sequence[Rows], batch: Batch,
    draw: Callable[[], int] = lambda: 0,
) -> tuple[State, Rows]:  # fmt: skip
    """One epoch: the state after it, and its output.  The state before it is not changed."""
    return _STEPS[operator.name](state, inputs, batch, draw)


def observe(marks: Marks, operator: Operator, inputs: Sequence[Rows]) -> Marks:
    """The watermarks after an epoch, given those before it.

    >>> observe(Marks(0, (None,)), OPERATORS["window"], [((900, 1, 1),)])
    Marks(current_ms=600, operators=(600,))
    >>> observe(Marks(0, (None, None)), OPERATORS["union"], [((900, 1, 1),), ()])
    Marks(current_ms=0, operators=(600, None))
    """
    if not operator.watermarks:
        return marks
    own = list(marks.operators or (None,) * operator.watermarks)
    for place, rows in enumerate(inputs):
        if rows:
            mark = max(row[0] for row in rows) - DELAY_MS
            own[place] = mark if own[place] is None else max(mark, own[place])  # type: ignore[type-var]
    # An input that has had no row yet holds the query back, as in Spark.
    return Marks(max(marks.current_ms, min(mark or 0 for mark in own)), tuple(own))


def undisturbed(operator: Operator, epochs: Iterable[Sequence[Rows]]) -> Iterator[Rows]:
    """What comes out, epoch by epoch, when nothing ever goes wrong.

    >>> list(undisturbed(OPERATORS["count"], [[((10, 1, 5),)], [()], [((30, 1, 6),)]]))
    [((10, 1, 1),), (), ((30, 1, 2),)]
    """
    state: State = {}
    marks, late_ms = Marks(0, (None,) * operator.watermarks), 0
    for inputs in epochs:
        state, out = step(operator, state, inputs, Batch(late_ms, marks.current_ms))
        late_ms, marks = marks.current_ms, observe(marks, operator, inputs)
        yield out


def _map(state: State, inputs: Sequence[Rows], batch: Batch, draw: Any) -> tuple[State, Rows]:
    rows = inputs[0] if len(inputs) == 1 else tuple(row for each in inputs for row in each)
    return state, tuple((t, k, v * 31 % 10007) for t, k, v in rows if (v + k) % 4)


def _window(state: State, inputs: Sequence[Rows], batch: Batch, draw: Any) -> tuple[State, Rows]:
    after = dict(state)
    for time, key, value in chain.from_iterable(inputs):
        end = (time // WINDOW_MS + 1) * WINDOW_MS
        if end > batch.late_ms:
            after[end, key] = after.get((end, key), 0) + value
    over = sorted(place for place in after if place[0] <= batch.evict_ms)
    return after, tuple((end, key, after.pop((end, key)) % 10007) for end, key in over)


def _session(state: State, inputs: Sequence[Rows], batch: Batch, draw: Any) -> tuple[State, Rows]:
    """The state has the sessions of each key: start, end, sum."""
    after, out = {}, []
    new = [row for row in inputs[0] if row[0] + QUIET_MS > batch.late_ms]
    for key in sorted({*state, *(row[1] for row in new)}):
        sessions = [*state.get(key, ()), *((t, t + QUIET_MS, v) for t, k, v in new if k == key)]
        merged: list[tuple[int, int, int]] = []
        for start, end, value in sorted(sessions):
            if merged and start <= merged[-1][1]:
                before = merged.pop()
                start, end, value = before[0], max(end, before[1]), before[2] + value
            merged.append((start, end, value))
        out += [
            (end, key, (start + v) % 10007) for start, end, v in merged if end <= batch.evict_ms
        ]
        if kept := tuple(each for each in merged if each[1] > batch.evict_ms):
            after[key] = kept
    return after, tuple(out)


def oldest_session_ms(state: State) -> int | None:
    """When the oldest session starts that is open; as `engine.oldest.oldest_session_ms`.

    >>> oldest_session_ms({1: ((500, 800, 3),), 2: ((400, 900, 1),)})
    400
    """
    return min((each[0] for sessions in state.values() for each in sessions), default=None)


def _join(state: State, inputs: Sequence[Rows], batch: Batch, draw: Any) -> tuple[State, Rows]:
    sides: list[list[Any]] = [list(state.get(0, ())), list(state.get(1, ()))]
    out = []
    for side, rows in enumerate(inputs):
        for row in rows:
            if row[0] <= batch.late_ms:
                continue
            for other in sides[1 - side]:
                if other[1] == row[1] and abs(other[0] - row[0]) <= CLOSE_MS:
                    pair = (row, other) if side == 0 else (other, row)
                    value = (pair[0][2] * 101 + pair[1][2]) % 10007
                    out.append((max(row[0], other[0]), row[1], value))
            sides[side].append(row)
    kept = [tuple(r for r in rows if r[0] + CLOSE_MS >= batch.evict_ms) for rows in sides]
    return {0: kept[0], 1: kept[1]}, tuple(out)


def _count(state: State, inputs: Sequence[Rows], batch: Batch, draw: Any) -> tuple[State, Rows]:
    after = dict(state)
    seen: dict[int, int] = {}
    for rows in inputs:
        for time, key, _ in rows:
            after[key] = after.get(key, 0) + 1
            seen[key] = max(time, seen.get(key, 0))
    return after, tuple((time, key, after[key]) for key, time in sorted(seen.items()))


def _draw(state: State, inputs: Sequence[Rows], batch: Batch, draw: Any) -> tuple[State, Rows]:
    before, number = state.get(0, 0), draw()
    newest = max((row[0] for rows in inputs for row in rows), default=0)
    return {0: number}, ((newest, before, number),)


_STEPS: dict[str, Callable[..., tuple[State, Rows]]] = {
    "map": _map, "window": _window, "union": _window, "session": _session, "join": _join,
    "count": _count, "draw": _draw,
}  # fmt: skip
