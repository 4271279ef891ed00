"""The data of a small world: logs that are trimmed, replicas that compute, backups that are fed.

    log     0 ....... first ........... next          what one keeper of one stream has
    needs             ^ a@n1    ^ a@n2                whom it holds it for

A replica that is expected and finds that its next epoch was trimmed everywhere ends the world.
"""

from __future__ import annotations

import random

from unbroken.control.intentions import Producer, Standing
from unbroken.control.store import Store

CLICKS = Producer("clicks", "keeper")
#: How many input epochs can still be in the state of a rebuilt fragment.
HISTORY = 3


class Log:
    """What one keeper of one stream has, and whom it holds it for."""

    def __init__(self, first: int = 0, following: int = 0) -> None:
        self.first, self.next = first, following
        self.needs: dict[str, tuple[int, int]] = {}

    @property
    def held_from(self) -> int:
        return min((need for _, need in self.needs.values()), default=self.next)

    def trim(self) -> None:
        lowest = self.held_from if self.needs else 0
        self.first = max(self.first, min(lowest, self.next))


class Data:
    """All logs and all replicas, running or not; `p` is passive, `rebuilt` ones have a history."""

    store: Store
    #: Whoever was paused does not know whom to expect: it trims when it has spoken with control.
    waits_to_trim = True

    def __init__(self, seed: int, inputs: dict[str, list[str]], rebuilt: list[str]) -> None:
        self.chance, self.inputs, self.rebuilt = random.Random(seed), inputs, rebuilt
        self.logs: dict[Producer, Log] = {CLICKS: Log()}
        #: What runs or could run: (fragment, node) to its term.
        self.disks: dict[tuple[str, str], int] = {}
        self.running: set[tuple[str, str]] = set()
        #: What stood still with its node, and has not spoken since it woke.
        self.frozen: dict[str, set[tuple[str, str]]] = {}
        self.woken: set[tuple[str, str]] = set()
        #: Whom each copy of a passive fragment believes to be the writer.
        self.believes: dict[tuple[str, str], str] = {}
        #: The highest need that a replica ever told its producers.
        self.acked: dict[tuple[str, str], int] = {}

    def available(self, stream: str) -> list[Log]:
        keepers = [p for p in self.logs if p.stream == stream]
        return [self.logs[p] for p in keepers if p == CLICKS or tuple(p) in self.running]

    def counts(self, fragment: str, node: str) -> bool:
        """Whether it is expected under its term; whoever was replaced may find nothing any more."""
        placed = {p.node: p for p in self.store.placement()[fragment]}
        return (
            node in placed
            and placed[node].standing is not Standing.LEAVING
            and placed[node].term == self.disks[fragment, node]
        )

    def finds(self, fragment: str, epoch: int) -> bool:
        """Whether `epoch` is still held on all inputs, as far as somebody is there to ask."""
        logs = [self.available(stream) for stream in self.inputs[fragment]]
        return not any(there and all(log.first > epoch for log in there) for there in logs)

    def compute(self, fragment: str, node: str) -> None:
        """One epoch, if it is there; that it was trimmed everywhere must never be so."""
        log = self.logs[Producer(fragment, node)]
        for stream in self.inputs[fragment]:
            there = self.available(stream)
            if not any(each.first <= log.next < each.next for each in there):
                assert self.finds(fragment, log.next) or not self.counts(fragment, node), (
                    f"{fragment}@{node} needs {stream} {log.next}: trimmed"
                )
                return
        log.next += 1
        if self.chance.random() < 0.7:
            self.ack(fragment, node)

    def ack(self, fragment: str, node: str) -> None:
        key, mine = (fragment, node), self.logs[Producer(fragment, node)]
        term, need = self.disks[key], mine.next
        if fragment in self.rebuilt:
            need = max(0, min(mine.held_from, mine.next) - HISTORY)
        self.acked[key] = max(self.acked.get(key, 0), need)
        trimming = self.running - self.woken if self.waits_to_trim else self.running
        for stream in self.inputs[fragment]:
            for producer, log in self.logs.items():
                there = producer == CLICKS or tuple(producer) in trimming
                if producer.stream == stream and there:
                    known, before = log.needs.get(f"{fragment}@{node}", (term + 1, 0))
                    if term >= known:
                        log.needs[f"{fragment}@{node}"] = (term, max(before, need))
                    log.trim()

    def flow(self) -> None:
        """Everybody who runs does some work, in any order."""
        self.logs[CLICKS].next += self.chance.randint(0, 2)
        running = sorted(self.running)
        self.chance.shuffle(running)
        for fragment, node in running:
            if fragment == "p" and self.believes[fragment, node] != node:
                continue  # A backup holds, and does not compute.
            for _ in range(self.chance.randint(0, 3)):
                self.compute(fragment, node)
            if fragment == "p" and self.chance.random() < 0.4:
                self.feed(fragment, node)

    def feed(self, fragment: str, writer: str) -> None:
        """The writer ships what is new to those who believe in it."""
        mine = self.logs[Producer(fragment, writer)]
        for key in sorted(self.running):
            if key[0] == fragment and key[1] != writer and self.believes[key] == writer:
                theirs = self.logs[Producer(*key)]
                # A backup may skip only what its own consumers do not need any more.
                follows = mine.first <= max(theirs.next, theirs.held_from)
                if follows and mine.next > theirs.next:
                    if mine.first > theirs.next:
                        theirs.first = mine.first
                    theirs.next = mine.next
                    self.ack(*key)
