"""What happens to a fragment happens beside the beat, one thing at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from unbroken.epochs import Epoch
from unbroken.errors import CheckpointLost, DiskError, FragmentFailed, UnbrokenError, Unreachable
from unbroken.gate import Gate
from unbroken.node.hosted import Hosted
from unbroken.node.replica import Replica
from unbroken.policies import Gap, Passive
from unbroken.policies.past import Marks, Seed
from unbroken.policies.traits import OperatorClass
from unbroken.streams.flight import Door
from unbroken.streams.log import EpochLog
from unbroken.streams.served import Served


@pytest.fixture
def hosted(tmp_path: Path) -> Iterator[Hosted]:
    nothing: Any = None
    with Door() as door:
        yield Hosted("node-1", tmp_path, nothing, nothing, door, nothing, nothing, lambda: None)


class Slow:
    """Something that takes as long as it is told to."""

    def __init__(self, *, fails: Exception | None = None) -> None:
        self.begun, self.may_end, self.calls = threading.Event(), threading.Event(), 0
        self._fails = fails

    def start(self, name: str) -> None:
        self.calls += 1
        self.begun.set()
        assert self.may_end.wait(10)
        if self._fails is not None:
            raise self._fails


def ended(hosted: Hosted, name: str) -> None:
    """Waits until nothing is being done about `name` any more."""
    for thread in threading.enumerate():
        if thread.name.endswith(f"-{name}"):
            thread.join(10)
    assert name not in hosted.under_way


def test_whoever_beats_does_not_wait_and_what_finds_it_busy_is_left_out(hosted: Hosted):
    """Control says it anew; another fragment is not held up."""
    slow, other = Slow(), Slow()
    hosted.apart("a", slow.start)
    assert slow.begun.wait(10)
    hosted.apart("a", slow.start)
    hosted.apart("b", other.start)
    assert other.begun.wait(10)
    assert hosted.under_way == {"a": "about to start a", "b": "about to start b"}
    for each in (slow, other):
        each.may_end.set()
    ended(hosted, "a")
    ended(hosted, "b")
    assert (slow.calls, hosted.lost) == (1, set())
    hosted.apart("a", slow.start)
    ended(hosted, "a")
    assert slow.calls == 2


def test_what_cannot_be_started_is_told_to_control(hosted: Hosted, capsys):
    """It has to be taken from another node."""
    slow = Slow(fails=UnbrokenError("no"))
    slow.may_end.set()
    hosted.apart("a", slow.start)
    ended(hosted, "a")
    assert hosted.lost == {"a"}
    assert "a cannot be started: no" in capsys.readouterr().err
    assert hosted.beat()["lost"] == ["a"]


def test_a_mistake_leaves_nothing_half_started(hosted: Hosted, capsys):
    """Whatever Spark raises: it would stand still for ever, and nobody would know why."""
    hosted.replicas["a"] = stopped = FakeReplica()  # type: ignore[assignment]
    slow = Slow(fails=RuntimeError("of py4j"))
    slow.may_end.set()
    hosted.apart("a", slow.start)
    ended(hosted, "a")
    assert (stopped.stopped, hosted.replicas, hosted.lost) == (True, {}, set())
    assert hosted.beat()["troubles"] == {"a": "a cannot be started: RuntimeError of py4j"}
    assert "Traceback" in capsys.readouterr().err
    assert hosted.may_begin("a"), "control says it again, and the first time at once"


class FakeReplica:
    """One that can be stopped."""

    stopped = False

    def stop(self) -> None:
        self.stopped = True


def test_s29_a_full_disk_is_no_loss_and_is_tried_again_with_growing_pauses(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
):
    """What it has is as good as before; `status` says why it does not run."""
    now_s = 100.0
    clock: Any = SimpleNamespace(monotonic=lambda: now_s)
    monkeypatch.setattr("unbroken.node.beginnings.time", clock)
    full = Slow(fails=DiskError("cannot write x: no space left", hint="free some room there"))
    full.may_end.set()
    tried: list[float] = []
    while now_s < 120.0:
        if hosted.may_begin("a"):
            hosted.apart("a", full.start)
            ended(hosted, "a")
            tried.append(now_s - 100.0)
        now_s += 0.25
    assert tried == [0.0, 0.25, 2.25, 6.25, 14.25], "once at once, then twice as late each time"
    assert (hosted.lost, hosted.beat()["lost"]) == (set(), [])
    why = "a cannot be started: cannot write x: no space left"
    assert (hosted.beat()["troubles"], hosted.report()["joining"]) == ({"a": why}, {"a": why})
    hosted._succeeded("a")
    assert hosted.may_begin("a")
    assert hosted.beat()["troubles"] == {}


def test_s29_a_disk_is_full_when_a_replica_goes_on_from_what_it_left(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
):
    """A node that starts on a full disk does not end because of that: it waits for room."""
    room = False
    started: list[str] = []

    def start(replica: Any) -> None:
        if not room:
            raise DiskError("cannot write x: no space left")
        started.append("a")

    monkeypatch.setattr(hosted, "_serve", lambda name, consumers: None)
    monkeypatch.setattr(hosted, "_start", start)
    hosted.run("a", [])
    assert (list(hosted._tries.troubles), hosted.lost, started) == (["a"], set(), [])
    room = True
    hosted.run("a", [])
    assert (list(hosted._tries.troubles), started) == ([], ["a"])


def test_what_was_of_no_use_is_no_longer_said_to_be_when_it_is_held_or_forgotten(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
):
    """A writer that woke up replaced, its inputs trimmed meanwhile, becomes a standby: if it still
    said that its checkpoint is lost, control would replace it for ever."""
    fragment = SimpleNamespace(policy=Passive())
    plan = SimpleNamespace(traits=SimpleNamespace(operator_class=OperatorClass.DETERMINISTIC))
    monkeypatch.setattr(hosted, "_query", SimpleNamespace(fragments={"a": fragment}))
    monkeypatch.setattr(hosted, "_plans", {"a": plan})
    monkeypatch.setattr(hosted, "_serve", lambda name, consumers: None)
    monkeypatch.setattr(hosted, "_plan_for", lambda name, key="": None)
    begun: list[str] = []
    standby = SimpleNamespace(begin=lambda: begun.append("a"), ready=False)
    monkeypatch.setattr("unbroken.node.hosted.Standby", lambda *_, **__: standby)
    hosted.lost |= {"a", "b"}
    hosted.hold("a", "grpc://127.0.0.1:1", [])
    assert (begun, hosted.beat()["lost"]) == (["a"], ["b"])
    hosted.forget("b")
    ended(hosted, "b")
    assert hosted.beat()["lost"] == []


def test_what_has_begun_meanwhile_is_not_forgotten(hosted: Hosted):
    hosted.folder("a").mkdir(parents=True)
    fake: Any = FakeReplica()
    hosted.replicas["a"] = fake
    hosted._forget("a")
    assert hosted.folder("a").exists()
    del hosted.replicas["a"]
    hosted._forget("a")
    assert not hosted.folder("a").exists()


def test_forgetting_waits_for_nobody_and_removes_nothing_that_is_used(hosted: Hosted):
    """Of a fragment that is being taken at this moment, nothing is removed."""
    folder = hosted.folder("a")
    folder.mkdir(parents=True)
    slow = Slow()
    hosted.apart("a", slow.start)
    assert slow.begun.wait(10)
    hosted.forget("a")
    slow.may_end.set()
    ended(hosted, "a")
    assert folder.exists()
    hosted.forget("a")
    ended(hosted, "a")
    assert not folder.exists()


SEED = Seed(first=6, speak=6, marks=Marks(0, (0,)))


def a_replica(folder: Path) -> Replica:
    """One of a gap fragment, which never gets as far as to ask Spark for anything."""
    plan: Any = SimpleNamespace(
        traits=SimpleNamespace(operator_class=OperatorClass.DETERMINISTIC), notes_watermarks=False
    )
    fragment: Any = SimpleNamespace(name="a", policy=Gap(), inputs=["rows"], bound=None)
    nothing: Any = None
    return Replica(fragment, folder, nothing, plan, name="a@node-1")


def test_one_that_was_rebuilt_and_stumbles_before_it_has_spoken_begins_again_where_it_began(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
):
    """Spark's Python came too late for a successor behind a hole, so there is no checkpoint: begun
    at epoch 0 it would compute again what is on record as lost."""
    first = a_replica(hosted.folder("a"))
    first._seed = SEED
    served = Served(first.log, ["b@node-2"], keep=0)
    hosted.streams.streams["a"] = served
    served.begin(6)  # Without state nothing is given up, and the log is empty.
    monkeypatch.setattr(hosted, "_serve", lambda name, consumers: a_replica(hosted.folder(name)))
    started: list[tuple[int, Any]] = []
    monkeypatch.setattr(
        hosted, "_start", lambda replica, **how: started.append((replica.log.next, how))
    )
    hosted._start_again("a", first)
    assert started == [(6, {"seed": SEED})]
    assert hosted.streams.streams == {}, "nobody else notes or trims there"
    with pytest.raises(Unreachable):
        served.ack("b@node-2", term=1, processed=1, need=2)
    # When it has spoken, its checkpoint says where to go on.
    hosted.streams.streams["a"] = Served(first.log, ["b@node-2"], keep=0)
    first._gate = Gate(["rows"], committed=6)
    hosted._start_again("a", first)
    assert started[1:] == [(0, {})]


def test_a_hole_without_a_checkpoint_behind_it_is_nothing_to_go_on_from(tmp_path: Path):
    """Scenario: the successor's node dies before its first commit, and starts again."""
    schema = pa.schema([("k", pa.int32())])
    log = EpochLog(tmp_path / "output", "a")
    log.append(Epoch.gap("a", 0, schema, lost=3, fingerprint="f", sealed_us=1))
    with pytest.raises(CheckpointLost, match="would not be the same again"):
        a_replica(tmp_path).start(lambda term: pytest.fail("a query was started"))


