"""Does the cluster move?  Waiting for as long as it does, and no longer.

A wait with a fixed limit is either too short for a large backlog or too long for a cluster that is
stuck.  So what is limited is the time in which *nothing* moves: no fragment commits, no sink
writes.  A fragment that failed ends every wait at once.

>>> told = {"sources": {}, "nodes": {"n": {"state": "running", "fragments": {}}}}
>>> Progress(lambda: told).wait(lambda status: status is told) is told
True
>>> Progress(lambda: told, stall_s_max=0.01).wait(lambda status: False)
Traceback (most recent call last):
...
unbroken.errors.UnbrokenError: nothing has moved for 0 s
  → unbroken status shows what every fragment waits for
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from unbroken.errors import FragmentFailed, UnbrokenError, Unreachable

Status = Mapping[str, Any]
#: Longer than a node needs to die, be started again and catch up.
STALL_S_MAX = 180.0
LOOK_S = 0.1


class Progress:
    """Looks at a cluster and remembers when it last moved."""

    def __init__(self, look: Callable[[], Status], *, stall_s_max: float = STALL_S_MAX) -> None:
        self._look = look
        self._stall_s_max = stall_s_max
        self._seen: object = None
        self._moved_s = time.monotonic()

    def check(self, stuck: Exception | None = None) -> Status | None:
        """Looks once; raises a fragment's failure, and `stuck` if nothing has moved for too long.

        None while the keeper is away: it is started again.
        """
        now_s = time.monotonic()
        status: Status | None = None
        try:
            status = self._look()
        except Unreachable as error:
            stuck = stuck or error
        if status is not None:
            raise_failure(status)
            seen = _positions(status)
            if seen != self._seen:
                self._seen, self._moved_s = seen, now_s
        if now_s - self._moved_s > self._stall_s_max:
            raise stuck or UnbrokenError(
                f"nothing has moved for {self._stall_s_max:.0f} s",
                hint="unbroken status shows what every fragment waits for",
            )
        return status

    def wait(self, done: Callable[[Status], bool]) -> Status:
        """Waits until `done`, as long as something moves."""
        self._moved_s = time.monotonic()
        while True:
            status = self.check()
            if status is not None and done(status):
                return status
            time.sleep(LOOK_S)


def raise_failure(status: Status, stream: str | None = None) -> None:
    """Raises the failure of a fragment as what it is: of any, or of one that `stream` depends on.

    A fragment has failed when all of its copies have; the last words of silent nodes don't count.
    """
    copies: dict[str, list[Status]] = {}
    for node in status["nodes"].values():
        for name, fragment in node["fragments"].items():
            if "silent" not in node["state"]:
                copies.setdefault(name, []).append(fragment)
    path = list(copies) if stream is None else [stream]
    for name in path:  # Grows while we walk towards the sources.
        told = copies.get(name, [])
        if told and all(fragment["failed"] for fragment in told):
            what, _, hint = told[0]["failed"].partition("\n  → ")
            raise FragmentFailed(what, hint=hint)
        path += told[0]["inputs"] if told and stream is not None else []


def _positions(status: Status) -> object:
    nodes = status["nodes"].items()
    return (
        {name: told["consumers"] for name, told in status["sources"].items()},
        {
            (node, name): (fragment["term"], fragment["epoch"], fragment["output"]["consumers"])
            for node, told in nodes
            for name, fragment in told["fragments"].items()
        },
        {node: told["state"] for node, told in nodes if "silent" not in told["state"]},
    )
