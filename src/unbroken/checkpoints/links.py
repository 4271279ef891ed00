"""Links: how layers get into another folder, and how a folder goes away, without a half in between.

    source   state …8 …9   watermarks/12   offsets 7 8   commits 8      linked in this order
    target   state …8 …9   watermarks/12   offsets 7     -              cut off: no commit, no use

* The commit comes last.  Until it is there, nobody can go on from the target; and since linking it
  fails if the source is gone, everything before it was linked from a source that was whole.
* For that a folder loses its name first, at once, and its files after (`remove`).
* Layers are immutable, so a link is as good as a copy, and outlives the original.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

from unbroken.checkpoints.layers import Checkpoint, Commit
from unbroken.streams import disk

#: `8.changelog`, `8_uuid.zip`, `8.delta`, `8.snapshot`: state files that carry a version.
_VERSIONED = re.compile(r"(\d+)(?:_[0-9a-f-]+)?\.(?:changelog|zip|delta|snapshot)")
#: `_metadata/v2/7`, `_stateSchema/default/7_uuid`: written in a batch, so they carry its number.
_OF_BATCH = re.compile(r"(\d+)(?:_[0-9a-f-]+)?")
#: In the metadata of `transformWithState`: where a state schema lies.
_WHOLE_PATH = re.compile(rb'"file:[^"]*/spark/state/([^"]*)"')


def link_layers(
    source: Checkpoint, at: Commit, target: Path, *, home: Path | None = None
) -> None:  # fmt: skip
    """Links what a replica needs to go on after `at` into `target`; `metadata` is not touched.

    `home` is where a query will run on it: what Spark noted with a whole path is noted anew.

    FileNotFoundError if the source, or that batch in it, is gone: then `target` has no commit.

    >>> import tempfile
    >>> here, there = Checkpoint(Path(tempfile.mkdtemp())), Path(tempfile.mkdtemp())
    >>> for name in ("offsets/8", "commits/8", "state/0/0/9.changelog", "state/0/0/10.changelog"):
    ...     (here.spark / name).parent.mkdir(parents=True, exist_ok=True)
    ...     (here.spark / name).touch()
    >>> link_layers(here, Commit(batch=8, epoch=12), there)
    >>> sorted(str(path.relative_to(there)) for path in there.rglob("*") if path.is_file())
    ['spark/commits/8', 'spark/offsets/8', 'spark/state/0/0/9.changelog']
    """
    batch, before = str(at.batch), str(at.batch - 1)
    offsets, commits = (f"{source.spark}/offsets/", f"{target}/spark/offsets/"), (
        f"{source.spark}/commits/", f"{target}/spark/commits/")  # fmt: skip
    note = f"watermarks/{at.epoch}"
    with disk.disk_errors(target):
        for folder in ("spark/offsets", "spark/commits", "watermarks"):
            (target / folder).mkdir(parents=True, exist_ok=True)
        _link_state(f"{source.spark}/state", f"{target}/spark/state", at.batch, home)
        _link(f"{source.folder}/{note}", f"{target}/{note}")
        # The batch before it may be gone, or never have been; its own may not.
        _link(offsets[0] + before, offsets[1] + before)
        with contextlib.suppress(FileExistsError):  # A held term has the plan that it began with.
            os.link(offsets[0] + batch, offsets[1] + batch)
        os.link(commits[0] + batch, commits[1] + batch)
        # Not needed to go on.  Before the other it would make a checkpoint of a half-filled folder.
        _link(commits[0] + before, commits[1] + before)


def remove(path: Path) -> None:
    """Removes a checkpoint, its name first: nobody who links from it can take a part for all.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()); (folder / "3").mkdir(); remove(folder / "3")
    >>> list(folder.iterdir())
    []
    """
    gone = path.with_name(f"{path.name}.{uuid.uuid4().hex}{disk.TEMPORARY}")
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, gone)
        remove_files(gone)


def remove_files(path: str | Path) -> None:
    """Removes a folder that nobody reads, as far as that is possible.

    >>> remove_files("/not/there")
    """
    # Half the CPU of shutil's, which is careful about links that do not occur here.
    with contextlib.suppress(OSError):
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    remove_files(entry.path)
                else:
                    os.unlink(entry.path)
        os.rmdir(path)


def files_in(folder: str) -> Iterator[os.DirEntry[str]]:
    """Every file in a folder and the folders in it.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()); (folder / "a").mkdir(); (folder / "a" / "b").touch()
    >>> [entry.name for entry in files_in(str(folder))]
    ['b']
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from files_in(entry.path)
            else:
                yield entry


def _link_state(source: str, target: str, batch: int, home: Path | None) -> None:
    # Strings and one listing per folder: a standby links a hundred files every second.
    os.makedirs(target, exist_ok=True)
    # Not there: a query without state.
    with contextlib.suppress(FileNotFoundError), os.scandir(source) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _link_state(entry.path, f"{target}/{entry.name}", batch, home)
            elif _belongs(entry.name, batch):
                if home is not None and "/_metadata/" in entry.path:
                    _note_anew(entry.path, f"{target}/{entry.name}", home)
                else:
                    _link(entry.path, f"{target}/{entry.name}")


def _belongs(name: str, batch: int) -> bool:
    if name.startswith(".") or disk.TEMPORARY in name:
        return False
    if versioned := _VERSIONED.fullmatch(name):
        return int(versioned[1]) <= batch + 1
    numbered = _OF_BATCH.fullmatch(name)
    return numbered is None or int(numbered[1]) <= batch


def _note_anew(source: str, target: str, home: Path) -> None:
    """Copies an operator's metadata: it names the files of state schemas by their whole path.

    Those of the term that it was forked from go away with that term, and on another machine they
    never were.
    """
    with contextlib.suppress(FileNotFoundError):
        with open(source, "rb") as file:
            noted = file.read()
        here = f'"file:{home}/spark/state/'.encode()
        moved = _WHOLE_PATH.sub(lambda found: here + found[1] + b'"', noted)
        if moved == noted:
            _link(source, target)  # Of other operators, and not always text.
        else:
            disk.write_whole(Path(target), [moved])


def _link(source: str, target: str) -> None:
    # Not there: trimmed by Spark meanwhile, or the batch before the first.  There already: the plan
    # that a held term began with.
    with contextlib.suppress(FileNotFoundError, FileExistsError):
        os.link(source, target)
