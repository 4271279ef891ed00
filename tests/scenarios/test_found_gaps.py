"""Bad days that the simulator found, where a gap fragment begins anew behind a hole.

Each is the smallest life that showed it, and still shows it (`lived`).
"""

from __future__ import annotations

import left_out
import pytest
from lived import astray, life, lived, rule, there

from unbroken.testing import SMALL_KEEP_EPOCHS, Fault, Life, Piece, Sim

GAP = Piece("a", "map", ("s1",), "gap")
#: Two gap fragments in a row, the second with state.
GAPS = GAP, Piece("b", "count", ("a",), "gap")


def rebuilt_at_s(sim: Sim) -> list[float]:
    """When a was rebuilt."""
    return [line.at_s for line in sim.world.story if line.text.startswith("a is rebuilt from")]


def test_a_gap_fragment_is_lost_while_its_sink_is_away():
    """Found: nobody had asked, so the hole began at epoch 0, whose input was trimmed long ago.

    It was on record, so every attempt failed in the same way, for ever.
    """
    faults = [Fault(8.0, "crash", "sink-a", 6.0), Fault(8.5, "lose", "node-1", 1.0)]
    one = life([Piece("a", "window", ("s1",), "gap")], faults, nodes=2)
    lived(
        one, r"control: a: epochs 8\d to \d+ are lost", r"node-2: a is rebuilt from",
        "sink-a: starts again", r"sink-a: stops: a: epoch \d+ is gone",
    )  # fmt: skip
    assert astray(one, left_out.from_the_first).number == 1


def test_a_gap_fragment_whose_consumer_has_a_standby():
    """Found: the successor waited for the standby to say how far it is.  Standbys never ask."""
    pieces = GAP, Piece("b", "map", ("a",), "passive")
    one = life(pieces, [Fault(5.0, "crash", "node-2", 20.0)], nodes=4)
    sim = lived(one, "control: a: expecting node-4 in place of node-2", "node-4: a is rebuilt")
    assert there(sim)
    assert astray(one, left_out.nobody_is_let_off).number == 10


def test_two_gap_fragments_in_a_row_are_lost():
    """Found: the first waited for the second to say how far it is, the second for its input."""
    pieces = GAP, Piece("b", "window", ("a",), "gap")
    one = life(pieces, [Fault(5.0, "lose", node, 3.0) for node in ("node-1", "node-2")])
    sim = lived(one, "a: epochs .* are lost", "b: expecting node-3", "b: epochs .* are lost")
    assert there(sim)
    assert astray(one, left_out.nobody_is_let_off).number == 10


@pytest.mark.parametrize("protection", ["active", "passive"])
def test_a_gap_fragment_is_lost_while_a_copy_of_its_consumer_is_away_and_no_node_is_free(
    protection: str,
):
    """Found: the successor waited for that copy to say how far it is, until it came back."""
    pieces = GAP, Piece("b", "count", ("a",), protection)
    faults = [Fault(4.0, "crash", "node-1", 30.0), Fault(6.0, "lose", "node-2", 30.0)]
    sim = lived(life(pieces, faults), "control: node-1 is dead", "fault: lose node-2")
    (at_s,) = rebuilt_at_s(sim)
    assert at_s < 12.0


def test_two_fragments_behind_a_gap_fragment_are_not_equally_far():
    """Found: the hole began after the one that was ahead, and no copy of the other could go on."""
    pieces = (
        Piece("a", "count", ("s1",), "gap"),
        Piece("b", "map", ("a",), "passive"),
        Piece("c", "map", ("a",), "active"),
    )
    faults = [Fault(3.0, "pause", "node-1", 4.0), Fault(5.0, "lose", "node-3", 9.0)]
    for seed in range(3):
        one = life(pieces, faults, nodes=5, seed=seed)
        # Where b was paused: c had twenty epochs more.
        sim = lived(one, r"control: a: epochs (29|30) to \d+ are lost", "node-4: a is rebuilt")
        assert there(sim)
        assert astray(one, left_out.one_place_for_all).number == 10


@pytest.mark.parametrize("operator", ["map", "count"])
def test_a_gap_fragment_is_silent_and_not_dead(operator: str):
    """Found: control does not hear it, its consumers do; they took what its successor calls lost.

    Now they promise, when they say how far they are, to take nothing more from it.
    """
    faults = [Fault(5.0, "cut one way", "node-1", 30.0, "control")]
    one = life([Piece("a", operator, ("s1",), "gap")], faults, nodes=2)
    lived(one, "control: node-1 is dead: silent", "node-2: a is rebuilt")
    assert astray(one, rule("a hole before anybody has promised")).number in (1, 2)


