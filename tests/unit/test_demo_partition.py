"""The partition demo without Spark: its data, its known answer, and how it judges what it heard."""

from __future__ import annotations

import ast
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from unbroken.cli import demo_partition
from unbroken.cli.demo_partition import WARM_EPOCHS, figures, lines, words
from unbroken.cli.main import main
from unbroken.demo import check_two_sites
from unbroken.demo.check_two_sites import SITES, TwoSites
from unbroken.demo.intrusion_trace import attackers, trace
from unbroken.epochs import TENTATIVE, Epoch
from unbroken.measure.said import Said
from unbroken.tentative.correction import replacing

SECONDS = 60
QUERY = Path(check_two_sites.__file__).parent / "queries" / "two_sites.py"


@pytest.fixture(scope="module")
def check() -> TwoSites:
    return TwoSites(demo_partition.SEED, SECONDS)


@pytest.fixture(scope="module")
def answer(check: TwoSites) -> list[pa.Table]:
    return check.answer()


def test_every_connection_is_seen_at_one_site(check: TwoSites):
    whole = pa.concat_tables(trace(demo_partition.SEED, SECONDS, check_two_sites.ROWS_PER_S))
    east, west = (pa.concat_tables(check.tables(site)) for site in SITES)
    assert east.num_rows + west.num_rows == whole.num_rows
    assert not set(east["dst"].to_pylist()) & set(west["dst"].to_pylist())
    assert 0.4 < east.num_rows / whole.num_rows < 0.6


def test_the_loop_judges_as_the_query_does():
    """Its thresholds are copied, because importing the query needs Spark."""
    known = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(QUERY.read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id.endswith("_MAX")
    }  # fmt: skip
    assert known == {
        "ATTEMPTS_MAX": check_two_sites.ATTEMPTS_MAX, "PORTS_MAX": check_two_sites.PORTS_MAX,
    }  # fmt: skip


def test_the_last_alert_of_every_window_is_what_pandas_counts(answer: list[pa.Table]):
    """The answer grows from epoch to epoch; where it ends is computed in another way here."""
    rows = pa.concat_tables(
        trace(demo_partition.SEED, SECONDS, check_two_sites.ROWS_PER_S)
    ).to_pandas()
    rows["start"] = rows["ts"].dt.floor("10s")
    seen = rows.groupby(["src", "start"]).agg(
        attempts=("port", "size"), services=("service", "nunique"), ports=("port", "nunique")
    )
    brute = (seen.attempts > 120) & (seen.services == 1) & (seen.ports == 1)
    scan = ~brute & (seen.ports > 25)
    expected = {key: ("brute force", int(n)) for key, n in seen.attempts[brute].items()}
    expected |= {key: ("scan", int(n)) for key, n in seen.ports[scan].items()}
    last = {
        (row["src"], pd.Timestamp(row["start"])): (row["kind"], row["score"])
        for table in answer
        for row in table.to_pylist()
    }
    assert last == expected
    assert {src for src, _ in last} == {a.src for a in attackers(demo_partition.SEED, SECONDS)}


def test_the_cut_hides_half_of_a_scan_and_nothing_of_a_brute_force_in_the_east(check: TwoSites):
    """Otherwise nothing would be withdrawn, or nothing confirmed."""
    scan, brute_force, *_ = attackers(demo_partition.SEED, SECONDS)
    cut_s, healed_s = (part * SECONDS for part in (demo_partition.CUT_AT, demo_partition.HEAL_AT))
    assert scan.start_s < cut_s < scan.end_s < healed_s - 5
    assert brute_force.start_s < scan.end_s < brute_force.end_s
    west = set(pa.concat_tables(check.tables("west"))["src"].to_pylist())
    assert scan.src in west
    assert brute_force.src not in west


def heard(answer: list[pa.Table], *, changed: int | None = None) -> Said:
    """A stream in which the first alerts after the cut were said tentatively, one of them wrong."""
    said = Said()
    tables = [answer[0].schema.empty_table()] * WARM_EPOCHS + answer
    for number, table in enumerate(tables):
        if number == changed:
            table = table.slice(0, table.num_rows - 1)
        epoch, sealed_us = Epoch.of("alerts", number, table), number * 1_000_000
        if WARM_EPOCHS + 20 <= number < WARM_EPOCHS + 30:
            part = table.slice(0, 0) if number == WARM_EPOCHS + 20 else table
            before = Epoch.of("alerts", number, part, kind=TENTATIVE, sealed_us=sealed_us)
            said.heard(before, number + 3.5)
            epoch = replacing(epoch, before)
        said.heard(epoch.with_header(sealed_us=sealed_us), number + 0.5)
    return said


def test_what_was_heard_is_judged_against_the_answer(answer: list[pa.Table]):
    verdict = figures(answer, heard(answer), WARM_EPOCHS + 20.0)
    assert verdict["right"]
    assert (verdict["lost"], verdict["repeated"], verdict["wrong"]) == (0, 0, 0)
    assert (verdict["tentative"], verdict["confirmed"], verdict["replaced"]) == (10, 9, 1)
    assert (verdict["withdrawn"], verdict["added"], verdict["open"]) == (
        0, answer[20].num_rows, 0,
    )  # fmt: skip
    assert (verdict["longest_before_s"], verdict["longest_after_s"]) == (0.5, 3.5)
    assert "0 lost, 0 repeated, 0 wrong" in words(verdict)
    assert "10 epochs said; 9 confirmed, 1 replaced, 0 open" in words(verdict)


def test_a_stream_that_lost_an_alert_is_not_right(answer: list[pa.Table]):
    verdict = figures(answer, heard(answer, changed=WARM_EPOCHS + 36), WARM_EPOCHS + 20.0)
    assert (verdict["right"], verdict["lost"]) == (False, 1)


def test_nothing_tentative_during_a_cut_is_not_right(answer: list[pa.Table]):
    said = Said()
    tables = [answer[0].schema.empty_table()] * WARM_EPOCHS + answer
    for number, table in enumerate(tables):
        said.heard(Epoch.of("alerts", number, table), 0.0)
    assert figures(answer, said, None)["right"]
    assert not figures(answer, said, 30.0)["right"]


def test_the_view_shows_what_became_of_an_alert():
    def alerts(*scores: int) -> pa.Table:
        return pa.table({"src": ["a"] * len(scores), "kind": ["scan"] * len(scores),
                         "score": list(scores)})  # fmt: skip

    said = Epoch.of("alerts", 7, alerts(30, 31), kind=TENTATIVE)
    corrected = replacing(Epoch.of("alerts", 7, alerts(31, 60)), said)
    confirmed = replacing(Epoch.of("alerts", 7, alerts(31, 30)), said)
    assert [mark for mark, _ in lines(said)] == ["?", "?"]
    assert [(mark, text.split()[-1]) for mark, text in lines(corrected)] == [
        ("-", "30"), ("+", "60"),
    ]  # fmt: skip
    assert [mark for mark, _ in lines(confirmed)] == ["=", "="]


def test_fewer_than_three_nodes_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("unbroken.cli.main._end_on_sigterm", lambda: None)
    assert main(["demo", "partition", "--nodes", "2"]) == 2
    assert "→ --nodes 3" in capsys.readouterr().err
