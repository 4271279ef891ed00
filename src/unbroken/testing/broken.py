"""How a protocol is broken on purpose: one function for each rule that is left out.

Each tells which attribute of which class or module is something else from then on.  What they are
called, and under which faults they matter, is in `variants`.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from unbroken.control import store
from unbroken.control.detector import Detector
from unbroken.control.intentions import Intention, Standing, Step
from unbroken.control.orders import Orders
from unbroken.control.releases import Releases
from unbroken.control.repair import Repairs
from unbroken.control.replicas import Replicas
from unbroken.control.store import Store
from unbroken.control.writers import Writers
from unbroken.node.book import BookReader
from unbroken.node.health import Health
from unbroken.node.holes import Holes
from unbroken.node.lost import Lost
from unbroken.node.staged import Confirmed
from unbroken.node.standby import Standby
from unbroken.policies.past import Past, Seed
from unbroken.streams.hole import Positions
from unbroken.streams.merge import Fetch, Merge, Serving
from unbroken.streams.needs import Needs
from unbroken.streams.served import Served
from unbroken.testing.patches import patched

#: Class or module, name of the attribute, what it is instead.
Change = tuple[Any, str, Any]


def acks_before_shipped() -> list[Change]:
    """A standby promises one epoch more than it holds."""

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


def trims_at_processed() -> list[Change]:
    """A producer takes what was processed for what is not needed any more."""
    record = Needs.record

    def at_processed(self: Needs, consumer: str, **said: Any) -> None:
        record(self, consumer, **{**said, "need": said["processed"] + 1})

    return [(Needs, "record", at_processed)]


def no_fence() -> list[Change]:
    """Acks of older terms, and of those who were removed, are believed."""
    record = Needs.record

    def believe(self: Needs, consumer: str, **said: Any) -> None:
        self._terms.pop(consumer, None)
        self.ruled[consumer] = (self.ruled.get(consumer, (0, True))[0], True)
        record(self, consumer, **said)

    return [(Needs, "record", believe)]


def takes_again() -> list[Change]:
    """A copy of the epoch that was taken last is taken once more."""
    announced = Merge.announced

    def again(self: Merge, replica: str, headers: Any) -> None:
        headers = list(headers)
        if headers and headers[0].number == self.next - 1:
            self.next -= 1  # A copy of what was taken comes from another replica.
        announced(self, replica, headers)

    return [(Merge, "announced", again)]


def arrival_order() -> list[Change]:
    """What was announced first is taken first, whatever its number."""

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


def seed_too_late() -> list[Change]:
    """A successor begins two epochs after the oldest that can be in the state."""
    seed = Past.seed

    def late(self: Past, speak: int) -> Any:
        found = seed(self, speak)
        if found is None or found.first + 2 > found.speak or found.first == 0:
            return found
        return replace(found, first=found.first + 2)

    return [(Past, "seed", late)]


def live_too_soon() -> list[Change]:
    """A newcomer counts before it is there."""
    recorded = Repairs.recorded

    def at_once(self: Repairs, intention: Intention) -> None:
        recorded(self, intention)
        if intention.step in (Step.SHIP, Step.CATCH_UP):
            self._work[intention.fragment].done = True

    return [(Repairs, "recorded", at_once)]


def owes_from_processed() -> list[Change]:
    """A stream owes what was not processed, not what may be asked for again."""

    def owed(self: Served) -> int:
        processed = [epoch + 1 for epoch in self.needs.processed.values()]
        return max(self.log.first, min([*processed, self.log.next]))

    return [(Served, "owed", property(owed))]


def live_not_expected() -> list[Change]:
    """Control tells producers of those who are live, not of those who come."""

    def expected(self: Replicas, stream: str) -> dict[str, int]:
        return {
            f"{fragment}@{node}": self._terms.get((fragment, node), 0)
            for fragment, streams in self.inputs.items()
            for node, standing in self.of(fragment).items()
            if stream in streams and standing is Standing.LIVE
        }

    return [(Replicas, "expected", expected)]


def deaf_to_control() -> list[Change]:
    """A producer does not heed control when it is told whom to expect."""
    expect = Needs.expect

    def deaf(self: Needs, consumer: str, *, term: int = 0, like: str | None = None) -> None:
        if not term:
            expect(self, consumer, like=like)

    return [(Needs, "expect", deaf)]


def two_writers() -> list[Change]:
    """Whoever has the fragment may write it."""

    def never(self: Orders, fragment: str, node: str) -> bool:
        return False

    return [(Orders, "_holds", never)]


def speaks_too_soon() -> list[Change]:
    """A successor is not mute while it makes the state again."""
    of = Seed.of.__func__  # type: ignore[attr-defined]

    def at_once(cls: type[Seed], answer: object) -> Seed:
        seed: Seed = of(cls, answer)
        return replace(seed, speak=seed.first)

    return [(Seed, "of", classmethod(at_once))]


def lowest_consumer() -> list[Change]:
    """A hole begins where the slowest consumer is."""

    def first(
        self: Positions, *, at_most: int | None = None, besides: Any = (), without: Any = ()
    ) -> int | None:
        if set(self.missing).difference(besides, without):
            return None
        lowest = min(self._next.values(), default=0)
        return lowest if at_most is None else min(lowest, at_most)

    return [(Positions, "first", first)]


def does_not_wait() -> list[Change]:
    """A hole is decided before all consumers have said how far they are."""

    def missing(self: Positions) -> list[str]:
        return []

    def nobody(self: Positions, **how: Any) -> int:
        return max(0, min(self._next.values(), default=0))

    return [(Positions, "missing", property(missing)), (Positions, "first", nobody)]


def listens_to_all() -> list[Change]:
    """Consumers go on with a replica in whose place another one stands alone."""
    replicas = BookReader.replicas

    def only(self: Merge, term: int, replica: str) -> bool:
        news = term > self.alone[0]
        self.alone = max(self.alone, (term, replica))
        return news

    def everybody(self: BookReader, stream: str) -> Serving:
        return Serving(self._page.get(stream, {}), alone=replicas(self, stream).alone)

    return [(Merge, "only", only), (Merge, "allows", lambda self, replica: True),
            (BookReader, "replicas", everybody)]  # fmt: skip


def does_not_promise() -> list[Change]:
    """A hole is decided before consumers have promised to take from nobody else."""
    stand_alone = Served.stand_alone

    def at_once(self: Served, term: int) -> None:
        stand_alone(self, 0)

    def never(self: BookReader, stream: str, replica: str, term: int) -> None:
        pass

    return [(Served, "stand_alone", at_once), (BookReader, "stand_alone", never)]


def does_not_add_up() -> list[Change]:
    """Every gap tells of itself alone."""
    epochs = Lost.epochs

    def apart(self: Lost, *given: Any, **how: Any) -> Any:
        return [
            epoch.with_header(lost_total=0, lost_here=0) for epoch in epochs(self, *given, **how)
        ]

    return [(Lost, "epochs", apart)]


def not_overtaken() -> list[Change]:
    """A copy that another one has replaced behind a hole goes on where it was."""
    return [(Holes, "_still_replaced", lambda self, stream, replaced: []),
            (Served, "turn_away", lambda self, consumers: None)]  # fmt: skip


def forgets_terms() -> list[Change]:
    """A producer that restarts believes everybody again."""
    begin = Needs.__init__

    def forget(self: Needs, terms: Any = None, ruled: Any = None, seeds: Any = None) -> None:
        begin(self, None, None, seeds)

    return [(Needs, "__init__", forget)]


def shown_at_once() -> list[Change]:
    """What was drawn is shown before a standby has it."""
    return [(Confirmed, "by_all", property(lambda self: 1 << 30))]


def released_at_once() -> list[Change]:
    """What a replaced replica has is thrown away at once."""
    return [(Releases, "may_discard", lambda self, fragment: True)]


def ready_at_once() -> list[Change]:
    """A standby counts as one although its log begins too late."""
    return [(Standby, "_trimmed", lambda self: 0)]


def no_seeds_kept() -> list[Change]:
    """A producer that restarts has lost the seeds."""
    return [(Needs, "seeds", property(lambda self: {}))]


def unforgiving() -> list[Change]:
    """A detector that was late itself takes everybody for silent."""
    begin = Detector.__init__

    def never_late(self: Detector, timing: Any, *, now_s: float) -> None:
        begin(self, timing, now_s=now_s)
        self.timing = SimpleNamespace(**{**vars(timing), "late_s": 1e9})  # type: ignore[assignment]

    return [(Detector, "__init__", never_late)]


def term_per_replica() -> list[Change]:
    """Terms are counted for each replica, not for its fragment: a successor has an old one."""
    next_term, record, record_writer = store._next_term, Store.record, Store.record_writer

    def counted(node: str) -> list[Change]:
        return [(store, "_next_term", lambda db, fragment: next_term(db, f"{fragment}@{node}"))]

    def of_node(self: Store, intention: Intention) -> Intention:
        with patched(counted(intention.node)):
            return record(self, intention)

    def writes(self: Store, fragment: str, node: str) -> int:
        with patched(counted(node)):
            return record_writer(self, fragment, node)

    return [(Store, "record", of_node), (Store, "record_writer", writes)]


def never_full() -> list[Change]:
    """A fragment goes on although its output log is full."""
    return [(Health, "full", property(lambda self: False))]


def nobody_holds() -> list[Change]:
    """A full log does not say for whose sake it is full."""
    return [(Needs, "holder", property(lambda self: None))]


def says_nothing() -> list[Change]:
    """Control does not tell what a fragment waits for."""
    silent = property(lambda self: [])
    return [(Repairs, "sentences", silent), (Writers, "sentences", silent)]
