"""Bad days that the simulator found, each as the smallest life that showed it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unbroken.testing import Fault, Life, Piece, Sim, simulate
from unbroken.testing.life import SMALL_KEEP_EPOCHS


def life(nodes: int, *pieces: Piece, faults: list[Fault], sinks: tuple[str, ...] = ("a",)) -> Life:
    return Life(7, nodes, ("s1",), pieces, 200, tuple(faults), sinks)


def test_both_copies_of_a_held_fragment_are_restarted():
    """Passive, arbitrary: writer and backup are killed at once, and come back with their disks.

    Found: the backup came back first, was live, and was told to hold what the writer ships, which
    had not been heard of yet.  For that it threw away its checkpoint; then the writer did the same.
    """
    both = [Fault(5.0, "crash", node, 0.3) for node in ("node-1", "node-2")]
    result = simulate(life(3, Piece("a", "draw", ("s1",), "passive"), faults=both))
    assert result.violation is None


def cut_life(*pieces: Piece, nodes: int, faults: list[Fault]) -> Life:
    """Two relays, and what reads them."""
    relays = Piece("a", "map", ("s1",), "restart"), Piece("b", "map", ("s2",), "restart")
    return Life(7, nodes, ("s1", "s2"), (*relays, *pieces), 160, tuple(faults), (pieces[-1].name,))


def test_two_copies_are_cut_off_alike():
    """Found: a consumer took each tentative epoch from whichever branch said it first.

    They may lack different inputs: the mixture was what neither had computed.
    """
    copies = Piece("c", "count", ("a", "b"), "active", max_delay=1.0)
    faults = [Fault(5.0, "cut", node, 5.0, "node-3") for node in ("node-1", "node-4")]
    result = simulate(cut_life(copies, nodes=4, faults=faults))
    assert result.violation is None
    assert sum("going tentative: b silent" in line.text for line in result.story) == 2


def test_a_disk_is_full_when_a_fork_is_to_be_parked():
    """Found: the second of a chain had nothing left to wait for: a thousand tries a second.

    The silence was forgiven, but not what the epoch had waited upstream.
    """
    first = Piece("c", "count", ("a", "b"), "restart", max_delay=1.0)
    second = Piece("d", "map", ("c",), "restart", max_delay=1.0)
    faults = [Fault(5.0, "cut", "node-3", 6.0, "node-2"), Fault(5.0, "full", "node-4", 4.0)]
    result = simulate(cut_life(first, second, nodes=4, faults=faults))
    assert result.violation is None
    tries = [line for line in result.story if "cannot go on without its input" in line.text]
    assert 1 <= len(tries) <= 4
    assert any("d@node-4: going tentative" in line.text for line in result.story)


def test_an_input_with_a_shorter_bound_is_cut_off():
    """Found: what waited here, and what waited upstream meanwhile, was added up.

    A fragment that may wait 2.7 s went on without its input after 1.8 s.
    """
    first = Piece("c", "count", ("a", "b"), "restart", max_delay=1.0)
    second = Piece("d", "union", ("a", "c"), "restart", max_delay=3.0)
    result = simulate(
        cut_life(first, second, nodes=4, faults=[Fault(5.0, "cut", "node-3", 6.0, "node-2")])
    )
    assert result.violation is None
    parted = {line.text[0]: line.at_s for line in result.story if "going tentative" in line.text}
    assert parted["d"] - parted["c"] > 1.6


def test_all_of_an_epoch_has_come_when_a_branch_says_it():
    """Found: it said that the epoch had not waited, and one further on it waited once more.

    Only one of its inputs was late there; the other one had waited for it.
    """
    first = Piece("c", "union", ("a", "b"), "restart", max_delay=2.0, when_cut="delay")
    second = Piece("d", "map", ("c", "s2"), "restart", max_delay=2.0, when_cut="delay")
    faults = [Fault(6.9, "crash", "node-2", 2.3), Fault(8.9, "cut", "node-4", 5.7, "keeper")]
    assert simulate(cut_life(first, second, nodes=4, faults=faults)).violation is None


def test_the_stable_line_reads_faster_than_the_branch():
    """Found: what it had acked was trimmed before the branch had read it, and the branch died.

    Results stopped until the stable line had caught up.
    """
    joins = Piece("c", "union", ("a", "b"), "restart", max_delay=2.0)
    faults = [Fault(at_s, "cut", "node-3", 3.0, "node-2") for at_s in (4.0, 9.0)]
    result = simulate(cut_life(joins, nodes=3, faults=faults))
    assert result.violation is None
    assert not any("the branch ended" in line.text for line in result.story)


def test_a_gap_fragment_is_lost_while_its_sink_is_away():
    """Found: nobody had asked, so the hole began at epoch 0, whose input was trimmed long ago.

    It was on record, so every attempt failed in the same way, for ever.
    """
    faults = [Fault(8.0, "crash", "sink-a", 6.0), Fault(8.5, "lose", "node-1", 1.0)]
    result = simulate(life(2, Piece("a", "window", ("s1",), "gap"), faults=faults))
    assert result.violation is None


def test_a_disk_is_full_when_control_answers():
    """Found: an epoch that could not be shown ended the thread that beats."""
    faults = [Fault(5.0, "full", "node-1", 4.0)]
    result = simulate(life(3, Piece("a", "draw", ("s1",), "passive"), faults=faults))
    assert result.violation is None


def test_a_gap_fragment_whose_consumer_has_a_standby():
    """Found: the successor waited for the standby to say how far it is.  Standbys never ask."""
    pieces = Piece("a", "map", ("s1",), "gap"), Piece("b", "map", ("a",), "passive")
    faults = [Fault(5.0, "crash", "node-1", 20.0)]
    result = simulate(life(4, *pieces, faults=faults, sinks=("b",)))
    assert result.violation is None


def test_two_gap_fragments_in_a_row_are_lost():
    """Found: the first waited for the second to say how far it is, the second for its input."""
    pieces = Piece("a", "map", ("s1",), "gap"), Piece("b", "window", ("a",), "gap")
    faults = [Fault(5.0, "lose", node, 3.0) for node in ("node-1", "node-2")]
    result = simulate(life(3, *pieces, faults=faults, sinks=("b",)))
    assert result.violation is None


@pytest.mark.parametrize("protection", ["active", "passive"])
def test_a_gap_fragment_is_lost_while_a_copy_of_its_consumer_is_away_and_no_node_is_free(
    protection: str,
):
    """Found: the successor waited for that copy to say how far it is, until it came back."""
    pieces = Piece("a", "map", ("s1",), "gap"), Piece("b", "count", ("a",), protection)
    faults = [Fault(4.0, "crash", "node-1", 30.0), Fault(6.0, "lose", "node-2", 30.0)]
    result = simulate(life(3, *pieces, faults=faults, sinks=("b",)))
    assert result.violation is None
    (rebuilt,) = [line for line in result.story if line.text.startswith("a is rebuilt from")]
    assert rebuilt.at_s < 12.0


def test_two_fragments_behind_a_gap_fragment_are_not_equally_far():
    """Found: the hole began after the one that was ahead, and no copy of the other could go on."""
    pieces = (
        Piece("a", "count", ("s1",), "gap"),
        Piece("b", "map", ("a",), "passive"),
        Piece("c", "map", ("a",), "active"),
    )
    faults = [Fault(3.0, "pause", "node-1", 4.0), Fault(5.0, "lose", "node-3", 9.0)]
    for seed in range(3):
        lived = Life(seed, 5, ("s1",), pieces, 200, tuple(faults), ("b", "c"))
        assert simulate(lived).violation is None


def test_a_fragment_without_a_policy_comes_back_and_its_consumer_is_lost():
    """Found: after its node was back, control never counted the fragment as live again.

    So nobody served it in control's eyes, and no consumer of it could ever be repaired.
    """
    pieces = Piece("a", "count", ("s1",), "restart"), Piece("b", "window", ("a",), "upstream")
    faults = [Fault(5.0, "crash", "node-1", 1.0), Fault(9.0, "lose", "node-2", 20.0)]
    result = simulate(life(3, *pieces, faults=faults, sinks=("b",)))
    assert result.violation is None


@pytest.mark.parametrize("why", ["stumble", "crash"])
@pytest.mark.parametrize("protection", ["restart", "passive", "upstream"])
def test_a_disk_is_full_when_a_fragment_is_started(protection: str, why: str):
    """Found: its checkpoint was taken for lost, and it was not tried again when there was room."""
    faults = [Fault(5.0, "full", "node-1", 6.0), Fault(5.5, why, "node-1", 1.0)]
    result = simulate(life(2, Piece("a", "window", ("s1",), protection), faults=faults))
    assert result.violation is None


def test_what_cannot_be_rebuilt_is_not_tried_with_every_beat():
    """Found: four times a second, for a minute, until control tried another node."""
    pieces = Piece("a", "map", ("s1",), "upstream"), Piece("b", "window", ("a",), "upstream")
    faults = [Fault(5.0, "crash", "node-1", 8.0), Fault(16.0, "crash", "node-2", 5.0)]
    result = simulate(life(2, *pieces, faults=faults, sinks=("b",)))
    assert result.violation is None
    tries = [line for line in result.story if "'b' cannot be rebuilt: it needs 'a'" in line.text]
    assert 1 <= len(tries) <= 12


def test_beats_of_a_life_that_is_over_come_late():
    """Found: they brought back an address that refuses connections, so the node was dead again."""
    faults = [Fault(3.0, "repeat", "network", 14.0, much=0.8), Fault(6.0, "crash", "node-1", 0.4)]
    result = simulate(life(3, Piece("a", "count", ("s1",), "active"), faults=faults))
    assert result.violation is None
    dead = [line.text for line in result.story if line.text.startswith("node-1 is dead")]
    assert dead == ["node-1 is dead: it refuses connections"]


@pytest.mark.parametrize("operator", ["map", "count"])
def test_a_gap_fragment_is_silent_and_not_dead(operator: str):
    """Found: control does not hear it, its consumers do; they took what its successor calls lost.

    Now they promise, when they say how far they are, to take nothing more from it.
    """
    faults = [Fault(5.0, "cut one way", "node-1", 30.0, "control")]
    result = simulate(life(2, Piece("a", operator, ("s1",), "gap"), faults=faults))
    assert result.violation is None
    assert any(line.text.startswith("a is rebuilt") for line in result.story)


@pytest.mark.parametrize("who", ["sink-a", "keeper"])
def test_whoever_promised_starts_again_while_the_old_one_still_serves(who: str):
    """The promise outlives who gave it, and who keeps the book: nobody goes back to the old one."""
    faults = [
        Fault(5.0, "cut one way", "node-1", 14.0, "control"),
        *(Fault(5.0 + at_s, "crash", who, 0.3) for at_s in (6.3, 7.0, 7.7, 8.4)),
    ]
    sim = Sim(life(2, Piece("a", "count", ("s1",), "gap"), faults=faults))
    assert sim.run().violation is None
    (sink,) = sim.sinks()
    assert sink.next >= 200


@pytest.mark.parametrize("how", ["lose", "crash", "isolate"])
@pytest.mark.parametrize("protection", ["passive", "active"])
@pytest.mark.parametrize("operator", ["map", "count", "window"])
def test_a_gap_fragment_and_the_furthest_copy_of_its_consumer_are_lost_together(
    operator: str, protection: str, how: str
):
    """Found: the other copy makes again, of gaps, what was shown; the sink never heard of the loss.

    Now every header counts up what was lost on the way, and the next epoch that the sink takes
    says so.  The copy that was further, if it comes back, is taken from the one that went on.
    """
    pieces = Piece("a", "map", ("s1",), "gap"), Piece("b", operator, ("a",), protection)
    faults = [
        Fault(4.0, "pause", "node-3", 1.5),
        Fault(5.0, "lose", "node-2", 20.0),
        Fault(5.0, how, "node-1", 10.0),
    ]
    sim = Sim(life(4, *pieces, faults=faults, sinks=("b",)))
    assert sim.run().violation is None
    (sink,) = sim.sinks()
    assert sink.log.read(sink.next - 1).header.lost_total > 0


def test_a_sink_is_away_while_its_fragment_is_rebuilt_twice():
    """Found: only the first node knew that the sink is waited for, and its disk was lost.

    Those who rebuilt the fragment had never heard of it, and gave up what it had not taken.
    """
    faults = [
        Fault(4.0, "crash", "sink-a", 14.0),
        Fault(4.5, "lose", "node-1", 20.0),
        Fault(9.0, "lose", "node-3", 20.0),
    ]
    sim = Sim(life(3, Piece("a", "window", ("s1",), "upstream"), faults=faults))
    assert sim.run().violation is None
    (sink,) = sim.sinks()
    assert sink.error is None
    assert sink.next >= 200


def test_the_only_producer_dies_with_its_consumer():
    """Upstream twice, on one node: what the first kept for the second may be gone.

    That is beyond what upstream backup promises (docs/upstream.md), and it is said.
    """
    pieces = Piece("a", "map", ("s1",), "upstream"), Piece("b", "window", ("a",), "upstream")
    faults = [Fault(5.0, "crash", "node-1", 8.0), Fault(16.0, "crash", "node-2", 5.0)]
    result = simulate(life(2, *pieces, faults=faults, sinks=("b",)))
    assert result.violation is None
    assert any("'b' cannot be rebuilt: it needs 'a'" in line.text for line in result.story)


def test_whoever_rebuilds_a_fragment_does_not_reach_its_producer():
    """Found: without an answer it took it that there is no seed, and said that all is lost."""
    faults = [Fault(5.0, "pause", "node-1", 14.0), Fault(7.6, "cut", "node-2", 4.8, "keeper")]
    result = simulate(life(2, Piece("a", "window", ("s1",), "upstream"), faults=faults))
    assert result.violation is None


def test_the_disk_of_a_writer_is_full_for_a_moment():
    """Found: taken for a mistake of the user's code, the fragment stood still for ever."""
    full = Fault(5.0, "full", "node-1", 3.0)
    result = simulate(life(3, Piece("a", "count", ("s1",), "passive"), faults=[full]))
    assert result.violation is None
    said = [line.text for line in result.story if line.at_s < 19.0]
    assert [text for text in said if "takes over" in text or "started again" in text]