@pytest.mark.parametrize("who", ["sink-a", "keeper"])
def test_whoever_promised_starts_again_while_the_old_one_still_serves(who: str):
    """The promise outlives who gave it, and who keeps the book: nobody goes back to the old one."""
    faults = [
        Fault(5.0, "cut one way", "node-1", 14.0, "control"),
        *(Fault(5.0 + at_s, "crash", who, 0.3) for at_s in (6.3, 7.0, 7.7, 8.4)),
    ]
    one = life([Piece("a", "count", ("s1",), "gap")], faults, nodes=2)
    assert there(lived(one, "control: node-1 is dead: silent", *[f"{who}: starts again"] * 4))


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
    pieces = GAP, Piece("b", operator, ("a",), protection)
    faults = [
        Fault(4.0, "pause", "node-3", 1.5),
        Fault(5.0, "lose", "node-2", 20.0),
        Fault(5.0, how, "node-1", 10.0),
    ]
    sim = lived(life(pieces, faults, nodes=4), "fault: lose node-2", r"a: epochs \d+ to .* lost")
    (sink,) = sim.sinks()
    assert sink.log.read(sink.next - 1).header.lost_total > 0


def test_a_hole_that_is_longer_than_what_is_kept_for_strangers():
    """Found: whoever began anew had not heard of the sink; it trimmed the beginning of the hole."""
    faults = [
        Fault(4.0, "die at", "node-2", 1.0, "sealed b", much=60),
        Fault(6.105, "crash", "node-1", 3.0),
    ]
    one = life(GAPS, faults, keep_epochs=SMALL_KEEP_EPOCHS)
    sim = lived(one, "node-2: is killed: it has sealed epoch 60", r"b: epochs \d+ to \d+ are lost")
    assert there(sim)


def test_a_sink_is_away_for_longer_than_what_is_kept_and_its_gap_fragment_is_lost():
    """Found: nobody but the lost node knew the sink; now the acks of the fragment name it.

    What others have and it has not is gone with the node; the hole and all after it are kept.
    """
    faults = [Fault(5.0, "crash", "sink-a", 9.0), Fault(5.1, "lose", "node-1", 20.0)]
    one = life([GAP], faults, keep_epochs=SMALL_KEEP_EPOCHS)
    sim = lived(one, "a: epochs .* are lost", "a is rebuilt", "sink-a: starts again")
    assert there(sim)


def test_two_gap_fragments_in_a_row_die_between_output_and_commit():
    """The second has sealed what it made of an epoch that the successor of the first calls lost.

    What was shown stays.  The epoch after it says that those rows are not in the state any more.
    """
    faults = [
        Fault(4.0, "die at", "node-2", 1.0, "sealed b", much=62),
        Fault(6.337, "crash", "node-1", 3.0),
    ]
    one = life(GAPS, faults, keep_epochs=SMALL_KEEP_EPOCHS)
    sim = lived(one, "node-2: is killed: it has sealed epoch 62", "a: epochs 62 to 77 are lost")
    assert sim.watch.beyond == {}
    (sink,) = sim.sinks()
    assert sink.log.read(62).header.lost_total == 0
    lost = sum(len(sim.rows("s1", number)) for number in range(62, 78))
    assert sink.log.read(78).header.lost_total == lost > 0


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
    one = Life(700338, 4, ("s1",), pieces, 200, faults, ("c", "c-2"))
    lived(
        one, "fault: power node-1", "control: c: node-4 rebuilds what node-2 held",
        "node-1: left b: it has to be taken", r"control: c: epochs 11\d to \d+ are lost",
    )  # fmt: skip
    assert astray(one, left_out.after_the_inputs).number == 1


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
    one = Life(2659, 4, ("s1",), pieces, 184, faults, ("c",), 80, SMALL_KEEP_EPOCHS)
    lived(one, "fault: lose node-3", r"node-\d: a is rebuilt from")


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
    one = Life(70000213, 2, ("s1",), pieces, 200, faults, sinks, 120, SMALL_KEEP_EPOCHS)
    sim = lived(
        one, "b: node-2 takes over from node-1", "fault: power node-2", "node-2: left b: it has to",
        "control: b: node-1 takes over from node-2", "node-2: a is rebuilt",
    )  # fmt: skip
    assert there(sim)


def test_the_first_of_two_gap_fragments_is_overtaken_while_it_still_serves():
    """The second one takes from it until it has promised not to; the checker had forgotten that."""
    pieces = Piece("a", "window", ("s1",), "gap"), Piece("b", "session", ("a",), "gap")
    faults = (Fault(6.527, "cut", "node-1", 10.8, "control"),)
    one = Life(95000079, 2, ("s1",), pieces, 160, faults, ("b", "b-2"))
    # It served until its consumers had promised: the hole begins seven seconds after the cut.
    lived(one, "node-1 is dead: silent", r"a: epochs 14\d to \d+ are lost", "node-1: left a")


