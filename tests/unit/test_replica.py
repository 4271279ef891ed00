"""What a replica may start from."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from unbroken.engine.source import AHEAD
from unbroken.epochs import Epoch
from unbroken.errors import CheckpointLost
from unbroken.gate import Gate
from unbroken.node import lines
from unbroken.node.replica import Replica
from unbroken.policies import Active, Gap, Passive, Policy
from unbroken.policies.traits import OperatorClass
from unbroken.tentative.branch import Bound

SAME, OTHER = OperatorClass.DETERMINISTIC, OperatorClass.ARBITRARY


class Begun(Exception):
    """It would start Spark now."""


class Young:
    """A book of streams that have all their epochs still."""

    def wait_for(self, stream: str, timeout_s: float) -> dict[str, int]:
        return {"first": 0, "next": 9}


HOLE = Epoch.gap("a", 51, pa.schema({"n": pa.int64()}), lost=7, fingerprint="", sealed_us=0)
FIRST, LATER = (Epoch.of("a", number, pa.table({"n": [1]})) for number in (0, 58))


def start(folder: Path, policy: Policy, kind: OperatorClass, said: Epoch | None) -> None:
    """Starts a replica that has no checkpoint, but has `said` something."""
    fragment: Any = SimpleNamespace(
        name="a", policy=policy, inputs=["clicks"], where="query.py:1", bound=None
    )
    known: Any = SimpleNamespace(
        traits=SimpleNamespace(operator_class=kind), notes_watermarks=False, fingerprint=""
    )
    book: Any = Young()
    replica = Replica(fragment, folder, book, known, name="a@node-1")
    if said is not None:
        replica.log.start_at(said.number)
        replica.log.append(said)

    def plan(term: int) -> Any:
        raise Begun

    replica.start(plan)


@pytest.mark.parametrize(
    ("policy", "kind", "said"),
    [(Gap(), SAME, HOLE), (Gap(), SAME, LATER), (Passive(), OTHER, FIRST)],
    ids=["hole", "after a hole", "held back"],
)
def test_what_would_not_be_the_same_again_is_not_begun_again(
    tmp_path: Path, policy: Policy, kind: OperatorClass, said: Epoch
):
    """Its inputs have everything from epoch 0, but what it made of them was shown already.

    A gap fragment that died before its first commit has a hole there; an arbitrary one draws again.
    """
    with pytest.raises(CheckpointLost, match=r"no checkpoint .* would not be the same again"):
        start(tmp_path, policy, kind, said)


@pytest.mark.parametrize(
    ("policy", "kind", "said"),
    [
        (Gap(), SAME, None),
        (Gap(), SAME, FIRST),
        (Passive(), OTHER, None),
        (Passive(), SAME, FIRST),
        (Active(), SAME, FIRST),
    ],
)
def test_what_nobody_saw_or_will_be_the_same_is_begun_again(
    tmp_path: Path, policy: Policy, kind: OperatorClass, said: Epoch | None
):
    """Epochs that are there already are compared, and dropped."""
    with pytest.raises(Begun):
        start(tmp_path, policy, kind, said)


class Waits:
    """Inputs of which epoch 8 of one has come."""

    error = None
    refused: tuple[str, ...] = ()

    def epoch(self, stream: str, number: int) -> Epoch:
        return Epoch.of(stream, number, pa.table({"n": [number]}))

    def done(self, number: int) -> None: ...


INPUTS = ["east", "west"]


def asked(folder: Path, kind: OperatorClass, bound: Any = None) -> tuple[Replica, Gate]:
    """A replica of two inputs that Spark asks what comes after epoch 7, without a Spark."""
    fragment: Any = SimpleNamespace(
        name="a", policy=Active(), inputs=INPUTS, where="query.py:1", bound=bound
    )
    known: Any = SimpleNamespace(
        traits=SimpleNamespace(operator_class=kind), notes_watermarks=False, fingerprint="",
        watermarks=(),
    )  # fmt: skip
    book: Any = Young()
    replica, gate = (
        Replica(fragment, folder, book, known, name="a@node-1"),
        Gate(INPUTS, committed=7),
    )
    replica._gate, replica._inputs, replica.term, replica._restored = gate, Waits(), 1, True
    replica._run = SimpleNamespace(failure=lambda: None)  # type: ignore[assignment]
    return replica, gate


def test_a_commit_is_noted_once_when_the_readers_of_two_inputs_ask_at_the_same_time(tmp_path: Path):
    """Found: each plans ahead in a process of its own, and both brought the news at once."""
    replica, gate = asked(tmp_path, SAME)
    noted, both = [], threading.Barrier(2)

    def save_watermarks(epoch: int) -> None:
        noted.append(epoch)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.5)  # The other one would come here too.

    replica._run = SimpleNamespace(  # type: ignore[assignment]
        failure=lambda: None, save_watermarks=save_watermarks
    )
    arrived = replica._arrived(gate)
    for stream in INPUTS:
        arrived(stream, 8)
    assert all(replica.ask(stream, 7, 1, rows=True) is not None for stream in INPUTS)
    askers = [
        threading.Thread(
            target=replica.ask, args=(stream, 8, 1), kwargs={"rows": True, "ahead": True}
        )
        for stream in INPUTS
    ]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(20)
    assert (noted, gate.committed) == ([8], 8)


@pytest.mark.parametrize(
    ("kind", "bound", "ahead"),
    [(SAME, None, True), (OTHER, None, False), (SAME, Bound(60.0), True)],
    ids=["plain", "looks at the clock", "may go on without an input"],
)
def test_who_may_plan_an_epoch_that_has_not_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: OperatorClass, bound: Any, ahead: bool
):
    """Its number is known; but Spark's clock stands from there on.

    Whoever may is told at once, also on an input that has come: all inputs go on together.
    """
    monkeypatch.setattr(lines, "POLL_S", 0.05)
    replica, gate = asked(tmp_path, kind, bound)
    arrived = replica._arrived(gate)
    arrived("east", 8)
    for stream in INPUTS:
        assert replica.ask(stream, 7, 1, rows=True, ahead=True) is (AHEAD if ahead else None)
        assert replica.ask(stream, 7, 1, rows=True) is None, "whoever needs the rows waits"
    assert gate.released == 7
    arrived("west", 8)
    for stream in INPUTS:
        table = replica.ask(stream, 7, 1, rows=True)
        assert table is not None
        assert Epoch.from_stamped(table).number == gate.released == 8
