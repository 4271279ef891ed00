"""Repair: step by step, through deaths and restarts, without ever asking for what was trimmed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from unbroken.control.attempts import RETRY_S_MAX
from unbroken.control.intentions import Action, Intention, Placed, Producer, Standing, Step
from unbroken.control.repair import LAG_EPOCHS_MAX, STALL_S_MAX, Repairs
from unbroken.control.replicas import Replicas
from unbroken.control.store import Store

LIVE, GONE, LEAVING = Standing.LIVE, Standing.GONE, Standing.LEAVING
CLICKS = Producer("clicks", "keeper")


class Hand:
    """Repairs driven by hand; terms count up from 10, the clock by a tenth of a second."""

    def __init__(self, placed: dict[str, str], nodes: str, wanted: int = 2, **inputs: list[str]):
        inputs = inputs or {fragment: ["clicks"] for fragment in placed}
        placement = {f: [Placed(n, 1, LIVE) for n in held] for f, held in placed.items()}
        self.now_s, self.term = 0.0, 9
        self.replicas = Replicas(inputs, placement, nodes)
        self.repairs = Repairs(dict.fromkeys(placed, wanted), self.replicas)

    def decide(self) -> list[Intention]:
        """One round; everything is recorded."""
        self.now_s += 0.1
        recorded = []
        for intention in self.repairs.decide(self.now_s):
            if not intention.term:
                self.term += 1
                intention = intention.under(self.term)
            self.repairs.recorded(intention)
            recorded.append(intention)
        return recorded

    def step(self) -> Intention:
        """One round in which exactly one thing is decided."""
        [intention] = self.decide()
        return intention

    def to(self, step: Step, fragment: str = "a") -> Intention:
        """Takes the repair of `fragment` as far as `step`; nothing is in its way."""
        for _ in range(20):
            for intention in self.decide():
                if (intention.fragment, intention.step) == (fragment, step):
                    return intention
            self.act()
        raise AssertionError(f"never came to {step}: {self.repairs.sentences}")

    def act(self) -> None:
        for action in self.repairs.actions:
            i = action.intention
            for producer in action.producers:
                self.repairs.confirmed(i.fragment, i.term, producer)
            if i.step is Step.SHIP:
                self.repairs.shipped(i.fragment, i.term)
            if i.step is Step.CATCH_UP:
                self.repairs.progress(i.fragment, i.term, newcomer=9, others=9)

    def standing(self, fragment: str = "a") -> dict[str, str]:
        return {node: str(standing) for node, standing in self.replicas.of(fragment).items()}


def test_the_fork_waits_for_every_producer():
    """Scenario 2: two replicas of the producer; one confirmation is not enough."""
    hand = Hand({"a": "12", "b": "34"}, "12345", a=["clicks"], b=["a", "clicks"])
    hand.repairs.dead("4")
    expect = hand.step()
    assert (expect.step, expect.node, expect.survivor, expect.replaces) == (
        Step.EXPECT, "5", "3", "4",
    )  # fmt: skip
    [action] = hand.repairs.actions
    assert set(action.producers) == {Producer("a", "1"), Producer("a", "2"), CLICKS}
    for producer in (Producer("a", "1"), CLICKS):
        hand.repairs.confirmed("b", expect.term, producer)
    assert hand.decide() == []
    assert hand.repairs.sentences[0].endswith("waiting for a@2")
    hand.repairs.confirmed("b", expect.term, Producer("a", "2"))
    assert hand.step().step is Step.SHIP


def test_a_producer_that_died_need_not_confirm():
    """What it kept is gone anyway; whoever comes back takes the list of the expected."""
    hand = Hand({"a": "12", "b": "34"}, "12345", a=["clicks"], b=["a"])
    hand.repairs.dead("4")
    expect = hand.step()
    hand.repairs.confirmed("b", expect.term, Producer("a", "1"))
    hand.repairs.dead("2")
    assert hand.step().step is Step.SHIP
    assert hand.replicas.expected("a") == ["b@3", "b@4", "b@5"]


def test_no_fork_while_nobody_keeps_an_input():
    """All replicas of a producer are gone: nobody left to ask is not the same as all agree."""
    hand = Hand({"a": "12", "b": "34"}, "12345", a=["clicks"], b=["a"])
    hand.repairs.dead("4")
    assert hand.step().fragment == "b"
    hand.repairs.dead("1")
    hand.repairs.dead("2")
    assert hand.decide() == []
    hand.repairs.alive("2")
    hand.repairs.live("a", "2")
    [action] = hand.repairs.actions
    assert action.producers == (Producer("a", "2"),)


def test_nothing_is_done_before_it_is_recorded():
    """Scenario 15: a full disk, say.  Asked again, it says the same again."""
    hand = Hand({"a": "12"}, "123")
    hand.repairs.dead("1")
    first = hand.repairs.decide(0.0)
    assert hand.repairs.actions == []
    assert hand.repairs.decide(0.1) == first


def test_live_and_then_released():
    """The removed one holds the log until the newcomer is live, and not longer."""
    hand = Hand({"a": "12"}, "123")
    hand.repairs.dead("1")
    assert hand.repairs.survives("a") == 0
    hand.to(Step.CATCH_UP)
    assert hand.standing() == {"1": "gone", "2": "live", "3": "coming"}
    assert hand.replicas.expected("clicks") == ["a@1", "a@2", "a@3"]
    hand.to(Step.LIVE)
    assert hand.repairs.survives("a") == 1
    release = hand.step()
    assert (release.step, release.node) == (Step.RELEASE, "1")
    assert hand.replicas.expected("clicks") == ["a@2", "a@3"]
    assert hand.decide() == [], "the producer has not confirmed"
    hand.repairs.confirmed("a", release.term, CLICKS)
    assert hand.step().step is Step.RELEASED
    assert hand.standing() == {"2": "live", "3": "live"}
    assert hand.repairs.sentences == []


def test_a_newcomer_is_live_when_it_is_close_enough():
    """Not when it has merely started."""
    hand = Hand({"a": "12"}, "123")
    hand.repairs.dead("1")
    term = hand.to(Step.CATCH_UP).term
    hand.repairs.progress("a", term, newcomer=50, others=51 + LAG_EPOCHS_MAX)
    assert hand.decide() == []
    hand.repairs.progress("a", term, newcomer=60, others=60 + LAG_EPOCHS_MAX)
    assert hand.step().step is Step.LIVE


@pytest.mark.parametrize("step", [Step.EXPECT, Step.SHIP, Step.CATCH_UP])
def test_the_newcomer_dies(step: Step):
    """It is released at once, recorded before the next one begins under a new term."""
    hand = Hand({"a": "12"}, "1234")
    hand.repairs.dead("1")
    old = hand.to(step)
    hand.repairs.dead("3")
    release, expect = hand.decide()
    assert (release.step, release.node) == (Step.RELEASE, "3")
    assert (expect.step, expect.node, expect.replaces) == (Step.EXPECT, "4", "1")
    assert expect.term > old.term
    assert hand.to(Step.LIVE).node == "4"


@pytest.mark.parametrize("step", [Step.EXPECT, Step.SHIP])
def test_the_survivor_dies_before_all_is_shipped(step: Step):
    """Another one takes its part: same newcomer, new term, all producers asked again."""
    hand = Hand({"a": "124"}, "1243", wanted=3)
    hand.repairs.dead("1")
    old = hand.to(step)
    assert old.survivor == "2"
    hand.repairs.dead("2")
    again = hand.step()
    assert (again.step, again.node, again.survivor) == (Step.EXPECT, "3", "4")
    assert again.term > old.term
    hand.repairs.confirmed("a", old.term, CLICKS)
    hand.repairs.shipped("a", old.term)
    assert hand.decide() == [], "what was said under the old term is worth nothing"
    hand.to(Step.SHIP)
    hand.repairs.shipped("a", old.term)
    hand.repairs.failed("a", old.term, "too late")
    assert hand.decide() == []
    assert hand.to(Step.LIVE).term == again.term


def test_the_survivor_dies_after_all_is_shipped():
    """The newcomer has everything: it goes on, and is the only one."""
    hand = Hand({"a": "12"}, "123")
    hand.repairs.dead("1")
    term = hand.to(Step.CATCH_UP).term
    hand.repairs.dead("2")
    assert hand.repairs.survives("a") == -1
    hand.repairs.progress("a", term, newcomer=9, others=None)
    assert hand.step().step is Step.LIVE
    assert hand.standing() == {"1": "gone", "2": "gone", "3": "live"}


def test_the_last_copy_may_come_back():
    """Scenario 16: removed, its successor's survivor dies; it wakes and is not thrown away."""
    hand = Hand({"a": "12"}, "123")
    hand.repairs.dead("1")
    hand.to(Step.SHIP)
    assert not hand.repairs.live("a", "1"), "it is being replaced"
    hand.repairs.dead("2")
    assert hand.decide() == []
    assert hand.repairs.waiting["a"].startswith("a has 0 of 2 replicas: none is left to fork from")
    assert "a@1" in hand.replicas.expected("clicks"), "producers still hold what it needs"
    hand.repairs.alive("1")
    assert hand.repairs.live("a", "1")
    again = hand.step()
    assert (again.step, again.node, again.survivor) == (Step.EXPECT, "3", "1")
    hand.to(Step.LIVE)
    assert hand.repairs.survives("a") == 1


