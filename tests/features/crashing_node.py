"""A node that kills itself at the points that a test names, each once.

`UNBROKEN_TEST_CRASHES` is a JSON list of [point, fragment, epoch].  Only one process dies, as with
`kill -9`: at "sealed" the JVM, as the kernel does when memory is short, and its Python must follow;
elsewhere the Python, and its JVM is left behind, an orphan.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import psutil

from unbroken.engine.run import Run
from unbroken.node import loop
from unbroken.node.replica import Replica

POINTS = ("sealed", "committed")


def crash(point: str, fragment: str, epoch: int) -> None:
    """Dies here if the test says so, once."""
    for at, name, number in json.loads(os.environ["UNBROKEN_TEST_CRASHES"]):
        mark = Path(os.environ["UNBROKEN_TEST_MARKS"]) / f"{at}-{name}-{number}"
        if (at, name, number) == (point, fragment, epoch) and not mark.exists():
            mark.touch()
            me = psutil.Process()
            jvms = [child for child in me.children() if "java" in child.name()]
            (jvms[0] if point == "sealed" else me).kill()
            threading.Event().wait()  # It will not come to anything else.


def patch() -> None:
    """Puts the crash points around what the replica does."""
    seal, save, committed = Replica._seal, Run.save_watermarks, Replica._committed

    def _seal(self: Any, number: int, *rest: Any) -> None:
        seal(self, number, *rest)
        crash("sealed", self.fragment.name, number)

    def save_watermarks(self: Any, epoch: int) -> None:
        crash("committed", self._name, epoch)
        save(self, epoch)

    Replica._seal = _seal  # type: ignore[method-assign]
    Run.save_watermarks = save_watermarks  # type: ignore[method-assign]
    assert committed is Replica._committed


if __name__ == "__main__":
    patch()
    loop.main()
