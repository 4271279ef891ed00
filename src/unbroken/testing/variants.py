"""Protocols that are broken on purpose: each must be caught, or the checkers prove nothing.

    with variant("fencing off"):
        simulate(random_life(12))          # violation of invariant 5

* A variant replaces one small thing of the real code: a rule left out, a number too high by one.
* With it come the faults and policies under which it matters, and within how many seeds it is
  caught.  `tests/sim/test_variants.py` runs all of them.

>>> len(VARIANTS) >= 20
True
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from unbroken.control.intentions import Intention, Standing, Step
from unbroken.control.orders import Orders
from unbroken.control.releases import Releases
from unbroken.control.repair import Repairs
from unbroken.control.replicas import Replicas
from unbroken.errors import DefinitionError
from unbroken.gate import Gate
from unbroken.node.book import BookReader
from unbroken.node.holes import Holes
from unbroken.node.lost import Lost
from unbroken.node.replica import Replica
from unbroken.node.staged import Confirmed
from unbroken.node.standby import Standby
from unbroken.policies.past import Past, Seed
from unbroken.streams.hole import Positions
from unbroken.streams.merge import Fetch, Merge, Serving
from unbroken.streams.needs import Needs
from unbroken.streams.serve import Served
from unbroken.testing import checkpoints, engine
from unbroken.testing.checkpoints import Checkpoint, Fork
from unbroken.testing.life import Fault, Life, Piece, random_life
from unbroken.testing.patches import patched

#: Class or module, name of the attribute, what it is instead.
Change = tuple[Any, str, Any]


@dataclass(frozen=True)
class Variant:
    """One broken protocol.

    >>> VARIANTS["acks before the commit"].seeds > 0
    True
    """

    what: str
    changes: Callable[[], list[Change]]
    #: Under these it matters.
    faults: tuple[str, ...] = ("crash",)
    policies: tuple[str, ...] = ("active", "passive", "upstream", "gap", "restart")
    #: Caught within so many seeds, from `first` on.
    seeds: int = 20
    first: int = 0
    #: One life that was made for it, where chance would take too long.
    life: Life | None = None

    def lives(self) -> Iterator[Life]:
        """The lives in which it is to be caught.

        >>> next(VARIANTS["acks before the commit"].lives()).seed
        0
        """
        if self.life is not None:
            yield self.life
            return
        for seed in range(self.first, self.first + self.seeds):
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


def _acks_before_shipped() -> list[Change]:
    def acks(self: Standby) -> Any:
        if self.epoch < 0 or self.epoch + 1 <= self._acked:
            return []
        self._acked = self.epoch + 1
        what = {
            "do": "ack", "consumer": self.replica.name, "term": self.replica.term,
            "processed": self._acked, "need": self._acked + 1,
        }  # fmt: skip
        return [(name, what) for name in self.replica.fragment.inputs]

    return [(Standby, "acks", acks)]


def _trims_at_processed() -> list[Change]:
    record = Needs.record

    def at_processed(self: Needs, consumer: str, **said: Any) -> None:
        record(self, consumer, **{**said, "need": said["processed"] + 1})

    return [(Needs, "record", at_processed)]


def _no_fence() -> list[Change]:
    record = Needs.record

    def believe(self: Needs, consumer: str, **said: Any) -> None:
        self._terms.pop(consumer, None)
        self.ruled[consumer] = (self.ruled.get(consumer, (0, True))[0], True)
        record(self, consumer, **said)

    return [(Needs, "record", believe)]


def _takes_again() -> list[Change]:
    announced = Merge.announced

    def again(self: Merge, replica: str, headers: Any) -> None:
        headers = list(headers)
        if headers and headers[0].number == self.next - 1:
            self.next -= 1  # A copy of what was taken comes from another replica.
        announced(self, replica, headers)

    return [(Merge, "announced", again)]


def _arrival_order() -> list[Change]:
    def wanted(self: Merge, besides: Any = ()) -> Fetch | None:
        for number, copies in self._copies.items():
            free = [replica for replica in copies.replicas if replica not in besides]
            if free:
                self.next = max(self.next, number)
                return Fetch(free[0], number)
        return None

    def announced(self: Merge, replica: str, headers: Any) -> None:
        before(self, replica, reversed(list(headers)))

    before = Merge.announced
    return [(Merge, "wanted", wanted), (Merge, "announced", announced)]


def _wrong_epoch() -> list[Change]:
    begin = Gate.__init__

    def later(self: Gate, inputs: Any, *, committed: int) -> None:
        begin(self, inputs, committed=committed + (1 if committed > 0 else 0))

    return [(Gate, "__init__", later)]


def _seed_too_late() -> list[Change]:
    seed = Past.seed

    def late(self: Past, speak: int) -> Any:
        found = seed(self, speak)
        if found is None or found.first + 2 > found.speak or found.first == 0:
            return found
        return replace(found, first=found.first + 2)

    return [(Past, "seed", late)]


def _live_too_soon() -> list[Change]:
    recorded = Repairs.recorded

    def at_once(self: Repairs, intention: Intention) -> None:
        recorded(self, intention)
        if intention.step in (Step.SHIP, Step.CATCH_UP):
            self._work[intention.fragment].done = True

    return [(Repairs, "recorded", at_once)]


def _no_output_log() -> list[Change]:
    def take(peer: Any, fragment: str, folder: Any, **how: Any) -> Any:
        return before(peer, fragment, folder, **{**how, "before_seen": None})

    before = checkpoints.take
    return [(checkpoints, "take", take)]


def _owes_from_processed() -> list[Change]:
    def owed(self: Served) -> int:
        processed = [epoch + 1 for epoch in self.needs.processed.values()]
        return max(self.log.first, min([*processed, self.log.next]))

    return [(Served, "owed", property(owed))]


def _live_not_expected() -> list[Change]:
    def expected(self: Replicas, stream: str) -> list[str]:
        return [
            f"{fragment}@{node}"
            for fragment, streams in self.inputs.items()
            for node, standing in self.of(fragment).items()
            if stream in streams and standing is Standing.LIVE
        ]

    return [(Replicas, "expected", expected)]


def _two_writers() -> list[Change]:
    def never(self: Orders, fragment: str, node: str) -> bool:
        return False

    return [(Orders, "_holds", never)]


def _speaks_too_soon() -> list[Change]:
    of = Seed.of.__func__  # type: ignore[attr-defined]

    def at_once(cls: type[Seed], answer: object) -> Seed:
        seed: Seed = of(cls, answer)
        return replace(seed, speak=seed.first)

    return [(Seed, "of", classmethod(at_once))]


def _acks_before_commit() -> list[Change]:
    acks = Replica.acks

    def early(self: Replica, owed: int, clients: Any = ()) -> Any:
        gate = self._gate
        if gate is None:
            return []
        kept, gate.committed = gate.committed, gate.released
        try:
            return acks(self, owed, clients)
        finally:
            gate.committed = kept

    return [(Replica, "acks", early)]


def _lowest_consumer() -> list[Change]:
    def first(
        self: Positions, *, at_most: int | None = None, besides: Any = (), without: Any = ()
    ) -> int | None:
        if set(self.missing).difference(besides, without):
            return None
        lowest = min(self._next.values(), default=0)
        return lowest if at_most is None else min(lowest, at_most)

    return [(Positions, "first", first)]


def _does_not_wait() -> list[Change]:
    def missing(self: Positions) -> list[str]:
        return []

    def nobody(self: Positions, **how: Any) -> int:
        return max(0, min(self._next.values(), default=0))

    return [(Positions, "missing", property(missing)), (Positions, "first", nobody)]


def _listens_to_all() -> list[Change]:
    def only(self: Merge, term: int, replica: str) -> bool:
        news = term > self.alone[0]
        self.alone = max(self.alone, (term, replica))
        return news

    return [(Merge, "only", only), (Merge, "allows", lambda self, replica: True),
            *_names_all()]  # fmt: skip


def _names_all() -> list[Change]:
    replicas = BookReader.replicas

    def everybody(self: BookReader, stream: str) -> Serving:
        return Serving(self._page.get(stream, {}), alone=replicas(self, stream).alone)

    return [(BookReader, "replicas", everybody)]


def _does_not_promise() -> list[Change]:
    stand_alone = Served.stand_alone

    def at_once(self: Served, term: int) -> None:
        stand_alone(self, 0)

    def never(self: BookReader, stream: str, replica: str, term: int) -> None:
        pass

    return [(Served, "stand_alone", at_once), (BookReader, "stand_alone", never)]


def _does_not_add_up() -> list[Change]:
    epochs = Lost.epochs

    def apart(self: Lost, *given: Any, **how: Any) -> Any:
        return [
            epoch.with_header(lost_total=0, lost_here=0) for epoch in epochs(self, *given, **how)
        ]

    return [(Lost, "epochs", apart)]


def _not_overtaken() -> list[Change]:
    return [(Holes, "_still_replaced", lambda self, stream, replaced: []),
            (Served, "turn_away", lambda self, consumers: None)]  # fmt: skip


def _forgets_terms() -> list[Change]:
    begin = Needs.__init__

    def forget(self: Needs, terms: Any = None, ruled: Any = None, seeds: Any = None) -> None:
        begin(self, None, None, seeds)

    return [(Needs, "__init__", forget)]


def _first_input_only() -> list[Change]:
    def missing(self: Gate) -> list[str]:
        first = next(iter(self._offered))
        return [first] if self._offered[first] <= self.committed else []

    return [(Gate, "missing", property(missing))]


def _no_fork() -> list[Change]:
    fork = Checkpoint.fork

    def same(self: Checkpoint, at: Any) -> Checkpoint:
        made = fork(self, at)
        made.planned = self.planned
        return made

    return [(Checkpoint, "fork", same)]


def _no_marks() -> list[Change]:
    return [(engine.Run, "restore_watermarks", lambda self: None)]


def _shown_at_once() -> list[Change]:
    return [(Confirmed, "by_all", property(lambda self: 1 << 30))]


def _released_at_once() -> list[Change]:
    return [(Releases, "may_discard", lambda self, fragment: True)]


def _ready_at_once() -> list[Change]:
    return [(Standby, "_trimmed", lambda self: 0)]


def _oldest_fork() -> list[Change]:
    start = Fork.start

    def older(self: Fork, path: Any, **how: Any) -> Any:
        for checkpoint in checkpoints.folder_of(path).all():
            if len(checkpoint.commits) > 1:
                del checkpoint.commits[max(checkpoint.commits)]
        return start(self, path, **how)

    return [(Fork, "start", older)]


def _no_seeds_kept() -> list[Change]:
    return [(Needs, "seeds", property(lambda self: {}))]


def _life(operator: str, protection: str, *faults: Fault) -> Life:
    piece = Piece("a", operator, ("s1",), protection)
    # A backup has nowhere else to go; a copy needs a third node.
    nodes = 2 if protection == "passive" else 3
    return Life(4, nodes, ("s1",), (piece,), 240, faults, ("a",))


def _behind(how: str) -> Life:
    """A gap fragment is lost together with the copy of its consumer that is furthest."""
    pieces = Piece("a", "map", ("s1",), "gap"), Piece("b", "count", ("a",), "active")
    faults = (
        Fault(4.0, "pause", "node-3", 1.5), Fault(5.0, "lose", "node-2", 20.0),
        Fault(5.0, how, "node-1", 4.0),
    )  # fmt: skip
    return Life(7, 4 if how == "lose" else 3, ("s1",), pieces, 200, faults, ("b",))


_ONE = ("passive", "active", "restart")
VARIANTS: dict[str, Variant] = {
    each.what: each
    for each in (
        Variant("acks before the layers are shipped", _acks_before_shipped, policies=("passive",)),
        Variant("trims at processed instead of needed", _trims_at_processed,
                policies=("upstream",)),
        Variant("fencing off", _no_fence, ("crash", "slow", "pause"), seeds=40),
        Variant("duplicate removal off", _takes_again, policies=("active",)),
        Variant("a merge that trusts arrival order", _arrival_order, ("crash", "pause")),
        Variant("take-over from the wrong epoch", _wrong_epoch),
        Variant("a seed that begins too late", _seed_too_late, policies=("upstream",), seeds=40),
        Variant("counted live before it caught up", _live_too_soon, policies=("active", "passive")),
        Variant("the output log left out of shipments", _no_output_log, policies=("passive",)),
        Variant("the output log left out of repairs", _no_output_log, policies=("active",)),
        Variant("p instead of f in what a stream owes", _owes_from_processed,
                policies=("upstream",), seeds=40, first=90),
        Variant("live instead of expected in trimming", _live_not_expected,
                policies=("upstream",), seeds=40),
        Variant("two writers", _two_writers, ("crash", "pause"), ("passive",)),
        Variant("speaks before s + 1", _speaks_too_soon, policies=("upstream",)),
        Variant("acks before the commit", _acks_before_commit),
        Variant("a gap counted from the lowest consumer", _lowest_consumer,
                ("crash", "pause"), ("gap",), seeds=10, first=30),
        Variant("a hole that waits for nobody", _does_not_wait,
                ("crash", "pause"), ("gap",), seeds=10, first=30),
        Variant("one that was replaced is listened to", _listens_to_all, life=_life(
            "count", "gap", Fault(5.0, "cut one way", "node-1", 14.0, "control"))),
        Variant("a hole before anybody has promised", _does_not_promise, life=_life(
            "count", "gap", Fault(5.0, "cut one way", "node-1", 14.0, "control"))),
        Variant("losses are not added up", _does_not_add_up, life=_behind("lose")),
        Variant("a copy that was overtaken goes on", _not_overtaken, life=_behind("crash")),
        Variant("a producer that forgets terms", _forgets_terms, life=_life(
            "count", "active", Fault(4.0, "cut one way", "node-1", 25.0, "control"),
            Fault(15.0, "crash", "keeper", 0.5))),
        Variant("a gate that looks at one input", _first_input_only),
        Variant("a restart that is no fork", _no_fork),
        Variant("watermarks lost with a restart", _no_marks, policies=_ONE, seeds=40),
        Variant("output shown before it is confirmed", _shown_at_once, life=_life(
            "draw", "passive", Fault(3.5, "cut", "node-1", 30.0, "node-2"),
            Fault(5.0, "crash", "node-1", 3.0))),
        Variant("released before the wanted number is live", _released_at_once, ("crash", "disk")),
        Variant("a former writer is ready at once", _ready_at_once, life=_life(
            "window", "passive", Fault(3.0, "cut", "node-1", 3.0, "node-2"),
            Fault(5.9, "pause", "node-1", 7.0), Fault(5.9, "lag", "node-2", 20.0, much=30.0))),
        Variant("a restart from the commit before", _oldest_fork),
        Variant("seeds are not kept on disk", _no_seeds_kept, policies=("upstream",), seeds=40,
                first=55),
    )
}  # fmt: skip
