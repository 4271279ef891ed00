"""Fork: a new checkpoint that shares the layers of an old one up to some epoch.

    term 3   offsets 7 8 9   commits 7 8     state …8 …9 …10
    fork at 8 ─▶ term 4   offsets 7 8     commits 7 8     state …8 …9      (hard links)

* The only way to start anything.  A fork has nothing newer than its commit, so Spark does not
  repeat a planned batch behind the gate's back, and an orphaned JVM writes where nobody reads
  (scenarios 5 and 27).
* A fork has an id of its own: two queries with one id stop each other.
* Linked files survive deletion in the original.  The folder appears whole, by a rename.
* What was written before a reboot was never synced and counts as lost (scenario 28): the boot that
  a checkpoint belongs to is noted beside it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

from unbroken.checkpoints.layers import Checkpoint, Commit
from unbroken.streams import disk

#: `8.changelog`, `8_uuid.zip`, `8.delta`, `8.snapshot`: state files that carry a version.
_VERSIONED = re.compile(r"(\d+)(?:_[0-9a-f-]+)?\.(?:changelog|zip|delta|snapshot)")
#: `_metadata/v2/7`, `_stateSchema/default/7_uuid`: written in a batch, so they carry its number.
_OF_BATCH = re.compile(r"(\d+)(?:_[0-9a-f-]+)?")


@dataclass(frozen=True)
class Start:
    """Where a replica starts: the folder of its term, and the epoch that it goes on from."""

    checkpoint: Checkpoint
    term: int
    #: The newest epoch in the checkpoint; None for an empty one.
    epoch: int | None
    #: Why earlier work is not used, if it is not.
    lost: str = ""


def start(folder: Path, *, with_watermarks: bool, boot: str | None = None) -> Start:
    """Begins a new term in a replica's `folder`, from the newest usable checkpoint in it."""
    boot = boot or boot_id()
    folder.mkdir(parents=True, exist_ok=True)
    for half_made in folder.glob(f"*{disk.TEMPORARY}"):
        shutil.rmtree(half_made)
    terms = sorted((int(p.name) for p in folder.iterdir() if p.name.isdigit()), reverse=True)
    term = (terms[0] if terms else 0) + 1
    lost = ""
    for old in terms:
        checkpoint = Checkpoint(folder / str(old))
        if _boot_of(checkpoint) != boot:
            lost = "the machine was rebooted and Spark does not sync its checkpoints"
            continue
        commit = checkpoint.last(with_watermarks=with_watermarks)
        if commit is not None:
            made = fork(checkpoint, commit, folder / str(term), boot=boot)
            return Start(made, term, commit.epoch)
    made = Checkpoint(folder / str(term))
    temporary = _begin(made.folder, boot)
    with disk.disk_errors(made.folder):
        os.rename(temporary, made.folder)
    return Start(made, term, None, lost)


def fork(source: Checkpoint, at: Commit, target: Path, *, boot: str) -> Checkpoint:
    """Links the layers of `source` up to `at` into the new folder `target`."""
    temporary = _begin(target, boot)
    spark = temporary / "spark"
    with disk.disk_errors(target):
        for kind in ("offsets", "commits"):
            (spark / kind).mkdir(parents=True)
            # The batch before it may be gone, or never have been; the fork's own may not.
            _link(source.spark / kind / str(at.batch - 1), spark / kind / str(at.batch - 1))
            os.link(source.spark / kind / str(at.batch), spark / kind / str(at.batch))
        (spark / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
        for path in sorted(source.spark.glob("state/**/*")):
            if path.is_file() and _belongs(path.name, batch=at.batch):
                _link(path, spark / path.relative_to(source.spark))
        _link(source.folder / "watermarks" / str(at.epoch),
              temporary / "watermarks" / str(at.epoch))  # fmt: skip
        os.rename(temporary, target)
    return Checkpoint(target)


def forget_before(folder: Path, term: int) -> None:
    """Removes the folders of older terms: the current one has committed work of its own."""
    for path in folder.iterdir():
        if path.name.isdigit() and int(path.name) < term:
            shutil.rmtree(path, ignore_errors=True)


def rebooted(folder: Path, boot: str | None = None) -> bool:
    """Whether the newest term in a replica's `folder` was begun before the last boot."""
    terms = [int(p.name) for p in folder.glob("*") if p.name.isdigit()]
    return bool(terms) and _boot_of(Checkpoint(folder / str(max(terms)))) != (boot or boot_id())


def boot_id() -> str:
    """Changes with every boot of the machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:
        return "unknown"  # Not Linux: reboots are not noticed.


def _begin(target: Path, boot: str) -> Path:
    temporary = target.with_name(target.name + disk.TEMPORARY)
    with disk.disk_errors(target):
        (temporary / "watermarks").mkdir(parents=True)
        (temporary / "boot").write_text(boot)
    return temporary


def _boot_of(checkpoint: Checkpoint) -> str:
    try:
        return (checkpoint.folder / "boot").read_text()
    except FileNotFoundError:
        return "none"  # It did not survive a power cut, as the rest of it may not have.


def _belongs(name: str, *, batch: int) -> bool:
    if name.startswith(".") or disk.TEMPORARY in name:
        return False
    if versioned := _VERSIONED.fullmatch(name):
        return int(versioned[1]) <= batch + 1
    numbered = _OF_BATCH.fullmatch(name)
    return numbered is None or int(numbered[1]) <= batch


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    # Not there: trimmed by Spark meanwhile, or the batch before the first.
    with contextlib.suppress(FileNotFoundError):
        os.link(source, target)
