"""The list of bad days, row by row: a life that has that day, or the test that shows it.

* A life shows its row by what is said in it, in this order; and, where the row gave rise to a rule
  that can be left out, by going wrong without it.
* What lies outside the simulator (Spark itself, sends, files of users) is shown by real tests,
  which are named here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import left_out
from checks_of_rows import (
    WithoutNode2,
    caught_up_one_by_one,
    heard_before_it_was_stable,
    missed_numbers_are_empty,
    node_2_was_refused,
    nothing_waited_longer,
    the_giver_went_on,
    windows_closed_meanwhile,
)
from lived import Lived, life, rule

from unbroken.testing import Fault, Piece, broken, broken_branches
from unbroken.testing.variants import VARIANTS


@dataclass(frozen=True)
class Shown:
    """Tests that show the row with real processes, files or Spark: `file::function`."""

    tests: tuple[str, ...]
    #: Why it cannot be lived, where it is not.
    because: str = ""


#: One input can be missing while the other one is there.
RELAYS = (Piece("a", "map", ("s1",), "restart"), Piece("b", "map", ("s2",), "restart"))
TENTATIVE = Piece("c", "union", ("a", "b"), "restart", max_delay=2.0)
CHAIN = (Piece("a", "map", ("s1",), "upstream"), Piece("b", "window", ("a",), "upstream"))
ACTIVE = Piece("a", "count", ("s1",), "active")
PASSIVE = Piece("a", "count", ("s1",), "passive")
BAD_DAYS, FULL_LOG = "tests/scenarios/test_bad_days.py", "tests/scenarios/test_full_log.py"

Row = tuple[Lived | Shown, ...]
ROWS: dict[int, Row] = {
    1: (
        Lived(
            life(CHAIN, [Fault(6.0, "lose", "node-1", 30.0), Fault(7.8, "lose", "node-2", 30.0)],
                 nodes=4),
            (r"node-\d: a is rebuilt from epoch", r"node-2 is dead",
             r"node-\d: b is rebuilt from epoch"),
            without=rule("p instead of f in what a stream owes"),
        ),
    ),
    2: (
        Lived(
            life([ACTIVE], [Fault(5.0, "pause", "node-1", 12.0),
                            Fault(9.0, "slow", "node-3", 6.0, "keeper", much=1.0)],
                 log_bytes_max=40),
            ("control: a: releasing node-1", "control: a: expecting node-3 as a copy of node-2",
             "control: a: shipping", "node-3: took a after epoch", "control: a: node-3 is live"),
            without=rule("a newcomer that producers do not expect"),
        ),
    ),
    3: (
        Lived(
            life([PASSIVE], [Fault(5.0, "pause", "node-1", 9.0)], nodes=2),
            ("fault: pause node-1", "control: a: node-2 takes over from node-1",
             "node-1: left a: another node writes it now"),
            # As a standby it is believed again, although it counts its terms anew.
            never=("refuses: ack of a@node-1",),
        ),
        Lived(
            VARIANTS["fencing off"].life,
            ("fault: repeat network", "node-1: starts again",
             "keeper: refuses: ack of a@node-1 under term"),
            without=rule("fencing off"),
        ),
        Lived(
            VARIANTS["a term per replica"].life,
            ("control: a: expecting node-3 in place of node-1", "fault: cut one way node-3",
             "control: a: expecting node-2 in place of node-3", "node-2: a is rebuilt from epoch"),
            without=rule("a term per replica"),
        ),
    ),
    4: tuple(
        Lived(
            life([Piece("a", "window", ("s1",), "upstream")], [Fault(6.0, "lose", "node-1", 30.0)]),
            (r"node-\d: a is rebuilt from epoch \d+ on and speaks from",),
            without=without,
        )
        # Not "a seed without watermarks": a seed reaches back to the row that set the watermark.
        for without in (rule("speaks before s + 1"), rule("a seed that begins too late"))
    ),
    5: (
        Lived(
            life([Piece("a", "count", ("s1",), "restart")],
                 [Fault(4.0, "die at", "node-1", 1.0, "sealed a", much=60)]),
            ("node-1: is killed: it has sealed epoch 60", "node-1: starts again"),
            without=rule("a restart that is no fork"),
        ),
    ),
    6: (
        Lived(
            life([Piece("a", "draw", ("s1",), "passive")],
                 [Fault(3.5, "cut", "node-1", 30.0, "node-2"), Fault(5.0, "crash", "node-1", 3.0)],
                 nodes=2, epochs=240, seed=4),
            ("fault: cut node-1 - node-2", "control: a: node-2 takes over from node-1"),
            without=rule("output shown before it is confirmed"),
        ),
        Shown(("tests/unit/test_guarantee.py::test_arbitrary_and_stateless_needs_one_writer",
               "tests/unit/test_guarantee.py::test_arbitrary_state_is_sent_in_front")),
    ),
    7: (
        Lived(
            life([*RELAYS, Piece("c", "count", ("a", "b"), "active", max_delay=1.0)],
                 [Fault(5.0, "cut", "node-1", 5.0, "node-3"),
                  Fault(5.0, "lag", "node-4", 5.0, much=30.0)], nodes=4),
            ("fault: lag node-4", "node-1: c@node-1: going tentative: b silent for 0.9 s",
             r"node-1: c@node-1: stable again: corrected epochs 4\d to"),
            without=rule("a stable epoch taken for a copy of a tentative one"),
            also=heard_before_it_was_stable,
        ),
        Shown(("tests/unit/test_both.py::test_a_stable_copy_of_another_replica_wins",)),
    ),
    8: (
        Lived(
            life([*RELAYS, TENTATIVE], [Fault(5.0, "cut", "node-3", 5.0, "node-2")]),
            ("node-3: c@node-3: going tentative: b silent for 1.8 s",
             "node-3: c@node-3: the stable line goes on after epoch",
             "node-3: c@node-3: stable again"),
            without=broken_branches.restored_first,
            also=nothing_waited_longer,
        ),
        Shown((
            "tests/unit/test_lines.py::test_new_results_go_on_while_the_stable_line_catches_up",
            "tests/features/test_partition.py::"
            "test_results_go_on_within_the_bound_and_are_corrected_after",
        )),
    ),
    9: (
        Lived(
            life([*RELAYS, TENTATIVE], [Fault(5.0, "cut", "node-3", 5.0, "node-2")]),
            ("node-3: c@node-3: going tentative: b silent for 1.8 s", "stable again"),
            without=rule("a missing input's watermark stands still"),
            also=windows_closed_meanwhile,
        ),
        Shown(("tests/unit/test_lines.py::test_watermarks_are_lifted_for_what_is_missing",)),
    ),
    10: (
        Lived(
            life([*RELAYS, TENTATIVE, replace(TENTATIVE, name="d", operator="map", inputs=("c",)),
                  replace(TENTATIVE, name="e", operator="count", inputs=("d",))],
                 [Fault(5.0, "cut", "node-3", 5.0, "node-2")], nodes=5),
            ("node-3: c@node-3: going tentative: b silent for 1.8 s",
             "node-4: d@node-4: going tentative: c tentative",
             "node-5: e@node-5: going tentative: d tentative",
             "node-3: c@node-3: stable again", "node-4: d@node-4: stable again",
             "node-5: e@node-5: stable again"),
            without=rule("waits that add up along a chain"),
            also=nothing_waited_longer,
        ),
        Shown((
            "tests/unit/test_lines.py::"
            "test_what_is_tentative_upstream_is_tentative_here_and_the_bound_counts_once",
        )),
    ),
    11: (
        Lived(
            life([ACTIVE], [Fault(5.0, "crash", "keeper", 6.0)]),
            ("fault: crash keeper", "keeper: starts again"),
            also=missed_numbers_are_empty,
        ),
        Lived(
            life([ACTIVE], [Fault(5.0, "jump", "keeper", much=-5.0),
                            Fault(6.0, "crash", "keeper", 1.0)]),
            ("fault: jump keeper", "fault: crash keeper", "keeper: starts again"),
        ),
        Shown((f"{BAD_DAYS}::test_s11_a_source_that_was_down_for_a_minute_is_level_with_the_others",
               f"{BAD_DAYS}::test_s11_a_wall_clock_that_jumps_repeats_no_number_and_seals_no_million"
               )),
    ),
    12: (
        Shown((f"{BAD_DAYS}::test_s12_a_send_whose_answer_was_lost_is_taken_once_also_across_a_"
               "restart",), "sources of the simulator make their rows themselves: nobody sends"),
    ),
    13: (
        Lived(
            life([Piece("a", "window", ("s1",), "gap")],
                 [Fault(4.8, "slow", "sink-a-2", 1.0, "node-1", much=2.0),
                  Fault(5.2, "crash", "node-1", 3.0)], sinks=("a", "a-2")),
            (r"control: a: epochs \d+ to \d+ are lost", r"node-\d: a is rebuilt"),
            without=rule("a gap counted from the lowest consumer"),
        ),
    ),
    14: (
        Lived(
            life([ACTIVE, Piece("b", "count", ("s1",), "passive")],
                 [Fault(5.0, "pause", "control", 10.0)], nodes=4),
            ("fault: pause control",),
            never=("is dead", "takes over", "releasing"),
            without=broken.unforgiving,
        ),
    ),
    15: (
        *(
            Lived(
                life([ACTIVE], [Fault(5.0, "crash", "node-1", 40.0),
                                Fault(5.0, "fuse", "control", 1.0, much=doing)], epochs=320),
                ("control: is killed in the middle of what it does", "control: starts again",
                 "control: a: node-3 is live"),
            )
            for doing in range(1, 9)
        ),
        Lived(
            life([ACTIVE], [Fault(5.0, "crash", "node-1", 40.0),
                            Fault(5.0, "fuse", "control", 1.0, much=4)]),
            (r"control: a: expecting node-3 .* \(term 3\)", "control: is killed in the middle",
             "control: starts again", r"control: a: expecting node-3 .* \(term 4\)"),
            without=left_out.begun_is_forgotten,
        ),
    ),
    16: (
        Lived(
            life([PASSIVE], [Fault(4.0, "pause", "node-1", 9.5), Fault(12.0, "lose", "node-2", 30.0)
                             ], nodes=2),
            ("control: a: node-2 takes over from node-1", "fault: lose node-2",
             "control: a: node-1 takes over from node-2"),
            without=rule("released before the wanted number is live"),
        ),
    ),
    17: (
        Lived(
            life([Piece("a", "map", ("s1",), "restart"), Piece("b", "window", ("a",), "restart")],
                 [Fault(5.0, "lag", "node-2", 8.0, much=300.0)], log_bytes_max=40),
            ("keeper: source 's1' holds .* the slowest consumer is a@node-1",),
        ),
        Shown(("tests/scenarios/test_full_for_good.py::"
               "test_a_producer_is_told_that_there_will_never_be_room",
               "tests/scenarios/test_found_full.py::"
               "test_history_that_is_longer_than_the_limit_of_a_log")),
        Shown((f"{FULL_LOG}::test_s17_a_laggard_is_removed_and_the_producer_goes_on",
               f"{FULL_LOG}::test_s17_when_everybody_is_slow_nobody_is_removed")),
    ),
    18: (
        Shown((f"{BAD_DAYS}::test_s18_one_row_from_next_year_makes_nobody_else_late",),
              "bad rows are set aside while they are sent, and nobody sends in the simulator"),
    ),
    19: (
        Lived(
            life([ACTIVE], [Fault(5.0, "pause", "node-1", 12.0)], log_bytes_max=40),
            ("fault: pause node-1", "control: a: .*the log of s1 is full, it holds it",
             "control: a: node-3 is live"),
        ),
    ),
    20: (
        Lived(
            life([Piece("a", "window", ("s1",), "active")], [Fault(5.0, "lag", "node-1", 8.0,
                                                                  much=5.0)], nodes=2),
            ("fault: lag node-1",),
            without=rule("batches without data"),
        ),
        Shown(("tests/features/test_conformance.py::test_spark",
               "tests/features/test_plan.py::test_settings_that_would_break_equality_are_refused")),
    ),
    21: (
        Lived(
            life([Piece("a", "join", ("s1", "s2"), "restart")],
                 [Fault(at_s, "crash", "node-1", 0.3) for at_s in (4.0, 6.0, 8.0, 10.0, 12.0)]),
            ("fault: crash node-1", "node-1: starts again"),
            without=rule("watermarks lost with a restart"),
        ),
        Shown(("tests/features/test_conformance.py::test_spark",)),
    ),
    22: (
        Shown(("tests/features/test_determinism.py::test_a_run_that_dies_between_output_and_commit_"
               "writes_the_epochs_of_an_undisturbed_one",),
              "only Spark has an order that is a matter of chance"),
    ),
    23: (
        Lived(
            life([Piece("a", "map", ("s1",), "restart"),
                  Piece("b", "join", ("a", "s2"), "restart")],
                 [Fault(5.0, "slow", "node-2", 4.0, "keeper", much=0.5)]),
            ("fault: slow node-2 - keeper",),
            without=rule("a gate that looks at one input"),
        ),
        Shown(("tests/features/test_conformance.py::test_spark",)),
    ),
    24: (
        Lived(
            life([Piece("a", "window", ("s1",), "restart")], [Fault(5.0, "pause", "node-1", 5.0)]),
            ("fault: pause node-1",),
            without=left_out.groups_what_waits,
            also=caught_up_one_by_one,
        ),
        Shown((f"{BAD_DAYS}::test_s24_a_backlog_of_ten_epochs_is_never_grouped",)),
    ),
    25: (
        *(
            Lived(
                life([PASSIVE], [Fault(4.0, "slow", "node-1", 5.0, "node-2", much=0.15),
                                 Fault(8.5, "crash", "node-1", 3.0)], nodes=2),
                ("fault: slow node-1 - node-2", "control: a: node-2 takes over from node-1",
                 r"node-2: took over a after epoch \d+"),
                without=rule(left_out),
                also=the_giver_went_on,
            )
            for left_out in ("shipped from the living folder", "the name comes before the layers")
        ),
        Shown(("tests/unit/test_take.py::test_the_original_goes_on_while_its_fork_travels",
               "tests/unit/test_shipments.py::test_a_fork_for_shipping_lies_beside_the_terms_and_is_"
               "no_term")),
    ),
    26: (
        Lived(
            # The sink hears of node-1 first: whose code comes first is right.
            life([ACTIVE], [Fault(0.0, "slow", "sink-a", 3.0, "node-2", much=0.5)], nodes=2,
                 epochs=60),
            ("fault: slow sink-a - node-2",), without=left_out.any_code_merges,
            also=node_2_was_refused, under=left_out.other_code, checkers=WithoutNode2,
        ),
        Shown((f"{BAD_DAYS}::test_s26_a_replica_with_other_code_does_not_merge_and_is_told",
               "tests/features/test_plan.py::test_the_fingerprint_names_code_settings_and_nothing_"
               "else")),
    ),
    27: (
        Shown(("tests/unit/test_process.py::test_an_orphan_is_found_when_its_root_is_gone",
               "tests/unit/test_fork.py::test_files_that_are_not_there_yet_are_passed_over",
               "tests/features/test_determinism.py::test_a_run_that_dies_between_output_and_commit_"
               "writes_the_epochs_of_an_undisturbed_one"),
              "a node is one process in the simulator: there is no JVM that could outlive it"),
    ),
    28: (
        Lived(
            # The input is kept for node-2: node-1 could go on, if what it has were whole.
            life([ACTIVE], [Fault(4.5, "pause", "node-2", 4.0), Fault(6.0, "power", "node-1", 0.5)],
                 nodes=2, seed=9),
            ("fault: power node-1", "node-1: .*the machine was rebooted",
             "control: a: node-1 is live"),
            without=left_out.boots_look_alike,
        ),
        Shown((f"{BAD_DAYS}::test_s28_after_a_reboot_checkpoints_are_lost_and_rows_are_not",)),
    ),
    29: (
        Lived(
            life([PASSIVE], [Fault(5.0, "full", "node-1", 3.0), Fault(9.0, "full", "node-2", 3.0),
                             Fault(13.0, "full", "keeper", 2.0),
                             Fault(13.0, "full", "control", 3.0)], nodes=3),
            ("node-1: .*no space left", "keeper: .*no space left"),
        ),
        Shown(("tests/scenarios/test_full_disk.py::test_s29_full_while_sealing",
               "tests/unit/test_take.py::test_s29_full_while_taking",
               "tests/unit/test_give.py::test_s29_full_at_the_giver")),
    ),
    30: (
        Lived(
            life([ACTIVE], [Fault(5.0, "fuse", "sink-a", 1.0, much=3.0),
                            Fault(9.0, "fuse", "sink-a", 1.0, much=2.0)]),
            ("sink-a: is killed in the middle of what it does", "sink-a: starts again") * 2,
            without=left_out.position_from_a_note,
        ),
        Shown(("tests/unit/test_sinks.py::test_a_process_that_dies_between_file_and_note_repeats_and_"
               "misses_nothing",)),
    ),
}  # fmt: skip
