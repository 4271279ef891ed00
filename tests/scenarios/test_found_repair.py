"""Bad days that the simulator found, where fragments are restarted, repaired and rebuilt.

Each is the smallest life that showed it, and still shows it (`lived`).
"""

from __future__ import annotations

import left_out
from lived import astray, life, lived, rule, there

from unbroken.testing import SMALL_KEEP_EPOCHS, Fault, Life, Piece

#: Upstream backup twice.
CHAIN = Piece("a", "map", ("s1",), "upstream"), Piece("b", "window", ("a",), "upstream")


def test_both_copies_of_a_held_fragment_are_restarted():
    """Passive, arbitrary: writer and backup are killed at once, and come back with their disks.

    Found: the backup came back first, was live, and was told to hold what the writer ships, which
    had not been heard of yet.  For that it threw away its checkpoint; then the writer did the same.
    """
    both = [Fault(5.0, "crash", node, 0.3) for node in ("node-1", "node-2")]
    one = life([Piece("a", "draw", ("s1",), "passive")], both)
    sim = lived(
        one, "control: node-1 is dead", "control: node-2 is dead", "node-1: starts again",
        "node-2: starts again", never=["no checkpoint to go on from", "nothing left"],
    )  # fmt: skip
    assert there(sim)
    assert astray(one, rule("released before the wanted number is live")).number == 10


def test_a_fragment_without_a_policy_comes_back_and_its_consumer_is_lost():
    """Found: after its node was back, control never counted the fragment as live again.

    So nobody served it in control's eyes, and no consumer of it could ever be repaired.
    """
    pieces = Piece("a", "count", ("s1",), "restart"), Piece("b", "window", ("a",), "upstream")
    faults = [Fault(5.0, "crash", "node-1", 1.0), Fault(9.0, "lose", "node-2", 20.0)]
    one = life(pieces, faults)
    lived(
        one, "control: node-1 is dead", "control: node-1 is heard of again",
        "fault: lose node-2", "node-3: b is rebuilt from", "control: b: node-3 is live",
    )  # fmt: skip
    assert astray(one, left_out.gone_for_good).number == 10


def test_what_cannot_be_rebuilt_is_not_tried_with_every_beat():
    """Found: four times a second, for a minute, until control tried another node."""
    faults = [Fault(5.0, "crash", "node-1", 8.0), Fault(16.0, "crash", "node-2", 5.0)]
    tried = "'b' cannot be rebuilt: it needs 'a'"
    sim = lived(life(CHAIN, faults, nodes=2), tried)
    assert 1 <= sum(tried in line.text for line in sim.world.story) <= 12


def test_beats_of_a_life_that_is_over_come_late():
    """Found: they brought back an address that refuses connections, so the node was dead again."""
    faults = [Fault(3.0, "repeat", "network", 14.0, much=0.8), Fault(6.0, "crash", "node-1", 0.4)]
    sim = lived(
        life([Piece("a", "count", ("s1",), "active")], faults),
        "fault: repeat network", "node-1: starts again",
    )  # fmt: skip
    dead = [line.text for line in sim.world.story if line.text.startswith("node-1 is dead")]
    assert dead == ["node-1 is dead: it refuses connections"]


def test_a_sink_is_away_while_its_fragment_is_rebuilt_twice():
    """Found: only the first node knew that the sink is waited for, and its disk was lost.

    Those who rebuilt the fragment had never heard of it, and gave up what it had not taken.
    """
    faults = [
        Fault(4.0, "crash", "sink-a", 14.0),
        Fault(4.5, "lose", "node-1", 20.0),
        Fault(9.0, "lose", "node-3", 20.0),
    ]
    sim = lived(
        life([Piece("a", "window", ("s1",), "upstream")], faults),
        *[r"node-\d: a is rebuilt from epoch"] * 2, "sink-a: starts again",
    )  # fmt: skip
    assert there(sim)


def test_the_only_producer_dies_with_its_consumer():
    """Upstream twice, on one node: what the first kept for the second may be gone.

    That is beyond what upstream backup promises (docs/upstream.md), and it is said.
    """
    faults = [Fault(5.0, "crash", "node-1", 8.0), Fault(16.0, "crash", "node-2", 5.0)]
    lived(life(CHAIN, faults, nodes=2), "'b' cannot be rebuilt: it needs 'a'")


def test_whoever_rebuilds_a_fragment_does_not_reach_its_producer():
    """Found: without an answer it took it that there is no seed, and said that all is lost."""
    faults = [Fault(5.0, "pause", "node-1", 14.0), Fault(10.0, "cut", "node-2", 6.0, "keeper")]
    one = life([Piece("a", "window", ("s1",), "upstream")], faults, nodes=2)
    lived(
        one, "node-2: rebuilding a: nobody who serves 's1' answers", "node-2: a is rebuilt from",
        never=["cannot be rebuilt"],
    )  # fmt: skip
    assert astray(one, left_out.no_answer_is_none).number == 3


