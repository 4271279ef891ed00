"""`unbroken bench recovery`: arguments, and what is shown however it ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from unbroken.cli import bench
from unbroken.cli.main import main
from unbroken.local import LocalCluster
from unbroken.measure.recovery import Found
from unbroken.measure.watch import Effect

QUERY = """
import unbroken as ub
query = ub.Query("till", epoch="1s")
sales = query.source("sales", "ts TIMESTAMP, price INT", event_time="ts")
query.sink(query.fragment(sales)(lambda sales: sales, name="copy"))
"""
RECOVERY = ("bench", "recovery")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_cluster(self: LocalCluster) -> None:
        pytest.fail("a cluster was started")

    monkeypatch.setattr(LocalCluster, "start", no_cluster)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("unbroken.cli.main._end_on_sigterm", lambda: None)
    monkeypatch.delitem(sys.modules, "till", raising=False)
    Path("till.py").write_text(QUERY)
    Path("sales.csv").write_text("ts,price\n1000,5\n")


@pytest.mark.parametrize(
    ("code", "arguments", "what"),
    [
        (2, ("--policies", "active,fast"), "'fast' is unknown"),
        (2, ("--policies", ""), "'' is unknown"),
        (2, ("nowhere.py",), "nowhere.py: no such file"),
        (2, ("--source", "sales=sales.csv"), "without a query"),
        (2, ("till.py",), "source 'sales' of query 'till' has no file"),
        (2, ("till.py", "--source", "x=sales.csv"), "no source 'x'"),
        (2, ("till.py", "--source", "sales=sales.csv", "--keys", "9"), "--keys with till.py"),
        (2, ("till.py", "--source", "sales=sales.csv", "--plain"), "--plain with till.py"),
        (1, ("till.py", "--source", "sales=no.csv"), "no.csv: no such file"),
        (1, ("--out", "sales.csv"), "sales.csv cannot be made"),
        (1, ("--out", "sales.csv/x"), "sales.csv/x cannot be made"),
    ],
)
def test_errors_are_told_with_the_way_out(
    capsys: pytest.CaptureFixture[str], code: int, arguments: tuple[str, ...], what: str
):
    assert main((*RECOVERY, *arguments)) == code
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: ")
    assert what in told.err
    assert "  → " in told.err


@pytest.mark.parametrize("arguments", [("bench",), (*RECOVERY, "--kills", "0"), ("bench", "x")])
def test_arguments_that_make_no_sense_are_told_by_the_parser(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
):
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2


@pytest.mark.parametrize("command", [("bench",), RECOVERY])
def test_help_has_examples(capsys: pytest.CaptureFixture[str], command: tuple[str, ...]):
    with pytest.raises(SystemExit) as left:
        main((*command, "--help"))
    assert left.value.code == 0
    assert "examples:\n  unbroken bench recovery" in capsys.readouterr().out


class Measure:
    """Stands for the measurement: writes down what it was asked for, and finds something."""

    def __init__(self, outcomes: dict[str, str | BaseException]) -> None:
        self.outcomes = outcomes
        self.kills: dict[str, int] = {}

    def __call__(self, found: Found, workload: Any, make: Any, **how: Any) -> None:
        self.kills[found.name] = how["kills"]
        outcome = self.outcomes.get(found.name, "measured")
        if isinstance(outcome, str) and outcome.startswith("refused"):
            found.outcome = outcome
            return
        found.cpu_s_per_s = 1.0
        found.effects.append(Effect(0.5, 1.0, 2.0))
        if isinstance(outcome, BaseException):
            raise outcome
        found.outcome = outcome


def measured(monkeypatch: pytest.MonkeyPatch, **outcomes: str | BaseException) -> Measure:
    made = Measure(outcomes)
    monkeypatch.setattr(bench, "measure", made)
    return made


def test_all_policies_and_plain_are_measured_and_the_results_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    made = measured(monkeypatch, upstream="refused: no end")
    assert main((*RECOVERY, "--quick", "--out", "out", "--json")) == 0
    assert list(made.kills) == ["active", "passive", "upstream", "gap", "restart", "plain"]
    assert set(made.kills.values()) == {2}
    told = capsys.readouterr()
    result = json.loads(told.out)
    assert result == json.loads(Path("out/recovery.json").read_text())
    assert [each["outcome"] for each in result["contenders"]].count("measured") == 5
    assert "upstream: refused: no end" in told.err
    assert Path("out/recovery.svg").read_text().startswith("<svg")


def test_some_policies_without_plain_and_with_a_query_of_ones_own(
    monkeypatch: pytest.MonkeyPatch,
):
    made = measured(monkeypatch)
    assert main((*RECOVERY, "--policies", "active,restart", "--no-plain", "--kills", "3")) == 0
    assert made.kills == {"active": 3, "restart": 3}
    made = measured(monkeypatch)
    assert main((*RECOVERY, "till.py", "--source", "sales=sales.csv", "--policies", "gap")) == 0
    assert made.kills == {"gap": 10}


def test_ctrl_c_shows_what_was_measured_so_far(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    made = measured(monkeypatch, passive=KeyboardInterrupt())
    assert main(RECOVERY) == 130
    assert list(made.kills) == ["active", "passive"]
    told = capsys.readouterr()
    assert "active" in told.out
    assert "passive: broken off" in told.out
    assert Path("bench-recovery/recovery.json").exists()


def test_nothing_measured_is_an_error_and_so_is_a_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    measured(monkeypatch, gap="refused: no")
    assert main((*RECOVERY, "--policies", "gap", "--no-plain")) == 1
    assert "nothing could be measured" in capsys.readouterr().err
    assert not Path("bench-recovery/recovery.json").exists()
    measured(monkeypatch, gap="failed: it broke")
    assert main((*RECOVERY, "--policies", "gap", "--no-plain")) == 1
