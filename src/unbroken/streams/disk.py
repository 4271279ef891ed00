"""Whole files or none: the only way that Unbroken writes what must be found again.

A file is written under a temporary name in its own folder and renamed, so that a reader, a crash
or a full disk never meets half of it.  `sync=True` waits for the disk: for content that nobody can
compute again (sources, control records), and nowhere else, because it costs milliseconds.

>>> import tempfile, pathlib
>>> folder = pathlib.Path(tempfile.mkdtemp())
>>> write_whole(folder / "note", [b"hello"])
>>> (folder / "note").read_bytes()
b'hello'
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from unbroken.errors import DiskError

#: Files that carry it are not there yet; whoever lists a folder passes over them.
TEMPORARY = ".tmp"
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turns the system's word on a disk into an error that says which disk and what to do."""
    try:
        yield
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        mount = _mount_point(path)
        free = shutil.disk_usage(mount).free
        way_out = (
            "free some room there or point the folder at another disk"
            if error.errno in _NO_ROOM
            else "mend that, or point the folder at another disk"
        )
        raise DiskError(
            f"cannot write {path}: {error.strerror or error} "
            f"(disk mounted at {mount}, {free:,} bytes free)",
            hint=f"{way_out}: everything that was accepted before is still there",
        ) from error


def write_whole(path: Path, parts: Iterable[Any], *, sync: bool = False) -> None:
    """Writes `parts` to `path`, visible only when complete.

    >>> import tempfile, pathlib
    >>> p = pathlib.Path(tempfile.mkdtemp()) / "x"; write_whole(p, [b"a", b"b"]); p.read_bytes()
    b'ab'
    """
    temporary = path.with_name(path.name + TEMPORARY)
    with disk_errors(path):
        try:
            with open(temporary, "wb") as file:
                for part in parts:
                    file.write(part)
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
            os.rename(temporary, path)
            if sync:
                sync_folder(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def sync_folder(folder: Path) -> None:
    """Makes the names in `folder` durable: a rename is lost in a reboot without it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _mount_point(path: Path) -> Path:
    path = path.absolute()
    while not (path.exists() and os.path.ismount(path)):
        if path == path.parent:
            break
        path = path.parent
    return path
