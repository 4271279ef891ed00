"""A node that kills itself at the points that a test names, each once.

`UNBROKEN_TEST_CRASHES` is a JSON list of [point, fragment, epoch].  Only the Python process dies,
as `kill -9` of one process does: its JVM is left behind, an orphan.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from unbroken.engine.run import Run
from unbroken.node import loop
from unbroken.node.replica import Replica

POINTS = ("released", "sealed", "committed", "noted")


def crash(point: str, fragment: str, epoch: int) -> None:
    """Dies here if the test says so, once."""
    for at, name, number in json.loads(os.environ["UNBROKEN_TEST_CRASHES"]):
        mark = Path(os.environ["UNBROKEN_TEST_MARKS"]) / f"{at}-{name}-{number}"
        if (at, name, number) == (point, fragment, epoch) and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def patch() -> None:
    """Puts the crash points around what the replica does."""
    seal, save, committed = Replica._seal, Run.save_watermarks, Replica._committed

    def _seal(self: Any, number: int, *rest: Any) -> None:
        crash("released", self.fragment.name, number)
        seal(self, number, *rest)
        crash("sealed", self.fragment.name, number)

    def save_watermarks(self: Any, epoch: int) -> None:
        crash("committed", self._name, epoch)
        save(self, epoch)
        crash("noted", self._name, epoch)

    Replica._seal = _seal  # type: ignore[method-assign]
    Run.save_watermarks = save_watermarks  # type: ignore[method-assign]
    assert committed is Replica._committed


if __name__ == "__main__":
    patch()
    loop.main()
