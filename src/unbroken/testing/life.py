"""A life: which query runs on how many nodes, and what happens to them when.

    sources s1, s2 ─▶ a (map, active, 2 copies) ─▶ b (window, upstream) ─▶ sink
    faults: 3.1 s crash node-2 for 4.0 s; 5.5 s cut node-1 - keeper for 2.0 s

* A life is data: it can be printed, made smaller and lived again.  `random_life(seed)` makes one.
* Policies and operators are only paired as `policies.guarantee` allows.

>>> life = random_life(7); life == random_life(7), life.seed
(True, 7)
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from random import Random

from unbroken.control.placement import place
from unbroken.errors import DefinitionError
from unbroken.policies import Active, Gap, Passive, Policy, Restart, Upstream
from unbroken.policies.guarantee import Recovery, gaps_before, guarantee
from unbroken.streams.needs import KEEP_EPOCHS
from unbroken.tentative.branch import CONVERGE, CORRECT, PROCESS, WHEN_HEALED
from unbroken.testing.operators import OPERATORS

EPOCH_S = 0.1
#: Where logs are small, little is kept for followers that nobody declared.
SMALL_KEEP_EPOCHS = 20
#: When faults begin: by then everything has been started.
CALM_S = 2.5
#: In some lives they begin here, while nothing is placed, started or committed yet.
EARLY_S, EARLY_PART = 0.2, 0.1
#: How many nodes a life has, unless its policies need more.
NODES = (2, 3, 3, 4, 4, 5, 6, 7)
#: How often a fragment reads the newest stream, whatever else it reads.
NEWEST_PART = 0.6
#: How often it puts two together that nobody has read before, where there are such.
MEET_PART = 0.5
#: How many lives have a storm, in which several die at once; and where two fragments are rebuilt.
STORM_PARTS = 0.12, 0.6
#: What can happen to somebody (`Fault.what`).  A fuse kills in the middle of a write or a call,
#: "die at" when an engine has planned or sealed an epoch; a query stumbles; a one-way cut loses
#: what `who` sends to `other`; who is isolated reaches nobody; messages are repeated; who lags
#: computes slowly; a power cut loses what was not synced; a lost disk is empty.
KINDS = (
    CRASH, FUSE, DIE_AT, STUMBLE, PAUSE, CUT, CUT_ONE_WAY, ISOLATE, SLOW, REPEAT, LAG, FULL, POWER,
    LOSE, DRIFT, JUMP,
) = (
    "crash", "fuse", "die at", "stumble", "pause", "cut", "cut one way", "isolate", "slow",
    "repeat", "lag", "full", "power", "lose", "drift", "jump",
)  # fmt: skip
#: When somebody may "die at": an engine has planned or sealed an epoch, or said it tentatively; a
#: replica has parked a fork, or given up what it said, or put a gap into its log.
MOMENTS = ("planned", "sealed", "said", "parked", "given up", "gap")
#: Those that chance chooses from, by what they have in common (`unbroken sim --faults`).
GROUPS = {
    "crash": (CRASH, FUSE, STUMBLE), "pause": (PAUSE,), "cut": (CUT, CUT_ONE_WAY, ISOLATE),
    "slow": (SLOW, REPEAT, LAG), "disk": (FULL, POWER, LOSE), "clock": (DRIFT, JUMP),
}  # fmt: skip
FAULTS = tuple(GROUPS)
POLICIES = ("active", "passive", "upstream", "gap", "restart")


@dataclass(frozen=True)
class Piece:
    """One fragment: what it computes, from what, and how it is protected.

    >>> Piece("a", "count", ("s1",), "passive").policy.text
    'passive, shipped every 500ms'
    """

    name: str
    operator: str
    inputs: tuple[str, ...]
    protection: str
    copies: int = 2
    #: How long a new result may wait for missing input, in seconds; None: however long.
    max_delay: float | None = None
    #: What happens then: "process" or "delay".
    when_cut: str = PROCESS
    #: What becomes of tentative results: "correct", or "converge" (they are given up).
    when_healed: str = CORRECT
    #: The very policy; None: one of that name with short intervals.
    chosen: Policy | None = None

    def __post_init__(self) -> None:
        _one_of(f"the operator of {self.name!r}", self.operator, OPERATORS)
        _one_of(f"the protection of {self.name!r}", self.protection, POLICIES)
        _one_of(f"when_healed of {self.name!r}", self.when_healed, WHEN_HEALED)

    @property
    def bound(self) -> dict[str, str]:
        """The delay bound, as `Query.fragment` wants it."""
        if self.max_delay is None:
            return {}
        return {
            "max_delay": f"{round(self.max_delay * 1000)}ms", "when_cut": self.when_cut,
            "when_healed": self.when_healed,
        }  # fmt: skip

    @property
    def converges(self) -> bool:
        """Whether it gives up what it said tentatively."""
        return self.max_delay is not None and self.when_healed == CONVERGE

    @property
    def policy(self) -> Policy:
        """The real policy."""
        if self.chosen is not None:
            return self.chosen
        kinds: dict[str, Policy] = {
            "active": Active(max(2, self.copies)),
            "passive": Passive(interval="500ms"),
            "upstream": Upstream(),
            "gap": Gap(),
            "restart": Restart(),
        }
        return kinds[self.protection]

    @property
    def text(self) -> str:
        """In a few words."""
        how = f"{self.when_cut}, {CONVERGE}" if self.converges else self.when_cut
        bound = f", within {self.max_delay:g} s ({how})" if self.max_delay else ""
        made = f"{self.name} = {self.operator}({', '.join(self.inputs)})"
        return f"{made}, {self.policy.text}{bound}"


@dataclass(frozen=True)
class Fault:
    """Something bad: `what` happens to `who` at `at_s`, for `for_s`.

    >>> Fault(3.0, "crash", "node-1", 2.0).text
    '3.000 s: crash node-1 for 2.0 s'
    """

    at_s: float
    what: str
    who: str
    for_s: float = 0.0
    #: The other end of a cut, or how much: extra seconds, a factor, a number of doings.
    other: str = ""
    much: float = 0.0

    def __post_init__(self) -> None:
        _one_of("a fault", self.what, KINDS)

    @property
    def text(self) -> str:
        """In a few words."""
        other = f" - {self.other}" if self.other else ""
        much = f" ({self.much:g})" if self.much else ""
        return f"{self.at_s:.3f} s: {self.what} {self.who}{other}{much} for {self.for_s:.1f} s"


@dataclass(frozen=True)
class Life:
    """Everything that is decided before a simulation begins."""

    seed: int
    nodes: int
    sources: tuple[str, ...]
    pieces: tuple[Piece, ...]
    epochs: int = 200
    faults: tuple[Fault, ...] = ()
    sinks: tuple[str, ...] = field(default=())
    #: The limit of every log, in rows; 0: none that would be reached.
    log_bytes_max: int = 0
    #: What a sink's stream keeps for followers that nobody declared; more than a life has epochs.
    keep_epochs: int = KEEP_EPOCHS

    @property
    def text(self) -> str:
        """In a few lines."""
        graph = "; ".join(piece.text for piece in self.pieces)
        faults = "\n".join(f"  {fault.text}" for fault in self.faults) or "  none"
        limit = f", logs of {self.log_bytes_max} rows" if self.log_bytes_max else ""
        return (
            f"seed {self.seed}: {self.nodes} nodes, {self.epochs} epochs of {EPOCH_S} s{limit}\n"
            f"  {graph}; sinks {', '.join(self.sinks)}\nfaults\n{faults}"
        )

    @property
    def bounded(self) -> bool:
        """Whether any fragment has a delay bound."""
        return any(piece.max_delay is not None for piece in self.pieces)

    def check(self) -> None:
        """Says what is wrong with a life that was made by hand.

        >>> Life(1, 3, ("s1",), (), faults=(Fault(3.0, CRASH, "node-4"),)).check()
        Traceback (most recent call last):
        ...
        unbroken.errors.DefinitionError: crash 'node-4' at 3 s: there is nobody of that name
          → one of keeper, control, node-1, node-2, node-3
        """
        self._check_graph()
        known = ["keeper", "control", *(f"node-{i + 1}" for i in range(self.nodes))]
        known += [f"sink-{name}" for name in self.sinks]
        for fault in self.faults:
            ends = {fault.who} - {"network"}
            ends |= {fault.other} if fault.what in (CUT, CUT_ONE_WAY, SLOW) else set()
            for end in sorted(ends - set(known)):
                raise DefinitionError(
                    f"{fault.what} {end!r} at {fault.at_s:g} s: there is nobody of that name",
                    hint=f"one of {', '.join(known)}",
                )
            if not 0.0 <= fault.at_s <= self.epochs * EPOCH_S:
                raise DefinitionError(
                    f"{fault.what} {fault.who!r} at {fault.at_s:g} s will not happen",
                    hint=f"a life of {self.epochs} epochs has faults from 0 to "
                    f"{self.epochs * EPOCH_S:g} s",
                )
            moments = [f"{where} {piece.name}" for where in MOMENTS for piece in self.pieces]
            if fault.what == DIE_AT and fault.other not in moments:
                raise DefinitionError(
                    f"{fault.what} {fault.other!r}: that moment never comes",
                    hint=f"one of {', '.join(MOMENTS)}, and the name of a fragment",
                )

    def _check_graph(self) -> None:
        """Who reads what, on how many nodes."""
        if self.nodes < 1 or self.epochs < 1:
            raise DefinitionError(
                f"a life of {self.nodes} nodes and {self.epochs} epochs", hint="at least one"
            )
        known = list(self.sources)
        for piece in self.pieces:
            for stream in piece.inputs:
                _one_of(f"an input of {piece.name!r}", stream, known)
            if piece.policy.copies > self.nodes:
                raise DefinitionError(
                    f"{piece.name!r} wants {piece.policy.copies} nodes, and there are {self.nodes}",
                    hint="give the life more of them",
                )
            known.append(piece.name)
        for sink in self.sinks:
            _one_of("what a sink follows", self.stream_of(sink), known)

    def stream_of(self, sink: str) -> str:
        """What a sink follows: the stream of its name, or of its name before the last "-"."""
        made = {piece.name for piece in self.pieces}
        return sink if sink in made else sink.rpartition("-")[0]

    def without(self, faults: Collection[Fault]) -> Life:
        """The same with fewer faults."""
        return replace(self, faults=tuple(f for f in self.faults if f not in faults))


def _one_of(what: str, given: str, known: Collection[str]) -> None:
    if given not in known:
        raise DefinitionError(f"{what} is {given!r}", hint=f"one of {', '.join(known)}")


def random_life(
    seed: int,
    *,
    faults: Collection[str] = FAULTS,
    policies: Collection[str] = POLICIES,
    epochs: int = 200,
) -> Life:
    """A life by chance: a graph of 1 to 4 fragments, 2 to 7 nodes, and faults of these kinds."""
    chance = Random(f"life-{seed}")
    sources = tuple(f"s{i + 1}" for i in range(chance.choice((1, 1, 1, 2))))
    number = chance.choice((1, 1, 1, 2, 2, 3, 4))
    pieces: list[Piece] = []
    for name in "abcd"[:number]:
        pieces.append(_piece(chance, name, sources, pieces, policies))
    read = {stream for piece in pieces for stream in piece.inputs}
    sinks = [p.name for p in pieces if p.name not in read]
    # Two who follow one stream of gaps must not disagree (scenario 13).
    sinks += [f"{p.name}-2" for p in pieces if p.name in sinks and p.protection == "gap"]
    nodes = max(max(p.policy.copies for p in pieces), chance.choice(NODES))
    life = Life(seed, nodes, sources, tuple(pieces), epochs, (), tuple(sinks))
    life = replace(life, faults=tuple(random_faults(chance, life, faults)))
    if chance.random() < 0.3:  # Logs that a pause of some seconds fills.
        rows = chance.choice((80, 120))
        return replace(life, log_bytes_max=rows, keep_epochs=SMALL_KEEP_EPOCHS)
    return life


def _piece(
    chance: Random, name: str, sources: tuple[str, ...], before: list[Piece],
    policies: Collection[str],
) -> Piece:  # fmt: skip
    streams = [*sources, *(piece.name for piece in before)]
    read = {stream for piece in before for stream in piece.inputs}
    ends = [piece.name for piece in before if piece.name not in read]
    while True:
        operator = OPERATORS[chance.choice(("map", "window", "session", "count", "join", "draw"))]
        wide = [n for n in operator.inputs if n <= len(streams)]
        if not wide:
            continue
        # Mostly the newest stream is read, so that graphs hang together; else any, so that two
        # fragments are side by side on one stream, or end in two sinks.
        newest = {streams[-1]} if chance.random() < NEWEST_PART else set()
        inputs = newest | {*chance.sample(streams, chance.choice(wide))}
        if len(ends) > 1 and chance.random() < MEET_PART:
            inputs = {*chance.sample(ends, 2)}  # They meet again.
        if len(inputs) not in operator.inputs:
            continue
        protection = chance.choice(sorted(policies))
        piece = Piece(
            name, operator.name, tuple(sorted(inputs)), protection, chance.choice((2, 2, 3))
        )
        given = guarantee(piece.policy, operator.traits.operator_class)
        if given is None or given.merging is Recovery.DIVERGENT:
            continue
        if operator.name == "draw" and protection == "gap":
            continue  # Nothing could be said about its content.
        if protection == "upstream" and gaps_before([*before, piece])[name]:
            continue  # Refused (`check_way`).
        return piece


def random_faults(chance: Random, life: Life, kinds: Collection[str]) -> list[Fault]:
    """A handful, most of them spread, some at once."""
    nodes = [f"node-{i + 1}" for i in range(life.nodes)]
    others = ["keeper", "control", *(f"sink-{name}" for name in life.sinks)]
    end_s = life.epochs * EPOCH_S
    made: list[Fault] = []
    if end_s - 2.0 <= CALM_S or not kinds:
        return []
    at_s, early = 0.0, chance.random() < EARLY_PART
    for _ in range(chance.randint(1, 7)):
        if early and not made:
            at_s = chance.uniform(EARLY_S, CALM_S)
        elif not made or chance.random() < 0.75:
            at_s = chance.uniform(CALM_S, end_s - 2.0)
        else:
            at_s = min(end_s - 1.0, at_s + chance.choice((0.0, 0.02, 0.3, 1.0, 4.0)))
        who = chance.choice(nodes) if chance.random() < 0.75 else chance.choice(others)
        fault = _fault(chance, chance.choice(sorted(kinds)), at_s, who, nodes)
        made.append(fault)
    # From a chance of its own: what it is added to stays as it is.
    if CRASH in kinds:
        made += _storm(Random(f"storm-{life.seed}"), life, nodes)
    return sorted(made, key=lambda fault: (fault.at_s, fault.who))


def _storm(chance: Random, life: Life, nodes: list[str]) -> list[Fault]:
    """Perhaps two nodes that have fragments die together, and control while they are repaired."""
    placed = place({piece.name: piece.policy.copies for piece in life.pieces}, nodes).nodes
    # What has one copy is rebuilt at once, beside others: such nodes, if there are two.
    rebuilt = {placed[p.name][0] for p in life.pieces if p.protection in ("upstream", "gap")}
    two = len(rebuilt) > 1
    if chance.random() >= STORM_PARTS[two]:
        return []
    hosts = sorted(rebuilt if two else {on[0] for on in placed.values()})
    at_s = round(chance.uniform(CALM_S, life.epochs * EPOCH_S - 2.0), 3)
    made = [
        Fault(at_s, CRASH, node, round(chance.uniform(3.0, 8.0), 2))
        for node in chance.sample(hosts, min(2, len(hosts)))
    ]
    if chance.random() < 0.5:
        later_s = round(at_s + chance.choice((0.1, 0.3, 0.6, 1.0)), 3)
        made.append(Fault(later_s, CRASH, "control", round(chance.uniform(0.3, 2.0), 2)))
    return made


def _fault(chance: Random, kind: str, at_s: float, who: str, nodes: list[str]) -> Fault:
    for_s = round(chance.choice((0.3, 1.0, 3.0, 5.0, 8.0, 15.0)) * chance.uniform(0.7, 1.3), 2)
    at_s = round(at_s, 3)
    node = who if who in nodes else chance.choice(nodes)
    other = chance.choice([n for n in (*nodes, "keeper", "control") if n != who])
    if kind == "crash":
        what = chance.choice(("crash", "crash", "fuse", "stumble"))
        if what == "fuse":
            return Fault(at_s, what, who, for_s, much=chance.randint(1, 40))
        return Fault(at_s, what, node if what == "stumble" else who, for_s)
    if kind == "pause":
        return Fault(at_s, "pause", who, for_s)
    if kind == "cut":
        what = chance.choice(("cut", "cut one way", "isolate"))
        return Fault(at_s, what, who, for_s, "" if what == "isolate" else other)
    if kind == "slow":
        what = chance.choice(("slow", "repeat", "lag"))
        if what == "slow":
            return Fault(at_s, what, who, for_s, other, much=chance.choice((0.05, 0.5, 2.0, 6.0)))
        much = chance.choice((0.05, 0.3)) if what == "repeat" else chance.choice((5.0, 30.0))
        return Fault(at_s, what, node if what == "lag" else "network", for_s, much=much)
    if kind == "disk":
        what = chance.choice(("full", "power", "lose"))
        # The sources and the records are on disks that are believed in.
        return Fault(at_s, what, node if what == "lose" else who, for_s)
    what = chance.choice(("drift", "jump"))
    much = chance.choice((0.9, 1.1)) if what == "drift" else chance.choice((-5.0, -0.5, 2.0, 30.0))
    return Fault(at_s, what, who, for_s, much=much)
