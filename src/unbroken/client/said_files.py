"""Tentative results beside those of a directory sink, which nobody can mistake for them.

    out/epoch-000000000411.parquet
    out/_tentative/epoch-000000000412.tentative    goes when the stable 412 is there
    out/_tentative/epoch-000000000413.tentative    Parquet, like the others

* They are in a folder of their own, with a name that Spark and others pass over; and have another
  ending, for those who look for all `*.parquet`: a reader of the directory never sees a mixture.
* A stable file is there before the tentative one of its number goes: for a moment both are, never
  neither.
* What an earlier process left there goes when a sink starts: its branch may be over.

>>> import tempfile, pyarrow as pa
>>> said = SaidFiles(Path(tempfile.mkdtemp()), lambda epoch: b"rows")
>>> said.write(Epoch.of("pages", 412, pa.table({"n": [1]}), kind="tentative")); said.numbers
[412]
>>> said.replaced(412); said.numbers
[]
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from unbroken.epochs import TENTATIVE, Epoch
from unbroken.streams import disk

FOLDER = "_tentative"
_NAME = re.compile(r"epoch-(\d{12})\.tentative")


class SaidFiles:
    """The tentative epochs of one directory sink; `encode` makes the bytes of a file."""

    def __init__(self, folder: Path, encode: Callable[[Epoch], Any]) -> None:
        self._folder, self._encode = folder / FOLDER, encode
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def numbers(self) -> list[int]:
        """Epochs that are tentative now."""
        if not self._folder.is_dir():
            return []
        found = (_NAME.fullmatch(path.name) for path in self._folder.iterdir())
        return sorted(int(name[1]) for name in found if name)

    def write(self, epoch: Epoch) -> None:
        """Writes a tentative epoch, over an older one of its number."""
        assert epoch.kind == TENTATIVE, "what is final has its own place"
        with disk.disk_errors(self._folder):
            self._folder.mkdir(exist_ok=True)
        disk.write_whole(self._path(epoch.number), [self._encode(epoch)])

    def replaced(self, number: int) -> None:
        """The final epoch is there: what was said under its number goes."""
        self._path(number).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._folder / f"epoch-{number:012d}.tentative"
