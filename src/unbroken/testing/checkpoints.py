"""Checkpoints of a simulation: what was committed, forked and shipped, without files.

    node-1/fragments/totals    terms 3, 4     each a list of commits: state and watermarks
                               shipped        what was taken from another node

* The rules are those of `checkpoints.fork`: every start is a fork of the newest commit, wherever it
  lies, into a term of its own, with nothing newer; a term wins over a shipment of the same epoch;
  what was written before a reboot counts as lost.
* Spark keeps one watermark; each operator's own is noted beside it (`notes`).
* Taking is `checkpoints.take`: the layers, then the output log, and the name last.

>>> world = World(seed=1); folder = Path(Disk(world, "n"), "n/totals")
>>> fork = Fork(); began = fork.start(folder, with_watermarks=False); began.term, began.epoch
(1, None)
>>> began.checkpoint.commit(Commit(0, {}, 0, 0)); fork.start(folder, with_watermarks=False).epoch
0
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from unbroken.checkpoints.fork import Start
from unbroken.checkpoints.take import Shipped
from unbroken.errors import CheckpointLost, UnbrokenError
from unbroken.policies.sessions import Reading
from unbroken.streams.copy_log import copy_log
from unbroken.testing.disk import Disk, Path
from unbroken.testing.operators import oldest_session_ms
from unbroken.testing.tasks import block
from unbroken.testing.world import World

#: Commits that Spark keeps.
KEPT = 12
__all__ = ["Commit", "Disk", "Fork", "World"]


class Commit(NamedTuple):
    """What Spark knows after an epoch: the state, its watermark, and the one before.

    >>> Commit(3, {}, 500, 400).epoch
    3
    """

    epoch: int
    state: dict[Any, Any]
    mark_ms: int
    late_ms: int
    #: What it was made of, for the checkers.
    past: Any = None


@dataclass
class Checkpoint:
    """The folder of one term, or a shipment."""

    disk: Disk
    boot: int
    commits: dict[int, Commit] = field(default_factory=dict)
    notes: dict[int, tuple[int | None, ...]] = field(default_factory=dict)
    #: The batch whose offsets are written: Spark runs it again if it finds it without its commit.
    planned: int | None = None
    #: Whether its query went on as a tentative branch: nobody goes on from it.
    branch: bool = False

    def commit(self, commit: Commit) -> None:
        """Batch done."""
        self.disk.room("commits")
        self.commits[commit.epoch] = commit
        self.commits.pop(commit.epoch - KEPT, None)

    def note(self, epoch: int, marks: tuple[int | None, ...]) -> None:
        """Every operator's watermark after `epoch`."""
        self.disk.room("watermarks")
        self.notes[epoch] = marks
        self.notes.pop(epoch - KEPT, None)

    def last(self, *, with_watermarks: bool) -> Commit | None:
        """The newest commit from which a replica can go on."""
        usable = [e for e in self.commits if not with_watermarks or e in self.notes]
        return self.commits[max(usable)] if usable else None

    def fork(self, at: Commit) -> Checkpoint:
        """The same up to `at`, and nothing newer."""
        notes = {at.epoch: self.notes[at.epoch]} if at.epoch in self.notes else {}
        return Checkpoint(self.disk, self.disk.boot, {at.epoch: at}, notes, at.epoch)


@dataclass
class Folder:
    """The checkpoints of one replica."""

    terms: dict[int, Checkpoint] = field(default_factory=dict)
    shipped: Checkpoint | None = None

    def all(self) -> list[Checkpoint]:
        """Terms before shipments, newer before older; no branches."""
        terms = [self.terms[term] for term in sorted(self.terms, reverse=True)]
        terms = [each for each in terms if not each.branch]
        return terms + ([self.shipped] if self.shipped is not None else [])


def folder_of(path: Path) -> Folder:
    """The checkpoints in `path`."""
    found: Folder = path.disk.checkpoints.setdefault(path.text, Folder())
    return found


def newest(
    path: Path, *, with_watermarks: bool, without: int | None = None
) -> tuple[Checkpoint, Commit] | None:
    """The newest commit of this boot from which a replica can go on, wherever it lies."""
    folder, best = folder_of(path), None
    for checkpoint in folder.all():
        if checkpoint.boot != path.disk.boot or checkpoint is folder.terms.get(without or -1):
            continue
        commit = checkpoint.last(with_watermarks=with_watermarks)
        if commit is not None and (best is None or commit.epoch > best[1].epoch):
            best = checkpoint, commit
    return best


def _lost(path: Path) -> str:
    """Why earlier work is not used, if there is any."""
    found = any(each.boot != path.disk.boot for each in folder_of(path).all())
    return "the machine was rebooted" if found else ""


