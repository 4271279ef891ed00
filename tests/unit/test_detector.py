"""The detector: refused is dead, silent is suspected, and its own lateness is nobody's fault."""

from __future__ import annotations

import random

import pytest

from unbroken.control.detector import TIMINGS, Dead, Decision, Detector, Suspected, Timing, Trusted

LOCAL = TIMINGS["local"]


class Watch:
    """A detector, its clock, and the nodes that report to it once per period."""

    def __init__(self, placement: dict[str, list[str]], k: int = 1) -> None:
        self.now_s = 100.0
        self.detector = Detector(LOCAL, now_s=self.now_s)
        self.detector.watch(placement, k=dict.fromkeys(placement, k))
        self.speaking = set(self.detector.nodes)
        self.told: list[tuple[float, Decision]] = []

    def run(self, seconds: float, step_s: float = LOCAL.period_s) -> list[Decision]:
        """Reports and ticks; what was decided."""
        before = len(self.told)
        for _ in range(round(seconds / step_s)):
            self.now_s += step_s
            for node in sorted(self.speaking):
                self.detector.heard(node, self.now_s)
            self.told += [(self.now_s, d) for d in self.detector.tick(self.now_s)]
        return [decision for _, decision in self.told[before:]]


def test_whoever_reports_is_never_suspected():
    """A minute of reports, one in four of them lost."""
    chance = random.Random(1)
    watch = Watch({"a": ["n1", "n2"]})
    for _ in range(240):
        watch.speaking = {n for n in ("n1", "n2") if chance.random() < 0.75}
        watch.run(LOCAL.period_s)
    assert watch.told == []


def test_silence_is_suspicion_first_and_death_later():
    """Both exactly at their limits, each told once."""
    watch = Watch({"a": ["n1", "n2"]})
    watch.run(5)
    began_s = watch.now_s
    watch.speaking = {"n1"}
    watch.run(30)
    assert watch.told == [
        (began_s + 2.0, Suspected("n2", "silent for 2.0 s")),
        (began_s + 6.0, Dead("n2", "silent for 6.0 s")),
    ]
    assert watch.detector.sentence("n2", watch.now_s) == "dead: silent for 6.0 s"


def test_a_pause_that_ends_in_time_costs_nothing():
    """A collection of garbage for five seconds: suspected, trusted again, not removed."""
    watch = Watch({"a": ["n1", "n2"]})
    watch.speaking = {"n1"}
    watch.run(5)
    watch.speaking = {"n1", "n2"}
    assert watch.run(5) == [Trusted("n2")]


def test_a_refused_connection_is_proof():
    """At once, without any silence, and for more than k replicas."""
    watch = Watch({"a": ["n1", "n2"]}, k=0)
    watch.run(5)
    watch.speaking = set()
    for node in ("n1", "n2"):
        watch.detector.refused(node, watch.now_s)
    assert watch.run(0.25) == [
        Dead(node, "it refuses connections", proven=True) for node in ("n1", "n2")
    ]
    assert watch.run(30) == []


def test_whoever_comes_back_is_told_with_its_past():
    """A node that was declared dead and reports again is a spare, not what it was."""
    watch = Watch({"a": ["n1", "n2"]})
    watch.detector.refused("n2", watch.now_s)
    watch.speaking = {"n1"}
    watch.run(1)
    watch.speaking = {"n1", "n2"}
    assert watch.run(1) == [Trusted("n2", was_dead=True)]


def test_a_report_after_a_refusal_takes_it_back():
    """It restarted between two ticks: nothing happened."""
    watch = Watch({"a": ["n1", "n2"]})
    watch.run(1)
    watch.detector.refused("n2", watch.now_s)
    assert watch.run(1) == []


def test_a_dead_one_that_speaks_and_refuses_in_one_breath_stays_dead():
    """Its last report was still on its way when its door closed for the second time."""
    watch = Watch({"a": ["n1", "n2"]})
    watch.detector.refused("n2", watch.now_s)
    watch.speaking = {"n1"}
    watch.run(1)
    watch.detector.heard("n2", watch.now_s)
    watch.detector.refused("n2", watch.now_s)
    assert watch.run(1) == []


def test_after_a_start_a_full_timeout_passes():
    """Scenario 14: a control plane that was just started has heard nobody."""
    watch = Watch({"a": ["n1", "n2"]}, k=2)
    watch.speaking = set()
    assert not [d for d in watch.run(LOCAL.remove_s - LOCAL.period_s) if isinstance(d, Dead)]
    assert {d.node for d in watch.run(LOCAL.period_s) if isinstance(d, Dead)} == {"n1", "n2"}


def test_a_node_that_is_new_has_a_full_timeout():
    """Placed later than the detector started."""
    watch = Watch({"a": ["n1"]})
    watch.run(60)
    watch.detector.watch({"a": ["n1", "n2"]}, k={"a": 1})
    assert not [d for d in watch.run(5.75) if isinstance(d, Dead)]
    assert [d for d in watch.run(0.25) if isinstance(d, Dead)] == [Dead("n2", "silent for 6.0 s")]


