"""The control plane without its processes: beats in, orders out, everything on record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from unbroken.control.intentions import KEEPER, Producer, Standing, Step
from unbroken.errors import DiskError, UnbrokenError
from unbroken.node import setup
from unbroken.node.control import Control
from unbroken.node.life import Life
from unbroken.policies import Active, Gap
from unbroken.query import Query

CLICKS = Producer("clicks", KEEPER)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A cluster with one gap fragment, on node-1."""
    query = Query("shop")
    clicks = query.source("clicks", "n BIGINT")

    @query.fragment(clicks, policy=Gap())
    def totals(clicks: Any) -> Any:
        return clicks

    query.sink(totals)
    told = setup.Setup(
        query="shop", placement={"totals": ["node-1"]}, entry="grpc://127.0.0.1:1",
        control="grpc://127.0.0.1:0", manual=True,
    )  # fmt: skip
    setup.save(tmp_path, query, told)
    return tmp_path


class Held(Control):
    """Control whose clock and whose messages are in the hands of a test."""

    beats = 0

    def beat(
        self, node: str, *, state: str = setup.RUNNING, life: int = 1, beat: int = 0,
        **running: int,
    ) -> dict[str, Any]:  # fmt: skip
        replicas = {name: {"epoch": epoch, "failed": ""} for name, epoch in running.items()}
        self.beats += 1
        return self._beat(
            {"node": node, "address": f"grpc://{node}-{life}", "state": state, "life": life,
             "beat": beat or self.beats, "replicas": replicas, "lost": [], "full": {}}
        )  # fmt: skip

    def dead(self, node: str) -> None:
        self._repairs.dead(node)
        self._running.discard(node)

    def to(self, step: Step) -> None:
        """As far as `step`; producers confirm at once."""
        for now_s in range(1, 9):
            self._decide(float(now_s))
            repair = self._repairs.under_way.get("totals")
            if repair is not None and repair.step is step:
                return
            for action in self._repairs.actions:
                self._repairs.confirmed("totals", action.intention.term, CLICKS)
        raise AssertionError(self._repairs.sentences)


def test_s13_a_hole_overtakes_whom_it_replaces_also_after_a_restart(folder: Path):
    """The successor records it, dies, and control with it; the first node comes back."""
    control = Held(folder)
    hole = {"do": "hole", "stream": "totals", "first": 51, "last": 57}
    try:
        assert control.beat("node-1", totals=50)["run"] == ["totals"]
        control.beat("node-2")
        control.dead("node-1")
        control.to(Step.SHIP)
        assert control.beat("node-2")["rebuild"] == {"totals": "totals@node-1"}
        for node in ("node-1", "node-3"):
            with pytest.raises(UnbrokenError, match="is not asked to start it empty"):
                control.holes.record({**hole, "node": node})
        assert control._store.holes("totals") == []
        assert control.holes.record({**hole, "node": "node-2"}) == {"first": 51, "last": 57}
        again = control.holes.record({**hole, "node": "node-2", "last": 60})
        assert again == {"first": 51, "last": 57}
        control.dead("node-2")
        assert control.beat("node-1", state="reading plans")["run"] == []
    finally:
        control.door.close()
        control._store.close()
    control = Held(folder)
    try:
        assert control.beat("node-1", state="reading plans")["run"] == []
        assert control.beat("node-1", totals=50)["run"] == [], "frozen: it says that it runs"
        control.dead("node-2")
        control.to(Step.SHIP)
        assert control.beat("node-1")["rebuild"] == {"totals": "totals@node-1"}
    finally:
        control.door.close()
        control._store.close()


@pytest.fixture
def control(folder: Path) -> Iterator[Held]:
    made = Held(folder)
    yield made
    made.door.close()
    made._store.close()


def test_a_late_beat_of_an_older_life_changes_nothing(control: Held):
    """Its address refuses connections: believed, it would have the node declared dead."""
    control.beat("node-1", life=3, beat=41, totals=50)
    control.beat("node-1", life=4, beat=1)
    assert control.beat("node-1", life=3, beat=42, totals=51) == {"over": 4}
    assert control._members["node-1"].address == "grpc://node-1-4"
    assert control._members["node-1"].epochs == {}


def test_a_beat_that_comes_twice_is_answered_and_says_nothing_new(control: Held):
    """The node has gone on since; what it said first is not true any more."""
    control.beat("node-1", beat=7, totals=50)
    control.beat("node-1", beat=8, totals=60)
    assert control.beat("node-1", beat=7, totals=50)["run"] == ["totals"]
    assert control._members["node-1"].epochs == {"totals": 60}


def test_a_life_whose_door_refused_connections_is_over(control: Held, tmp_path: Path):
    """Also while no later one was heard of; one that lost its count takes a higher number."""
    control.beat("node-1", life=3, totals=50)
    control.tick(100.0, {"node-1": "grpc://node-1-3"})
    assert "node-1" not in control._members
    told = control.beat("node-1", life=3, beat=99, totals=51)
    assert (told, "node-1" in control._members) == ({"over": 3}, False)
    life = Life(tmp_path / "a new disk")
    assert life.is_over(control.beat("node-1", life=life.number))
    assert control.beat("node-1", life=life.number)["run"] == ["totals"]
    assert control._members["node-1"].address == "grpc://node-1-4"


