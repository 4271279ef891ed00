"""`unbroken chaos`: who is hit and when, what is counted, and what a broken promise says."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import unbroken as ub
from unbroken.cli import chaos as command
from unbroken.cli.main import main
from unbroken.epochs import Epoch
from unbroken.measure import chaos, compare
from unbroken.measure.compare import Difference
from unbroken.measure.made_up import MadeUp
from unbroken.measure.watch import Watch
from unbroken.policies.guarantee import Recovery

QUERY = """
import unbroken as ub
query = ub.Query("till", epoch="1s")
sales = query.source("sales", "ts TIMESTAMP, price INT", event_time="ts")
query.sink(query.fragment(sales, policy=ub.Active(replicas=2))(lambda sales: sales, name="copy"))
"""


TABLE = pa.table({"n": [1, 2, 3]})


class Hand:
    """A cluster by hand: whole again a while after each hit; results come with every send."""

    def __init__(self) -> None:
        self.watches = [Watch()]
        self.victims = ["node-1", "node-2", "control"]
        self.open_s: list[float] = []
        self.done: list[tuple[str, str]] = []
        self.hits_when_not_whole = 0
        self._whole_s = 0.0
        self._lock = threading.Lock()

    def start(self) -> None: ...

    def check(self) -> None: ...

    def send(self, tick: int, due_s: float, tables: Mapping[str, pa.Table]) -> None:
        self.watches[0].take(time.time(), due_s)

    def whole(self) -> bool:
        return time.time() >= self._whole_s

    def hit(self, kind: str, process: str) -> None:
        self.hits_when_not_whole += not self.whole()
        self._whole_s = time.time() + 0.1
        self.done.append((kind, process))

    def bring_back(self, kind: str, process: str) -> None:
        self.done.append((f"{kind} ends", process))

    def outcome(self) -> dict[str, tuple[list[pa.Table], list[Epoch]]]:
        return {"copy": ([TABLE, TABLE], [Epoch.of("copy", number, TABLE) for number in (0, 1)])}


@pytest.fixture
def shop() -> ub.Query:
    query = ub.Query("shop", epoch="1s")
    ddl = "ts TIMESTAMP, item STRING, tags ARRAY<STRING>, at STRUCT<x: DOUBLE>, free BOOLEAN"
    sales = query.source("sales", ddl, event_time="ts")
    query.sink(query.fragment(sales)(lambda sales: sales, name="copy"))
    return query


def test_processes_are_hit_only_when_all_is_whole_and_all_come_back(
    shop: ub.Query, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(chaos, "AWAY_S", (0.05, 0.3))
    monkeypatch.setattr(chaos, "PHASE_S_MAX", 0.05)
    monkeypatch.setattr(chaos, "STALE_S", 0.05)
    monkeypatch.setattr(chaos, "WARM_OUTPUTS", 2)
    cluster, said = Hand(), []
    fire: Any = chaos.Chaos(
        cluster,  # type: ignore[arg-type]
        MadeUp(shop, rate=100), faults=chaos.FAULTS, length_s=2.0, bound_s=3.0, seed=3,
        say=said.append,
    )  # fmt: skip
    fire.run()
    hits = [each for each in cluster.done if not each[0].endswith("ends")]
    ends = [(f"{kind} ends", process) for kind, process in hits]
    assert len(hits) == len(fire.outcome.hits) >= 3
    assert sorted(ends) == sorted(each for each in cluster.done if each[0].endswith("ends"))
    assert cluster.hits_when_not_whole == 0
    assert fire.outcome.within == fire.outcome.epochs > 5
    assert fire.outcome.differences == fire.outcome.untold == {"copy": Difference()}
    assert {kind for kind, _ in hits} == set(chaos.FAULTS)
    assert sum("away for" in line for line in said) == len(hits)


def test_what_came_late_or_before_the_fire_is_counted_so():
    outcome = chaos.Outcome(bound_s=1.0)
    outcome.count([Watch([(1.0, 9.0), (5.0, 0.5), (6.0, None), (7.0, 1.5)])], since_s=2.0)
    assert (outcome.within, outcome.epochs, outcome.longest_s) == (1, 2, 1.5)
    assert outcome.availability == 0.5


def test_what_was_due_and_has_not_come_is_not_available():
    """Of two that are open one has been due for longer than the bound."""
    outcome = chaos.Outcome(bound_s=1.0)
    outcome.count([Watch([(5.0, 0.5)])], since_s=2.0, open_s=[6.0, 9.5], now_s=10.0)
    assert (outcome.within, outcome.missing, outcome.epochs) == (1, 1, 2)
    assert (outcome.availability, outcome.longest_s) == (0.5, 4.0)
    assert "the latest after 4.0 s, and 1 not at all" in command.words(outcome, {})


def test_a_fire_that_is_broken_off_counts_what_it_owes(
    shop: ub.Query, monkeypatch: pytest.MonkeyPatch
):
    """As after Ctrl-C: results had stopped, and the epochs that came say nothing of it."""
    monkeypatch.setattr(chaos, "WARM_OUTPUTS", 2)
    cluster = Hand()

    def stops(kind: str, process: str) -> None:
        cluster.open_s = [time.time() - 7.0]
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster, "hit", stops)
    fire: Any = chaos.Chaos(
        cluster,  # type: ignore[arg-type]
        MadeUp(shop, rate=100), faults=chaos.FAULTS, length_s=9.0, bound_s=3.0, seed=3,
        say=lambda text: None,
    )  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        fire.run()
    assert fire.outcome.missing == 1
    assert fire.outcome.availability < 1.0
    assert fire.outcome.longest_s >= 7.0


def test_epochs_are_open_until_the_slowest_sink_has_them(shop: ub.Query):
    """For each sink those that it has not had, with the time when they were due."""
    cluster = chaos.UnderFire(MadeUp(shop, rate=100), None, 1)
    cluster._due_s = {4: 40.0, 5: 50.0, 6: 60.0}
    cluster._sinks = {"a": SimpleNamespace(next=6), "b": SimpleNamespace(next=5)}  # type: ignore[dict-item]
    assert cluster.open_s == [60.0, 50.0, 60.0]


def test_rows_by_chance_fit_the_schema_and_are_the_same_again(shop: ub.Query):
    first, again = (MadeUp(shop, rate=500, seed=1).tables(4, due_s=9.0)["sales"] for _ in "12")
    assert first == again
    assert first.schema == shop.sources["sales"].schema
    assert first.num_rows == 50
    assert len(set(first["item"].to_pylist())) > 5
    assert first != MadeUp(shop, rate=500, seed=2).tables(4, due_s=9.0)["sales"]


def gaps(*epochs: Epoch, forgets: bool) -> Difference:
    """What of three epochs with the same rows is not excused."""
    return compare.untold([TABLE] * 3, epochs, forgets=forgets)


def test_a_gap_excuses_itself_and_with_state_what_follows():
    """Nothing else: not what came before it, not an epoch that comes twice, or never."""
    one, wrong = Epoch.of("s", 0, TABLE), Epoch.of("s", 0, TABLE.slice(1))
    gap = Epoch.gap("s", 1, TABLE.schema, lost=3).with_header(gaps_total=1)
    behind = Epoch.of("s", 2, TABLE).with_header(gaps_total=1)
    other = Epoch.of("s", 2, pa.table({"n": [1, 2, 9]})).with_header(gaps_total=1)
    for forgets in (False, True):
        assert gaps(one, gap, behind, forgets=forgets) == Difference()
        assert gaps(wrong, gap, behind, forgets=forgets) == Difference(lost=1)
        assert gaps(one, gap, behind, behind, forgets=forgets) == Difference(repeated=3)
        assert gaps(one, gap, forgets=forgets) == Difference(lost=3)
    assert gaps(one, gap, other, forgets=False) == Difference(wrong=1)
    assert gaps(one, gap, other, forgets=True) == Difference()


def test_what_was_made_of_a_gap_says_so():
    """Behind a gap fragment an epoch has rows of its own; by its header more is lost."""
    made = Epoch.of("s", 1, TABLE.slice(2)).with_header(gaps_total=1)
    last = Epoch.of("s", 2, TABLE.slice(1)).with_header(gaps_total=1)
    assert gaps(Epoch.of("s", 0, TABLE), made, last, forgets=False) == Difference(lost=1)


def test_a_precise_sink_that_differs_is_told_and_a_gap_is_blamed_for_what_it_does_not_tell():
    outcome = chaos.Outcome(
        3.0,
        differences=dict.fromkeys("abcd", Difference(lost=5, wrong=2)),
        untold={"a": Difference(), "b": Difference(), "c": Difference(repeated=4)},
    )
    promised = {
        "a": Recovery.PRECISE, "b": Recovery.GAP, "c": Recovery.GAP, "d": Recovery.DIVERGENT
    }  # fmt: skip
    assert command.broken(outcome, promised) == ["a", "c"]
    told = command.words(outcome, promised).splitlines()
    assert "a: 5 rows lost, 0 repeated, 2 wrong" in told[1]
    assert told[1].endswith("precise: NOT AS PROMISED")
    assert told[2].endswith("gap: as promised")
    assert told[3].endswith("gap: NOT AS PROMISED, 4 rows differ where no gap is told")
    assert told[4].endswith("divergent: as promised")


def test_help_says_who_is_hit(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(("chaos", "--help"))
    told = capsys.readouterr().out
    assert "Nodes are hit, and the control plane" in told
    assert "Never the\nkeeper: it takes the rows in" in told


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("nowhere.py",), "nowhere.py: no such file"),
        (("till.py", "--faults", "kill,flood"), "'flood' is unknown"),
        (("till.py", "--nodes", "1"), "fragment 'copy' wants 2 nodes"),
        (("till.py", "--source", "x=sales.csv"), "no source 'x'"),
    ],
)
def test_errors_are_told_before_anything_is_started(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...], what: str,
):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("unbroken.cli.main._end_on_sigterm", lambda: None)
    monkeypatch.delitem(sys.modules, "till", raising=False)
    monkeypatch.setattr(command, "explain", lambda query: pytest.fail("Spark was started"))
    Path("till.py").write_text(QUERY)
    assert main(("chaos", *arguments)) == 2
    assert what in capsys.readouterr().err


def test_a_length_of_time_is_asked_for(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(("chaos", "till.py", "--for", "long"))
    assert "'long' is not a length of time" in capsys.readouterr().err


def test_the_outcome_is_json():
    outcome = chaos.Outcome(3.0, [chaos.Hit("kill", "node-1", 1.0, 2.0)], differences={})
    assert json.loads(json.dumps(outcome.to_json()))["hits"][0]["process"] == "node-1"


def test_faults_that_were_asked_for_and_did_not_happen_are_named():
    """Nobody must take a quiet run for one that survived everything."""
    hits = [chaos.Hit("pause", "node-2", at_s=1.9, away_s=4.0, gap_s=0.5)]
    told = command.words(chaos.Outcome(3.0, hits=hits), {}, ("kill", "pause")).splitlines()
    assert told[0].endswith("output gap 0.50 s, not whole again before the end")
    assert told[1] == "0 kills, 1 pause"
    assert told[2].startswith("no kill happened: ")
    assert "happened" not in command.words(chaos.Outcome(3.0, hits=hits), {}, ("pause",))