def test_who_was_replaced_stays_out():
    """It comes back after its release was decided: a spare, and not before it is over."""
    hand = Hand({"a": "12"}, "123")
    hand.repairs.dead("1")
    hand.to(Step.LIVE)
    hand.repairs.alive("1")
    assert not hand.repairs.live("a", "1"), "the wanted number is live"
    release = hand.step()
    assert not hand.repairs.live("a", "1")
    hand.repairs.dead("3")
    assert hand.decide() == [], "node 1 must not be expected and released at the same time"
    hand.repairs.confirmed("a", release.term, CLICKS)
    assert hand.step().step is Step.RELEASED
    expect = hand.step()
    assert (expect.step, expect.node) == (Step.EXPECT, "1")


def test_a_repair_that_is_not_needed_any_more_is_given_up():
    """Two of three were gone; while one is replaced, so many come back that all is well."""
    hand = Hand({"a": "12"}, "1234")
    hand.repairs.dead("1")
    term = hand.to(Step.CATCH_UP).term
    hand.repairs.dead("2")
    hand.repairs.progress("a", term, newcomer=9, others=None)
    assert hand.step().step is Step.LIVE
    expect = hand.step()
    assert (expect.node, expect.replaces) == ("4", "1")
    hand.repairs.alive("2")
    assert hand.repairs.live("a", "2")
    assert {(i.step, i.node) for i in hand.decide()} == {(Step.RELEASE, "4"), (Step.RELEASE, "1")}


