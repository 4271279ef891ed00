"""Fork: a new checkpoint that shares the layers of an old one up to some epoch.

    term 3   offsets 7 8 9   commits 7 8     state …8 …9 …10
    fork at 8 ─▶ term 4   offsets 7 8     commits 7 8     state …8 …9      (hard links)

    alerts/3, alerts/4     terms: each start has its own, the running one is the newest
    alerts/shipped/12      what was taken from another node: the newest counts
    alerts/shipments/7f…   forks for other nodes to take (shipments.py)

* The only way to start anything.  A fork has nothing newer than its commit, so Spark does not
  repeat a planned batch behind the gate's back, and an orphaned JVM writes where nobody reads
  (scenarios 5 and 27).
* The newest epoch wins, wherever it lies; a term wins over a shipment of the same epoch.
* A term can be *held*: begun empty, with a Spark query on it that waits before it reads its logs,
  and filled in place at take-over.
* A fork can be *parked*: the query goes on as a tentative branch, and its own term does not count
  any more.  A mark in its folder says so; the parked fork is what everybody goes on from.
* A fork has an id of its own: two queries with one id stop each other.
* Linked files survive deletion in the original.  The folder appears whole, by a rename; a held term
  is filled with its commit last.
* What was written before a reboot was never synced and counts as lost (scenario 28): the boot that
  a checkpoint belongs to is noted beside it.

>>> import tempfile
>>> folder = Path(tempfile.mkdtemp())
>>> began = start(folder, with_watermarks=False)
>>> began.term, began.epoch
(1, None)
>>> hold(folder, with_watermarks=False) is None     # nothing was shipped yet
True
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unbroken.checkpoints.layers import Checkpoint, Commit
from unbroken.checkpoints.links import link_layers, remove
from unbroken.errors import CheckpointLost, UnbrokenError
from unbroken.streams import disk

#: Where that lies which was taken from other nodes, beside the terms.
SHIPPED = "shipped"
#: In the folder of a term whose query went on as a tentative branch.
BRANCH = "tentative"
#: In the folder of a fork before which epochs were given up: their headers.
HOLE = "hole"
FORK_ATTEMPTS = 3


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
        shutil.rmtree(half_made, ignore_errors=True)
    term = _next_term(folder)
    target = folder / str(term)
    found = fork_newest(
        folder, target, with_watermarks=with_watermarks, boot=boot, home=target
    )  # fmt: skip
    if found is not None:
        return Start(found[0], term, found[1].epoch)
    lost = _lost(folder, boot)
    temporary = _begin(target, boot)
    with disk.disk_errors(target):
        os.rename(temporary, target)
    return Start(Checkpoint(target), term, None, lost)


def hold(folder: Path, *, with_watermarks: bool, boot: str | None = None) -> Start | None:
    """Begins a new term for a query that is started in advance and waits.

    Shipments may come in meanwhile; `fill` puts the newest one in, before the query goes on.  None
    if there is no checkpoint yet: Spark looks whether any batch was planned before it creates its
    sources, and refuses to find one later.  So the newest plan is there from the beginning, without
    its commit: nobody can go on from it.
    """
    boot = boot or boot_id()
    found = _newest(folder, with_watermarks=with_watermarks, boot=boot, without=None)
    if found is None:
        return None
    held, plan = empty(folder, boot=boot), f"offsets/{found[1].batch}"
    with disk.disk_errors(folder):
        (held.checkpoint.spark / "offsets").mkdir()
        os.link(found[0].spark / plan, held.checkpoint.spark / plan)
    return held


def park(folder: Path, term: int, *, with_watermarks: bool, boot: str | None = None) -> Start:
    """Forks `term` at its newest commit; what its query commits from now on is tentative.

    First the fork, then the mark: a process that dies in between leaves two of one epoch, and
    nothing tentative has been made.
    """
    source, parked = Checkpoint(folder / str(term)), _next_term(folder)
    commit = source.last(with_watermarks=with_watermarks)
    if commit is None:
        raise CheckpointLost(
            f"term {term} in {folder} has no committed epoch that could be parked",
            hint="it waits for its input until there is one",
        )
    target = folder / str(parked)
    made = fork(source, commit, target, boot=boot or boot_id(), home=target)
    disk.write_whole(source.folder / BRANCH, [str(commit.epoch).encode()])
    return Start(made, parked, commit.epoch)


def park_later(
    folder: Path, term: int, at: int, hole: Sequence[str], *, with_watermarks: bool,
    boot: str | None = None,
) -> Start:  # fmt: skip
    """Forks a branch at epoch `at`, which it has committed: what it said until then is given up.

    The fork has the headers of the `hole` in it, which `hole_in` tells: it appears whole, so either
    it is there and its output can be completed from it, or the older fork counts.
    """
    source, target = Checkpoint(folder / str(term)), folder / str(_next_term(folder))
    commit = source.last(with_watermarks=with_watermarks)
    if commit is None or commit.epoch != at:
        raise CheckpointLost(
            f"the branch of term {term} in {folder} has not committed epoch {at}",
            hint="what it said is corrected instead",
        )
    made = fork(source, commit, target, boot=boot or boot_id(), home=target, hole=hole)
    return Start(made, int(target.name), at)


def hole_in(folder: Path) -> list[str]:
    """The headers of the newest hole that a fork in a replica's `folder` has with it."""
    for term in terms_in(folder):
        with contextlib.suppress(FileNotFoundError):
            return (folder / str(term) / HOLE).read_text().splitlines()
    return []