def test_a_new_standby_while_a_sink_is_away():
    """Found: whoever joined asked for the clients of the stream, whoever held it did not.

    Its copy of the log was trimmed as if nobody were away; the writer died, the sink was cut off.
    """
    away = [Fault(5.0, "crash", "sink-a", 9.0), Fault(5.2, "crash", "node-2", 20.0)]
    given = life(3, Piece("a", "count", ("s1",), "passive"), faults=away)
    assert simulate(replace(given, keep_epochs=SMALL_KEEP_EPOCHS)).violation is None


#: Two gap fragments in a row, the second with state.
GAPS = Piece("a", "map", ("s1",), "gap"), Piece("b", "count", ("a",), "gap")


def small(nodes: int, *pieces: Piece, faults: list[Fault], limit: int = 0) -> Sim:
    """A simulation with small logs, and little that is kept for strangers; the last has a sink."""
    made = life(nodes, *pieces, faults=faults, sinks=(pieces[-1].name,))
    return Sim(replace(made, log_bytes_max=limit, keep_epochs=SMALL_KEEP_EPOCHS))


def test_history_that_is_longer_than_the_limit_of_a_log():
    """Found: the producer waited for room, its consumer for a watermark; nobody said for how long.

    Scenario 17: now it is said who holds the log, and that it is for good.
    """
    pieces = Piece("a", "map", ("s1",), "active"), Piece("b", "window", ("a",), "upstream")
    sim = small(4, *pieces, faults=[], limit=40)
    assert sim.run().violation is None
    (sink,) = sim.sinks()
    assert sink.next < 200
    said = sim.watch.explained("b", sink)
    assert "fragment 'a' stands still for good" in said
    assert "b@node-2 has processed all of it, and its state reaches back to epoch" in said