def test_the_newest_survivor_is_copied():
    """One that came back a moment ago has a long way to go, and its copy would have it too."""
    hand = Hand({"a": "123"}, "1234", wanted=3)
    hand.repairs.live("a", "1", 7)
    hand.repairs.live("a", "3", 90)
    hand.repairs.dead("2")
    assert hand.step().survivor == "3"


def test_suspicion_repairs_nothing_and_is_not_relied_on():
    """It counts for nothing, is no target and no survivor, and is not replaced."""
    hand = Hand({"a": "12"}, "1234")
    hand.repairs.suspected("1")
    assert hand.repairs.survives("a") == 0
    assert hand.decide() == []
    hand.repairs.dead("2")
    assert hand.decide() == []
    assert "none is left to fork from" in hand.repairs.waiting["a"]
    hand.repairs.suspected("3")
    hand.repairs.alive("1")
    assert hand.step().node == "4"


def test_one_at_a_time_and_the_most_endangered_first():
    """Three of b are wanted, two of a: a is down to one, so a comes first."""
    hand = Hand({"b": "123", "a": "14"}, "12345")
    hand.repairs = Repairs({"b": 3, "a": 2}, hand.replicas)
    hand.repairs.dead("1")
    assert hand.step().fragment == "a"
    assert hand.repairs.waiting["b"].endswith("another repair comes first")
    hand.to(Step.LIVE, "a")
    assert hand.to(Step.EXPECT, "b").node in {"4", "5"}


def test_no_node_is_said_and_one_that_joins_is_used():
    """The copies that never could be placed are repairs like all others."""
    hand = Hand({"a": "1"}, "1")
    assert hand.decide() == []
    assert hand.repairs.sentences == [
        "a has 1 of 2 replicas: no node to put one on; start another node"
    ]
    hand.repairs.alive("2")
    expect = hand.step()
    assert (expect.node, expect.survivor, expect.replaces) == ("2", "1", "")


def test_a_node_that_lost_its_checkpoint_is_replaced_by_itself():
    """Scenario 28: after a reboot of one of two machines nobody else is there."""
    hand = Hand({"a": "12"}, "12")
    hand.repairs.lost("a", "1")
    expect = hand.step()
    assert (expect.node, expect.replaces) == ("1", "1")
    hand.to(Step.LIVE)
    assert hand.standing() == {"1": "live", "2": "live"}
    assert hand.decide() == [], "nobody is released"