def test_the_log_before_a_gap_fragment_is_full_for_the_one_that_is_gone():
    """Found: its successor counts what is lost, and waits for the last epoch of that.

    The producer could not make it: its log was full, kept for the one that was gone, and for the
    successor in its place.  The hole was on record, so nobody would ever ask for it.
    """
    pieces = (
        Piece("a", "count", ("s1",), "active"), Piece("b", "map", ("a", "s1"), "active", 3),
        Piece("c", "join", ("a", "b"), "upstream"), Piece("d", "session", ("c",), "gap"),
    )  # fmt: skip
    faults = Fault(13.553, "crash", "node-4", 2.23), Fault(16.321, "crash", "node-1", 0.38)
    one = Life(
        94000002, 4, ("s1",), pieces, 200, faults, ("d", "d-2"),
        log_bytes_max=80, keep_epochs=SMALL_KEEP_EPOCHS,
    )  # fmt: skip
    lived(
        one, *[r"control: d: epochs \d+ to \d+ are lost"] * 2, r"d is rebuilt from epoch \d+ on",
    )  # fmt: skip
    assert astray(one, left_out.holds_what_lies_before).number == 10


def test_a_gap_fragment_dies_before_its_consumer_has_ever_started():
    """Found: its successor waited for a standby that had never been more than placed.

    And the writer of that one, started again meanwhile, took an input that nobody served yet for a
    loss of its own, and waited to be taken from another node.  Nobody has it where nobody was ever
    live: the first one tries again.
    """
    pieces = Piece("a", "window", ("s2",), "gap"), Piece("b", "map", ("a", "s2"), "passive")
    faults = Fault(0.343, "crash", "node-1", 6.8), Fault(5.995, "crash", "node-2", 15.2)
    one = Life(
        562521794, 7, ("s1", "s2"), pieces, 200, faults, ("b",),
        log_bytes_max=120, keep_epochs=SMALL_KEEP_EPOCHS,
    )  # fmt: skip
    sim = lived(
        one, "control: a: node-7 rebuilds what node-2 held", "node-1: b cannot be started",
        "node-7: a is rebuilt from",
    )  # fmt: skip
    assert there(sim)
    assert astray(one, left_out.nobody_is_the_first).number == 10


def test_nobody_waits_for_one_in_whose_place_a_hole_was_recorded_before():
    """Its writer took the hole, and was lost after it; the one before it must not go on.

    Found: the gap fragment in front, lost with that writer, waited for the other one for ever.
    """
    pieces = Piece("a", "session", ("s1",), "gap"), Piece("b", "draw", ("a", "s1"), "passive", 3)
    faults = (
        Fault(9.29, "crash", "node-1", 6.63),
        Fault(9.29, "crash", "node-2", 7.66),
        Fault(12.036, "power", "node-3", 1.21),
    )
    one = Life(44000444, 3, ("s1", "s2"), pieces, 150, faults, ("b",))
    sim = lived(
        one, "b: node-3 takes over", "a: epochs 92 to 106 are lost", "fault: power node-3",
        "a is rebuilt from", "a: node-3 catches up",
    )  # fmt: skip
    told = " ".join(sim.shells["keeper"].keeper._protection[0]["b"]["doing"])
    assert "but not node-1, in whose place a hole was recorded" in told


def test_one_of_two_sinks_lacks_what_a_hole_has_taken_and_their_log_is_small():
    """Found: it stops, and says so; the other one waits when the log is full for its sake.

    The checker knew of that only where a sink had come too late.
    """
    pieces = (
        Piece("a", "count", ("s1",), "gap"), Piece("b", "count", ("a",), "active", copies=3),
        Piece("c", "map", ("b", "s1"), "gap"), Piece("d", "session", ("b",), "active"),
    )  # fmt: skip
    one = Life(
        880000034, 6, ("s1",), pieces, 128, (Fault(4.139, "crash", "node-4", 7.5),),
        ("c", "d", "c-2"), log_bytes_max=80, keep_epochs=SMALL_KEEP_EPOCHS,
    )  # fmt: skip
    sim = lived(
        one, "control: c: epochs 41 to 58 are lost", "node-3: c is rebuilt from",
        "sink-c-2: stops: c: epoch 40 was trimmed",
    )  # fmt: skip
    waits = sim.shells["node-3"].hosted.replicas["c"].sentence
    assert waits.endswith("its limit; it is kept for sink_c_2")


def test_who_stands_behind_a_hole_is_lost_before_anybody_has_asked_it():
    """Found: the next one was told the same hole, and the input behind it was gone.

    It had been trimmed on the word of the one that is lost.
    """
    faults = (
        Fault(3.134, "crash", "node-1", 5.4), Fault(3.134, "crash", "node-2", 7.3),
        Fault(3.434, "crash", "control", 0.8), Fault(9.677, "crash", "control", 0.4),
        Fault(13.96, "lose", "node-3", 7.3),
    )  # fmt: skip
    pieces = Piece("a", "count", ("s1",), "gap"), Piece("b", "map", ("a", "s2"), "gap")
    one = Life(880001247, 3, ("s1", "s2"), pieces, 169, faults, ("b", "b-2"))
    sim = lived(
        one, "control: a: epochs 30 to 123 are lost", "node-3: a is rebuilt from epoch 124",
        "control: a: expecting node-2 in place of node-3", "control: a: epochs 30 to 123 are lost",
        r"control: a: epochs 30 to 1[3-9]\d are lost", "node-2: a is rebuilt from",
    )  # fmt: skip
    assert there(sim)