def test_a_sink_that_is_away_is_no_standstill_for_good():
    """The same graph with room for the history: the sink holds everything for a while."""
    pieces = Piece("a", "map", ("s1",), "active"), Piece("b", "window", ("a",), "upstream")
    sim = small(4, *pieces, faults=[Fault(4.0, "crash", "sink-b", 14.0)], limit=120)
    assert sim.run().violation is None
    (sink,) = sim.sinks()
    assert sink.next >= 200


def test_what_a_sink_keeps_reaches_the_limit_of_its_log():
    """Found: what is kept for strangers filled the log; nobody was behind, and nobody went on."""
    sim = small(3, Piece("a", "map", ("s1",), "restart"), faults=[], limit=10)
    assert sim.run().violation is None
    (sink,) = sim.sinks()
    assert sink.next >= 200


def test_a_hole_that_is_longer_than_what_is_kept_for_strangers():
    """Found: whoever began anew had not heard of the sink; it trimmed the beginning of the hole."""
    faults = [
        Fault(4.0, "die at", "node-2", 1.0, "sealed b", much=60),
        Fault(6.105, "crash", "node-1", 3.0),
    ]
    sim = small(3, *GAPS, faults=faults)
    assert sim.run().violation is None
    (sink,) = sim.sinks()
    assert sink.error is None
    assert sink.next >= 200