def empty(folder: Path, *, boot: str | None = None) -> Start:
    """Begins a new term that is empty, whatever else is in `folder`."""
    return _empty(folder, _next_term(folder), boot or boot_id())


def _empty(folder: Path, term: int, boot: str) -> Start:
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / str(term)
    temporary = _begin(target, boot)
    with disk.disk_errors(target):
        (temporary / "spark").mkdir()
        _give_id(temporary)
        os.rename(temporary, target)
    return Start(Checkpoint(target), term, None)


def count_on(folder: Path, *, after: int) -> None:
    """The next term in `folder` comes after that one: others have heard of it.

    Whoever lost what it had, or has forgotten it, would count from 1, and be taken for an orphan.

    >>> import tempfile; folder = Path(tempfile.mkdtemp())
    >>> count_on(folder, after=6); empty(folder).term
    7
    """
    if _next_term(folder) <= after:
        _empty(folder, after, boot_id())


def fill(
    held: Start, folder: Path, *, with_watermarks: bool, boot: str | None = None
) -> Start:  # fmt: skip
    """Links the newest usable checkpoint in `folder` into the held term, where it is.

    The query must not have read its logs yet.  Its `metadata` and the folders that Spark has made
    stay.  If this fails or is cut off, the term is not usable: `start` begins another.  Without
    anything to go on from, the term stays as it is and its `epoch` None.
    """
    boot = boot or boot_id()
    if not _is_empty(held.checkpoint):
        raise UnbrokenError(
            f"term {held.term} in {folder} has work of its own and cannot be filled",
            hint="end its query and start the replica anew: it finds what was shipped",
        )
    # By a fork, which is whole or not there: a shipment may be replaced while it is linked.  It is
    # not removed now: nobody should wait for that at take-over.
    whole = folder / f"{held.term}.fill{disk.TEMPORARY}"
    found = fork_newest(
        folder, whole, with_watermarks=with_watermarks, boot=boot, without=held.term
    )
    if found is None:
        return replace(held, lost=_lost(folder, boot))
    link_layers(*found, held.checkpoint.folder, home=held.checkpoint.folder)
    return replace(held, epoch=found[1].epoch)


