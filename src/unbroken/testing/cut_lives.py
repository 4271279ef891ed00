"""Lives by chance in which fragments have a delay bound, and their inputs are cut off.

    s1 ─▶ a ─┐                       cut node-1 - node-3, slow node-2 - node-3, crash node-3 …
             ├─▶ c (within 2 s) ─▶ d (within 2 s) ─▶ sink
    s2 ─▶ b ─┘

* Two relays, so that one input can be missing while the other one is there; behind them one to
  three fragments, most of them with a bound: chains, joins of the two, or of a source and a
  fragment.  Fragments that are cut off may have no policy, copies, or a standby; in some lives they
  are rebuilt by another node.
* Most faults are cuts between two nodes.  The others fall where a branch or a correction is under
  way: crashes, pauses, queries that die, a second cut.
* In some lives fragments without a policy give up what they said, if their operator converges; some
  die between the fork that says so and the last gap in their log.
* Other lives (`life.random_life`) have no bounds and stay as they are, seed by seed.

>>> life = random_cut_life(7); life == random_cut_life(7), life.bounded
(True, True)
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from unbroken.control.placement import place
from unbroken.policies.guarantee import gaps_before, guarantee
from unbroken.policies.traits import OperatorClass
from unbroken.tentative.branch import CONVERGE, DELAY, PROCESS
from unbroken.testing.life import CALM_S, DIE_AT, EPOCH_S, SMALL_KEEP_EPOCHS, Fault, Life, Piece
from unbroken.testing.operators import OPERATORS

#: Bounds in seconds; a question that was lost in a cut is asked again within a second and a half.
BOUNDS_S = (1.0, 2.0, 2.0, 3.0)
#: How many lives converge where they can, and how many of these die in the middle of that.
CONVERGE_PART, DIE_PART = 0.35, 0.4
#: In how many lives fragments with a bound are under upstream backup or gap.
REBUILT_PART = 0.3
_OTHERS = (
    "crash", "crash", "fuse", "fuse", "stumble", "stumble", "pause", "pause", "full", "lag",
    "others", "others",
    "lose", "power", "repeat", "drift", "isolate",
)  # fmt: skip
_PROTECTIONS = ("restart", "restart", "active", "passive")


def random_cut_life(seed: int, *, epochs: int = 200) -> Life:
    """A life by chance, with bounds and cuts."""
    chance = Random(f"cut-{seed}")
    bound_s = chance.choice(BOUNDS_S)
    pieces = [
        Piece("a", "map", ("s1",), chance.choice(_PROTECTIONS)),
        Piece("b", "map", ("s2",), chance.choice(_PROTECTIONS)),
    ]
    for name in "cde"[: chance.choice((1, 1, 2, 2, 3))]:
        pieces.append(_piece(chance, name, pieces, bound_s))
    small = Random(f"small-{seed}")
    bounded = small.random() < 0.2
    if bounded:
        pieces = [_frugal(piece) for piece in pieces]
    else:
        pieces = _rebuilt(Random(f"rebuilt-{seed}"), pieces)
    read = {stream for piece in pieces for stream in piece.inputs}
    sinks = tuple(piece.name for piece in pieces if piece.name not in read)
    copies = max(piece.policy.copies for piece in pieces)
    nodes = max(copies, chance.choice((3, 3, 4, 5, 6)))
    life = Life(seed, nodes, ("s1", "s2"), tuple(pieces), epochs, (), sinks)
    life = replace(life, faults=tuple(cut_faults(chance, life)))
    life = _with_small_logs(life, small.choice((70, 90))) if bounded else life
    # From a chance of its own: other lives stay as they are.
    return _converging(Random(f"converge-{seed}"), life)


def _rebuilt(chance: Random, pieces: list[Piece]) -> list[Piece]:
    """Perhaps the same, with fragments that are rebuilt by another node when theirs dies."""
    if chance.random() >= REBUILT_PART:
        return pieces
    made: list[Piece] = []
    for piece in pieces:
        # Gaps at the end only: docs/simulator.md has what waits behind one that begins anew.
        last = piece.name == pieces[-1].name
        policy = chance.choice(("upstream", "gap" if last else "upstream"))
        other = replace(piece, protection=policy)
        if piece.max_delay is not None and chance.random() < 0.7 and _may_be_rebuilt(made, other):
            piece = other
        made.append(piece)
    return made


def _may_be_rebuilt(before: list[Piece], piece: Piece) -> bool:
    """As `guarantee.check_way` has it; of what draws numbers and has gaps nothing can be said."""
    given = guarantee(piece.policy, OPERATORS[piece.operator].traits.operator_class)
    behind_gaps = bool(gaps_before([*before, piece])[piece.name])
    return (
        given is not None
        and piece.operator != "draw"
        and not (piece.protection == "upstream" and behind_gaps)
    )


def _converging(chance: Random, life: Life) -> Life:
    """Perhaps the same, with fragments that give up what they said."""
    gaps = gaps_before(life.pieces)
    can = [p.name for p in life.pieces if _can_converge(p) and not gaps[p.name]]
    if not can or chance.random() >= CONVERGE_PART:
        return life
    chosen = {name for name in can if chance.random() < 0.7} or {can[0]}
    pieces = tuple(
        replace(piece, when_healed=CONVERGE) if piece.name in chosen else piece
        for piece in life.pieces
    )
    life = replace(life, pieces=pieces)
    if chance.random() >= DIE_PART:
        return life
    nodes = [f"node-{i + 1}" for i in range(life.nodes)]
    placed = place({piece.name: piece.policy.copies for piece in pieces}, nodes).nodes
    name = chance.choice(sorted(chosen))
    where = chance.choice(("given up", "gap"))
    cut = next(fault for fault in life.faults if fault.at_s >= CALM_S)
    # Some epochs after the cut began: in the middle of the gaps, if it is long.
    epoch = round((cut.at_s + chance.uniform(0.0, cut.for_s)) / EPOCH_S)
    dies = Fault(cut.at_s, DIE_AT, placed[name][0], 1.0, f"{where} {name}", much=epoch)
    faults = sorted((*life.faults, dies), key=lambda fault: (fault.at_s, fault.who))
    return replace(life, faults=tuple(faults))


def _can_converge(piece: Piece) -> bool:
    """As `guarantee.check_converges` and `tentative.given` have it."""
    kind = OPERATORS[piece.operator].traits.operator_class
    ends = kind.rank <= OperatorClass.CONVERGENT.rank
    return ends and piece.protection == "restart" and piece.max_delay is not None


def _piece(chance: Random, name: str, before: list[Piece], bound_s: float) -> Piece:
    """The first one joins the relays; those behind it read it, and perhaps something else."""
    if name == "c":
        inputs: tuple[str, ...] = ("a", "b")
    else:
        others = ["s1", "s2", "a", "b"]
        inputs = (before[-1].name, *chance.sample(others, chance.choice((0, 0, 1))))
    narrow, wide = ("map", "window", "session", "count"), ("union", "union", "join", "map", "count")
    operator = chance.choice(wide if len(inputs) == 2 else narrow)
    protection = chance.choice(_PROTECTIONS)
    if protection == "passive" and chance.random() < 0.2:
        operator = "draw"
    bounded = name == "c" or chance.random() < 0.75
    return Piece(
        name, operator, tuple(sorted(inputs)), protection,
        max_delay=chance.choice((bound_s, bound_s, chance.choice(BOUNDS_S))) if bounded else None,
        when_cut=chance.choice((PROCESS, PROCESS, DELAY)),
    )  # fmt: skip


def _frugal(piece: Piece) -> Piece:
    """The same as far as its logs can be small: the pairs of a join may need more.

    Without copies: a copy that holds a log is given up, and its producer may hear of that before it
    is on record.  Not solved yet: docs/simulator.md.
    """
    operator = {"join": "union", "draw": "count"}.get(piece.operator, piece.operator)
    return replace(piece, protection="restart", operator=operator)


def _with_small_logs(life: Life, rows: int) -> Life:
    """The same with logs that a cut of some seconds fills; its sinks are there all the time."""
    faults = tuple(fault for fault in life.faults if not fault.who.startswith("sink-"))
    return replace(life, faults=faults, log_bytes_max=rows, keep_epochs=SMALL_KEEP_EPOCHS)


def cut_faults(chance: Random, life: Life) -> list[Fault]:
    """A cut, and what else happens while it lasts or is being corrected."""
    nodes = [f"node-{i + 1}" for i in range(life.nodes)]
    end_s = life.epochs * EPOCH_S
    made: list[Fault] = []
    for _ in range(chance.choice((1, 1, 2))):
        at_s = chance.uniform(CALM_S, end_s - 4.0)
        cuts = _cut(chance, at_s, life, nodes)
        made += cuts
        for _ in range(chance.choice((0, 1, 1, 2, 3))):
            # While it lasts, at its end, or while it is being corrected.
            for_s = cuts[0].for_s
            later_s = chance.choice((chance.uniform(0.0, for_s), for_s, for_s + 1.5))
            later_s = min(at_s + later_s * chance.uniform(0.8, 1.3), end_s - 0.5)
            if chance.random() < 0.2:
                made += _cut(chance, later_s, life, nodes)
            else:
                made.append(_other(chance, later_s, cuts[0], nodes, life))
    return sorted(made, key=lambda fault: (fault.at_s, fault.who))


def _cut(chance: Random, at_s: float, life: Life, nodes: list[str]) -> list[Fault]:
    """A copy of a fragment with a bound is cut off from all copies of one of its inputs."""
    at_s = round(at_s, 3)
    for_s = round(chance.choice((0.3, 1.5, 3.0, 5.0, 8.0)) * chance.uniform(0.7, 1.3), 2)
    placed = place({piece.name: piece.policy.copies for piece in life.pieces}, nodes).nodes
    piece = chance.choice([piece for piece in life.pieces if piece.max_delay is not None])
    who = chance.choice(placed[piece.name])
    ends = [*placed.get(chance.choice(piece.inputs), ("keeper",))]
    others = [end for end in ends if end != who] or [chance.choice([n for n in nodes if n != who])]
    what = chance.choice(("cut", "cut", "cut", "cut one way", "slow"))
    if what == "cut one way":
        return [Fault(at_s, what, other, for_s, who) for other in others]
    much = chance.choice((0.5, 2.0)) if what == "slow" else 0.0
    return [Fault(at_s, what, who, for_s, other, much=much) for other in others]


def _other(chance: Random, at_s: float, cut: Fault, nodes: list[str], life: Life) -> Fault:
    who = chance.choice((cut.who, cut.other if cut.other in nodes else cut.who, *nodes))
    for_s = round(chance.choice((0.3, 1.0, 3.0, 8.0)) * chance.uniform(0.7, 1.3), 2)
    what = chance.choice(_OTHERS)
    at_s = round(at_s, 3)
    if what == "fuse":
        return Fault(at_s, what, who, for_s, much=chance.randint(1, 40))
    if what == "stumble":
        return Fault(at_s, what, who, for_s, chance.choice(("branch", "stable", "")))
    if what == "lag":
        return Fault(at_s, what, who, for_s, much=chance.choice((5.0, 30.0)))
    if what == "drift":
        return Fault(at_s, what, who, for_s, much=chance.choice((0.9, 1.1)))
    if what == "repeat":
        return Fault(at_s, what, "network", for_s, much=0.3)
    if what == "others":
        others = ("keeper", "control", *(f"sink-{name}" for name in life.sinks))
        return Fault(at_s, chance.choice(("crash", "pause")), chance.choice(others), for_s)
    return Fault(at_s, what, who, for_s)