def test_what_a_gap_has_lost_is_told_to_those_who_read_behind_it(tmp_path: Path):
    """A fragment takes a gap as an empty epoch; nobody could tell it from a quiet one."""
    schema = pa.schema([("k", pa.int32())])
    replica = a_replica(tmp_path)
    plan: Any = SimpleNamespace(event_time=None, fingerprint="f")
    inputs: Any = SimpleNamespace(
        epoch=lambda name, number: Epoch.gap(name, number, schema, lost=7)
    )
    replica._plan, replica._inputs = plan, inputs
    replica._gate = Gate(["rows"], committed=-1)
    replica._gate.offer("rows", 0)
    assert replica._gate.asked(after=-1) == 0
    replica._seal(0, schema.empty_table(), "digest")
    assert (replica.log.header(0).kind, replica.log.header(0).lost) == ("stable", 7)


def test_nobody_waits_for_a_fragment_that_has_stumbled(tmp_path: Path):
    """A node that starts a dozen fragments starts those that stumbled again afterwards: it would
    wait for minutes otherwise, for each of them."""
    replica = a_replica(tmp_path)
    late = FragmentFailed("Python came late")
    late.passing = True
    run: Any = SimpleNamespace(failure=lambda: late)
    replica._run = run
    began_s = time.monotonic()
    replica.wait_asked(timeout_s=60.0)
    assert time.monotonic() - began_s < 30.0
    assert (replica.stumbled, replica.failed) == ("Python came late", "")