class Fork:
    """The names that a node's classes expect of `checkpoints.fork`."""

    def start(self, path: Path, *, with_watermarks: bool) -> Start:
        """A new term from the newest usable checkpoint; empty if there is none."""
        found = newest(path, with_watermarks=with_watermarks)
        if found is None:
            return replace(self.empty(path), lost=_lost(path))
        return self._begin(path, found[0].fork(found[1]), found[1].epoch)

    def empty(self, path: Path) -> Start:
        """A new term that is empty."""
        return self._begin(path, Checkpoint(path.disk, path.disk.boot), None)

    def hold(self, path: Path, *, with_watermarks: bool) -> Start | None:
        """A new term for a query that waits; None if there is nothing to go on from yet.

        The newest plan is there from the beginning, without its commit.
        """
        found = newest(path, with_watermarks=with_watermarks)
        if found is None:
            return None
        held = self.empty(path)
        checkpoint: Any = held.checkpoint
        checkpoint.planned = found[1].epoch
        return held

    def park(self, path: Path, term: int, *, with_watermarks: bool) -> Start:
        """Forks `term` at its newest commit; what its query commits from now on is tentative."""
        source = folder_of(path).terms[term]
        commit = source.last(with_watermarks=with_watermarks)
        if commit is None:
            raise CheckpointLost(f"term {term} in {path} has nothing that could be parked")
        parked = self._begin(path, source.fork(commit), commit.epoch)
        path.disk.room(path)  # First the fork, then the mark: it may die in between.
        source.branch = True
        path.disk.watch.parked(path, commit.epoch)
        return parked

    def fill(self, held: Start, path: Path, *, with_watermarks: bool) -> Start:
        """Puts the newest usable checkpoint into the held term."""
        found = newest(path, with_watermarks=with_watermarks, without=held.term)
        if found is None:
            return replace(held, lost=_lost(path))
        path.disk.room(path)
        forked = found[0].fork(found[1])
        checkpoint: Any = held.checkpoint
        checkpoint.commits, checkpoint.notes = forked.commits, forked.notes
        checkpoint.planned = forked.planned
        return replace(held, epoch=found[1].epoch)

    def _begin(self, path: Path, checkpoint: Checkpoint, epoch: int | None) -> Start:
        path.disk.room(path)
        terms = folder_of(path).terms
        term = max(terms, default=0) + 1
        terms[term] = checkpoint
        return Start(checkpoint, term, epoch)  # type: ignore[arg-type]

    def forget_before(self, path: Path, term: int) -> None:
        """Older terms and shipments go."""
        self.forget_terms(path, below=term)
        folder_of(path).shipped = None

    def forget_all(self, path: Path) -> None:
        """All terms and shipments go."""
        self.forget_before(path, max(folder_of(path).terms, default=0) + 1)

    def forget_terms(self, path: Path, *, below: int) -> None:
        """Older terms go."""
        terms = folder_of(path).terms
        for term in [term for term in terms if term < below]:
            del terms[term]

    def rebooted(self, path: Path) -> bool:
        """Whether what is here is of before the last boot."""
        folder = folder_of(path)
        terms = folder.all()[: 1 if folder.terms else 0]
        shipped = [folder.shipped] if folder.shipped is not None else []
        return any(each.boot != path.disk.boot for each in (*terms, *shipped))

    def boot_id(self) -> str:
        """Not asked for here."""
        return "simulated"


def reader(plan: Any, running: Checkpoint, scratch: Path) -> Callable[[int], Reading | None]:
    """Reads the oldest session of a state, in some time, or fails; as `node.oldest.reader`."""
    world: World = scratch.disk.world

    def read(after: int) -> Reading | None:
        commit = running.last(with_watermarks=False)
        if commit is None or commit.epoch <= after:
            return None
        block(world, world.random.choice((0.01, 0.1, 0.6)))
        if world.random.random() < 0.1:
            raise UnbrokenError("the state cannot be read")
        return Reading(commit.epoch, oldest_session_ms(commit.state))

    return read


class Giver:
    """Gives checkpoints to other nodes; as `checkpoints.give.Giver`."""

    def __init__(self, door: Any, find: Callable[[str], Any]) -> None:
        self._find = find
        door.on_act("shipment", self._shipment)

    def _shipment(self, command: dict[str, Any]) -> dict[str, Any]:
        origin = self._find(command["fragment"])
        found = newest(origin.folder, with_watermarks=command["with_watermarks"])
        if found is None:
            raise CheckpointLost(f"{command['fragment']} has no committed epoch to be shipped")
        forked = found[0].fork(found[1])
        return {
            "epoch": found[1].epoch, "commits": forked.commits, "notes": forked.notes,
            "term": origin.term, "fingerprint": origin.fingerprint,
        }  # fmt: skip


def take(
    peer: Any, fragment: str, folder: Path, *, with_watermarks: bool, known: object = None,
    before_seen: Callable[[int], object] | None = None,
) -> Shipped:  # fmt: skip
    """Takes the newest checkpoint of `fragment` from `peer`; the output log comes before its name.

    As `checkpoints.take.take`.
    """
    command = {"do": "shipment", "fragment": fragment, "with_watermarks": with_watermarks}
    shipped = peer.act(command)
    if before_seen is not None:
        before_seen(shipped["epoch"])
    folder.disk.room(folder)
    folder_of(folder).shipped = Checkpoint(
        folder.disk, folder.disk.boot, dict(shipped["commits"]), dict(shipped["notes"]),
        shipped["epoch"],
    )  # fmt: skip
    folder.disk.watch.shipped(folder, fragment, shipped["epoch"])
    return Shipped(shipped["epoch"], 0, 0, 0, shipped["term"], shipped["fingerprint"])


def take_more(peer: Any, fragment: str, folder: Path, **how: Any) -> Shipped:
    """Takes what was made since, as `checkpoints.take.take`: less than the first time."""
    block(folder.disk.world, folder.disk.world.random.choice((0.01, 0.1)))
    return take(peer, fragment, folder, **how)


def take_replica(peer: Any, fragment: str, folder: Path, *, with_watermarks: bool) -> Shipped:
    """Takes checkpoint and output log, as `checkpoints.take.take_replica`.

    A whole state takes its time; the giver goes on meanwhile.
    """
    world: World = folder.disk.world

    def copy(epoch: int) -> None:
        block(world, world.random.choice((0.01, 0.1, 1.5)))
        copy_log(peer, fragment, folder / "output", last=epoch)  # type: ignore[arg-type]

    return take(peer, fragment, folder, with_watermarks=with_watermarks, before_seen=copy)
