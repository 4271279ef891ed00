"""Known: what was read from layers is remembered, since layers do not change.

    shipments/7f…/SSTs/4.sst ─┐
    shipments/a3…/SSTs/4.sst ─┴─ one file: device, inode, bytes, time ─▶ its checksum, read once

* A standby takes a shipment every second, and most layers of it were in the one before: without
  memory both sides would read all of the state each time, for a few new kilobytes.
* A link keeps all four, so a layer is known in every fork.  A file that is written to, or replaced,
  is another one.
* Only what this process has read itself counts, and only what the last shipment had is kept.

>>> import tempfile
>>> path = Path(tempfile.mkdtemp()) / "layer"; _ = path.write_bytes(b"abc")
>>> reads = []
>>> known = Known(lambda path: reads.append(path.name) or path.stat().st_size)
>>> known.of(path), known.of(path), reads
(3, 3, ['layer'])
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")


class Known(Generic[T]):
    """What `read` said of files, as long as they are in use.  For one thread at a time."""

    def __init__(self, read: Callable[[Path], T]) -> None:
        self._read = read
        self._before: dict[tuple[int, ...], T] = {}
        self._now: dict[tuple[int, ...], T] = {}

    def begin(self) -> None:
        """A new shipment: what the last one did not have is forgotten.

        >>> known = Known(len); known.begin()
        """
        self._before, self._now = self._now, {}

    def of(self, path: str | Path, stat: os.stat_result | None = None) -> T:
        """What is in the file, read or remembered; `stat` saves a look at it."""
        key = _key(stat or os.stat(path))
        if key not in self._now:
            self._now[key] = self._before[key] if key in self._before else self._read(Path(path))
        return self._now[key]

    def note(self, path: Path, value: T) -> None:
        """The file was just written, and this is what `read` would say of it."""
        self._now[_key(os.stat(path))] = value


def _key(stat: os.stat_result) -> tuple[int, ...]:
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns
