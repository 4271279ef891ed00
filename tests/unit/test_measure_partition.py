"""The course of cuts, its report, figure and command, with a cluster that needs no Spark."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from unbroken.cli import bench_partition
from unbroken.cli.main import main
from unbroken.epochs import STABLE, TENTATIVE, Epoch
from unbroken.errors import UnbrokenError
from unbroken.local import LocalCluster
from unbroken.measure import contender, offer, partition
from unbroken.measure import partition_report as report
from unbroken.measure.compare import Difference
from unbroken.measure.ears import Ears, Effect, Heard
from unbroken.measure.partition import Cell, Found, measure
from unbroken.measure.shapes import Union

TICK_S, BOUND_S, WAIT_S = 0.01, 0.05, 60.0
SHAPE = Union("process", BOUND_S, 3000)
PARTITION = ("bench", "partition")


class Fake:
    """Every tick is an epoch; while it is cut they come tentatively, after a bound.

    Not in the first cuts that it `masks`.  The others last until some have come, however slow the
    machine is.  One that `loses` drops a row when it has been cut so many times.
    """

    def __init__(self, *, masks: int = 0, loses: int | None = None, corrects: bool = True) -> None:
        self.ears, self.did = Ears(), list[str]()
        self.sealed = 0
        self.error: UnbrokenError | None = None
        self._cut_s: float | None = None
        self._open: list[Heard] = []
        self._masks, self._loses, self._corrects = masks, loses, corrects
        self._lock = threading.Lock()
        self._expected: list[pa.Table] = []
        self._came: list[Epoch] = []

    def start(self) -> None:
        self.did.append("start")

    def send(self, tick: int, due_s: float, tables: Mapping[str, pa.Table]) -> None:
        with self._lock:
            now_s, table = time.time(), tables["east"]
            self._expected.append(table)
            came = table
            if self._loses is not None and self.did.count("cut") >= self._loses:
                came, self._loses = table.slice(1), None
            self._came.append(Epoch.of("near", tick, came))
            self.sealed = tick + 1
            if self._cut_s is None:
                self.ears.take(now_s, Heard(tick, STABLE, 3, sealed_s=now_s))
            else:
                self._open.append(Heard(tick, TENTATIVE, 2, sealed_s=now_s))
                waited = now_s > self._open[0].sealed_s + BOUND_S  # What came first.
                if waited and self.did.count("cut") > self._masks:
                    self._say(now_s)

    def _say(self, now_s: float) -> None:
        for heard in self._open[self._said() :]:
            self.ears.take(now_s, heard)

    def _said(self) -> int:
        return sum(heard.kind == TENTATIVE for _, heard in self.ears.heard)

    def cut(self) -> None:
        self.did.append("cut")
        with self._lock:
            self._cut_s = time.time()
            self.ears.heard[:] = [e for e in self.ears.heard if e[1].kind != TENTATIVE]
            self._open.clear()

    def heal(self) -> None:
        self.did.append("heal")
        deadline_s = time.monotonic() + WAIT_S
        while self.did.count("cut") > self._masks and self._said() < 2 and self.error is None:
            assert time.monotonic() < deadline_s, "nothing came tentatively"
            time.sleep(TICK_S)
        with self._lock:
            now_s, self._cut_s = time.time(), None
            said = {heard.number for _, heard in self.ears.heard if heard.kind == TENTATIVE}
            for heard in self._open if self._corrects else self._open[-1:]:
                replaced = heard.number in said
                final = Heard(heard.number, STABLE, 3, heard.sealed_s, replaced)
                self.ears.take(now_s + 0.001, final)

    def together(self) -> bool:
        return self._cut_s is None

    def check(self) -> None:
        if self.error is not None:
            raise self.error

    def ended(self) -> tuple[Sequence[pa.Table], list[Epoch]]:
        self.did.append("ended")
        return self._expected, self._came

    def close(self) -> None:
        self.did.append("close")


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(offer, "TICK_S", TICK_S)
    monkeypatch.setattr(contender, "LOOK_S", 0.005)
    monkeypatch.setattr(partition, "STALE_S_MAX", 0.02)
    monkeypatch.setattr("unbroken.cli.main._end_on_sigterm", lambda: None)
    monkeypatch.chdir(tmp_path)


def go(fake: Fake, *lengths: float) -> tuple[Found, list[str]]:
    found, told = Found("union", "process", SHAPE.text(None)), list[str]()
    measure(found, SHAPE, lambda: fake, lengths, say=told.append)
    return found, told


def test_every_length_is_cut_and_healed_on_one_cluster_and_all_rows_are_compared():
    fake = Fake(masks=1)
    found, told = go(fake, 0.02, 0.3)
    assert fake.did == ["start", "cut", "heal", "cut", "heal", "ended", "close"]
    assert found.outcome == "measured"
    assert not found.failed
    short, long = found.cells
    assert (short.effect.said, short.effect.tentative_rows) == (0, 0), "shorter than the bound"
    assert long.effect.said > 0
    assert long.effect.replaced == long.effect.said
    assert long.effect.open == 0
    assert (long.effect.wait_s or 0.0) >= BOUND_S
    assert long.rows_per_s == round(long.effect.tentative_rows / 0.3, 1)
    assert long.first > short.first
    assert [cell.difference for cell in found.cells] == [Difference(), Difference()]
    assert any("cut 2 of 2, 0.3 s: a new result waited" in line for line in told)


@pytest.mark.parametrize(("cuts", "lost"), [(0, [0, 0]), (1, [1, 0]), (2, [0, 1])])
def test_a_stable_row_that_is_missing_is_found_in_the_cut_after_which_it_was_lost(
    cuts: int, lost: list[int]
):
    found, _ = go(Fake(loses=cuts), 0.02, 0.02)
    assert found.difference == Difference(lost=1)
    assert found.differs
    assert found.failed
    assert [cell.difference for cell in found.cells] == [Difference(lost=n) for n in lost]


def test_a_tentative_epoch_of_which_nothing_becomes_is_a_failure():
    found, _ = go(Fake(corrects=False), 0.02)
    assert found.cells[0].effect.open > 0
    assert found.failed


def test_what_ends_a_cluster_is_the_outcome_and_what_was_measured_stays():
    fake = Fake()
    heal = fake.heal

    def heal_once() -> None:
        heal()
        if fake.did.count("heal") == 2:
            fake.error = UnbrokenError("the disk is full")

    fake.heal = heal_once  # type: ignore[method-assign]
    found, _ = go(fake, 0.02, 0.02, 0.02)
    assert found.outcome == "failed: the disk is full"
    assert len(found.cells) == 1
    assert found.failed
    assert fake.did[-1] == "close"


def some() -> list[Found]:
    def cell(length_s: float, wait_s: float, rows: int, **more: Any) -> Cell:
        return Cell(length_s, 10, Effect(wait_s, 0.5, 4.0, rows, **more), Difference())

    return [
        Found("union", "process", "a union", "measured",
              [cell(2, 1.9, 0), cell(8, 3.1, 700, said=9, replaced=8, confirmed=1)]),
        Found("union", "suspend", "a union", "measured", [cell(2, 2.4, 0), cell(8, 8.3, 0)]),
        Found("join", "process", "a join", "failed: no room"),
    ]  # fmt: skip


def test_the_table_has_a_line_per_cut_and_says_what_came_to_no_end():
    lines = report.words(some(), 3.0).splitlines()
    assert lines[0].split()[:2] == ["cut", "s"]
    assert lines[2].split() == [
        "union,", "process", "8", "3.10", "0.50", "700", "87.5", "4.00", "9", "1", "8", "0", "0",
        "0", "0",
    ]  # fmt: skip
    assert lines[-1] == "join, process: failed: no room"


def test_promises_that_were_not_kept_are_told():
    """Not those of suspend, which makes none, nor of a machine that is too slow for its epochs."""
    process, suspend, _ = some()
    assert process.broken(3.0) == suspend.broken(3.0) == []
    (late,) = process.broken(1.0)
    assert late == "a cut of 8 s: a new result waited for 3.1 s, X is 1 s and an epoch 1 s"
    (unmasked,) = process.broken(10.0)
    assert unmasked == "a cut of 8 s is shorter than 9 s, and 9 epochs were tentative"
    assert f"union, process: {late}" in report.words(some(), 1.0)
    slow = Found("union", "process", "a union", cells=[Cell(2, 10, Effect(9.0, 1.5, 4.0, said=3))])
    assert slow.broken(3.0) == []


def test_the_figure_has_two_panels_per_shape_and_a_line_per_choice():
    drawn = report.draw(some(), 3.0)
    ElementTree.fromstring(drawn)
    for word in ("union: longest wait", "union: tentative rows", ">process<", ">suspend<", "X = 3"):
        assert word in drawn
    assert "join" not in drawn, "nothing was measured of it"
    assert drawn.count("<circle") == 8


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--shapes", "ring"), "'ring' is unknown"),
        (("--policies", "panic"), "'panic' is unknown"),
        (("--lengths", "2,x"), "--lengths 2,x: not lengths of time"),
        (("--lengths", "0"), "--lengths 0: not lengths of time"),
        (("--x", "0"), "--x 0: not a delay"),
    ],
)
def test_errors_are_told_with_the_way_out(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], what: str
):
    assert main((*PARTITION, *arguments)) == 2
    told = capsys.readouterr()
    assert what in told.err
    assert "  → " in told.err


def test_the_command_tells_writes_and_ends_with_1_if_a_stable_row_differs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    done: list[tuple[str, str]] = []

    def measured(found: Found, shape: Any, make: Any, lengths: Any, *, say: Any) -> None:
        done.append((found.shape, found.when_cut))
        model = some()[0]
        found.outcome, found.cells = model.outcome, model.cells
        found.difference = Difference(wrong=int(found.when_cut == "delay"))

    monkeypatch.setattr(bench_partition, "measure", measured)
    given = (*PARTITION, "--shapes", "union", "--json", "--out", "here")
    assert main((*given, "--policies", "process")) == 0
    assert main((*given, "--policies", "process", "--x", "1")) == 1, "a promise was not kept"
    assert main((*given, "--policies", "process,delay", "--quick")) == 1
    assert done == [("union", "process")] * 3 + [("union", "delay")]
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["x_s"], told["lengths_s"]) == (3.0, [2.0, 8.0])
    assert told == json.loads(Path("here/partition.json").read_text())
    assert Path("here/partition.svg").read_text().startswith("<svg")


def test_ctrl_c_shows_what_was_measured_so_far(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def stopped(found: Found, *given: Any, **how: Any) -> None:
        found.cells = some()[0].cells
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_partition, "measure", stopped)
    assert main((*PARTITION, "--out", "here")) == 130
    told = capsys.readouterr()
    assert "union, process" in told.out
    assert "broken off" in told.out
    assert "stopped; what was measured so far" in told.err


def test_help_has_examples_and_no_cluster_is_started(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(LocalCluster, "start", lambda self: pytest.fail("a cluster was started"))
    with pytest.raises(SystemExit) as left:
        main((*PARTITION, "--help"))
    assert left.value.code == 0
    assert "unbroken bench partition --quick" in capsys.readouterr().out