def test_a_sink_is_away_for_longer_than_what_is_kept_and_its_gap_fragment_is_lost():
    """Found: nobody but the lost node knew the sink; now the acks of the fragment name it.

    What others have and it has not is gone with the node; the hole and all after it are kept.
    """
    faults = [Fault(5.0, "crash", "sink-a", 9.0), Fault(5.1, "lose", "node-1", 20.0)]
    sim = small(3, Piece("a", "map", ("s1",), "gap"), faults=faults)
    assert sim.run().violation is None
    (sink,) = sim.sinks()
    assert sink.error is None
    assert sink.next >= 200


def test_two_gap_fragments_in_a_row_die_between_output_and_commit():
    """The second has sealed what it made of an epoch that the successor of the first calls lost.

    What was shown stays.  The epoch after it says that those rows are not in the state any more.
    """
    faults = [
        Fault(4.0, "die at", "node-2", 1.0, "sealed b", much=62),
        Fault(6.337, "crash", "node-1", 3.0),
    ]
    sim = small(3, *GAPS, faults=faults)
    assert sim.run().violation is None
    assert sim.watch.beyond == {}
    (sink,) = sim.sinks()
    assert sink.log.read(62).header.lost_total == 0
    lost = sum(len(sim.rows("s1", number)) for number in range(62, 78))
    assert sink.log.read(78).header.lost_total == lost > 0


