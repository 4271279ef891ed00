"""What happens to a fragment happens beside the beat, one thing at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from unbroken.errors import UnbrokenError
from unbroken.node.hosted import Hosted
from unbroken.policies import Passive
from unbroken.policies.traits import OperatorClass
from unbroken.streams.flight import Door


@pytest.fixture
def hosted(tmp_path: Path) -> Iterator[Hosted]:
    nothing: Any = None
    with Door() as door:
        yield Hosted("node-1", tmp_path, nothing, nothing, door, nothing, nothing, lambda: None)


class Slow:
    """Something that takes as long as it is told to."""

    def __init__(self, *, fails: bool = False) -> None:
        self.begun, self.may_end, self.calls = threading.Event(), threading.Event(), 0
        self._fails = fails

    def start(self, name: str) -> None:
        self.calls += 1
        self.begun.set()
        assert self.may_end.wait(10)
        if self._fails:
            raise UnbrokenError("no")


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
    slow = Slow(fails=True)
    slow.may_end.set()
    hosted.apart("a", slow.start)
    ended(hosted, "a")
    assert hosted.lost == {"a"}
    assert "a cannot be started: no" in capsys.readouterr().err
    assert hosted.beat()["lost"] == ["a"]


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
