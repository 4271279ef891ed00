"""A small world for repairs: producers that trim, nodes that die, pause and come back, a control
plane that restarts, words that are lost.

    clicks ─▶ a ─▶ p ─▶ u ─▶ w        a active, p passive, u and w rebuilt; all but u read clicks;
                                      w begins behind a hole
    clicks ─▶ a ─▶ b ◀─ clicks        or two active ones

Disks survive their nodes, unless they are lost.  The world checks what must never happen while it
lives; a run that ends without an `AssertionError` is a good one.
"""

from __future__ import annotations

from pathlib import Path

from repair_data import CLICKS, HISTORY, Data, Log

from unbroken.control.intentions import Action, Intention, Producer, Standing, Step
from unbroken.control.records import Hole
from unbroken.control.repair import Repairs
from unbroken.control.replicas import Replicas
from unbroken.control.store import Store
from unbroken.control.writers import Takeover, Writers

LIVE, GONE, LEAVING = Standing.LIVE, Standing.GONE, Standing.LEAVING
ACTIVE = {"a": ["clicks"], "b": ["a", "clicks"]}
MIXED = {"a": ["clicks"], "p": ["a", "clicks"], "u": ["p"], "w": ["u", "clicks"]}
NODES = ["n1", "n2", "n3", "n4", "n5"]


class World(Data):
    """One life of one query on five nodes."""

    def __init__(
        self,
        path: Path,
        seed: int,
        inputs: dict[str, list[str]],
        repairs: type[Repairs] = Repairs,
        writers: type[Writers] = Writers,
    ) -> None:
        super().__init__(seed, inputs, rebuilt=[f for f in inputs if f in "uw"])
        self.path, self.kinds = path, (repairs, writers)
        self.wanted = {
            f: 1 if f in self.rebuilt else 2 if f == "p" else self.chance.randint(2, 3)
            for f in inputs
        }
        self.now_s = 0.0
        self.up = set(NODES)
        self.open()
        self.travelling: dict[str, int] = {}
        self.terms: dict[tuple[str, int], str] = {}
        #: How many holes `w` has, and how many of them each of its replicas knows.
        self.holes, self.knows = 0, dict.fromkeys(NODES, 0)
        self.first = {f: self.chance.sample(NODES, n) for f, n in self.wanted.items()}
        for fragment, nodes in self.first.items():
            for placed in self.store.place(fragment, nodes):
                key = fragment, placed.node
                self.disks[key] = placed.term
                self.running.add(key)
                self.believes[key] = nodes[0]
                self.logs[Producer(*key)] = Log()
        self.begin()
        for fragment, node in self.running:
            for stream in self.inputs[fragment]:
                for producer in self.replicas.keepers(stream):
                    term = self.disks[fragment, node]
                    self.logs[producer].needs[f"{fragment}@{node}"] = (term, 0)

    def open(self) -> None:
        self.store = Store(self.path)
        # Nobody cuts the power here, and a hundred lives would wait for the disk.
        self.store._db.execute("PRAGMA synchronous=OFF")
        self.store._db.execute("PRAGMA journal_mode=MEMORY")

    def begin(self) -> None:
        """The control plane starts from its records, and has heard of nobody."""
        repairs, writers = self.kinds
        self.replicas = Replicas(self.inputs, self.store.placement(), [])
        passive = {f: self.first[f] for f in self.inputs if f == "p"}
        self.writers = writers(passive, self.replicas, self.store.writers())
        self.repairs = repairs(
            self.wanted, self.replicas, self.store.unfinished(),
            rebuilt=self.rebuilt, writers=self.writers, overtaken=self.store.overtaken(),
        )  # fmt: skip
        self.unheard = set(NODES)

    # The nodes.

    def kill(self, node: str, *, paused: bool = False) -> None:
        self.up.discard(node)
        stopped = {key for key in self.running if key[1] == node}
        self.running -= stopped
        self.woken -= stopped
        if paused:
            self.frozen[node] = stopped
        self.repairs.dead(node)

    def revive(self, node: str) -> None:
        self.up.add(node)
        # One that was paused goes on with what it believed before, until it speaks (scenario 3).
        woken = self.frozen.pop(node, set())
        self.running |= woken
        self.woken |= woken
        self.unheard.add(node)

    def lose(self) -> None:
        """A checkpoint is lost, if its policy promises to survive that."""
        fragment, node = self.chance.choice(sorted(self.running))
        serving = set(self.replicas.serving(fragment))
        safe = [n for n in serving if (fragment, n) in self.running]
        if node in serving and (fragment in self.rebuilt or len(safe) > 1):
            self.running.discard((fragment, node))
            del self.disks[fragment, node], self.logs[Producer(fragment, node)]

    def report(self) -> None:
        """Nodes say what they have; whoever may run, runs, with the list of whom it holds for."""
        for node in sorted(self.unheard):
            if self.chance.random() < 0.3:
                self.unheard.discard(node)
                (self.repairs.alive if node in self.up else self.repairs.dead)(node)
        for fragment in self.inputs:
            for node in list(self.replicas.of(fragment)):
                there = node in self.up and node not in self.unheard
                if there and (fragment, node) not in self.disks:
                    self.repairs.lost(fragment, node)
        for (fragment, node), term in sorted(self.disks.items()):
            if node in self.up and node not in self.unheard:
                self.beat(fragment, node, term)

    def beat(self, fragment: str, node: str, term: int) -> None:
        key = fragment, node
        standing = self.replicas.of(fragment).get(node)
        if fragment == "p":
            self.believes[key] = self.writers.of(fragment)
        if standing is Standing.COMING:
            return  # Started by the repair.
        if not self.repairs.live(fragment, node, self.logs[Producer(*key)].next):
            self.running.discard(key)
            if standing is None:
                del self.disks[key], self.logs[Producer(*key)]
            return
        assert fragment != "w" or self.knows[node] == self.holes, "it goes on inside a hole"
        if standing is not LIVE:
            self.store.stand(fragment, node, LIVE)
        if key not in self.running or key in self.woken or standing is not LIVE:
            self.running.add(key)
            self.woken.discard(key)
            self.take_list(Producer(*key))

    def take_list(self, producer: Producer) -> None:
        log = self.logs[producer]
        expected = self.replicas.expected(producer.stream)
        log.needs = {c: log.needs.get(c, (0, log.first)) for c in expected}

    # The control plane.

    def control(self) -> None:
        epochs = {tuple(producer): log.next for producer, log in self.logs.items()}
        for takeover in self.writers.decide(epochs):
            self.check(takeover)
            term = self.store.record_writer(takeover.fragment, takeover.node)
            assert (takeover.fragment, term) not in self.terms, "two writers under one term"
            self.terms[takeover.fragment, term] = takeover.node
            if self.chance.random() < 0.05:
                return self.restart()
            self.writers.recorded(takeover.under(term))
        for intention in self.repairs.decide(self.now_s):
            if self.chance.random() < 0.05:
                return self.restart()
            told = self.store.record(intention)
            if self.chance.random() < 0.05:
                return self.restart()
            self.repairs.recorded(told)
            if told.step is Step.LIVE:
                self.take_list(Producer(told.fragment, told.node))
        for action in self.repairs.actions:
            if self.chance.random() < 0.5:
                self.act(action)
        return None

    def check(self, takeover: Takeover) -> None:
        """Who takes over holds a shipment, and finds all that comes after it."""
        key = takeover.fragment, takeover.node
        standing = self.replicas.of(takeover.fragment)
        assert standing.get(takeover.from_node) is not LIVE, "a writer that is there is replaced"
        assert standing[takeover.node] is LIVE, "a copy that may be half takes over"
        assert self.finds(takeover.fragment, self.logs[Producer(*key)].next), "trimmed"

    def restart(self) -> None:
        self.store.close()
        self.open()
        self.begin()

    def act(self, action: Action) -> None:
        told = action.intention
        fragment, node, term = told.fragment, told.node, told.term
        for producer in action.producers:
            if producer != CLICKS and tuple(producer) not in self.running:
                continue
            if self.chance.random() < 0.5:
                self.order(told, self.logs[producer])
                if self.chance.random() < 0.8:  # Otherwise the answer is lost.
                    self.repairs.confirmed(fragment, term, producer)
        if node not in self.up:
            return
        if told.step is Step.SHIP and told.rebuilds:
            self.rebuild(told)
        elif told.step is Step.SHIP and (fragment, told.survivor) in self.running:
            self.ship(told)
        elif told.step is Step.CATCH_UP:
            self.travelling[fragment] -= 1
            if self.travelling[fragment] > 0:  # Meanwhile the survivor acks, and producers trim.
                return
            self.start(fragment, node)
            others = [
                self.logs[Producer(*key)].next
                for key in self.running
                if key[0] == fragment and key[1] != node and fragment != "p"
            ]
            mine = self.logs[Producer(fragment, node)].next
            self.repairs.progress(
                fragment, term, newcomer=mine, others=max(others) if others else None
            )

    def start(self, fragment: str, node: str) -> None:
        if (fragment, node) not in self.running:
            self.running.add((fragment, node))
            self.take_list(Producer(fragment, node))

    def ship(self, told: Intention) -> None:
        fragment, node = told.fragment, told.node
        assert fragment != "p" or told.survivor == self.writers.of("p"), "not fed by the writer"
        survivor = self.logs[Producer(fragment, told.survivor)]
        copy = self.logs[Producer(fragment, node)] = Log(survivor.first, survivor.next)
        copy.needs = dict(survivor.needs)
        self.disks[fragment, node] = told.term
        self.believes[fragment, node] = told.survivor
        self.running.discard((fragment, node))
        self.travelling[fragment] = 5
        self.repairs.shipped(fragment, told.term)

    def rebuild(self, told: Intention) -> None:
        """Empty, from the need of the one that is gone; done when it could serve what that did."""
        fragment, node = key = told.fragment, told.node
        start = self.acked.get((fragment, told.survivor), 0)
        if self.disks.get(key) != told.term:
            assert self.finds(fragment, start), f"{fragment}@{node} rebuilds from {start}: trimmed"
            if fragment == "w" and not self.hole(node):
                return
            self.disks[key], self.logs[Producer(*key)] = told.term, Log(start, start)
            self.acked[key], self.travelling[fragment] = start, 0
            self.running.discard(key)
        self.start(fragment, node)
        self.repairs.moved(fragment, told.term)
        if self.logs[Producer(*key)].next >= start + HISTORY:
            self.repairs.shipped(fragment, told.term)

    def hole(self, node: str) -> bool:
        """A hole is recorded; False: control died, and its answer never came."""
        gone = self.repairs.overtakes("w", node)
        if gone is None:  # Control has died and begun again.
            return False
        self.holes += 1
        self.store.record_hole(Hole("w", self.holes, self.holes), overtakes=[("w", gone)])
        if self.chance.random() < 0.1:
            self.restart()
            return False
        self.repairs.overtaken("w", gone)
        self.knows[node] = self.holes
        return True

    def order(self, told: Intention, log: Log) -> None:
        """What a producer does when it is told to expect or to release."""
        consumer = f"{told.fragment}@{told.node}"
        if told.term < log.needs.get(consumer, (0, 0))[0]:
            return
        if told.step is Step.EXPECT:
            _, need = log.needs.get(f"{told.fragment}@{told.survivor}", (0, log.first))
            log.needs[consumer] = (told.term, need)
        else:
            log.needs.pop(consumer, None)

    # A life.

    def live_through(self, rounds: int) -> None:
        for _ in range(rounds):
            self.now_s += 0.5
            if self.chance.random() < 0.06 and self.up:
                paused = self.chance.random() < 0.3
                self.kill(self.chance.choice(sorted(self.up)), paused=paused)
            if self.chance.random() < 0.08 and len(self.up) < 5:
                self.revive(self.chance.choice(sorted(set(NODES) - self.up)))
            if self.chance.random() < 0.05:
                node = self.chance.choice(NODES)
                if node in self.up - self.unheard:
                    self.chance.choice([self.repairs.suspected, self.repairs.alive])(node)
            if self.chance.random() < 0.02:
                self.restart()
            if self.chance.random() < 0.03 and self.running:
                self.lose()
            if self.chance.random() < 0.01 and self.repairs.actions:
                told = self.repairs.actions[0].intention
                self.repairs.failed(told.fragment, told.term, "bad luck")
            self.round()

    def round(self) -> None:
        self.flow()
        self.report()
        self.control()
        for fragment in self.wanted:
            having = self.replicas.having
            assert len(having(fragment, Standing.COMING)) <= 1, "one repair per fragment"
            lines = having(fragment, LIVE, GONE, Standing.STARTING)
            assert fragment not in self.rebuilt or len(lines) <= 1, "two lines to follow"
        copies = [repair for repair in self.repairs.under_way.values() if not repair.rebuilds]
        assert len(copies) <= 1, "one copy at a time"
        if "p" in self.inputs:
            placed = {p.node: p.standing for p in self.store.placement()["p"]}
            writer = self.store.writers().get("p", self.first["p"][0])
            assert placed.get(writer, LEAVING) is not LEAVING, "the writer is not expected"

    def settle(self) -> None:
        """No more deaths: everything must become whole, and stay quiet."""
        for node in NODES:
            self.revive(node)
        for _ in range(1000):
            self.now_s += 0.5
            self.round()
            if self.whole():
                return
        raise AssertionError(f"not whole: {self.repairs.sentences + self.writers.sentences}")

    def whole(self) -> bool:
        """Wanted live, nobody gone, nothing unfinished, and producers hold for exactly those."""
        for fragment, wanted in self.wanted.items():
            if list(self.replicas.of(fragment).values()) != [LIVE] * wanted:
                return False
        if self.repairs.actions or self.store.unfinished() or self.woken & self.running:
            return False
        if "p" in self.inputs and self.writers.of("p") not in self.replicas.serving("p"):
            return False
        placed = self.store.placement()
        for fragment in self.wanted:
            assert {p.node for p in placed[fragment]} == set(self.replicas.of(fragment))
        for stream in ("clicks", *self.inputs):
            for log in self.available(stream):
                assert sorted(log.needs) == sorted(self.replicas.expected(stream))
        return True