@pytest.mark.parametrize("frozen_s", [1.0, 10.0, 3600.0])
def test_a_detector_that_was_frozen_forgives_everybody(frozen_s: float):
    """Scenario 14: everybody was silent for as long as nobody listened."""
    watch = Watch({"a": ["n1", "n2", "n3"]}, k=2)
    watch.run(5)
    watch.now_s += frozen_s
    assert watch.detector.tick(watch.now_s) == []
    watch.speaking = {"n1", "n2"}
    decisions = watch.run(5.75)
    assert decisions == [Suspected("n3", "silent for 2.0 s")]
    assert watch.run(0.25) == [Dead("n3", "silent for 6.0 s")]


def test_a_detector_that_freezes_again_and_again_removes_nobody_at_a_stroke():
    """Frozen, awake for a tick in which nobody was heard, frozen again: hours count for 1 s."""
    watch = Watch({"a": ["n1", "n2"]}, k=2)
    watch.run(1)
    for _ in range(3):
        watch.now_s += 3600
        assert not [d for d in watch.detector.tick(watch.now_s) if isinstance(d, Dead)]


def test_a_detector_that_is_always_late_is_not_blind():
    """It forgives once per silence, not once per tick."""
    watch = Watch({"a": ["n1", "n2"]})
    watch.speaking = {"n1"}
    decisions = watch.run(30, step_s=1.5)
    assert [type(d) for d in decisions] == [Suspected, Dead]


def test_no_more_than_k_replicas_of_a_fragment_die_of_silence():
    """A cut between us and two of three: one may go, and `status` says why the other may not."""
    watch = Watch({"a": ["n1", "n2", "n3"]}, k=1)
    watch.run(1)
    watch.speaking = {"n1", "n3"}
    watch.run(1)
    watch.speaking = {"n1"}
    dead = [d.node for d in watch.run(60) if isinstance(d, Dead)]
    assert dead == ["n2"]
    assert watch.detector.sentence("n3", watch.now_s).endswith(
        "not declared dead: a may lose no more than 1 replica on silence alone"
    )
    watch.detector.refused("n3", watch.now_s)
    assert watch.run(0.25) == [Dead("n3", "it refuses connections", proven=True)]


def test_a_proven_death_leaves_less_to_silence():
    """One of two refused: the last one must not be removed because it is slow."""
    watch = Watch({"a": ["n1", "n2"]}, k=1)
    watch.detector.refused("n1", watch.now_s)
    watch.speaking = set()
    assert [d.node for d in watch.run(60) if isinstance(d, Dead)] == ["n1"]


def test_a_replaced_replica_no_longer_counts():
    """After a repair the fragment is whole: it may lose one again."""
    watch = Watch({"a": ["n1", "n2"]}, k=1)
    watch.speaking = {"n2"}
    watch.run(10)
    watch.detector.heard("n3", watch.now_s)
    watch.detector.watch({"a": ["n3", "n2"]}, k={"a": 1})
    watch.speaking = {"n3"}
    assert [d.node for d in watch.run(10) if isinstance(d, Dead)] == ["n2"]


def test_spares_are_watched_and_whoever_left_is_not():
    """A spare holds nothing, so nothing protects it."""
    watch = Watch({})
    watch.detector.heard("spare", watch.now_s)
    watch.detector.heard("left", watch.now_s)
    watch.detector.forget("left")
    assert [d.node for d in watch.run(10)] == ["spare", "spare"]


@pytest.mark.parametrize("seed", range(100))
def test_under_any_weather_at_most_k_die_of_silence(seed: int):
    """Scenario 14 at random: freezes, cuts and kills; who speaks and is listened to lives."""
    chance = random.Random(seed)
    nodes = [f"n{i}" for i in range(5)]
    placement = {f: chance.sample(nodes, chance.randint(1, 4)) for f in "abc"}
    k = chance.randint(0, 2)
    watch = Watch(placement, k=k)
    silent: set[str] = set()
    proven: set[str] = set()
    steady = "n0"  # It reports all the time.
    for _ in range(60):
        silent ^= {chance.choice(nodes[1:])}
        watch.speaking = set(nodes) - silent - proven
        if chance.random() < 0.1:
            watch.now_s += chance.choice([0.9, 3, 20])
        if chance.random() < 0.03:
            victim = chance.choice(nodes[1:])
            proven.add(victim)
            watch.speaking.discard(victim)
            watch.detector.refused(victim, watch.now_s)
        watch.run(chance.choice([0.25, 1.0, 3.0]))
        dead: dict[str, bool] = {}
        for _, decision in watch.told:
            if isinstance(decision, Dead):
                dead[decision.node] = decision.proven
            elif isinstance(decision, Trusted):
                dead.pop(decision.node, None)
        for held in placement.values():
            by_silence = [n for n in held if n in dead and not dead[n]]
            assert len(by_silence) <= k
        assert proven <= dead.keys()
    assert not [d for _, d in watch.told if d.node == steady]


def test_timings_that_make_no_sense_are_refused():
    """A lost report must not be a silence."""
    with pytest.raises(AssertionError):
        Timing(period_s=1, suspect_s=2, remove_s=9, late_s=2)
    assert set(TIMINGS) == {"local", "lan", "wan"}
