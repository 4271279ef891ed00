"""Invariant 7: a log that reaches its limit takes no more, and it is said for whose sake.

    source   full ─▶ the producer is refused, with the name of the slowest consumer
    output   full ─▶ the fragment waits, and its sentence says so

* A log is looked at before every epoch with rows: one that is full already must not get more.  An
  epoch that was begun before may come, so the limit is passed by one epoch at most.
* A copy in the making takes what the original has: only those who write are looked at.
* That everything goes on when the holder is gone is part of the liveness phase.
"""

from __future__ import annotations

from typing import Any

from unbroken.errors import BackpressureError
from unbroken.testing.checkers.base import Looking
from unbroken.testing.disk import Path
from unbroken.testing.epochs import Epoch

#: A replica that could work, and does not because its log is full, says so within this time.
SAY_S_MAX = 2.0


class Limits(Looking):
    """Looks at the bytes of logs, and at what is said of full ones."""

    def __init__(self, sim: Any) -> None:
        super().__init__(sim)
        self._limit = sim.life.log_bytes_max
        #: How often somebody was pushed back.
        self.pushed_back = 0
        self._full_since_s: dict[str, float] = {}

    def grown(self, folder: Path, epoch: Epoch) -> None:
        """An epoch was added to a log."""
        if not self._limit or not epoch.rows or not self._written(folder):
            return
        log = folder.disk.logs[folder.text]
        held = sum(kept.header.bytes for kept in log.values())
        # The newest epoch always stays; alone it holds nobody back, however large it is.
        if held - epoch.header.bytes >= self._limit and len(log) > 2:
            self.break_(
                7, f"{folder} held {held - epoch.header.bytes} bytes, its limit is {self._limit}, "
                f"and took {epoch.header.bytes} more",
            )  # fmt: skip

    def _written(self, folder: Path) -> bool:
        """Whether whoever has this log makes its epochs, and does not copy them."""
        if folder.name != "output":
            return "/sources/" in folder.text
        shell = self._sim.shells.get(folder.disk.name)
        fragment = folder.parent.name
        replica = shell.hosted.replicas.get(fragment) if shell is not None else None
        # A newcomer takes what another copy has made until its query is let go.
        return replica is not None and replica.first is not None

    def refuses_rows(self, error: BackpressureError) -> None:
        """A source is full: its producer hears this."""
        self.pushed_back += 1
        self._sim.world.say(error.what)
        if "@" not in error.what and "sink_" not in error.what:
            self.break_(7, f"a producer is pushed back, and nobody is named: {error.what}")

    def status(self, node: str, fragments: dict[str, dict[str, Any]]) -> None:
        """What a node tells about its replicas: whoever is held by its own log says so."""
        for name, told in fragments.items():
            key = f"{name}@{node}"
            output = told["output"]
            full = self._limit and output["bytes"] >= self._limit
            full = full and output["next"] - output["first"] > 1
            # One that is started again, with a log that was full before, does not wait for it yet.
            if not full or told["failed"] or told["sentence"] == "starting":
                self._full_since_s.pop(key, None)
                continue
            since_s = self._full_since_s.setdefault(key, self._sim.world.now_s)
            late = self._sim.world.now_s - since_s > SAY_S_MAX
            if late and "waiting: the output log holds" not in told["sentence"]:
                self.break_(7, f"the log of {key} is full, but it says: {told['sentence']}")
