"""Golden lives: what is said in them shows that the bad day still happens.

    lived(life, r"control: a: node-2 takes over", r"node-2: took over a")   said, in this order
    astray(life, rule("two writers"))                                       and without the rule?

A life in which nothing goes wrong proves little by itself: a fault that hits somebody else, because
fragments are placed otherwise by now, would leave it as good.  So each tells what is to be heard
in it; and where its rule can be left out, that it goes wrong then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from unbroken.testing import SMALL_KEEP_EPOCHS, Checkers, Fault, Life, Piece, Sim, Violation
from unbroken.testing.broken import Change
from unbroken.testing.patches import patched
from unbroken.testing.variants import VARIANTS

#: Leaves a rule out.
Rule = Callable[[], list[Change]]


@dataclass(frozen=True)
class Lived:
    """A life, and how it is known."""

    life: Life
    #: Patterns for lines "who: text" of the story, each after the one before.
    shows: tuple[str, ...]
    #: Patterns that no line may have.
    never: tuple[str, ...] = ()
    #: The rule left out: then this life goes another way.
    without: Rule | None = None
    #: What else must be so in the end.
    also: Callable[[Sim], bool] | None = None
    #: What is different in this life, besides its faults.
    under: Rule = list
    #: Who looks at it.
    checkers: type[Checkers] = Checkers


def rule(name: str) -> Rule:
    """Leaves a rule out, as the variant called `name` does."""
    return VARIANTS[name].changes


def life(
    pieces: Sequence[Piece], faults: Sequence[Fault], *, nodes: int = 3, epochs: int = 200,
    sinks: tuple[str, ...] = (), seed: int = 7, log_bytes_max: int = 0, keep_epochs: int = 0,
) -> Life:  # fmt: skip
    """A life by hand; unless told otherwise whatever nobody reads has a sink.

    Where logs are small, little is kept for strangers too.
    """
    read = {stream for piece in pieces for stream in piece.inputs}
    made = {piece.name for piece in pieces}
    sinks = sinks or tuple(sorted(made - read))
    sources = tuple(sorted(read - made))
    made_life = Life(seed, nodes, sources, tuple(pieces), epochs, tuple(faults), sinks)
    if log_bytes_max:
        made_life = replace(made_life, log_bytes_max=log_bytes_max, keep_epochs=SMALL_KEEP_EPOCHS)
    return replace(made_life, keep_epochs=keep_epochs) if keep_epochs else made_life


def complaints(row: Lived, sim: Sim | None = None) -> list[str]:
    """What is not as it should be in the life of `row`."""
    sim = sim or Sim(row.life, row.checkers)
    with patched(row.under()):
        result = sim.run()
    if result.violation is not None:
        return [str(result.violation), "", row.life.text, *map(str, result.story)]
    lines = [f"{line.who}: {line.text}" for line in result.story]
    wrong = []
    place = 0
    for pattern in row.shows:
        found = [n for n, line in enumerate(lines[place:], place) if re.search(pattern, line)]
        place = found[0] + 1 if found else place
        wrong += [] if found else [f"nobody says {pattern!r} after line {place}"]
    wrong += [line for line in lines for pattern in row.never if re.search(pattern, line)]
    if row.also is not None and not row.also(sim):
        wrong.append(str(row.also.__doc__))
    return [*wrong, "", row.life.text, *map(str, result.story)] if wrong else []


def lived(one: Life, *shows: str, never: Sequence[str] = ()) -> Sim:
    """Lives it: nothing goes wrong, this is said in this order, and that is not."""
    sim = Sim(one)
    wrong = complaints(Lived(one, shows, tuple(never)), sim)
    assert not wrong, "\n".join(wrong)
    return sim


def astray(one: Life, without: Rule) -> Violation:
    """What goes wrong in it when a rule is left out."""
    with patched(without()):
        found = Sim(one).run().violation
    assert found is not None, "the rule is not what saves it"
    return found


def there(sim: Sim) -> bool:
    """Every sink has all epochs, and none has stopped."""
    return all(sink.error is None and sink.next >= sim.life.epochs for sink in sim.sinks())