def test_control_is_away_while_small_logs_fill_up():
    """Found: the producers were started again after the last ack, and full: no news, no ack.

    So they had heard of nobody, trimmed nothing, and everything stood still.
    """
    pieces = (
        Piece("a", "count", ("s1",), "restart"),
        Piece("b", "session", ("a",), "gap"),
        Piece("c", "window", ("b",), "active", 3),
    )
    faults = (
        Fault(3.365, "fuse", "control", 16.6, much=3),
        Fault(10.521, "drift", "node-5", 11.9, much=1.1),
        Fault(13.475, "lag", "node-4", 3.8, much=5),
        Fault(13.775, "stumble", "node-4", 7.3),
    )
    lived = Life(700101, 7, ("s1",), pieces, 200, faults, ("c",), 80, SMALL_KEEP_EPOCHS)
    assert simulate(lived).violation is None


@pytest.mark.parametrize("again", ["node-1", "node-2"])
def test_everything_is_full_when_the_producer_is_started_again(again: str):
    """The same without chance: control is away, the log of a is full, and a, or b, starts again."""
    pieces = Piece("a", "map", ("s1",), "restart"), Piece("b", "count", ("a",), "restart")
    faults = [Fault(3.0, "crash", "control", 14.0), Fault(15.0, "crash", again, 3.0)]
    sim = small(2, *pieces, faults=faults, limit=40)
    assert sim.run().violation is None


def test_a_fragment_without_a_policy_loses_its_disk_and_the_rest_of_its_node_runs():
    """Found: its node ended at every start, and a copy of c that belongs there was missing."""
    pieces = (
        Piece("a", "count", ("s1",), "restart"),
        Piece("b", "map", ("s1",), "active"),
        Piece("c", "map", ("s1",), "active"),
    )
    lived = Life(7, 2, ("s1",), pieces, 200, (Fault(8.0, "lose", "node-1", 1.0),), ("b", "c"))
    sim = Sim(lived)
    result = sim.run()
    assert result.violation is None
    assert not [line for line in result.story if line.text.startswith("gives up")]
    told = sim.watch._told("a")
    assert "fragment 'a' has no checkpoint to go on from" in told


def test_a_gap_fragment_begins_anew_while_its_input_is_being_made_again():
    """Found: a sink had an epoch whose input a power cut took; it was called lost.

    The hole began after the newest epoch of the inputs, as if nobody could have more.
    """
    pieces = (
        Piece("a", "map", ("s1",), "restart"),
        Piece("b", "window", ("a",), "active"),
        Piece("c", "count", ("b",), "gap"),
    )
    faults = (
        Fault(4.681, "lose", "node-3", 18.2),
        Fault(11.564, "full", "node-4", 7.4),
        Fault(11.864, "isolate", "node-2", 6.0),
        Fault(16.089, "power", "node-1", 0.8),
    )
    result = simulate(Life(700301, 4, ("s1",), pieces, 200, faults, ("c", "c-2")))
    assert result.violation is None


def test_a_log_is_full_for_the_sake_of_one_and_its_release_is_not_on_record_yet():
    """Found: producers heard with a beat that it is not expected, before control had recorded it.

    Had control died in between, it would have counted on a copy that cannot go on.
    """
    pieces = (
        Piece("a", "count", ("s1",), "passive"),
        Piece("b", "map", ("a", "s1"), "upstream"),
        Piece("c", "window", ("b",), "active"),
    )
    faults = (Fault(4.349, "isolate", "node-2", 5.5),)
    lived = Life(2240, 4, ("s1",), pieces, 81, faults, ("c",), 80, SMALL_KEEP_EPOCHS)
    result = simulate(lived)
    assert result.violation is None
    assert any("the log of b is full, it holds it" in line.text for line in result.story)


