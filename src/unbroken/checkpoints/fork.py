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
import zipfile
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from unbroken.checkpoints.layers import Checkpoint, Commit
from unbroken.streams import disk

#: Where forks for other nodes lie, beside the terms.
SHIPMENTS = "shipments"
SHIPMENT_ATTEMPTS = 3

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
    terms = terms_in(folder)
    term = (terms[0] if terms else 0) + 1
    if (found := _newest(folder, with_watermarks=with_watermarks, boot=boot)) is not None:
        checkpoint, commit = found
        made = fork(checkpoint, commit, folder / str(term), boot=boot)
        return Start(made, term, commit.epoch)
    lost = ""
    if any(_boot_of(Checkpoint(folder / str(old))) != boot for old in terms):
        lost = "the machine was rebooted and Spark does not sync its checkpoints"
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


def for_shipment(
    folder: Path, *, with_watermarks: bool, boot: str | None = None
) -> tuple[Checkpoint, Commit] | None:
    """Forks the newest usable checkpoint of a replica's `folder` into `shipments/<id>`.

    The replica may go on meanwhile.  None if nothing was committed yet.
    """
    boot = boot or boot_id()
    for attempts_left in reversed(range(SHIPMENT_ATTEMPTS)):
        target = folder / SHIPMENTS / uuid.uuid4().hex
        try:
            found = _newest(folder, with_watermarks=with_watermarks, boot=boot)
            if found is None:
                return None
            made = fork(*found, target, boot=boot)
            for torn in _ssts_without_snapshot(made.spark):
                torn.unlink()
            return made, found[1]
        except FileNotFoundError:
            # Gone while it was linked: a newer term has taken over, or Spark trimmed the batch.
            if not attempts_left:
                raise
        finally:
            shutil.rmtree(target.with_name(target.name + disk.TEMPORARY), ignore_errors=True)
    return None


def forget_shipments(folder: Path, keep: Container[str] = ()) -> None:
    """Removes forks for shipping that nobody asks for any more: they hold on to old layers."""
    for path in (folder / SHIPMENTS).glob("*"):
        if path.name not in keep:
            shutil.rmtree(path, ignore_errors=True)


def forget_before(folder: Path, term: int) -> None:
    """Removes the folders of older terms: the current one has committed work of its own."""
    for path in folder.iterdir():
        if path.name.isdigit() and int(path.name) < term:
            shutil.rmtree(path, ignore_errors=True)


def rebooted(folder: Path, boot: str | None = None) -> bool:
    """Whether the newest term in a replica's `folder` was begun before the last boot."""
    terms = terms_in(folder)
    return bool(terms) and _boot_of(Checkpoint(folder / str(terms[0]))) != (boot or boot_id())


def terms_in(folder: Path) -> list[int]:
    """The terms that a replica's `folder` has, newest first."""
    return sorted((int(p.name) for p in folder.glob("*") if p.name.isdigit()), reverse=True)


def boot_id() -> str:
    """Changes with every boot of the machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:
        return "unknown"  # Not Linux: reboots are not noticed.


def _newest(folder: Path, *, with_watermarks: bool, boot: str) -> tuple[Checkpoint, Commit] | None:
    """The newest commit of this boot from which a replica can go on, whatever its term."""
    for term in terms_in(folder):
        checkpoint = Checkpoint(folder / str(term))
        if _boot_of(checkpoint) == boot:
            commit = checkpoint.last(with_watermarks=with_watermarks)
            if commit is not None:
                return checkpoint, commit
    return None


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


def _ssts_without_snapshot(spark: Path) -> set[Path]:
    """Spark writes ssts in place and the zip that names them last: before it they may be torn."""
    named: set[Path] = set()
    for path in spark.rglob("*.zip"):
        try:
            with zipfile.ZipFile(path) as snapshot:
                _, text = snapshot.read("metadata").split(b"\n", 1)
            files = [file["dfsSstFileName"] for file in json.loads(text)["sstFiles"]]
        except (KeyError, TypeError, ValueError, zipfile.BadZipFile):
            return set()  # Of a form that is not known here: nothing is taken from it.
        named.update(path.parent / "SSTs" / file for file in files)
    return set(spark.rglob("SSTs/*.sst")) - named


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    # Not there: trimmed by Spark meanwhile, or the batch before the first.
    with contextlib.suppress(FileNotFoundError):
        os.link(source, target)
