"""Bad days that the simulator found, where a disk is full, or a log at its limit.

Each is the smallest life that showed it, and still shows it (`lived`).
"""

from __future__ import annotations

import left_out
import pytest
from lived import astray, life, lived, rule, there

from unbroken.testing import SMALL_KEEP_EPOCHS, Fault, Life, Piece

NO_SPACE = "no space left"
#: History that is kept for a window, behind copies.
HISTORY = Piece("a", "map", ("s1",), "active"), Piece("b", "window", ("a",), "upstream")


def test_a_disk_is_full_when_control_answers():
    """Found: an epoch that could not be shown ended the thread that beats."""
    faults = [Fault(5.0, "full", "node-1", 4.0)]
    sim = lived(
        life([Piece("a", "draw", ("s1",), "passive")], faults),
        f"node-1: a stopped: cannot write node-1/fragments/a/staged: {NO_SPACE}",
        f"node-1: a cannot be started: .*{NO_SPACE}",
        never=["node-1 is dead", "suspected node-1"],
    )
    assert there(sim)


@pytest.mark.parametrize("why", ["stumble", "crash"])
@pytest.mark.parametrize("protection", ["restart", "passive", "upstream"])
def test_a_disk_is_full_when_a_fragment_is_started(protection: str, why: str):
    """Found: its checkpoint was taken for lost, and it was not tried again when there was room."""
    faults = [Fault(5.0, "full", "node-1", 6.0), Fault(5.5, why, "node-1", 1.0)]
    one = life([Piece("a", "window", ("s1",), protection)], faults, nodes=2)
    sim = lived(
        one,
        f"node-1: a stopped: cannot write node-1/fragments/a/output: {NO_SPACE}",
        f"node-1: a cannot be started: cannot write node-1/fragments/a: {NO_SPACE}",
        f"fault: {why} node-1",
        never=["no checkpoint to go on from"],
    )
    assert there(sim)
    if (protection, why) == ("restart", "crash"):  # Nobody else has it.
        assert astray(one, left_out.full_is_lost).number == 10


def test_the_disk_of_a_writer_is_full_for_a_moment():
    """Found: taken for a mistake of the user's code, the fragment stood still for ever."""
    full = Fault(5.0, "full", "node-1", 3.0)
    sim = lived(life([Piece("a", "count", ("s1",), "passive")], [full]), f"node-1: .*{NO_SPACE}")
    said = [line.text for line in sim.world.story if line.at_s < 19.0]
    assert [text for text in said if "takes over" in text or "started again" in text]


def test_history_that_is_longer_than_the_limit_of_a_log():
    """Found: the producer waited for room, its consumer for a watermark; nobody said for how long.

    Scenario 17: now it is said who holds the log, and that it is for good.
    """
    sim = lived(life(HISTORY, [], nodes=4, log_bytes_max=40))
    (sink,) = sim.sinks()
    assert sink.next < 200
    said = sim.watch.explained("b", sink)
    assert "fragment 'a' stands still for good" in said
    assert "b@node-2 has processed all of it, and its state reaches back to epoch" in said


def test_a_sink_that_is_away_is_no_standstill_for_good():
    """The same graph with room for the history: the sink holds everything for a while."""
    one = life(HISTORY, [Fault(4.0, "crash", "sink-b", 14.0)], nodes=4, log_bytes_max=120)
    sim = lived(one, "fault: crash sink-b", "sink-b: starts again", never=["for good"])
    assert there(sim)


def test_what_a_sink_keeps_reaches_the_limit_of_its_log():
    """Found: what is kept for strangers filled the log; nobody was behind, and nobody went on."""
    one = life([Piece("a", "map", ("s1",), "restart")], [], log_bytes_max=10)
    assert there(lived(one))
    assert astray(one, left_out.strangers_first).number == 10


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
    one = Life(700101, 7, ("s1",), pieces, 200, faults, ("c",), 80, SMALL_KEEP_EPOCHS)
    lived(
        one,
        "control: is killed in the middle of what it does",
        "keeper: source 's1' holds 80 bytes, its limit is 80; the slowest consumer is a@node-2",
    )  # That the rule saves it is shown below, without chance.


@pytest.mark.parametrize("again", ["node-1", "node-2"])
def test_everything_is_full_when_the_producer_is_started_again(again: str):
    """The same without chance: control is away, the log of a is full, and a, or b, starts again."""
    pieces = Piece("a", "map", ("s1",), "restart"), Piece("b", "count", ("a",), "restart")
    faults = [Fault(3.0, "crash", "control", 14.0), Fault(15.0, "crash", again, 3.0)]
    one = life(pieces, faults, nodes=2, log_bytes_max=40)
    sim = lived(
        one,
        "keeper: source 's1' holds 40 bytes, its limit is 40; the slowest consumer is a@node-1",
        f"fault: crash {again}",
        f"{again}: starts again",
    )
    assert there(sim)
    if again == "node-2":
        assert astray(one, left_out.said_once).number == 10


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
    one = Life(2240, 4, ("s1",), pieces, 81, faults, ("c",), 80, SMALL_KEEP_EPOCHS)
    lived(one, "fault: isolate node-2", "the log of b is full, it holds it")


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
    one = Life(70000108, 3, ("s1",), pieces, 187, faults, sinks, 80, SMALL_KEEP_EPOCHS)
    lived(
        one,
        "control: c: expecting node-1 in place of node-3",
        "fault: pause node-2",
        "control: c: node-1 is released .*: node-1 died before it was live",
        "control: node-2 is heard of again",
    )
    assert astray(one, left_out.rulings_stand).number == 10


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
    one = Life(900296402, 7, ("s1",), pieces, 160, faults, ("b",), 80, SMALL_KEEP_EPOCHS)
    sim = lived(one, "fault: pause sink-b", "the slowest consumer is b@node-2")
    (sink,) = sim.sinks()
    assert sink.next < 160
    assert "fragment 'a' stands still for good" in sim.watch.explained("b", sink)
    assert astray(one, rule("a full log that names nobody")).number == 7


def test_a_new_replica_is_full_before_its_sink_has_found_it():
    """Found: the sink had asked another one by name, and was a stranger here."""
    pieces = (
        Piece("a", "map", ("s1", "s2"), "gap"), Piece("b", "map", ("a", "s1"), "gap"),
        Piece("c", "join", ("a", "b"), "active"), Piece("d", "join", ("c", "s2"), "passive"),
    )  # fmt: skip
    one = Life(
        94000072, 3, ("s1", "s2"), pieces, 60, (), ("d",),
        log_bytes_max=120, keep_epochs=SMALL_KEEP_EPOCHS,
    )  # fmt: skip
    assert there(lived(one))
    # Its standby would tell of the sink too.
    found = astray(one, lambda: left_out.strangers_at_once() + left_out.no_word_of_clients())
    assert found.number == 3