def test_nobody_waits_for_a_consumer_that_has_nothing_left():
    """Found: b had lost its last copy and asked where a begins; a asked how far b is.

    So the gap fragment, which nobody protects, stood still as well.
    """
    pieces = (
        Piece("a", "session", ("s1",), "gap"),
        Piece("b", "join", ("a", "s1"), "passive"),
        Piece("c", "map", ("b", "s1"), "passive"),
    )
    faults = (
        Fault(10.714, "lose", "node-4", 14.9),
        Fault(11.014, "power", "node-1", 5.4),
        Fault(15.445, "lose", "node-3", 2.8),
    )
    lived = Life(2659, 4, ("s1",), pieces, 184, faults, ("c",), 80, SMALL_KEEP_EPOCHS)
    result = simulate(lived)
    assert result.violation is None
    assert [line for line in result.story if line.text.startswith("a is rebuilt from")]


def test_a_producer_is_paused_while_a_newcomer_is_expected_and_released_again():
    """Found: control's list did not undo what it had said under a term.

    The producer kept everything for one that was released long ago, until its log was full.
    """
    pieces = (
        Piece("a", "map", ("s1",), "restart"),
        Piece("b", "count", ("a", "s1"), "gap"),
        Piece("c", "count", ("b",), "gap"),
    )
    faults = (
        Fault(3.995, "pause", "node-3", 4.1),
        Fault(6.473, "fuse", "node-3", 6.3, much=18),
        Fault(9.812, "pause", "node-2", 15.4),
        Fault(15.763, "crash", "node-1", 12.6),
    )
    sinks = "c", "c-2"
    lived = Life(70000108, 3, ("s1",), pieces, 187, faults, sinks, 80, SMALL_KEEP_EPOCHS)
    assert simulate(lived).violation is None


def test_a_writer_that_has_nothing_left_is_not_gone_on_with():
    """Found: its node was up, so its backup counted as replaced by it, and was thrown away.

    The backup had all that was left of b.
    """
    pieces = (
        Piece("a", "window", ("s1",), "gap"),
        Piece("b", "count", ("a", "s1"), "passive"),
        Piece("c", "map", ("b", "s1"), "passive"),
        Piece("d", "map", ("a", "c"), "gap"),
    )
    faults = (
        Fault(2.672, "isolate", "node-1", 0.8),
        Fault(8.843, "pause", "node-1", 11.3),
        Fault(15.2, "isolate", "node-2", 6.9),
        Fault(15.341, "power", "node-2", 0.2),
    )
    sinks = "d", "d-2"
    lived = Life(70000192, 2, ("s1",), pieces, 200, faults, sinks, 120, SMALL_KEEP_EPOCHS)
    assert simulate(lived).violation is None


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
    result = simulate(Life(91000144, 6, ("s1", "s2"), pieces, 92, faults, ("d",)))
    assert result.violation is None
    assert any("as a copy of node-2 in place of node-5" in line.text for line in result.story)


def test_the_first_of_two_gap_fragments_is_overtaken_while_it_still_serves():
    """The second one takes from it until it has promised not to; the checker had forgotten that."""
    faults = [Fault(6.527, "cut", "node-1", 10.8, "control")]
    pieces = Piece("a", "window", ("s1",), "gap"), Piece("b", "session", ("a",), "gap")
    lived = Life(95000079, 2, ("s1",), pieces, 160, tuple(faults), ("b", "b-2"))
    assert simulate(lived).violation is None


def test_history_fills_a_log_for_good_after_its_reader_has_caught_up():
    """Whoever is started again does not know its history anew before there are new epochs.

    Its last word but one, that a sink is behind, stayed: the full log called that a wait.
    """
    pieces = Piece("a", "draw", ("s1",), "passive"), Piece("b", "join", ("a", "s1"), "upstream")
    faults = (
        Fault(6.903, "pause", "sink-b", 17.1),
        Fault(11.474, "repeat", "network", 6.9, much=0.3),
        Fault(15.494, "pause", "node-7", 5.7),
    )
    lived = Life(900296399, 7, ("s1",), pieces, 160, faults, ("b",), 80, SMALL_KEEP_EPOCHS)
    assert simulate(lived).violation is None