def test_one_that_is_stopped_to_be_started_again_is_not_taken_for_failed(tmp_path: Path):
    """Whoever asks for its state in that moment gets one answer: a query that was stopped says
    nothing any more, and what it said before must not count as the whole of it."""
    replica = a_replica(tmp_path)
    late = FragmentFailed("Python came late")
    late.passing = True
    answers = iter([late, None])
    run: Any = SimpleNamespace(failure=lambda: next(answers))
    replica._run = run
    assert replica.failed == ""


def test_one_that_runs_is_placed_anew_and_one_that_is_about_to_end_is_not(hosted: Hosted):
    """What a life that ends has promised is not true of whoever begins after it."""
    runs, ends, held = (SimpleNamespace(placed=5) for _ in range(3))
    hosted.replicas = {"a": runs, "b": ends}  # type: ignore[dict-item]
    hosted.standbys = {"c": SimpleNamespace(replica=held)}  # type: ignore[dict-item]
    slow = Slow()
    hosted.apart("b", slow.start)
    assert slow.begun.wait(10)
    hosted.place({"placed": {"a": 8, "b": 8, "c": 9}, "first": []})
    assert (runs.placed, ends.placed, held.placed) == (8, 5, 9)
    hosted.place({"placed": {}, "first": []})
    assert runs.placed == 8, "not wanted here any more: it ends as what it was"
    slow.may_end.set()
    ended(hosted, "b")
