"""Protocols that are broken on purpose: each must be caught, or the checkers prove nothing.

    with variant("fencing off"):
        simulate(random_life(12))          # violation of invariant 5

* A variant replaces one small thing of the real code: a rule left out, a number too high by one.
* With it come the faults and policies under which it matters, the invariants that it breaks, and
  within how many seeds it is caught, counted from 0.  `tests/sim/test_variants.py` runs all.

>>> len(VARIANTS) >= 20
True
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from unbroken.errors import DefinitionError
from unbroken.testing import broken, broken_branches, broken_engine
from unbroken.testing.broken import Change
from unbroken.testing.cut_lives import random_cut_life
from unbroken.testing.life import SMALL_KEEP_EPOCHS, Fault, Life, Piece, random_life
from unbroken.testing.patches import patched


@dataclass(frozen=True)
class Variant:
    """One broken protocol.

    >>> VARIANTS["acks before the commit"].breaks
    (6,)
    """

    what: str
    changes: Callable[[], list[Change]]
    #: The invariants that may show it; another one would be caught by accident.
    breaks: tuple[int, ...]
    #: Under these it matters.
    faults: tuple[str, ...] = ("crash",)
    policies: tuple[str, ...] = ("active", "passive", "upstream", "gap", "restart")
    #: Caught within so many seeds, from 0 on.
    seeds: int = 20
    #: One life that was made for it, where chance would take too long.
    life: Life | None = None
    #: Lives with delay bounds and cuts, whatever `faults` and `policies` say.
    cuts: bool = False

    def lives(self) -> Iterator[Life]:
        """The lives in which it is to be caught.

        >>> next(VARIANTS["acks before the commit"].lives()).seed
        0
        """
        if self.life is not None:
            yield self.life
            return
        for seed in range(self.seeds):
            if self.cuts:
                yield random_cut_life(seed)
                continue
            yield random_life(seed, faults=self.faults, policies=self.policies)


@contextlib.contextmanager
def variant(name: str) -> Iterator[None]:
    """Breaks the protocol in the way called `name`; "" leaves it whole.

    >>> with variant("fencing off"): pass
    """
    if name and name not in VARIANTS:
        raise DefinitionError(f"no variant {name!r}", hint="one of " + ", ".join(VARIANTS))
    changes = VARIANTS[name].changes() if name else []
    with patched(changes):
        yield


def _life(operator: str, protection: str, *faults: Fault) -> Life:
    piece = Piece("a", operator, ("s1",), protection)
    # A backup has nowhere else to go; a copy needs a third node.
    nodes = 2 if protection == "passive" else 3
    return Life(4, nodes, ("s1",), (piece,), 240, faults, ("a",))


def _small(life: Life, rows: int) -> Life:
    """The same with small logs."""
    return replace(life, log_bytes_max=rows, keep_epochs=SMALL_KEEP_EPOCHS)


def _behind(how: str) -> Life:
    """A gap fragment is lost together with the copy of its consumer that is furthest."""
    pieces = Piece("a", "map", ("s1",), "gap"), Piece("b", "count", ("a",), "active")
    faults = (
        Fault(4.0, "pause", "node-3", 1.5), Fault(5.0, "lose", "node-2", 20.0),
        Fault(5.0, how, "node-1", 4.0),
    )  # fmt: skip
    return Life(7, 4 if how == "lose" else 3, ("s1",), pieces, 200, faults, ("b",))


def _works(*faults: Fault) -> Life:
    """A gap fragment is lost while its only consumer works on an epoch of it."""
    pieces = Piece("a", "map", ("s1",), "gap"), Piece("d", "count", ("a",), "restart")
    lost = Fault(6.6, "lose", "node-1", 20.0)
    return Life(7, 3, ("s1",), pieces, 200, (*faults, lost), ("d",))


def _waits(*faults: Fault) -> Life:
    """A gap fragment is lost, and what joins it with another one has read ahead."""
    pieces = (
        Piece("a", "map", ("s1",), "gap"), Piece("c", "map", ("s1",), "restart"),
        Piece("d", "join", ("a", "c"), "restart"),
    )  # fmt: skip
    lost = Fault(6.6, "lose", "node-1", 20.0)
    return Life(7, 4, ("s1",), pieces, 200, (*faults, lost), ("d",))


def _joins(*faults: Fault) -> Life:
    """A join without a policy: it has two watermarks, and one of two inputs may be empty."""
    piece = Piece("a", "join", ("s1", "s2"), "restart")
    return Life(4, 2, ("s1", "s2"), (piece,), 240, faults, ("a",))


def _cut(protection: str, *faults: Fault) -> Life:
    """What joins two relays has a delay bound, and one of them is cut off."""
    pieces = (
        Piece("a", "map", ("s1",), "restart"), Piece("b", "map", ("s2",), "restart"),
        Piece("c", "count", ("a", "b"), protection, max_delay=1.0),
    )  # fmt: skip
    return Life(7, 4, ("s1", "s2"), pieces, 200, faults, ("c",))


def _given_up(*faults: Fault) -> Life:
    """The same, and what is said meanwhile is given up."""
    life = _cut("restart", Fault(5.0, "cut", "node-3", 4.0, "node-2"), *faults)
    joins = replace(life.pieces[2], operator="union", when_healed="converge")
    return replace(life, pieces=(*life.pieces[:2], joins))


#: One sink is behind the other when the gap fragment that they follow dies (scenario 13).
_TWO_SINKS = replace(
    _life("window", "gap", Fault(4.8, "slow", "sink-a-2", 1.0, "node-1", much=2.0),
          Fault(5.2, "crash", "node-1", 3.0)),
    sinks=("a", "a-2"),
)  # fmt: skip
#: One input of a chain is late, and another one further on, each for less than the bound.
_TWICE = Life(
    7, 4, ("s1", "s2"),
    (
        Piece("a", "map", ("s1",), "restart"), Piece("b", "map", ("s2",), "restart"),
        Piece("c", "union", ("a", "b"), "restart", max_delay=3.0),
        Piece("d", "union", ("a", "c"), "restart", max_delay=3.0),
    ),
    200, (Fault(5.0, "cut", "node-3", 1.5, "node-2"), Fault(5.0, "cut", "node-4", 6.0, "node-1")),
    ("d",),
)  # fmt: skip
#: Its consumer is away when a machine goes down, and asks for what was not synced.
_TORN = Life(
    8, 3, ("s1",), (Piece("a", "map", ("s1",), "restart"), Piece("b", "count", ("a",), "restart")),
    200, (Fault(4.0, "pause", "node-2", 5.0), Fault(6.0, "power", "node-1", 0.3)), ("b",),
)  # fmt: skip
#: The writer goes on while its layers are on a slow way; in the end its backup needs them.
_SHIPPED = _life("count", "passive", Fault(4.0, "slow", "node-1", 5.0, "node-2", much=0.15),
                 Fault(8.5, "crash", "node-1", 3.0))  # fmt: skip
VARIANTS: dict[str, Variant] = {
    each.what: each
    for each in (
        Variant("acks before the layers are shipped", broken.acks_before_shipped, (6,),
                policies=("passive",)),
        Variant("trims at processed instead of needed", broken.trims_at_processed, (3,),
                policies=("upstream",)),
        Variant("fencing off", broken.no_fence, (5,), life=_life(
            "count", "restart", Fault(4.0, "repeat", "network", 12.0, much=0.3),
            *(Fault(at_s, "crash", "node-1", 0.3) for at_s in (6.0, 9.0, 12.0)))),
        Variant("duplicate removal off", broken.takes_again, (3,), policies=("active",)),
        Variant("a merge that trusts arrival order",
                broken.arrival_order, (11,), ("crash", "pause")),
        Variant("take-over from the wrong epoch", broken_engine.wrong_epoch, (6,)),
        Variant("a seed that begins too late", broken.seed_too_late, (1,),
                policies=("upstream",)),
        Variant("counted live before it caught up", broken.live_too_soon, (8,),
                policies=("active", "passive")),
        Variant("the output log left out of shipments", broken_engine.no_output_log, (8,),
                policies=("passive",)),
        Variant("the output log left out of repairs", broken_engine.no_output_log, (8,),
                policies=("active",)),
        Variant("p instead of f in what a stream owes", broken.owes_from_processed, (3,),
                policies=("upstream",)),
        Variant("live instead of expected in trimming", broken.live_not_expected, (3,),
                policies=("upstream",)),
        Variant("two writers", broken.two_writers, (10,),
                ("crash", "pause"), ("passive",)),
        Variant("speaks before s + 1", broken.speaks_too_soon, (1,), policies=("upstream",)),
        Variant("acks before the commit", broken_engine.acks_before_commit, (6,)),
        Variant("a gap counted from the lowest consumer",
                broken.lowest_consumer, (1,), life=_TWO_SINKS),
        Variant("a hole that waits for nobody", broken.does_not_wait, (1,), life=_TWO_SINKS),
        Variant("one that was replaced is listened to", broken.listens_to_all, (1,), life=_life(
            "count", "gap", Fault(5.0, "cut one way", "node-1", 14.0, "control"))),
        Variant("a hole before anybody has promised", broken.does_not_promise, (1,), life=_life(
            "count", "gap", Fault(5.0, "cut one way", "node-1", 14.0, "control"))),
        Variant("what was fetched counts as had", broken_engine.fetched_is_had, (10,), life=_waits(
            Fault(6.0, "pause", "node-2", 8.0), Fault(12.0, "crash", "node-3", 0.3))),
        Variant("what is worked on counts as had",
                broken_engine.says_what_it_works_on, (10,), life=_works(
            Fault(5.0, "lag", "node-2", 8.0, much=60.0), Fault(8.8, "crash", "node-2", 0.3))),
        Variant("losses are not added up", broken.does_not_add_up, (9,), life=_behind("lose")),
        Variant("a copy that was overtaken goes on",
                broken.not_overtaken, (1,), life=_behind("crash")),
        Variant("a producer that forgets terms", broken.forgets_terms, (5,), life=_life(
            "count", "active", Fault(4.0, "cut one way", "node-1", 25.0, "control"),
            Fault(15.0, "crash", "keeper", 0.5))),
        Variant("a term per replica", broken.term_per_replica, (1,), life=_life(
            "count", "gap", Fault(4.0, "crash", "node-1", 30.0),
            Fault(9.0, "cut one way", "node-3", 14.0, "control"))),
        Variant("a gate that looks at one input", broken_engine.first_input_only, (11,)),
        Variant("a restart that is no fork", broken_engine.no_fork, (2,)),
        Variant("watermarks lost with a restart", broken_engine.no_marks, (9,), life=_joins(
            *(Fault(at_s, "crash", "node-1", 0.3) for at_s in (4.0, 6.0, 8.0, 10.0, 12.0)))),
        Variant("output shown before it is confirmed", broken.shown_at_once, (1,), life=_life(
            "draw", "passive", Fault(3.5, "cut", "node-1", 30.0, "node-2"),
            Fault(5.0, "crash", "node-1", 3.0))),
        Variant("released before the wanted number is live", broken.released_at_once, (10,),
                ("crash", "disk")),
        Variant("a former writer is ready at once", broken.ready_at_once, (3,), life=_life(
            "window", "passive", Fault(3.0, "cut", "node-1", 3.0, "node-2"),
            Fault(5.9, "pause", "node-1", 7.0), Fault(5.9, "lag", "node-2", 20.0, much=30.0))),
        Variant("a restart from the commit before", broken_engine.oldest_fork, (3,)),
        Variant("an old question is answered", broken_engine.answers_old_questions, (2,)),
        Variant("batches without data", broken_engine.extra_batches, (9,),
                ("crash", "slow")),
        Variant("shipped from the living folder",
                broken_engine.living_folder, (8,), life=_SHIPPED),
        Variant("the name comes before the layers",
                broken_engine.name_first, (8,), life=_SHIPPED),
        Variant("a torn epoch is served", broken_engine.torn_is_served, (1,), life=_TORN),
        Variant("a full log holds nobody back", broken.never_full, (7,), life=_small(_life(
            "count", "restart", Fault(5.0, "pause", "sink-a", 12.0)), 60)),
        Variant("a full log that names nobody", broken.nobody_holds, (7,), life=_small(_life(
            "count", "restart", Fault(5.0, "pause", "node-1", 12.0)), 60)),
        Variant("a loss that nobody mentions", broken.says_nothing, (10,), life=_life(
            "draw", "passive", Fault(5.0, "lose", "node-1", 1.0),
            Fault(5.0, "lose", "node-2", 1.0))),
        Variant("a newcomer that producers do not expect", broken.deaf_to_control, (3,),
                life=_small(_life(
                    "count", "active", Fault(5.0, "pause", "node-1", 12.0),
                    Fault(9.0, "slow", "node-3", 6.0, "keeper", much=1.0)), 40)),
        Variant("seeds are not kept on disk", broken.no_seeds_kept, (3,),
                policies=("upstream",)),
        Variant("branches are mixed", broken_branches.mixed, (4,), life=_cut(
            "active", *(Fault(5.0, "cut", node, 5.0, "node-3") for node in ("node-1", "node-4")))),
        Variant("a stable epoch taken for a copy of a tentative one",
                broken_branches.stable_is_a_copy, (2,), cuts=True),
        Variant("a restart from what a branch has done",
                broken_branches.branch_counts, (10,), life=_cut(
            "restart", Fault(5.0, "cut", "node-3", 6.0, "node-2"),
            Fault(9.0, "crash", "node-3", 0.5))),
        Variant("acks of what is tentative", broken_branches.acks_what_was_said, (6,), cuts=True),
        Variant("waits that add up along a chain", broken_branches.waits_add_up, (12,), cuts=True),
        Variant("masked waits that add up along a chain",
                broken_branches.masked_waits_add_up, (12,), life=_TWICE),
        Variant("a stable epoch that does not tell its waits",
                broken_branches.masked_waits_untold, (12,), cuts=True),
        Variant("a missing input's watermark stands still",
                broken_branches.not_lifted, (4,), cuts=True),
        Variant("a branch that never ends", broken_branches.never_ends, (12,), cuts=True),
        Variant("a branch waits for a stable line that lacks input",
                broken_branches.waits_for_who_waits, (12,), life=_cut(
            "restart", Fault(5.0, "cut", "node-3", 4.0, "node-2"),
            Fault(9.3, "cut", "node-3", 8.0, "node-2"))),
        Variant("tentative without having waited", broken_branches.at_once, (12,), cuts=True),
        Variant("no result without all of its input",
                broken_branches.never_parts, (12,), cuts=True),
        Variant("branches without a name", broken_branches.unmarked_branch, (4,), cuts=True),
        Variant("nobody is told what is replaced", broken_branches.forgets, (4,), cuts=True),
        Variant("a tentative epoch taken for a stable one", broken_branches.stable_reads_on, (4,),
                cuts=True),
        Variant("gaps before the fork that has them",
                broken_branches.gaps_first, (4,), life=_given_up()),
        Variant("what was given up is called stable",
                broken_branches.said_is_stable, (4,), life=_given_up()),
        Variant("a log that is not completed from its fork",
                broken_branches.not_completed, (10,), life=_given_up(
            Fault(5.0, "die at", "node-3", 0.5, "gap c", much=60))),
        Variant("given up before all inputs are back",
                broken_branches.forks_too_soon, (9,), life=_given_up()),
    )
}  # fmt: skip