def test_whoever_holds_a_full_log_is_removed_unless_it_is_the_last():
    """Scenario 19: a paused replica; its node is up, but it will be replaced."""
    hand = Hand({"a": "12"}, "123")
    assert hand.repairs.held("a", "1", "holds 1 GiB of clicks")
    release, expect = hand.decide()
    assert release.sentence.endswith("holds 1 GiB of clicks")
    assert (release.node, expect.node) == ("1", "3")
    assert not hand.repairs.held("a", "2", "holds 1 GiB of clicks")
    assert hand.standing()["2"] == "live"


def test_a_dead_one_that_nobody_can_replace_is_released_at_the_limit():
    """No spare node: without this the log would stay full for ever."""
    hand = Hand({"a": "12"}, "12")
    hand.repairs.dead("1")
    assert hand.decide() == []
    hand.repairs.held("a", "1", "holds 1 GiB of clicks")
    assert hand.step().step is Step.RELEASE


def test_failures_wait_longer_each_time_and_others_go_first():
    """Invariant 7: retries are limited in rate, and another node and survivor are tried."""
    hand = Hand({"a": "12", "b": "12"}, "123456", wanted=3)
    first = hand.step()
    hand.repairs.failed("a", first.term, "the fork does not fit on its disk")
    release, other = hand.decide()
    assert (release.step, release.node) == (Step.RELEASE, first.node)
    assert other.fragment == "b"
    assert "the next one begins in 1 s" in hand.repairs.waiting["a"]
    hand.to(Step.LIVE, "b")
    hand.now_s += 1
    second = hand.to(Step.EXPECT)
    assert second.node != first.node
    assert second.survivor != first.survivor
    waits = []
    for _ in range(8):
        hand.repairs.failed("a", second.term, "bad luck")
        hand.decide()
        waits.append(hand.repairs.waiting["a"].split()[-2])
        hand.now_s += RETRY_S_MAX
        second = hand.to(Step.EXPECT)
    assert waits == ["2", "4", "8", "16", "32", "60", "60", "60"]


def test_a_repair_that_stands_still_is_a_failure():
    """Invariant 7: no wait without a limit; whatever moves starts it anew."""
    hand = Hand({"a": "12"}, "1234")
    hand.repairs.dead("1")
    term = hand.to(Step.SHIP).term
    hand.now_s += STALL_S_MAX - 1
    hand.decide()
    hand.repairs.moved("a", term)
    hand.now_s += STALL_S_MAX - 1
    assert hand.decide() == []
    hand.now_s += 2
    assert hand.step().sentence.endswith("nothing moved for 60 s at step 'ship'")


@pytest.mark.parametrize("step", [Step.EXPECT, Step.SHIP, Step.CATCH_UP])
def test_after_a_restart_it_is_done_again_under_a_new_term(step: Step):
    """Scenario 15, with what the records say and nothing else."""
    hand = Hand({"a": "12"}, "123")
    hand.repairs.dead("1")
    old = hand.to(step)
    placed = {"a": [Placed(n, 1, Standing(s)) for n, s in hand.standing().items()]}
    hand.replicas = Replicas({"a": ["clicks"]}, placed, "123")
    hand.repairs = Repairs({"a": 2}, hand.replicas, [old])
    assert hand.repairs.actions == []
    again = hand.step()
    assert again == old.then(Step.EXPECT).under(again.term)
    assert again.term > old.term


def test_after_a_restart_nobody_is_believed_in_before_it_was_heard_of():
    """Scenario 14: what the records call live may be dead; nothing is decided on their word."""
    placed = {"a": [Placed("1", 1, GONE), Placed("2", 2, LIVE), Placed("3", 3, LIVE)]}
    repairs = Repairs({"a": 2}, Replicas({"a": ["clicks"]}, placed, []))
    assert repairs.decide(0.0) == []
    assert repairs.survives("a") == -1
    repairs.alive("1")
    assert repairs.live("a", "1"), "it may be the last one"
    repairs.alive("2")
    repairs.alive("3")
    [release] = repairs.decide(0.1)
    assert (release.step, release.reason) == (Step.RELEASE, "more are live than wanted")


