"""Lives in which fragments have a delay bound: cut off, tentative, corrected, in every order.

Fresh ones are as those of `test_seeds`; a quarter as many, for they take longer.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_seeds import FIRST, GROUP, live
from test_seeds import FRESH as FRESH_OF_ALL

from unbroken.testing import Fault, Life, Piece, Sim, simulate
from unbroken.testing.cut_lives import random_cut_life

FIXED, FRESH = 50, FRESH_OF_ALL // 4
RELAYS = (Piece("a", "map", ("s1",), "restart"), Piece("b", "map", ("s2",), "restart"))


def life(
    *faults: Fault, protection: str = "restart", bound_s: float = 2.0, nodes: int = 3, **how: str
) -> Life:
    """Node-1 and node-2 have the relays, node-3 what joins them."""
    joins = Piece("c", "union", ("a", "b"), protection, max_delay=bound_s, **how)
    return Life(7, nodes, ("s1", "s2"), (*RELAYS, joins), 160, faults, ("c",))


def lived(one: Life) -> Sim:
    """Lives it, and nothing goes wrong."""
    sim = Sim(one)
    result = sim.run()
    assert result.violation is None, "\n".join([str(result.violation), *map(str, result.story)])
    return sim


def says(sim: Sim, text: str) -> list[float]:
    """When it was said."""
    return [line.at_s for line in sim.world.story if text in line.text]


@pytest.mark.parametrize("first", range(0, FIXED, GROUP))
def test_nothing_goes_wrong_in_fixed_lives(first: int):
    """Chains and joins, all policies that may have a bound; the seeds are always the same."""
    for seed in range(first, first + GROUP):
        live(random_cut_life(seed), " --cuts")


@pytest.mark.skipif(not FRESH, reason="no fresh lives are asked for")
@pytest.mark.parametrize("place", range(0, max(FRESH, 1), GROUP))
def test_nothing_goes_wrong_in_fresh_lives(place: int):
    """Other seeds for every version; they are printed before anything runs."""
    for seed in range(FIRST + place, FIRST + min(place + GROUP, FRESH)):
        live(random_cut_life(seed), " --cuts")


def test_one_seed_is_one_life():
    """Branches wait in threads, and still nothing depends on anything but the seed."""
    for seed in (4, 7):
        one, other = simulate(random_cut_life(seed)), simulate(random_cut_life(seed))
        assert (one.story, one.events, one.now_s) == (other.story, other.events, other.now_s)


def test_fixed_lives_part():
    """Otherwise they would show nothing."""
    parted = given_up = 0
    for seed in range(20):
        sim = Sim(random_cut_life(seed))
        sim.run()
        parted += len(sim.watch.said)
        given_up += any(sim.watch.given_up.values())
    assert parted >= 10
    assert given_up >= 2


@pytest.mark.parametrize("for_s", [0.2, 0.8])
def test_a_failure_shorter_than_the_bound_gives_no_tentative_row(for_s: float):
    """What was lost in the cut is asked for again within a second and a half: 2.7 s are enough."""
    sim = lived(life(Fault(5.0, "cut", "node-3", for_s, "node-2"), bound_s=3.0))
    assert sim.watch.said == {}
    assert not says(sim, "going tentative")


@pytest.mark.parametrize("when_cut", ["process", "delay"])
def test_results_go_on_and_are_corrected(when_cut: str):
    """The sink hears all epochs of the cut twice: what was said, and what it became."""
    sim = lived(life(Fault(5.0, "cut", "node-3", 5.0, "node-2"), when_cut=when_cut))
    (sink,) = sim.sinks()
    replaced = [n for n, epoch in sorted(sink.log._kept.items()) if epoch.replaces]
    assert replaced[0] == 49
    assert replaced == list(range(49, replaced[-1] + 1)), "none was left out"
    assert replaced[-1] > 95
    assert sink.both.hearing.open == []


@pytest.mark.parametrize("protection", ["restart", "passive", "active"])
@pytest.mark.parametrize("where", ["parked c", "said c", "sealed c"])
def test_the_node_dies_in_the_middle(where: str, protection: str):
    """Between parking and saying, in the middle of the branch, in the middle of the correction."""
    at_s, epoch = (10.4, 60) if where == "sealed c" else (4.0, 40)
    placed = Sim(life(protection=protection)).setup.placement
    (there, *_), (behind, *_) = placed["c"], placed["b"]
    one = life(
        Fault(5.0, "cut", there, 5.0, behind), Fault(at_s, "die at", there, 0.5, where, much=epoch),
        protection=protection,
    )  # fmt: skip
    sim = lived(one)
    assert says(sim, "going tentative") or where == "parked c"
    assert says(sim, f"it has {where.split()[0]} epoch")


@pytest.mark.parametrize("line", ["branch", "stable"])
def test_one_of_the_two_queries_dies(line: str):
    """A branch that fails is given up, the stable line goes on; a stable line is started again."""
    at_s = 8.0 if line == "branch" else 11.2
    sim = lived(
        life(Fault(5.0, "cut", "node-3", 5.0, "node-2"), Fault(at_s, "stumble", "node-3", 0, line))
    )
    (sentence,) = ("the branch ended after epoch",) if line == "branch" else ("has stumbled",)
    assert says(sim, sentence)


@pytest.mark.parametrize("when_cut", ["process", "delay"])
def test_what_was_said_is_given_up(when_cut: str):
    """The sink is told of each number that nothing will come of it, and the line goes on."""
    cut = Fault(5.0, "cut", "node-3", 5.0, "node-2")
    sim = lived(life(cut, when_cut=when_cut, when_healed="converge"))
    (sink,) = sim.sinks()
    assert says(sim, "c@node-3: stable again: gave up epochs 49 to ")
    given_up = sorted(sim.watch.given_up["c"])
    assert given_up == list(range(49, given_up[-1] + 1))
    told = {n: epoch for n, epoch in sink.log._kept.items() if epoch.kind == "gap"}
    assert sorted(told) == given_up
    heard = [epoch.replaces for epoch in told.values() if epoch.replaces is not None]
    assert len(heard) > 10
    assert {(each.withdrawn, each.added) for each in heard} == {(None, None)}
    behind = sink.log._kept[given_up[-1] + 1].header
    assert behind.kind == "stable"
    assert behind.lost_total == sum(epoch.header.lost for epoch in told.values()) > 0
    assert sink.both.hearing.open == []


@pytest.mark.parametrize("where", ["given up c", "gap c"])
def test_the_node_dies_while_it_gives_up(where: str):
    """Between the fork and the first gap, and in the middle of the gaps: all of them are there."""
    cut, much = Fault(5.0, "cut", "node-3", 5.0, "node-2"), 60
    sim = lived(
        life(cut, Fault(5.0, "die at", "node-3", 0.5, where, much=much), when_healed="converge")
    )
    assert says(sim, f"it has {where[:-2]} epoch")
    (sink,) = sim.sinks()
    gaps = [n for n, epoch in sorted(sink.log._kept.items()) if epoch.kind == "gap"]
    assert gaps[: len(sim.watch.given_up["c"])] == sorted(sim.watch.given_up["c"])


def test_what_is_behind_hears_of_what_was_given_up():
    """A fragment behind it takes gaps for empty epochs, and tells how many rows that cost."""
    joins = Piece("c", "union", ("a", "b"), "restart", max_delay=2.0, when_healed="converge")
    behind = Piece("d", "count", ("c",), "active")
    one = Life(7, 5, ("s1", "s2"), (*RELAYS, joins, behind), 160, (), ("d",))
    placed = Sim(one).setup.placement
    cut = Fault(5.0, "cut", *placed["c"], 5.0, *placed["b"])
    sim = lived(replace(one, faults=(cut,)))
    assert sim.watch.given_up["c"]
    (sink,) = sim.sinks()
    last = sink.log._kept[sink.next - 1].header
    assert (last.gaps_here, last.gaps_total) == (0, len(sim.watch.given_up["c"]))
    assert {epoch.kind for epoch in sink.log._kept.values()} == {"stable"}


def test_a_second_cut_during_the_correction():
    """The stable line waits, the branch goes on, and they meet when both cuts are over."""
    sim = lived(
        life(Fault(4.0, "cut", "node-3", 3.0, "node-2"), Fault(8.2, "cut", "node-3", 3.0, "node-2"))
    )
    (goes_on,), (again,) = says(sim, "the stable line goes on"), says(sim, "stable again")
    assert goes_on < 8.2
    assert again > 11.2
    assert len(sim.watch.said) == 1, "one branch bridges both"


def test_copies_that_saw_different_inputs_end_up_equal():
    """One lacks a, the other b, at the same time: two branches, one stable stream."""
    placed = Sim(life(protection="active", nodes=4)).setup.placement
    there, here = placed["c"]
    sim = lived(
        life(
            Fault(5.0, "cut", there, 5.0, *placed["a"]), Fault(5.0, "cut", here, 5.0, *placed["b"]),
            protection="active", nodes=4,
        )
    )  # fmt: skip
    assert {branch.partition("@")[2] for _, branch in sim.watch.said} == {there, here}
    assert says(sim, "going tentative: a silent")
    assert says(sim, "going tentative: b silent")
    logs = [
        sim.disk(node).logs[f"{sim.fragment_folder(node, 'c')}/output"] for node in (there, here)
    ]
    common = logs[0].keys() & logs[1].keys()
    assert len(common) > 50
    assert all(logs[0][n].digest == logs[1][n].digest for n in common)


def test_a_node_that_was_paused_forgives():
    """Everybody was silent, because nobody listened."""
    sim = lived(life(Fault(5.0, "pause", "node-3", 4.0)))
    assert sim.watch.said == {}
