"""Bad days that the simulator found, where an input is cut off from a fragment with a delay bound.

Each is the smallest life that showed it, and still shows it (`lived`).
"""

from __future__ import annotations

import left_out
from lived import astray, life, lived, rule, there

from unbroken.node.branch import Branch
from unbroken.testing import DIE_AT, Fault, Life, Piece

RELAYS = Piece("a", "map", ("s1",), "restart"), Piece("b", "map", ("s2",), "restart")


def cut_life(*pieces: Piece, nodes: int, faults: list[Fault]) -> Life:
    """Two relays, and what reads them; the last one has a sink."""
    return life([*RELAYS, *pieces], faults, nodes=nodes, epochs=160, sinks=(pieces[-1].name,))


def test_two_copies_are_cut_off_alike():
    """Found: a consumer took each tentative epoch from whichever branch said it first.

    They may lack different inputs: the mixture was what neither had computed.
    """
    copies = Piece("c", "count", ("a", "b"), "active", max_delay=1.0)
    faults = [Fault(5.0, "cut", node, 5.0, "node-3") for node in ("node-1", "node-4")]
    one = cut_life(copies, nodes=4, faults=faults)
    sim = lived(one, *["going tentative: b silent"] * 2)
    assert sum("going tentative: b silent" in line.text for line in sim.world.story) == 2
    assert astray(one, rule("branches are mixed")).number == 4


def test_a_disk_is_full_when_a_fork_is_to_be_parked():
    """Found: the second of a chain had nothing left to wait for: a thousand tries a second.

    The silence was forgiven, but not what the epoch had waited upstream.
    """
    first = Piece("c", "count", ("a", "b"), "restart", max_delay=1.0)
    second = Piece("d", "map", ("c",), "restart", max_delay=1.0)
    faults = [Fault(5.0, "cut", "node-3", 6.0, "node-2"), Fault(5.0, "full", "node-4", 4.0)]
    tried = "node-4: d@node-4 cannot go on without its input"
    sim = lived(
        cut_life(first, second, nodes=4, faults=faults), tried, "node-4: d@node-4: going tentative"
    )
    tries = [line for line in sim.world.story if "cannot go on without its input" in line.text]
    assert 1 <= len(tries) <= 4


def test_an_input_with_a_shorter_bound_is_cut_off():
    """Found: what waited here, and what waited upstream meanwhile, was added up.

    A fragment that may wait 2.7 s went on without its input after 1.8 s.
    """
    first = Piece("c", "count", ("a", "b"), "restart", max_delay=1.0)
    second = Piece("d", "union", ("a", "c"), "restart", max_delay=3.0)
    faults = [Fault(5.0, "cut", "node-3", 6.0, "node-2")]
    sim = lived(
        cut_life(first, second, nodes=4, faults=faults),
        "node-3: c@node-3: going tentative", "node-4: d@node-4: going tentative",
    )  # fmt: skip
    story = sim.world.story
    parted = {line.text[0]: line.at_s for line in story if "going tentative" in line.text}
    assert parted["d"] - parted["c"] > 1.6


def test_all_of_an_epoch_has_come_when_a_branch_says_it():
    """Found: it said that the epoch had not waited, and one further on it waited once more.

    Only one of its inputs was late there; the other one had waited for it.
    """
    first = Piece("c", "union", ("a", "b"), "restart", max_delay=2.0, when_cut="delay")
    second = Piece("d", "map", ("c", "s2"), "restart", max_delay=2.0, when_cut="delay")
    faults = [Fault(6.9, "crash", "node-2", 2.3), Fault(8.9, "cut", "node-4", 5.7, "keeper")]
    one = cut_life(first, second, nodes=4, faults=faults)
    lived(
        one,
        "node-3: c@node-3: going tentative: b silent", "fault: cut node-4 - keeper",
        "node-3: c@node-3: stable again", "node-4: d@node-4: stable again",
    )  # fmt: skip
    assert astray(one, rule("waits that add up along a chain")).number == 12


def test_the_stable_line_reads_faster_than_the_branch():
    """Found: what it had acked was trimmed before the branch had read it, and the branch died.

    Results stopped until the stable line had caught up.
    """
    joins = Piece("c", "union", ("a", "b"), "restart", max_delay=2.0)
    faults = [Fault(at_s, "cut", "node-3", 3.0, "node-2") for at_s in (4.0, 9.0)]
    lived(
        cut_life(joins, nodes=3, faults=faults),
        *("going tentative", "the stable line goes on", "stable again: corrected epochs") * 2,
        never=["the branch ended"],
    )


def test_a_branch_dies_while_its_input_is_tentative():
    """Found: whoever started anew beside it had heard what was said meanwhile, and thrown it away.

    Nobody says it again, so nothing of the next epoch was here, and nothing was waited for: no
    result until the partition was over.
    """
    first = Piece("c", "count", ("a", "b"), "restart", max_delay=3.0)
    second = Piece("d", "count", ("c",), "restart", max_delay=2.0)
    faults = [
        Fault(2.807, "slow", "node-3", 8.2, "node-1", much=0.5),
        Fault(11.011, "cut", "node-3", 8.5, "node-2"),
        Fault(12.644, "stumble", "node-1", 9.9, "branch"),
    ]
    one = life(
        [*RELAYS, first, second], faults, sinks=("d",), seed=31000022, log_bytes_max=90
    )  # fmt: skip
    lived(
        one, "d@node-1: going tentative: c tentative", "d@node-1: the stable line goes on",
        "d@node-1: the branch ended after epoch", "d@node-1: going tentative: c tentative",
        "d@node-1: stable again",
    )  # fmt: skip


