"""Shrinking: the smallest life that still goes wrong in the same way.

    7 faults, 5 nodes, 200 epochs ─▶ 1 fault, 3 nodes, 60 epochs

* Faults are left out one by one, then epochs, then fragments that nobody reads, then nodes; what
  still breaks the same invariant is kept.  Chance is the same only as far as nothing was left out,
  so the smaller life may go wrong elsewhere; only the invariant's number counts.

>>> from unbroken.testing.life import Fault, random_life
>>> life = random_life(5, faults=["crash"], epochs=60)
>>> smallest(life, lambda smaller: len(smaller.faults) >= 1).faults == life.faults[-1:]
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from unbroken.testing.life import CALM_S, DIE_AT, EPOCH_S, Life

#: Lives that are tried at most.
TRIES_MAX = 60


def smallest(life: Life, still_wrong: Callable[[Life], bool], tries: int = TRIES_MAX) -> Life:
    """The smallest of the lives tried for which `still_wrong` holds."""
    again = True
    while again:
        again = False
        for smaller in _smaller(life):
            if tries <= 0:
                return life
            tries -= 1
            if still_wrong(smaller):
                life, again = smaller, True
                break
    return life


def _smaller(life: Life) -> Iterator[Life]:
    if len(life.faults) > 2:
        half = len(life.faults) // 2
        yield life.without(life.faults[:half])
        yield life.without(life.faults[half:])
    for fault in life.faults:
        yield life.without([fault])
    last_s = max((fault.at_s for fault in life.faults), default=CALM_S)
    for epochs in (int((last_s + 3.0) / EPOCH_S), int(life.epochs * 0.8)):
        if 20 <= epochs < life.epochs * 0.95 and last_s <= epochs * EPOCH_S:
            yield replace(life, epochs=epochs)
    read = {stream for piece in life.pieces for stream in piece.inputs}
    for piece in life.pieces:
        if piece.name not in read and len(life.pieces) > 1:
            rest = tuple(p for p in life.pieces if p is not piece)
            still = {stream for other in rest for stream in other.inputs}
            sinks = tuple(p.name for p in rest if p.name not in still)
            named = {f"sink-{sink}" for sink in sinks} | {"keeper", "control", "network"}
            kept = tuple(
                f for f in life.faults
                if (not f.who.startswith("sink-") or f.who in named)
                and (f.what != DIE_AT or f.other.rpartition(" ")[2] != piece.name)
            )  # fmt: skip
            yield replace(life, pieces=rest, sinks=sinks, faults=kept)
    needed = max(piece.policy.copies for piece in life.pieces)
    gone = f"node-{life.nodes}"
    if life.nodes > max(2, needed):
        kept = tuple(f for f in life.faults if gone not in (f.who, f.other))
        yield replace(life, nodes=life.nodes - 1, faults=kept)
