"""Readings of the oldest session: beside the replica, at their own pace, and never needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from layers_by_hand import run_batches

from unbroken.checkpoints.layers import Checkpoint, Commit
from unbroken.node import oldest as module
from unbroken.node.oldest import PAUSE_S_MAX, PAUSE_S_MIN, SHARE_MAX, OldestSession, Pace, reader
from unbroken.policies.sessions import Reading

WAIT_S = 10.0


def until(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., OldestSession]]:
    """Readings in quick succession, ended with the test."""
    monkeypatch.setattr(module, "PAUSE_S_MIN", 0.005)
    monkeypatch.setattr(module, "PAUSE_S_MAX", 0.02)
    made: list[OldestSession] = []

    def begin(read: Any, may_read: Callable[[], bool] = lambda: True) -> OldestSession:
        made.append(OldestSession("visits", read, may_read=may_read))
        return made[-1]

    yield begin
    for each in made:
        each.stop()


def test_a_reading_takes_a_small_share_of_the_time():
    """But for the first, for which Spark compiles what it needs."""
    pace = Pace()
    assert pace.read(took_s=8.0) == PAUSE_S_MIN
    assert pace.read(took_s=0.01) == PAUSE_S_MIN
    assert pace.read(took_s=1.5) == pytest.approx(1.5 / SHARE_MAX)
    assert pace.read(took_s=100.0) == PAUSE_S_MAX
    pauses = [pace.failed() for _ in range(9)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == PAUSE_S_MAX


def test_readings_are_taken_once_and_in_order(begun: Callable[..., OldestSession]):
    epochs = iter(range(3, 6))

    def read(after: int) -> Reading | None:
        epoch = next(epochs, None)
        assert epoch is None or epoch > after
        return None if epoch is None else Reading(epoch, epoch * 1000)

    oldest = begun(read)
    taken: list[Reading] = []

    def three() -> bool:
        taken.extend(oldest.take())
        return len(taken) >= 3

    until(three)
    assert taken == [Reading(3, 3000), Reading(4, 4000), Reading(5, 5000)]
    assert oldest.take() == []
    assert oldest.trouble == ""


def test_failures_are_told_when_they_go_on_and_forgotten_when_they_end(
    begun: Callable[..., OldestSession], capsys: pytest.CaptureFixture[str]
):
    """Spark removes layers while they are read: once is nothing to speak of."""
    broken = [False]
    epochs = iter(range(7, 100))

    def read(after: int) -> Reading | None:
        if broken[0]:
            raise FileNotFoundError("9.changelog is gone\nat …")
        return Reading(next(epochs), None)

    oldest = begun(read)
    until(oldest.take)
    broken[0] = True
    until(lambda: oldest.trouble)
    assert "could not be read since epoch" in oldest.trouble
    assert oldest.trouble.endswith("so producers keep more: 9.changelog is gone")
    assert "visits: its oldest session could not be read" in capsys.readouterr().err
    broken[0] = False
    until(lambda: not oldest.trouble)


def test_one_that_never_could_says_so(begun: Callable[..., OldestSession]):
    def read(after: int) -> Reading | None:
        raise ValueError

    oldest = begun(read)
    until(lambda: oldest.trouble)
    assert "could not be read at all" in oldest.trouble
    assert "ValueError" in oldest.trouble


def test_a_replica_that_is_mute_is_left_alone(begun: Callable[..., OldestSession]):
    speaks, asked = [False], []

    def may_read() -> bool:
        asked.append(True)
        return speaks[0]

    oldest = begun(lambda after: Reading(after + 1, None), may_read)
    until(lambda: len(asked) > 3)
    assert oldest.take() == []
    speaks[0] = True
    until(oldest.take)


def test_the_newest_commit_is_read_from_a_fork_that_goes_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Also when it cannot be read, or one was left behind by a process that was killed."""
    running, scratch = Checkpoint(tmp_path / "1"), tmp_path / "reading"
    (running.folder / "watermarks").mkdir(parents=True)
    seen: list[Commit] = []

    def told(spark: object, checkpoint: Checkpoint, at: Commit) -> int:
        assert checkpoint.folder == scratch
        assert [commit.epoch for commit in checkpoint.commits()][-1] == at.epoch
        seen.append(at)
        if len(seen) == 2:
            raise FileNotFoundError("gone")
        return 17

    monkeypatch.setattr(module, "oldest_session_ms", told)
    plan: Any = SimpleNamespace(frame=SimpleNamespace(sparkSession=None))
    read = reader(plan, running, scratch)
    assert read(-1) is None, "nothing is committed yet"
    run_batches(running, range(3))
    (scratch / "spark").mkdir(parents=True)
    assert read(-1) == Reading(102, 17)
    assert read(102) is None, "no news"
    run_batches(running, range(3, 4))
    with pytest.raises(FileNotFoundError):
        read(102)
    assert read(102) == Reading(103, 17)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1"]
