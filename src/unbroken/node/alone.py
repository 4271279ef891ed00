"""Who stands alone: the one replica of a stream that may be taken from, kept on disk.

    keeper/alone.json    {"spikes": [7, "spikes@node-3"]}       term and replica

* A fragment that begins anew behind a hole has one replica.  The one before it may only be silent
  to control, and still serve others: what it says now is lost already.  So the book names nobody
  else, also after a restart of the keeper and to consumers that were not there when it was decided.
* Terms are control's: a successor that was itself replaced is refused.

>>> import tempfile
>>> path = Path(tempfile.mkdtemp()) / "alone.json"
>>> alone = Alone(path); alone.take("spikes", "spikes@node-3", 7)
>>> Alone(path).known
{'spikes': (7, 'spikes@node-3')}
>>> alone.take("spikes", "spikes@node-2", 5)
Traceback (most recent call last):
...
unbroken.errors.FenceError: spikes: spikes@node-2 has term 5, but spikes@node-3 stands alone under 7
  → it was replaced; its next beat tells
"""

from __future__ import annotations

import json
from pathlib import Path

from unbroken.errors import FenceError
from unbroken.streams import disk


class Alone:
    """Stream to term and replica, of those that stand alone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        told = json.loads(path.read_bytes()) if path.exists() else {}
        self.known = {stream: (int(term), str(who)) for stream, (term, who) in told.items()}

    def take(self, stream: str, replica: str, term: int) -> None:
        """From now on `replica` stands alone for `stream`; on disk when the call returns."""
        highest, who = self.known.get(stream, (0, ""))
        if term < highest:
            raise FenceError(
                f"{stream}: {replica} has term {term}, but {who} stands alone under {highest}",
                hint="it was replaced; its next beat tells",
            )
        known = {**self.known, stream: (term, replica)}
        disk.write_whole(self._path, [json.dumps(known).encode()], sync=True)
        self.known = known
