"""Forks of a checkpoint, with a folder made by hand as Spark would have written it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from layers_by_hand import BOOT, again, commit, files, plan, run_batches, work, write

from unbroken.checkpoints.fork import boot_id, forget_before, fork, park, start
from unbroken.checkpoints.layers import NOTES_KEPT, Checkpoint, Commit
from unbroken.errors import CheckpointLost, DiskError, MisalignedBatch
from unbroken.streams import disk


def test_the_first_start_is_an_empty_term(tmp_path: Path):
    """Nothing to go on from: term 1, no epoch, and no reason why something was lost."""
    began = start(tmp_path / "new" / "replica", with_watermarks=True)
    assert (began.term, began.epoch, began.lost) == (1, None, "")
    assert (began.checkpoint.folder / "boot").read_text() == boot_id()


def test_a_start_goes_on_from_the_last_commit_in_a_folder_of_its_own(replica: Path):
    """Every start is a fork; a term is never used twice."""
    first, second = again(replica), again(replica)
    assert (first.term, first.epoch) == (2, 105)
    assert (second.term, second.epoch) == (3, 105)
    assert second.checkpoint.commits()[-1] == Commit(5, 105)


def test_a_fork_has_nothing_newer_than_its_commit(replica: Path):
    """Scenarios 5 and 25: forked at batch 3, nothing of batches 4 and 5 is in it."""
    original = Checkpoint(replica / "1")
    made = fork(original, Commit(3, 103), replica / "9", boot=BOOT)
    found = files(made)
    assert {"spark/offsets/2", "spark/offsets/3", "spark/commits/3", "watermarks/103"} <= found
    assert {"spark/state/0/0/4_0a1b-2c.changelog", "spark/state/0/0/3_0a1b-2c.zip"} <= found
    assert {"spark/state/0/_metadata/v2/3", "spark/state/0/_stateSchema/default/3_0a1b-2c"} <= found
    newer = {
        f"spark/{kind}" for batch in (4, 5) for kind in (
            f"offsets/{batch}", f"commits/{batch}", f"state/0/0/{batch + 1}_0a1b-2c.changelog",
            f"state/0/1/{batch + 1}_0a1b-2c.changelog", f"state/0/0/{batch + 1}_0a1b-2c.zip",
            f"state/0/_metadata/v2/{batch}", f"state/0/_stateSchema/default/{batch}_0a1b-2c",
        )
    }  # fmt: skip
    assert not newer & found
    assert not any(Path(name).name.startswith(".") for name in found), "no checksums of Hadoop's"


def test_a_batch_that_was_planned_but_not_committed_is_left_out(replica: Path):
    """Scenario 5: Spark would repeat it behind the gate's back."""
    original = Checkpoint(replica / "1")
    plan(original, 6, 106, 106)
    work(original, 6)
    began = again(replica)
    assert began.epoch == 105
    assert "spark/offsets/6" not in files(began.checkpoint)
    assert "spark/state/0/0/7_0a1b-2c.changelog" not in files(began.checkpoint)


def test_a_commit_without_its_plan_does_not_count(replica: Path):
    """Spark removes old plans and commits one by one: half of a pair is no batch."""
    (replica / "1" / "spark" / "offsets" / "5").unlink()
    assert again(replica).epoch == 104


def test_files_that_are_not_there_yet_are_passed_over(replica: Path):
    """Names with .tmp are being written, by an orphan perhaps (scenario 27)."""
    write(replica / "1" / "spark" / "state" / "0" / "0" / ".5_0a1b-2c.zip.uuid.tmp")
    write(replica / "1" / "spark" / "state" / "0" / "0" / "5.changelog.uuid.tmp")
    assert not any(".tmp" in name for name in files(again(replica).checkpoint))


def test_a_fork_has_an_id_of_its_own(replica: Path):
    """Two queries with one id stop each other, without a word."""
    ids = {json.loads((again(replica).checkpoint.spark / "metadata").read_text())["id"]
           for _ in range(3)}  # fmt: skip
    assert len(ids) == 3
    assert "the first" not in ids


def test_layers_are_shared_and_survive_the_end_of_the_original(replica: Path):
    """Hard links: no copy is made, and deletion in the original takes nothing away."""
    began = again(replica)
    before = {
        name: (began.checkpoint.folder / name).read_text() for name in files(began.checkpoint)
    }
    layer = "spark/state/0/1/6_0a1b-2c.changelog"
    assert os.path.samefile(replica / "1" / layer, began.checkpoint.folder / layer)
    shutil.rmtree(replica / "1")
    assert {n: (began.checkpoint.folder / n).read_text() for n in before} == before


def test_what_the_fork_does_later_does_not_reach_the_original(replica: Path):
    """An own way after the fork: new batches and notes lie in one folder only."""
    began, before = again(replica), files(Checkpoint(replica / "1"))
    run_batches(began.checkpoint, range(6, 9))
    assert files(Checkpoint(replica / "1")) == before
    assert again(replica).epoch == 108