def test_after_a_restart_a_newcomer_is_waited_for():
    """It is not given up because it has not reported yet."""
    placed = {"a": [Placed("1", 1, LIVE), Placed("2", 2, Standing.COMING)]}
    old = Intention("a", Step.SHIP, "2", 2, survivor="1")
    repairs = Repairs({"a": 2}, Replicas({"a": ["clicks"]}, placed, ["1", "3"]), [old])
    assert repairs.decide(0.0) == []
    assert repairs.waiting["a"].endswith("2 has not been heard of yet")
    repairs.alive("2")
    repairs.suspected("2")
    assert {(i.step, i.node) for i in repairs.decide(0.1)} == {
        (Step.RELEASE, "2"), (Step.EXPECT, "3"),
    }  # fmt: skip


def test_an_unfinished_release_is_done_again_too():
    """And a newcomer that belongs to no repair is released."""
    placed = {"a": [Placed("1", 1, LEAVING), Placed("2", 2, LIVE), Placed("3", 3, Standing.COMING)]}
    unfinished = [Intention("a", Step.RELEASE, "1", 5, reason="replaced")]
    repairs = Repairs({"a": 2}, Replicas({"a": ["clicks"]}, placed, "23"), unfinished)
    first, second = repairs.decide(0.0)
    assert (first.step, first.node, first.term, first.reason) == (Step.RELEASE, "1", 0, "replaced")
    assert (second.step, second.node) == (Step.RELEASE, "3")


def test_what_is_said_about_strangers_changes_nothing():
    """Reports of nodes and terms that nobody knows."""
    hand = Hand({"a": "12"}, "12")
    assert not hand.repairs.live("a", "9")
    hand.repairs.lost("a", "9")
    hand.repairs.dead("9")
    hand.repairs.failed("a", 3, "x")
    hand.repairs.shipped("a", 3)
    assert hand.standing() == {"1": "live", "2": "live"}
    assert hand.decide() == []


# A small world: producers that trim, nodes that die and come back, a control plane that restarts.


class Log:
    """What one keeper of one stream has, and whom it holds it for."""

    def __init__(self, first: int = 0, following: int = 0) -> None:
        self.first, self.next = first, following
        self.needs: dict[str, tuple[int, int]] = {}

    def trim(self) -> None:
        lowest = min((need for _, need in self.needs.values()), default=0)
        self.first = max(self.first, min(lowest, self.next))