def test_a_new_standby_while_a_sink_is_away():
    """Found: whoever joined asked for the clients of the stream, whoever held it did not.

    Its copy of the log was trimmed as if nobody were away; the writer died, the sink was cut off.
    """
    faults = [
        Fault(5.0, "crash", "sink-a", 9.0),
        Fault(5.2, "crash", "node-2", 20.0),
        Fault(12.0, "crash", "node-1", 20.0),
    ]
    piece = Piece("a", "count", ("s1",), "passive")
    one = life([piece], faults, keep_epochs=SMALL_KEEP_EPOCHS)
    sim = lived(
        one, "control: a: node-3 is live in place of node-2",
        "control: a: node-3 takes over from node-1", "sink-a: starts again",
        never=["sink-a: stops"],
    )  # fmt: skip
    assert there(sim)
    assert astray(one, left_out.standbys_know_nobody).number == 3


def test_a_fragment_without_a_policy_loses_its_disk_and_the_rest_of_its_node_runs():
    """Found: its node ended at every start, and a copy of c that belongs there was missing."""
    pieces = (
        Piece("a", "count", ("s1",), "restart"),
        Piece("b", "map", ("s1",), "active"),
        Piece("c", "map", ("s1",), "active"),
    )
    one = life(pieces, [Fault(8.0, "lose", "node-1", 1.0)], nodes=2, sinks=("b", "c"))
    sim = lived(one, "node-1: starts again", never=["node-1: gives up"])
    assert there(sim)
    assert "fragment 'a' has no checkpoint to go on from" in sim.watch._told("a")


def test_whoever_gives_a_newcomer_its_state_dies_and_another_gives_it():
    """The newcomer is expected anew, like the other one; what it was given first goes.

    The checker took what it had for what it would go on from.
    """
    pieces = (
        Piece("a", "join", ("s1", "s2"), "passive"),
        Piece("b", "window", ("a",), "active"),
        Piece("c", "count", ("b", "s1"), "restart"),
        Piece("d", "join", ("a", "c"), "active", 3),
    )
    faults = Fault(4.082, "lose", "node-1", 0.37), Fault(8.643, "lose", "node-5", 3.01)
    one = Life(91000144, 6, ("s1", "s2"), pieces, 92, faults, ("d",))
    lived(one, "as a copy of node-2 in place of node-5")


def test_a_late_ack_of_a_life_that_was_rebuilt_over():
    """Control dies in the middle of a rebuild and orders it anew, on the same node.

    Found: a replica that begins empty counts its own terms from 1, so an ack of the first attempt
    that came again seconds later was taken for one of the second, which did not have that much.
    Acks carry the term under which their replica was placed.
    """
    pieces = Piece("a", "window", ("s1",), "upstream"), Piece("b", "map", ("a", "s1"), "upstream")
    faults = (
        Fault(0.973, "repeat", "network", 3.84, much=0.3),
        Fault(3.806, "crash", "node-2", 3.98),
        Fault(4.106, "crash", "control", 1.78),
    )
    one = Life(398071038, 2, ("s1",), pieces, 56, faults, ("b",), 120, SMALL_KEEP_EPOCHS)
    sim = lived(
        one, r"b: node-1 rebuilds what node-2 held \(term 2\)", "fault: crash control", "left b",
        r"b: node-1 rebuilds what node-2 held \(term 3\)",
        "refuses: ack of b@node-1 refused: it was placed under term 2, and anew under 3",
    )  # fmt: skip
    assert there(sim)
    assert astray(one, left_out.no_word_of_placements).number == 5


def test_a_sink_finds_the_standby_and_the_keeper_dies_before_it_finds_the_writer():
    """Found: the writer had not heard of it, and kept for it only what it keeps for strangers."""
    pieces = (
        Piece("a", "session", ("s1",), "gap"),
        Piece("b", "draw", ("a", "s1"), "passive", 3),
        Piece("c", "window", ("s1",), "active"),
        Piece("d", "map", ("c",), "restart"),
    )
    faults = (Fault(0.691, "fuse", "keeper", 0.79, much=4),)
    one = Life(987855981, 4, ("s1",), pieces, 60, faults, ("b", "d"), 120, SMALL_KEEP_EPOCHS)
    sim = lived(one, "keeper: is killed in the middle", "keeper: starts again")
    (sink,) = (sink for sink in sim.sinks() if sink.name == "sink-b")
    assert (sink.error, sink.next >= 60) == (None, True)
    assert astray(one, left_out.no_word_of_clients).number == 3


def test_what_draws_numbers_is_lost_with_all_its_copies_although_its_input_reaches_back():
    """Found: an empty node began it anew from epoch 0, beside results that sinks had.

    Its producer was cut off and had trimmed nothing; but it had heard acks.
    """
    pieces = (
        Piece("a", "map", ("s1",), "passive"), Piece("b", "map", ("s2",), "passive"),
        Piece("c", "map", ("a", "b"), "restart", max_delay=3.0, when_cut="delay"),
        Piece("d", "draw", ("c",), "passive", max_delay=3.0, when_cut="delay"),
    )  # fmt: skip
    faults = (
        Fault(2.658, "cut", "node-1", 6.16, "node-4"),
        Fault(2.813, "cut", "node-4", 5.05, "node-2"),
        Fault(4.096, "power", "node-3", 2.79),
        Fault(7.358, "lose", "node-1", 10.03),
    )
    one = Life(400010, 6, ("s1", "s2"), pieces, 82, faults, ("d",))
    lived(
        one,
        "d: node-1 takes over",
        "checker: node-1 lost the last copy of d",
        r"node-1: fragment 'd' has no checkpoint to go on from, and its results up to epoch \d+",
    )
    assert astray(one, left_out.draws_again).number == 1
