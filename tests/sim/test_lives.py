"""Lives by chance have every shape of graph, and faults from the first moment on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from unbroken.testing import Life, random_life
from unbroken.testing.life import CALM_S

LIVES = 500
#: Each shape occurs at least so often in them.
OFTEN = 10


def ways(life: Life, stream: str) -> Counter[str]:
    """On how many ways a stream begins in each source and fragment before it."""
    inputs = {piece.name: piece.inputs for piece in life.pieces}
    before: Counter[str] = Counter(inputs.get(stream, ()))
    for name in inputs.get(stream, ()):
        before += ways(life, name)
    return before


def shapes(life: Life) -> Iterator[str]:
    """What the graph of a life has in it."""
    readers = Counter(stream for piece in life.pieces for stream in piece.inputs)
    made = {piece.name for piece in life.pieces}
    for piece in life.pieces:
        if made.intersection(piece.inputs):
            yield "chain"
        if len(piece.inputs) > 1:
            yield "join"
        if readers[piece.name] > 1:
            yield "fan-out"
        # An input that is also read further before is a short cut; here no way is another's part.
        apart = [ways(life, name) + Counter([name]) for name in piece.inputs]
        if any(
            set(one) & set(other) and first not in other and second not in one
            for first, one in zip(piece.inputs, apart, strict=True)
            for second, other in zip(piece.inputs, apart, strict=True)
            if first < second
        ):
            yield "diamond"
    if len({life.stream_of(sink) for sink in life.sinks}) > 1:
        yield "two sinks"
    if all(life.stream_of(sink) in made - set(readers) for sink in life.sinks):
        yield "sinks are what nobody reads"


def test_every_shape_of_graph_occurs_often():
    """Chains, joins, two readers of one stream, two ways that meet again, two sinks."""
    counted = Counter(shape for seed in range(LIVES) for shape in set(shapes(random_life(seed))))
    assert counted["sinks are what nobody reads"] == LIVES
    for shape in ("chain", "join", "fan-out", "diamond", "two sinks"):
        assert counted[shape] >= OFTEN, counted


def test_one_life_of_ten_has_faults_in_the_beginning():
    """Before the first placement, during the first start, before anything is committed."""
    first_s = [random_life(seed).faults[0].at_s for seed in range(LIVES)]
    early = [at_s for at_s in first_s if at_s < CALM_S]
    assert LIVES * 0.05 < len(early) < LIVES * 0.15
    for second in (0.5, 1.0, 1.5, 2.0):
        assert sum(second - 0.5 <= at_s < second for at_s in early) >= 3