class World:
    """clicks ─▶ a ─▶ b ◀─ clicks, five nodes; disks survive their nodes."""

    INPUTS = {"a": ["clicks"], "b": ["a", "clicks"]}  # noqa: RUF012
    NODES = ["n1", "n2", "n3", "n4", "n5"]  # noqa: RUF012

    def __init__(self, path: Path, seed: int, kind: type[Repairs]) -> None:
        self.chance, self.path, self.kind = random.Random(seed), path, kind
        self.now_s = 0.0
        self.up = set(self.NODES)
        self.open()
        self.wanted = {f: self.chance.randint(2, 3) for f in "ab"}
        self.logs: dict[Producer, Log] = {CLICKS: Log()}
        #: What runs or could run: (fragment, node) to its term and whether it was started.
        self.disks: dict[tuple[str, str], int] = {}
        self.running: set[tuple[str, str]] = set()
        for fragment, wanted in self.wanted.items():
            for placed in self.store.place(fragment, self.chance.sample(self.NODES, wanted)):
                self.disks[fragment, placed.node] = placed.term
                self.running.add((fragment, placed.node))
                self.logs[Producer(fragment, placed.node)] = Log()
        self.begin()
        for fragment, node in self.running:
            for stream in self.INPUTS[fragment]:
                for producer in self.repairs.replicas.keepers(stream):
                    term = self.disks[fragment, node]
                    self.logs[producer].needs[f"{fragment}@{node}"] = (term, 0)

    def open(self) -> None:
        self.store = Store(self.path)
        # Nobody cuts the power here, and a hundred lives would wait for the disk.
        self.store._db.execute("PRAGMA synchronous=OFF")

    def begin(self) -> None:
        """The control plane starts from its records, and has heard of nobody."""
        replicas = Replicas(self.INPUTS, self.store.placement(), [])
        self.repairs = self.kind(self.wanted, replicas, self.store.unfinished())
        self.unheard = set(self.NODES)

    # The data.

    def available(self, stream: str) -> list[Log]:
        keepers = [p for p in self.logs if p.stream == stream]
        return [
            self.logs[p]
            for p in keepers
            if p == CLICKS or (p.node in self.up and tuple(p) in self.running)
        ]

    def counts(self, fragment: str, node: str) -> bool:
        """Whether it is expected under its term; whoever was replaced may find nothing any more."""
        placed = {p.node: p for p in self.store.placement()[fragment]}
        return (
            node in placed
            and placed[node].standing is not LEAVING
            and placed[node].term == self.disks[fragment, node]
        )

    def compute(self, fragment: str, node: str) -> None:
        """One epoch, if it is there; that it was trimmed everywhere must never be so."""
        log = self.logs[Producer(fragment, node)]
        for stream in self.INPUTS[fragment]:
            there = self.available(stream)
            if any(each.first <= log.next < each.next for each in there):
                continue
            trimmed = bool(there) and all(each.first > log.next for each in there)
            assert not (trimmed and self.counts(fragment, node)), (
                f"{fragment}@{node} needs {stream} {log.next}: trimmed"
            )
            return
        log.next += 1
        if self.chance.random() < 0.7:
            self.ack(fragment, node)

    def ack(self, fragment: str, node: str) -> None:
        term, need = self.disks[fragment, node], self.logs[Producer(fragment, node)].next
        for stream in self.INPUTS[fragment]:
            for log in self.available(stream):
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
            if node in self.up:
                for _ in range(self.chance.randint(0, 3)):
                    self.compute(fragment, node)

    # The nodes.

    def kill(self, node: str) -> None:
        self.up.discard(node)
        self.running = {key for key in self.running if key[1] != node}
        self.repairs.dead(node)

    def revive(self, node: str) -> None:
        self.up.add(node)
        self.repairs.alive(node)

    def report(self) -> None:
        """Nodes say what they have; whoever may run, runs, with the list of whom it holds for."""
        for node in sorted(self.unheard):
            if self.chance.random() < 0.3:
                self.unheard.discard(node)
                (self.repairs.alive if node in self.up else self.repairs.dead)(node)
        for (fragment, node), term in sorted(self.disks.items()):
            if node not in self.up or node in self.unheard:
                continue
            standing = self.repairs.replicas.of(fragment).get(node)
            if standing is Standing.COMING:
                continue  # Started by the repair.
            epoch = self.logs[Producer(fragment, node)].next
            if not self.repairs.live(fragment, node, epoch):
                self.running.discard((fragment, node))
                if standing is None:
                    del self.disks[fragment, node], self.logs[Producer(fragment, node)]
            elif (fragment, node) not in self.running or standing is not LIVE:
                self.running.add((fragment, node))
                self.take_list(Producer(fragment, node), term)

    def take_list(self, producer: Producer, term: int) -> None:
        log = self.logs[producer]
        expected = self.repairs.replicas.expected(producer.stream)
        log.needs = {c: log.needs.get(c, (0, log.first)) for c in expected}

    # The control plane.

    def control(self) -> None:
        for intention in self.repairs.decide(self.now_s):
            if self.chance.random() < 0.05:
                return self.restart()
            told = self.store.record(intention)
            if self.chance.random() < 0.05:
                return self.restart()
            self.repairs.recorded(told)
            if told.step is Step.LIVE:
                self.take_list(Producer(told.fragment, told.node), told.term)
        for action in self.repairs.actions:
            if self.chance.random() < 0.5:
                self.act(action)
        return None

    def restart(self) -> None:
        self.store.close()
        self.open()
        self.begin()

    def act(self, action: Action) -> None:
        told = action.intention
        fragment, node, term = told.fragment, told.node, told.term
        consumer = f"{fragment}@{node}"
        for producer in action.producers:
            if producer != CLICKS and tuple(producer) not in self.running:
                continue
            if self.chance.random() < 0.5:
                self.order(told, consumer, self.logs[producer])
                if self.chance.random() < 0.8:  # Otherwise the answer is lost.
                    self.repairs.confirmed(fragment, term, producer)
        if told.step is Step.SHIP and {node, told.survivor} <= self.up:
            assert (fragment, told.survivor) in self.running
            survivor = self.logs[Producer(fragment, told.survivor)]
            copy = self.logs[Producer(fragment, node)] = Log(survivor.first, survivor.next)
            copy.needs = dict(survivor.needs)
            self.disks[fragment, node] = term
            self.running.discard((fragment, node))
            self.travelling = 5
            self.repairs.shipped(fragment, term)
        elif told.step is Step.CATCH_UP and node in self.up:
            self.travelling -= 1
            if self.travelling > 0:  # Meanwhile the survivor acks, and producers trim.
                return
            if (fragment, node) not in self.running:
                self.running.add((fragment, node))
                self.take_list(Producer(fragment, node), term)
            others = [
                self.logs[Producer(f, n)].next
                for f, n in self.running
                if f == fragment and n != node and n in self.up
            ]
            mine = self.logs[Producer(fragment, node)].next
            self.repairs.progress(
                fragment, term, newcomer=mine, others=max(others) if others else None
            )

    def order(self, told: Intention, consumer: str, log: Log) -> None:
        """What a producer does when it is told to expect or to release."""
        known = log.needs.get(consumer, (0, 0))[0]
        if told.term < known:
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
                self.kill(self.chance.choice(sorted(self.up)))
            if self.chance.random() < 0.08 and len(self.up) < 5:
                self.revive(self.chance.choice(sorted(set(self.NODES) - self.up)))
            if self.chance.random() < 0.05:
                node = self.chance.choice(self.NODES)
                if node in self.up:
                    self.chance.choice([self.repairs.suspected, self.repairs.alive])(node)
            if self.chance.random() < 0.02:
                self.restart()
            if self.chance.random() < 0.01 and self.repairs.actions:
                told = self.repairs.actions[0].intention
                self.repairs.failed(told.fragment, told.term, "bad luck")
            self.round()

    def round(self) -> None:
        self.flow()
        self.report()
        self.control()
        for fragment in self.wanted:
            held = self.repairs.replicas.of(fragment)
            coming = [n for n in held if held[n] is Standing.COMING]
            assert len(coming) <= 1, "one repair per fragment"

    def settle(self) -> None:
        """No more deaths: everything must become whole, and stay quiet."""
        for node in self.NODES:
            self.revive(node)
        for _ in range(1000):
            self.now_s += 0.5
            self.round()
            if self.whole():
                return
        raise AssertionError(f"not whole: {self.repairs.sentences}")

    def whole(self) -> bool:
        """Wanted live, nobody gone, nothing unfinished, and producers hold for exactly those."""
        for fragment, wanted in self.wanted.items():
            if list(self.repairs.replicas.of(fragment).values()) != [LIVE] * wanted:
                return False
        if self.repairs.actions or self.store.unfinished():
            return False
        placed = self.store.placement()
        for fragment in self.wanted:
            assert {p.node for p in placed[fragment]} == set(self.repairs.replicas.of(fragment))
        for stream in ("clicks", "a", "b"):
            for log in self.available(stream):
                assert sorted(log.needs) == sorted(self.repairs.replicas.expected(stream))
        return True