def test_s13_who_stands_alone_overtakes_the_one_before_it_hole_or_not(control: Held):
    """Consumers promise to take nothing more from that one: it must not go on where it was."""
    alone = {"do": "alone", "stream": "totals"}
    control.beat("node-1", totals=50)
    control.beat("node-2")
    control.dead("node-1")
    control.to(Step.SHIP)
    term = control._repairs.under_way["totals"].term
    with pytest.raises(UnbrokenError, match="is not asked to start it empty"):
        control.holes.alone({**alone, "node": "node-1"})
    assert control.holes.alone({**alone, "node": "node-2"}) == {"term": term, "holes": []}
    assert control._store.overtaken() == {("totals", "node-1")}
    control.dead("node-2")
    assert control.beat("node-1", totals=50)["run"] == []
    control.to(Step.SHIP)
    assert control.holes.alone({**alone, "node": "node-1"})["term"] > term


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[Held]:
    """A gap fragment on node-1, read by two copies of another one, on node-2 and node-3."""
    query = Query("shop")
    clicks = query.source("clicks", "n BIGINT")
    totals = query.fragment(clicks, policy=Gap())(lambda clicks: clicks, name="totals")
    pairs = query.fragment(totals, policy=Active(replicas=2))(lambda totals: totals, name="pairs")
    query.sink(pairs)
    told = setup.Setup(
        query="shop", placement={"totals": ["node-1"], "pairs": ["node-2", "node-3"]},
        entry="grpc://127.0.0.1:1", control="grpc://127.0.0.1:0", manual=True,
    )  # fmt: skip
    setup.save(tmp_path, query, told)
    made = Held(tmp_path)
    made.beat("node-1", totals=50)
    made.beat("node-2", pairs=49)
    made.beat("node-3", pairs=48)
    yield made
    made.door.close()
    made._store.close()


def test_s13_a_copy_that_is_gone_while_another_serves_is_not_waited_for_and_replaced(behind: Held):
    """Without a spare node nobody would ever take its place.

    It may have what the hole says is lost: when it is back it is taken from the one that went on.
    """
    behind.dead("node-3")
    behind.dead("node-1")
    behind.to(Step.SHIP)
    assert behind.holes.not_asking({"stream": "totals"}) == {
        "waiting": [], "replaced": ["pairs@node-3"]
    }  # fmt: skip
    hole = {"stream": "totals", "node": "node-2", "first": 50, "last": 57}
    behind.holes.record({**hole, "replaced": ["pairs@node-3"]})
    assert behind._store.overtaken() == {("totals", "node-1"), ("pairs", "node-3")}
    assert behind.beat("node-3", state="reading plans")["run"] == []
    behind.beat("node-3")
    for now_s in range(10, 14):
        behind.beat("node-2", totals=58, pairs=58)
        behind._decide(float(now_s))
    repair = behind._repairs.under_way["pairs"]
    assert (repair.node, repair.survivor, repair.replaces) == ("node-3", "node-2", "node-3")


def test_s13_a_copy_that_is_back_before_the_hole_is_recorded_is_asked(behind: Held):
    """It runs already, and may be further than where the hole would begin."""
    behind.dead("node-3")
    behind.dead("node-1")
    behind.to(Step.SHIP)
    behind.beat("node-3", pairs=50)
    hole = {"stream": "totals", "node": "node-2", "first": 50, "last": 57}
    with pytest.raises(UnbrokenError, match="pairs@node-3 is back"):
        behind.holes.record({**hole, "replaced": ["pairs@node-3"]})
    assert behind._store.holes("totals") == []
    assert behind.holes.not_asking({"stream": "totals"}) == {"waiting": [], "replaced": []}


def test_s13_the_last_copy_is_waited_for(behind: Held):
    """Nobody goes on in its place: what it has counts."""
    for node in ("node-2", "node-3", "node-1"):
        behind.dead(node)
    behind.beat("node-4")
    behind.to(Step.SHIP)
    assert behind.holes.not_asking({"stream": "totals"}) == {"waiting": [], "replaced": []}


def test_s29_one_that_is_back_while_the_disk_is_full_is_recorded_when_there_is_room(
    control: Held, monkeypatch: pytest.MonkeyPatch
):
    """Found: it was live, and on record as gone for ever: a restart would have replaced it."""

    def full(*given: object) -> None:
        raise DiskError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(control._store, "stand", full)
        with pytest.raises(DiskError):
            control.beat("node-1", totals=50)
    assert control._store.placement()["totals"][0].standing is Standing.STARTING
    control.beat("node-1", totals=51)
    assert control._store.placement()["totals"][0].standing is Standing.LIVE


def test_a_newcomer_that_was_started_again_unnoticed_is_given_another_term(control: Held):
    """Control was frozen while its node died: what that one acked is not true of the next."""
    control.beat("node-1", life=1, totals=50)
    control.beat("node-2", life=1)
    control.dead("node-1")
    control.to(Step.SHIP)
    told = control.beat("node-2", life=1)
    assert told["rebuild"] == {"totals": "totals@node-1"}
    assert control.beat("node-2", life=2)["rebuild"] == {}
    control.to(Step.SHIP)
    again = control.beat("node-2", life=2)
    assert again["rebuild"] == told["rebuild"]
    assert again["placed"]["totals"] > told["placed"]["totals"]
