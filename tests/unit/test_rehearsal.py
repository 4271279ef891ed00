"""A rehearsal is worth something, and never in the way."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from layers_by_hand import run_batches

from unbroken.checkpoints import fork
from unbroken.errors import UnbrokenError
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


def made(scratch: Path, book: object) -> rehearsal.Rehearsals:
    given: Any = book
    return rehearsal.Rehearsals(scratch, given)


def run(rehearsals: rehearsal.Rehearsals, shipped: Path, stop: threading.Event) -> int:
    fragment: Any = SimpleNamespace(name="alerts", inputs=["clicks"])
    known: Any = SimpleNamespace(notes_watermarks=False)
    return rehearsals.run(fragment, known, shipped, lambda key: key, stop)  # type: ignore


def run_quiet(book: Quiet, shipped: Path, stop: threading.Event) -> int:
    scratch = shipped.parent / "rehearsals"
    rehearsals = made(scratch, book)
    try:
        return run(rehearsals, shipped, stop)
    finally:
        assert rehearsals.running == {}
        assert list(scratch.glob("*")) == [], "nothing is left behind"


def test_a_take_over_does_not_wait_for_a_quiet_stream(shipped: Path):
    """Whoever takes over ends the rehearsal first."""
    stop, book = threading.Event(), Quiet()
    told: list[int] = []
    running = threading.Thread(target=lambda: told.append(run_quiet(book, shipped, stop)))
    running.start()
    assert book.asked.wait(10)
    assert running.is_alive(), "it waits for an epoch"
    stop.set()
    running.join(10)
    assert told == [0]


def test_a_quiet_stream_ends_it_in_time(shipped: Path, monkeypatch: pytest.MonkeyPatch):
    """Otherwise the query would never be held."""
    monkeypatch.setattr(rehearsal, "REHEARSE_S_MAX", 0.2)
    began_s = time.monotonic()
    assert run_quiet(Quiet(), shipped, threading.Event()) == 0
    assert time.monotonic() - began_s > 0.2


def test_without_a_checkpoint_there_is_nothing_to_rehearse(tmp_path: Path):
    """A standby that has taken nothing yet."""
    assert run_quiet(Quiet(), tmp_path / "alerts", threading.Event()) == 0


# With something to rehearse with; Spark is not here.


class Acting:
    """A rehearsal whose query does what a test wants."""

    all: ClassVar[list[Acting]] = []

    def __init__(self, fragment: object, folder: Path, *_: object) -> None:
        self.folder, self.key = folder, ""
        self.epochs_done, self.failed, self.stumbled = 0, "", ""
        self.began, self.stopping, self.may_stop = (threading.Event() for _ in range(3))
        Acting.all.append(self)

    def start(self, plan: str) -> None:
        self.key = plan
        (self.folder / "2").mkdir()
        self.began.set()

    def stop(self) -> None:
        self.stopping.set()
        assert self.may_stop.wait(10)


class Runs:
    """One rehearsal of `alerts` in a thread of its own."""

    def __init__(self, rehearsals: rehearsal.Rehearsals, shipped: Path) -> None:
        self.stop, self.outcome = threading.Event(), []
        self.thread = threading.Thread(target=self._run, args=(rehearsals, shipped))
        before = len(Acting.all)
        self.thread.start()
        deadline_s = time.monotonic() + 10
        while len(Acting.all) == before and time.monotonic() < deadline_s:
            time.sleep(0.01)
        self.acting = Acting.all[-1]
        assert self.acting.began.wait(10)

    def _run(self, rehearsals: rehearsal.Rehearsals, shipped: Path) -> None:
        try:
            self.outcome.append(run(rehearsals, shipped, self.stop))
        except UnbrokenError as error:
            self.outcome.append(error.what)

    def ends(self) -> object:
        self.acting.may_stop.set()
        self.thread.join(10)
        [outcome] = self.outcome
        return outcome


@pytest.fixture
def acting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> rehearsal.Rehearsals:
    monkeypatch.setattr(Acting, "all", [])
    monkeypatch.setattr(rehearsal, "Rehearsal", Acting)
    monkeypatch.setattr(rehearsal, "UNLOAD_S", 0.0)
    monkeypatch.setattr(rehearsal.Rehearsals, "_first_epochs", lambda *_: {})
    return made(tmp_path / "rehearsals", Quiet())


def test_it_ends_when_enough_epochs_have_run(acting: rehearsal.Rehearsals, shipped: Path):
    runs = Runs(acting, shipped)
    runs.acting.epochs_done = rehearsal.REHEARSE_EPOCHS
    assert runs.acting.stopping.wait(10)
    assert runs.ends() == rehearsal.REHEARSE_EPOCHS


@pytest.mark.parametrize("how", ["failed", "stumbled"])
def test_one_that_failed_was_none(acting: rehearsal.Rehearsals, shipped: Path, how: str):
    """Also if it has run some epochs: the next one may fail at once."""
    runs = Runs(acting, shipped)
    runs.acting.epochs_done = 3
    setattr(runs.acting, how, "no\n  → mend the fragment")
    assert runs.acting.stopping.wait(10)
    assert runs.ends() == "it failed after 3 epochs: no"
    assert acting.running == {}


def test_one_in_which_nothing_ran_was_none(
    acting: rehearsal.Rehearsals, shipped: Path, monkeypatch: pytest.MonkeyPatch
):
    """There was something to rehearse with, and the query did not get to it."""
    monkeypatch.setattr(rehearsal, "REHEARSE_S_MAX", 0.2)
    runs = Runs(acting, shipped)
    assert runs.acting.stopping.wait(10)
    assert runs.ends() == "no epoch ran within 0 s"


def test_a_rehearsal_that_is_still_stopping_has_nothing_in_common_with_the_next(
    acting: rehearsal.Rehearsals, shipped: Path
):
    """Nobody waited for it: the node took over, was replaced, and is a standby again."""
    first = Runs(acting, shipped)
    first.stop.set()
    assert first.acting.stopping.wait(10)
    second = Runs(acting, shipped)
    assert first.acting.key != second.acting.key
    assert {first.acting.key, second.acting.key} == set(acting.running)
    assert "alerts" not in acting.running, "that is the name of the query that goes on"
    assert first.acting.folder != second.acting.folder
    first.ends()
    assert list(acting.running) == [second.acting.key], "the first one removes itself alone"
    assert second.acting.folder.exists()
    assert not first.acting.folder.exists()
    second.stop.set()
    second.ends()
    assert acting.running == {}


def test_what_a_killed_process_left_is_removed(tmp_path: Path):
    """It holds on to layers that nobody needs."""
    left = tmp_path / "rehearsals" / "7" / "1"
    left.mkdir(parents=True)
    made(tmp_path / "rehearsals", Quiet())
    assert not left.exists()
