"""The disk: what survives a kill, what survives a power cut, and what to do when it is full.

    kill -9          everything that was written is there
    power cut        what was synced is there; the rest is there, torn, or as it was before
    lost             nothing is there
    full             writing fails, and changes nothing

* A file appears whole (as `streams.disk.write_whole` makes it) or not at all, except that a power
  cut tears what was not synced.
* The epochs of a log lie in `logs`: one dict per folder, number to epoch.  Of those that were not
  synced any may be torn or gone after a power cut.
* A disk has a boot id, which changes with every power cut.

>>> world = World(seed=1); disk = Disk(world, "node-1")
>>> note = Path(disk, "node-1") / "note.json"
>>> disk.write_whole(note, [b"{}"], sync=True); disk.write_whole(note, [b"{1}"])
>>> disk.power_cut(); note.read_bytes() in (b"{}", b"{1}", b"{")
True
>>> disk.lose(); note.exists()
False
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from unbroken.errors import DiskError
from unbroken.testing.world import World

#: What a power cut leaves of something that was not synced.
_WHOLE, _TORN, _GONE = "whole", "torn", "gone"


class Disk:
    """The disk of one machine."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.files: dict[str, Any] = {}
        self._synced: dict[str, Any] = {}
        #: Folder to its log: number to epoch.
        self.logs: dict[str, dict[int, Any]] = {}
        self.synced_logs: set[str] = set()
        #: Folder to the checkpoints in it (see `checkpoints`).
        self.checkpoints: dict[str, Any] = {}
        self.full = False
        self.boot = 1
        #: Told of every epoch that comes to a log here or goes (see `epochs.Watch`).
        self.watch: Any = None

    def write_whole(self, path: Path, parts: Iterable[bytes], *, sync: bool = False) -> None:
        """Writes a file."""
        self.room(path)
        content = b"".join(parts)
        self.files[path.text] = content
        if sync:
            self._synced[path.text] = content

    def room(self, path: object) -> None:
        """A chance to die, or to find the disk full, before something is written."""
        self.world.touch()
        if self.full:
            raise DiskError(f"cannot write {path}: no space left", hint="free some room there")

    def power_cut(self) -> None:
        """The machine boots anew: what was not synced may be gone."""
        chance = self.world.random
        self.boot += 1
        for path in sorted(self.files):
            if self._synced.get(path) == self.files[path]:
                continue
            what = chance.choice((_WHOLE, _WHOLE, _TORN, _GONE, _GONE))
            if what is _TORN:
                self.files[path] = self.files[path][: len(self.files[path]) // 2]
            elif what is _GONE and path in self._synced:
                self.files[path] = self._synced[path]
            elif what is _GONE:
                del self.files[path]
        for folder, log in sorted(self.logs.items()):
            if folder not in self.synced_logs and log:
                self._tear(log)

    def _tear(self, log: dict[int, Any]) -> None:
        """What was written last may be gone, or each epoch of it in its own way.

        A disk writes in the order that it likes: an epoch may be torn or gone before one that is
        whole.
        """
        chance = self.world.random
        kept = chance.randint(0, len(log))
        ways = chance.choice(((_GONE,), (_WHOLE, _WHOLE, _TORN), (_WHOLE, _TORN, _GONE)))
        readable = chance.random() < 0.5
        for number in sorted(log)[kept:]:
            what = chance.choice(ways)
            if what is _TORN:
                log[number] = log[number].torn(readable=readable)
            elif what is _GONE:
                del log[number]

    def lose(self) -> None:
        """Nothing is left."""
        for kept in (self.files, self._synced, self.logs, self.checkpoints):
            kept.clear()

    def remove(self, folder: Path, ignore_errors: bool = True) -> None:
        """Removes a folder and all that is in it, as `shutil.rmtree`."""
        for kept in (self.files, self._synced, self.logs, self.checkpoints):
            for path in [path for path in kept if folder.holds(path)]:
                del kept[path]


class Path:
    """A path on a disk, with as much of `pathlib.Path` as the node's classes use."""

    __slots__ = ("disk", "text")

    def __init__(self, disk: Disk, text: str) -> None:
        self.disk, self.text = disk, text

    def __truediv__(self, name: str) -> Path:
        return Path(self.disk, f"{self.text}/{name}")

    def __str__(self) -> str:
        return self.text

    def __lt__(self, other: Path) -> bool:
        return self.text < other.text

    @property
    def name(self) -> str:
        """The last part."""
        return self.text.rpartition("/")[2]

    @property
    def parent(self) -> Path:
        """The folder it is in."""
        return Path(self.disk, self.text.rpartition("/")[0])

    def holds(self, path: str) -> bool:
        """Whether `path` is this one or below it."""
        return path == self.text or path.startswith(self.text + "/")

    def exists(self) -> bool:
        """Whether there is such a file."""
        return self.text in self.disk.files

    def read_bytes(self) -> bytes:
        """What is in the file."""
        if self.text not in self.disk.files:
            raise FileNotFoundError(self.text)
        content: bytes = self.disk.files[self.text]
        return content

    def mkdir(self, **how: bool) -> None:
        """Folders need not be made."""

    def glob(self, pattern: str) -> Iterator[Path]:
        """The epochs of a log; nothing else is ever listed here."""
        if pattern == "*.arrow":
            for number in sorted(self.disk.logs.get(self.text, ())):
                yield self / f"{number:012d}.0.arrow"

    def unlink(self, missing_ok: bool = False) -> None:
        """Removes an epoch of a log, or a file."""
        if self.name.endswith(".arrow"):
            del self.disk.logs[self.parent.text][int(self.name.split(".", 1)[0])]
        else:
            self.disk.files.pop(self.text, None)