def test_with_watermarks_a_commit_counts_only_with_its_note(replica: Path):
    """Scenario 21: killed between Spark's commit and our note, the epoch is done again."""
    (replica / "1" / "watermarks" / "105").unlink()
    began = again(replica, with_watermarks=True)
    assert began.epoch == 104
    assert began.checkpoint.watermarks(104) == [4, None]


def test_without_watermarks_nobody_waits_for_a_note(replica: Path):
    """One watermark is in Spark's own checkpoint."""
    (replica / "1" / "watermarks" / "105").unlink()
    assert again(replica).epoch == 105


def test_notes_are_kept_for_as_many_epochs_as_spark_keeps(tmp_path: Path):
    """Invariant 7: one small file per epoch, not for ever."""
    checkpoint = start(tmp_path, with_watermarks=True, boot=BOOT).checkpoint
    for epoch in range(40):
        checkpoint.save_watermarks(epoch, [epoch])
    assert len(list((checkpoint.folder / "watermarks").iterdir())) == NOTES_KEPT


def test_inputs_that_disagree_make_a_checkpoint_unusable_and_it_is_said(replica: Path):
    """Scenario 23: epoch 105 on one input and 106 on the other is in the log for ever."""
    plan(Checkpoint(replica / "1"), 6, 105, 106)
    commit(Checkpoint(replica / "1"), 6)
    with pytest.raises(MisalignedBatch, match=r"batch 6 .* has epochs \[105, 106\]"):
        again(replica)


def test_a_half_made_fork_is_removed(replica: Path):
    """Killed while linking: the folder never got its name, and goes at the next start."""
    half = write(replica / "2.tmp" / "spark" / "offsets" / "5")
    began = again(replica)
    assert not half.exists()
    assert (began.term, began.epoch) == (2, 105)


def test_a_fork_whose_own_batch_vanished_is_refused_and_never_has_a_name(replica: Path):
    """A fork without its commit would begin somewhere else, silently."""
    (replica / "1" / "spark" / "commits" / "3").unlink()
    with pytest.raises(FileNotFoundError):
        fork(Checkpoint(replica / "1"), Commit(3, 103), replica / "9", boot=BOOT)
    assert not (replica / "9").exists()


def test_a_disk_without_room_for_links_is_told_and_leaves_no_term(replica: Path, monkeypatch):
    """Scenario 29: the error names the disk; with room again the same term is made whole."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", full)
        with pytest.raises(DiskError, match="disk mounted at"):
            again(replica)
    assert not (replica / "2").exists()
    assert (again(replica).term, again(replica).epoch) == (2, 105)


@pytest.mark.parametrize("boot_file", ["another boot", "", None])
def test_after_a_reboot_local_checkpoints_count_as_lost(replica: Path, boot_file: str | None):
    """Scenario 28: Spark did not sync them; also if the note itself did not survive."""
    note = replica / "1" / "boot"
    note.unlink() if boot_file is None else note.write_text(boot_file)
    began = again(replica)
    assert (began.term, began.epoch) == (2, None)
    assert "rebooted" in began.lost


def test_a_newer_term_without_commits_falls_back_to_the_older_one(replica: Path):
    """A start that died before its first commit costs nothing (scenario 15)."""
    empty = start(replica, with_watermarks=False, boot=BOOT).checkpoint
    shutil.rmtree(empty.spark)
    assert again(replica).epoch == 105


def test_older_terms_go_when_the_new_one_has_work_of_its_own(replica: Path):
    """And nothing else in the replica's folder does."""
    write(replica / "output" / "000000000001.00000000.arrow")
    again(replica)
    current = again(replica)
    forget_before(replica, current.term)
    assert sorted(path.name for path in replica.iterdir()) == ["3", "output"]
    assert again(replica).term == 4


def test_a_parked_fork_is_what_everybody_goes_on_from(replica: Path):
    """What a tentative branch commits counts for nobody: not for a restart, not for a shipment."""
    parked = park(replica, 1, with_watermarks=False, boot=BOOT)
    assert (parked.term, parked.epoch) == (2, 105)
    run_batches(Checkpoint(replica / "1"), range(6, 9))
    began = again(replica)
    assert (began.term, began.epoch) == (3, 105)


def test_a_crash_between_the_fork_and_its_mark_changes_nothing(
    replica: Path, monkeypatch: pytest.MonkeyPatch
):
    """Nothing tentative was made yet: both are at the same epoch."""

    def die(*what: object, **how: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(disk, "write_whole", die)
        with pytest.raises(KeyboardInterrupt):
            park(replica, 1, with_watermarks=False, boot=BOOT)
    assert again(replica).epoch == 105


def test_there_is_nothing_to_park_before_the_first_commit(tmp_path: Path):
    """A fragment that has done nothing yet waits for its input."""
    began = start(tmp_path, with_watermarks=False)
    with pytest.raises(CheckpointLost, match="no committed epoch"):
        park(tmp_path, began.term, with_watermarks=False)