@pytest.mark.parametrize("seed", range(60))
def test_whatever_dies_it_becomes_whole_and_nothing_needed_is_trimmed(tmp_path: Path, seed: int):
    """Invariants 3 and 5, scenarios 2, 15 and 16, in a world of deaths, restarts and lost answers.

    Goal: no replica, old, new or revived, ever needs an epoch that all its producers trimmed; in
    the end every fragment has its replicas, and producers hold for these and nobody else.
    """
    world = World(tmp_path / "control.db", seed, Repairs)
    world.live_through(150)
    world.settle()
    world.store.close()


class DoesNotWait(Repairs):
    """Forks before the producers have confirmed."""

    def _unconfirmed(self, work):
        return () if work.intention.step is Step.EXPECT else super()._unconfirmed(work)


class ReleasesTooEarly(Repairs):
    """Lets go of whoever is gone while others are missing too."""

    def may_discard(self, fragment):
        return bool(self.replicas.serving(fragment))


class ForgetsWhatWasUnderWay(Repairs):
    """Starts from the placement alone."""

    def __init__(self, wanted, replicas, unfinished):
        super().__init__(wanted, replicas, [])


@pytest.mark.parametrize("broken", [DoesNotWait, ReleasesTooEarly, ForgetsWhatWasUnderWay])
def test_the_world_catches_a_repair_that_breaks_a_rule(tmp_path: Path, broken: type[Repairs]):
    """Each rule was made for a bad day; without it the checker must see one."""
    for seed in range(60):
        world = World(tmp_path / f"{seed}.db", seed, broken)
        try:
            world.live_through(150)
            world.settle()
        except AssertionError:
            return
        finally:
            world.store.close()
    raise AssertionError("nobody noticed")
