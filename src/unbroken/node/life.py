"""The life of a node: a number that is higher with every start of its process.

    node-1/life    4          one more than the process before it had

* Clocks jump, process ids repeat; a number on the node's own disk does neither.
* A disk may be lost, or too full to take the number.  Then control says that this life is over,
  because it knows a later one, and the number becomes higher than that (`control.lives`).

>>> import tempfile
>>> folder = Path(tempfile.mkdtemp())
>>> Life(folder).number, Life(folder).number
(1, 2)
>>> life = Life(folder); life.next_beat(), life.next_beat()
({'life': 3, 'beat': 1}, {'life': 3, 'beat': 2})
>>> life.is_over({"run": []}), life.is_over({"over": 7}), life.number, Life(folder).number
(False, True, 8, 9)
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unbroken.errors import DiskError
from unbroken.streams import disk


class Life:
    """The number of this process, and of what it says."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "life"
        before = 0
        with contextlib.suppress(FileNotFoundError, ValueError):  # New, or torn by a power cut.
            before = int(self._file.read_bytes())
        self.number, self._beats = before + 1, 0
        self._save()

    def next_beat(self) -> dict[str, int]:
        """What the next beat says of itself."""
        self._beats += 1
        return {"life": self.number, "beat": self._beats}

    def is_over(self, answer: Mapping[str, Any]) -> bool:
        """Whether control took us for somebody who is gone; the next beat says otherwise."""
        if "over" not in answer:
            return False
        self.number = max(self.number, int(answer["over"]) + 1)
        self._save()
        return True

    def _save(self) -> None:
        with contextlib.suppress(DiskError):  # Control knows the number; see above.
            disk.write_whole(self._file, [str(self.number).encode()], sync=True)