def fork(
    source: Checkpoint, at: Commit, target: Path, *, boot: str, home: Path | None = None,
    hole: Sequence[str] = (),
) -> Checkpoint:  # fmt: skip
    """Links the layers of `source` up to `at` into the new folder `target`.

    `home` is the folder in which a query will run on them, if one will.
    """
    temporary = _begin(target, boot)
    try:
        if hole:
            disk.write_whole(temporary / HOLE, ["\n".join(hole).encode()])
        link_layers(source, at, temporary, home=home)
        with disk.disk_errors(target):
            _give_id(temporary)
            os.rename(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return Checkpoint(target)


def fork_newest(
    folder: Path,
    target: Path,
    *,
    with_watermarks: bool,
    boot: str,
    without: int | None = None,
    home: Path | None = None,
) -> tuple[Checkpoint, Commit] | None:
    """Forks the newest usable checkpoint in `folder` into `target`; None if there is none.

    The replica may go on meanwhile.  The term `without` is left out.  `home` as for `fork`.
    """
    for _ in range(FORK_ATTEMPTS):
        # Gone while it was linked: a newer term or shipment has come, or Spark trimmed the batch.
        with contextlib.suppress(FileNotFoundError):
            found = _newest(folder, with_watermarks=with_watermarks, boot=boot, without=without)
            return found and (fork(*found, target, boot=boot, home=home), found[1])
    raise CheckpointLost(
        f"the checkpoints in {folder} go away faster than they can be forked",
        hint="ask again: what was committed is in a newer one",
    )


def forget_before(folder: Path, term: int) -> None:
    """Removes older terms and shipments: the current term has committed work of its own."""
    forget_terms(folder, below=term)
    for path in (folder / SHIPPED, *folder.glob(f"*.fill{disk.TEMPORARY}")):
        remove(path)


def forget_all(folder: Path) -> None:
    """Removes all terms and shipments: what comes next does not go on from them.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()); _ = empty(folder)
    >>> forget_all(folder); terms_in(folder)
    []
    """
    forget_before(folder, max(terms_in(folder), default=0) + 1)


def forget_terms(folder: Path, *, below: int) -> None:
    """Removes older terms: a shipment that is here has at least what they have."""
    for term in terms_in(folder):
        if term < below:
            remove(folder / str(term))


def rebooted(folder: Path, boot: str | None = None) -> bool:
    """Whether the newest term or shipment in a replica's `folder` is of before the last boot."""
    boot = boot or boot_id()
    terms = [folder / str(term) for term in terms_in(folder)[:1]]
    return any(_boot_of(Checkpoint(path)) != boot for path in [*terms, *shipped_in(folder)[:1]])


def terms_in(folder: Path) -> list[int]:
    """The terms that a replica's `folder` has, newest first."""
    return sorted(_numbers(folder), reverse=True)


def shipped_in(folder: Path) -> list[Path]:
    """What was taken into a replica's `folder` and is whole, newest first."""
    shipped = folder / SHIPPED
    return [shipped / str(number) for number in sorted(_numbers(shipped), reverse=True)]


def boot_id() -> str:
    """Changes with every boot of the machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:
        return "unknown"  # Not Linux: reboots are not noticed.


def _newest(
    folder: Path, *, with_watermarks: bool, boot: str, without: int | None
) -> tuple[Checkpoint, Commit] | None:
    """The newest commit of this boot from which a replica can go on, wherever it lies."""
    best: tuple[Checkpoint, Commit] | None = None
    for checkpoint in _checkpoints_in(folder, without):
        if _boot_of(checkpoint) == boot:
            commit = checkpoint.last(with_watermarks=with_watermarks)
            if commit is not None and (best is None or commit.epoch > best[1].epoch):
                best = checkpoint, commit
    return best


def _checkpoints_in(folder: Path, without: int | None = None) -> Iterator[Checkpoint]:
    """Terms before shipments, newer before older: of equals the first is taken."""
    for term in terms_in(folder):
        if term != without and not (folder / str(term) / BRANCH).exists():
            yield Checkpoint(folder / str(term))
    yield from map(Checkpoint, shipped_in(folder))


def _lost(folder: Path, boot: str) -> str:
    if any(_boot_of(checkpoint) != boot for checkpoint in _checkpoints_in(folder)):
        return "the machine was rebooted and Spark does not sync its checkpoints"
    return ""


def _is_empty(checkpoint: Checkpoint) -> bool:
    """Whether there is nothing in it but its id, folders, and plans without a commit."""
    spark = checkpoint.spark
    work = (spark / "commits", spark / "state", checkpoint.folder / "watermarks")
    return not any(files for top in work for _, _, files in os.walk(top))


def _next_term(folder: Path) -> int:
    return max(terms_in(folder), default=0) + 1


def _begin(target: Path, boot: str) -> Path:
    temporary = target.with_name(target.name + disk.TEMPORARY)
    with disk.disk_errors(target):
        shutil.rmtree(temporary, ignore_errors=True)  # Of one who was killed in the middle.
        (temporary / "watermarks").mkdir(parents=True)
        (temporary / "boot").write_text(boot)
    return temporary


def _give_id(folder: Path) -> None:
    (folder / "spark" / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))


def _boot_of(checkpoint: Checkpoint) -> str:
    try:
        return (checkpoint.folder / "boot").read_text()
    except FileNotFoundError:
        return "none"  # It did not survive a power cut, as the rest of it may not have.


def _numbers(folder: Path) -> list[int]:
    try:
        return [int(name) for name in os.listdir(folder) if name.isdigit()]
    except FileNotFoundError:
        return []
