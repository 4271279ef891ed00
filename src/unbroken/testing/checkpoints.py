"""Checkpoints of a simulation: what was committed, forked and shipped, without files.

    node-1/fragments/totals    terms 3, 4     each a list of commits, and the layers of their state
                               shipped        what was taken from another node (see `shipments`)

    term 4   commits 7 8   changelogs 5 6 7 8 9'   snapshots 4
                           9' is not committed yet, and may be rewritten under its name

* The rules are those of `checkpoints.fork`: every start is a fork of the newest commit, wherever it
  lies, into a term of its own, with nothing newer; a term wins over a shipment of the same epoch;
  what was written before a reboot counts as lost.
* Spark keeps one watermark; each operator's own is noted beside it (`notes`).
* A state is made of layers: its newest snapshot, which appears some time after its commit, and the
  changelogs since then.  What a layer contains is told by the run of the batch that wrote it, which
  its past stands for: two runs of one batch have two.  A fork keeps what it found under a name.

>>> world = World(seed=1); folder = Path(Disk(world, "n"), "n/totals")
>>> fork = Fork(); began = fork.start(folder, with_watermarks=False); began.term, began.epoch
(1, None)
>>> began.checkpoint.commit(Commit(0, {}, 0, 0)); fork.start(folder, with_watermarks=False).epoch
0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from unbroken.checkpoints.fork import Start
from unbroken.errors import CheckpointLost, UnbrokenError
from unbroken.policies.sessions import Reading
from unbroken.testing.disk import Disk, Path
from unbroken.testing.operators import oldest_session_ms
from unbroken.testing.tasks import block
from unbroken.testing.world import World

#: Commits that Spark keeps.
KEPT = 12
__all__ = ["Commit", "Disk", "Fork", "World"]


class Layer(NamedTuple):
    """One file of a checkpoint: its name, and what is in it."""

    name: tuple[str, int]
    content: Any


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
    #: The headers of the epochs that were given up before it; a fork of it does not have them.
    hole: tuple[Any, ...] = ()
    #: Number of a batch to the run that wrote it.
    changelogs: dict[int, Any] = field(default_factory=dict)
    snapshots: dict[int, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, disk: Disk, layers: dict[tuple[str, int], Any], epoch: int) -> Checkpoint:
        """Made of layers that came from elsewhere."""
        made = cls(disk, disk.boot, planned=epoch)
        for (kind, number), content in layers.items():
            getattr(made, kind)[number] = content
        return made

    def commit(self, commit: Commit) -> None:
        """Batch done."""
        self.disk.room("commits")
        self.commits[commit.epoch] = commit
        self.commits.pop(commit.epoch - KEPT, None)

    def snapshot(self, commit: Commit) -> None:
        """The state after a commit is written as a whole, later: Spark does that beside its work.

        Changelogs go that no kept commit needs any more.
        """
        self.snapshots[commit.epoch] = commit.past
        oldest = min(self.commits, default=0)
        base = max((number for number in self.snapshots if number <= oldest), default=-1)
        for kept in (self.changelogs, self.snapshots):
            for number in [number for number in kept if number < base]:
                del kept[number]

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
        layers = {layer.name: layer.content for layer in self.layers(at)}
        return Checkpoint.of(self.disk, layers, at.epoch)

    def layers(self, at: Commit) -> list[Layer]:
        """What it takes to go on after `at`; the commit comes last."""
        base = max((number for number in self.snapshots if number <= at.epoch), default=-1)
        found = [Layer(("snapshots", base), self.snapshots[base])] if base >= 0 else []
        found += [
            Layer(("changelogs", number), content) for number, content in self.changelogs.items()
            if base < number <= at.epoch
        ]  # fmt: skip
        if at.epoch in self.notes:
            found.append(Layer(("notes", at.epoch), self.notes[at.epoch]))
        return [*found, Layer(("commits", at.epoch), at)]

    def read(self, name: tuple[str, int]) -> Any:
        """What is in one layer now; None: it is not there."""
        return getattr(self, name[0]).get(name[1])

    def whole(self, at: Commit) -> str:
        """What is wrong with the layers of `at`; "" if it is all that one run after another made.

        For the checkers: a protocol cannot know.
        """
        past: Any = at.past
        base = max((number for number in self.snapshots if number <= at.epoch), default=-1)
        while past is not None:
            number = past.number
            kept = self.snapshots if number == base else self.changelogs
            is_it = kept.get(number) is past
            if not is_it:
                what = "is of another run" if number in kept else "is missing"
                return f"layer {number} of epoch {at.epoch} {what}"
            if number == base:
                return ""
            past = past.before
        return ""


@dataclass
class Folder:
    """The checkpoints of one replica."""

    terms: dict[int, Checkpoint] = field(default_factory=dict)
    shipped: Checkpoint | None = None
    #: The layers of a shipment that has no name yet.
    incoming: dict[tuple[str, int], Any] = field(default_factory=dict)

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

    def count_on(self, path: Path, *, after: int) -> None:
        """The next term comes after that one."""
        terms = folder_of(path).terms
        if max(terms, default=0) < after:
            path.disk.room(path)
            terms[after] = Checkpoint(path.disk, path.disk.boot)

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

    def park_later(
        self, path: Path, term: int, at: int, hole: Sequence[Any], *, with_watermarks: bool
    ) -> Start:
        """Forks a branch at epoch `at`: what it said until then is given up, which `hole` tells."""
        source = folder_of(path).terms[term]
        commit = source.last(with_watermarks=with_watermarks)
        if commit is None or commit.epoch != at:
            raise CheckpointLost(f"the branch of term {term} in {path} has not committed {at}")
        made = source.fork(commit)
        made.hole = tuple(hole)
        later = self._begin(path, made, at)
        path.disk.watch.parked_later(path, source, at, hole)
        return later

    def hole_in(self, path: Path) -> list[Any]:
        """The newest hole that a fork has with it."""
        terms = folder_of(path).terms
        holes = (terms[term].hole for term in sorted(terms, reverse=True))
        return list(next(filter(None, holes), ()))

    def fill(self, held: Start, path: Path, *, with_watermarks: bool) -> Start:
        """Puts the newest usable checkpoint into the held term."""
        found = newest(path, with_watermarks=with_watermarks, without=held.term)
        if found is None:
            return replace(held, lost=_lost(path))
        path.disk.room(path)
        forked = found[0].fork(found[1])
        checkpoint: Any = held.checkpoint
        checkpoint.commits, checkpoint.notes = forked.commits, forked.notes
        checkpoint.changelogs, checkpoint.snapshots = forked.changelogs, forked.snapshots
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


def remove(path: Path) -> None:
    """A term goes; as `checkpoints.links.remove`."""
    folder_of(path.parent).terms.pop(int(path.name), None)


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
