"""A rehearsal is worth something, and never in the way."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from layers_by_hand import run_batches

from unbroken.checkpoints import fork
from unbroken.node import rehearsal


class Quiet:
    """A book of streams on which nothing comes."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def replicas(self, stream: str) -> Mapping[str, str]:
        self.asked.set()
        return {}


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    began = fork.start(tmp_path / "alerts", with_watermarks=False)
    run_batches(began.checkpoint, range(3))
    return tmp_path / "alerts"


def run(book: Quiet, shipped: Path, stop: threading.Event) -> str:
    fragment: Any = SimpleNamespace(name="alerts", inputs=["clicks"])
    known: Any = SimpleNamespace(notes_watermarks=False)
    given: Any = book

    def plan_for(key: str) -> Any:
        raise AssertionError("there is nothing to start")

    rehearsals = rehearsal.Rehearsals(shipped.parent / "rehearsals", given)
    try:
        return rehearsals.run(fragment, known, shipped, plan_for, stop)
    finally:
        assert rehearsals.running == {}
        assert list((shipped.parent / "rehearsals").glob("*")) == [], "nothing is left behind"


def test_a_take_over_does_not_wait_for_a_quiet_stream(shipped: Path):
    """Whoever takes over ends the rehearsal first."""
    stop, book = threading.Event(), Quiet()
    told: list[str] = []
    running = threading.Thread(target=lambda: told.append(run(book, shipped, stop)))
    running.start()
    assert book.asked.wait(10)
    assert running.is_alive(), "it waits for an epoch"
    stop.set()
    running.join(10)
    assert told == ["has not rehearsed: there was nothing to rehearse with"]


def test_a_quiet_stream_ends_it_in_time(shipped: Path, monkeypatch: pytest.MonkeyPatch):
    """Otherwise the query would never be held."""
    monkeypatch.setattr(rehearsal, "REHEARSE_S_MAX", 0.2)
    began_s = time.monotonic()
    assert run(Quiet(), shipped, threading.Event()).startswith("has not rehearsed")
    assert time.monotonic() - began_s > 0.2


def test_without_a_checkpoint_there_is_nothing_to_rehearse(tmp_path: Path):
    """A standby that has taken nothing yet."""
    assert run(Quiet(), tmp_path / "alerts", threading.Event()).startswith("has not rehearsed")
