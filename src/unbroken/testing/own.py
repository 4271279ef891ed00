"""Lives of a query that somebody has written: its own graph and policies, faults by chance.

    suspects.py ─▶ classes of its operators ─▶ pieces ─▶ a life per seed

* Functions are not called.  Each fragment computes what the simulator's operator of its class
  does (`operators`), with as many inputs: which failures are survived, and what sinks see
  of them, depends on class, policy and graph alone.
* Epochs are simulated ones of 0.1 s.  Intervals and delay bounds are those of the query, the bounds
  not below one second: questions that a cut has lost are asked again after that.
* `when_healed="converge"` is refused behind a gap fragment: what such a fragment was given may be
  lost with those before it, and the checkers know no line with two kinds of gaps.

>>> from unbroken.policies import Active
>>> from unbroken.policies.traits import OperatorClass, Traits
>>> from unbroken.query import Query
>>> query = Query("shop"); clicks = query.source("clicks", "page STRING")
>>> counts = query.fragment(clicks, policy=Active(replicas=3))(lambda c: c, name="counts")
>>> query.sink(counts)
>>> life = own_life(query, {"counts": Traits(OperatorClass.DETERMINISTIC)}, 7)
>>> life.pieces[0].text, life.nodes >= 3, life.sinks
('counts = count(clicks), active, 3 copies', True, ('counts',))
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from random import Random

from unbroken.errors import DefinitionError
from unbroken.policies import Policy
from unbroken.policies.guarantee import Recovery, gaps_before, guarantee
from unbroken.policies.traits import OperatorClass, Traits
from unbroken.query import Fragment, Query, Source
from unbroken.tentative.branch import SUSPEND
from unbroken.testing.cut_lives import BOUNDS_S, cut_faults
from unbroken.testing.life import FAULTS, GROUPS, NODES, Life, Piece, random_faults


def own_life(
    query: Query, traits: Mapping[str, Traits], seed: int, *,
    faults: Collection[str] = FAULTS, epochs: int = 200,
) -> Life:  # fmt: skip
    """The query on some nodes, and faults by chance; its fragments' operators have these traits."""
    chance = Random(f"own-{seed}")
    pieces = pieces_of(query, traits)
    names = [piece.name for piece in pieces]
    sinks = tuple(name for name in query.sinks if name in names)
    if not sinks:
        raise DefinitionError(
            f"{query.where}: no sink of query {query.name!r} is a fragment's",
            hint="there is nothing to simulate; sources are on disks that are believed in",
        )
    nodes = max(chance.choice(NODES), *(piece.policy.copies for piece in pieces))
    life = Life(seed, nodes, tuple(query.sources), pieces, epochs, (), sinks)
    # What is cut off matters where somebody goes on without it.
    cuts = life.bounded and chance.random() < 0.5
    wanted = {what for group in faults for what in GROUPS[group]}
    made = [fault for fault in cut_faults(chance, life) if fault.what in wanted] if cuts else []
    # Of a cut, and what comes with it, nothing may be left.
    return replace(life, faults=tuple(made or random_faults(chance, life, faults)))


def traits_of(query: Query) -> dict[str, Traits]:
    """What Spark says about the operators of every fragment: `own_life` wants to know it.

    >>> query = Query("shop"); clicks = query.source("clicks", "page STRING")
    >>> counts = query.fragment(clicks)(lambda c: c.groupBy("page").count(), name="counts")
    >>> traits_of(query)["counts"].operator_class.value                         # doctest: +SKIP
    'deterministic'
    """
    # Not before: Spark takes a second to import, and lives do without.
    from unbroken.engine.read import read

    return {name: plan.traits for name, plan in read(query).items()}


def pieces_of(query: Query, traits: Mapping[str, Traits]) -> tuple[Piece, ...]:
    """The fragments of a query as the simulator has them, in the order of the data."""
    fragments = [stream for stream in query.check() if not isinstance(stream, Source)]
    before = gaps_before(fragments)
    for fragment in fragments:
        gaps = ", ".join(map(repr, sorted(before[fragment.name])))
        if fragment.bound is not None and fragment.bound.converges and gaps:
            raise DefinitionError(
                f'{fragment.where}: fragment {fragment.name!r} has when_healed="converge" behind '
                f"{gaps}, whose policy is gap, which cannot be simulated",
                hint='simulate it with when_healed="correct", the default (docs/simulator.md)',
            )
    return tuple(_piece(fragment, traits[fragment.name]) for fragment in fragments)


def _piece(fragment: Fragment, traits: Traits) -> Piece:
    bound = fragment.bound
    if bound is not None and bound.when_cut == SUSPEND:
        bound = None
    piece = Piece(
        fragment.name, _operator(fragment.policy, traits, len(fragment.inputs)), fragment.inputs,
        fragment.policy.name, fragment.policy.copies, chosen=fragment.policy,
    )  # fmt: skip
    if bound is None:
        return piece
    return replace(
        piece, max_delay=max(min(BOUNDS_S), bound.delay_s_max), when_cut=bound.when_cut,
        when_healed=bound.when_healed,
    )  # fmt: skip


def _operator(policy: Policy, traits: Traits, inputs: int) -> str:
    """The operator of that class which is most like it."""
    kind = traits.operator_class
    if kind is OperatorClass.REPEATABLE:
        return "map"
    if kind is OperatorClass.CONVERGENT:
        if inputs == 1:
            return "session" if traits.sessions else "window"
        joins = inputs == 2 and traits.decided_by.name.startswith("join of streams")
        return "join" if joins else "union"
    given = guarantee(policy, kind)
    lost = given is None or given.merging in (Recovery.DIVERGENT, Recovery.GAP)
    # Of what is arbitrary and not kept nothing can be said: the simulation tells what it loses.
    return "draw" if kind is OperatorClass.ARBITRARY and not lost else "count"