def test_a_replica_ends_while_its_second_query_starts():
    """Found: the inputs of that query went on for ever, in its name and from where it was.

    Whoever asks says what it has: where a hole begins may depend on it.
    """
    pieces = (
        Piece("a", "map", ("s1",), "restart"), Piece("b", "map", ("s2",), "passive"),
        Piece("c", "union", ("a", "b"), "active", max_delay=1.0),
    )  # fmt: skip
    faults = (
        Fault(8.915, "cut", "node-2", 1.39, "node-3"),
        Fault(10.175, "fuse", "node-1", 0.24, much=8),
        Fault(10.646, "isolate", "node-3", 3.39), Fault(12.513, "stumble", "node-3", 0.7, "stable"),
    )  # fmt: skip
    one = Life(98000049, 3, ("s1", "s2"), pieces, 155, faults, ("c",))
    lived(
        one, "node-3: c@node-3: going tentative: b silent",
        "node-3: c has stumbled and is started again",
    )  # fmt: skip
    assert astray(one, left_out.inputs_outlive_it).number == 3


def test_a_log_is_full_of_what_is_to_be_given_up():
    """Found: a branch that converges waited for all that it had done, and nobody got on any more.

    It acks nothing before, so the input that was cut off could not get as far: its log was full.
    """
    joins = Piece("c", "union", ("a", "b"), "restart", max_delay=1.0, when_healed="converge")
    faults = [Fault(5.0, "cut", "node-3", 9.0, "node-2")]
    one = life([*RELAYS, joins], faults, seed=5, log_bytes_max=70)
    lived(
        one, "c@node-3: going tentative: b silent",
        "c@node-3 corrects what it said: its input stands still",
        "c@node-3: the stable line goes on after epoch 48", "c@node-3: stable again: corrected",
        never=["stable again: gave up"],
    )  # fmt: skip
    assert astray(one, lambda: [(Branch, "_look_stands", lambda self, now_s: None)]).number == 10


def test_a_node_dies_between_output_and_commit_and_is_cut_off_when_it_is_back():
    """Found: the epoch that it had sealed was said again, tentatively, beside the stable one."""
    one = cut_life(
        Piece("c", "count", ("a", "b"), "restart", max_delay=1.0), nodes=3,
        faults=[
            Fault(5.0, DIE_AT, "node-3", 1.0, "sealed c", much=60),
            Fault(6.2, "cut", "node-3", 5.0, "node-2"),
        ],
    )  # fmt: skip
    lived(one, "node-3: starts again", "c@node-3: going tentative: b silent",
          "stable again: corrected epochs 60 to")  # fmt: skip
    assert astray(one, left_out.says_what_is_stable).number == 4


#: What is cut off goes on tentatively, and sessions behind it are under upstream backup.
SESSIONS = (
    Piece("c", "union", ("a", "b"), "restart", max_delay=1.0),
    Piece("d", "session", ("c",), "upstream", max_delay=1.0),
)
CUT = Fault(5.0, "cut", "node-3", 4.0, "node-2")


def test_upstream_backup_is_lost_while_its_input_is_tentative():
    """Nobody has its branch: what was said is replaced by what another node computes again."""
    one = cut_life(*SESSIONS, nodes=5, faults=[CUT, Fault(8.0, "lose", "node-4", 20.0)])
    sim = lived(
        one, "d@node-4: going tentative: c tentative", "node-4 is dead", "node-5: d is rebuilt from"
    )
    assert there(sim)


def test_upstream_backup_is_corrected_and_lost_after():
    """What producers keep for it follows from its stable state, not from that of the branch."""
    one = cut_life(*SESSIONS, nodes=5, faults=[CUT, Fault(11.5, "lose", "node-4", 20.0)])
    sim = lived(
        one, "d@node-4: going tentative: c tentative", "d@node-4: stable again: corrected",
        "node-4 is dead", "node-5: d is rebuilt from",
    )  # fmt: skip
    assert there(sim)


def test_upstream_backup_is_cut_off_before_it_has_spoken():
    """Where it begins is in no checkpoint: it does not part before it has committed something."""
    pair = Piece("c", "join", ("a", "b"), "upstream", max_delay=1.0)
    faults = [Fault(5.0, "lose", "node-3", 20.0), Fault(5.35, "cut", "node-4", 4.0, "node-2")]
    one = cut_life(pair, nodes=4, faults=faults)
    sim = lived(
        one, "node-4: c is rebuilt from", "fault: cut node-4 - node-2",
        never=["c@node-4: going tentative"],
    )  # fmt: skip
    assert there(sim)


def test_what_comes_after_epochs_that_were_given_up_was_not_held_up_by_those_before():
    """Found: the first stable epoch behind a branch told of the waits of the last one before it."""
    pieces = (
        Piece("c", "union", ("a", "b"), "restart", max_delay=2.0, when_cut="delay",
              when_healed="converge"),
        Piece("d", "session", ("c",), "restart", max_delay=2.0),
        Piece("e", "count", ("d",), "restart", max_delay=3.0),
    )  # fmt: skip
    one = Life(
        174240256, 6, ("s1", "s2"), (*RELAYS, *pieces), 128,
        (Fault(10.301, "slow", "node-3", 5.69, "node-1", much=0.5),), ("e",), 90, 20,
    )  # fmt: skip
    lived(one, "c@node-3: going tentative: a silent", "stable again: gave up epoch 103")
