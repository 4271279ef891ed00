"""A contender: a system that is given the load, is killed, and has to come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from unbroken.errors import UnbrokenError
from unbroken.measure.compare import Difference
from unbroken.measure.watch import Watch

#: Longer than a Spark needs to start on a busy machine and to catch up.
WAIT_S_MAX = 300.0
LOOK_S = 0.05


@dataclass
class Kill:
    """A process that was killed, and when that was noticed (seconds since 1970).

    >>> Kill("node-1", at_s=10.0, noticed_s=10.25).detect_s
    0.25
    """

    process: str
    at_s: float
    noticed_s: float | None = None

    @property
    def detect_s(self) -> float | None:
        """From the kill until it was noticed; None: not yet, or nobody says."""
        return None if self.noticed_s is None else round(self.noticed_s - self.at_s, 3)


class Contender(Protocol):
    """What the course of a run needs of a system under test."""

    @property
    def watches(self) -> Sequence[Watch]:
        """What came out, for every result."""

    def start(self) -> None:
        """Starts everything; returns when rows may be sent."""

    def send(self, tick: int, due_s: float, tables: Mapping[str, pa.Table]) -> None:
        """Takes the rows of a tick."""

    def kill(self) -> Kill:
        """Ends the process that holds the state, as kill -9 does."""

    def whole(self) -> bool:
        """Whether it can lose a process; after a kill, whether it is as before without it."""

    def mend(self) -> None:
        """Brings back the killed process, if nobody else does; returns when it is ready."""

    def check(self) -> None:
        """Raises what ended it, if anything did."""

    def cpu_s(self) -> float:
        """CPU seconds of its processes so far."""

    def sent_bytes(self) -> int | None:
        """What its processes have sent to each other and to clients so far, if they say it."""

    def kept_bytes(self) -> int:
        """What it keeps on disk now."""

    def finish(self) -> Difference:
        """No more rows will come: waits for the last result, compares all of them."""

    def close(self) -> None:
        """Ends every process."""


def until(
    condition: Callable[[], object],
    what: str,
    *,
    check: Callable[[], None],
    limit_s: float = WAIT_S_MAX,
) -> None:
    """Waits for `condition`; raises what `check` raises, or that it took too long.

    >>> until(lambda: True, "nothing", check=lambda: None)
    >>> until(lambda: False, "the moon", check=lambda: None, limit_s=0)
    Traceback (most recent call last):
    ...
    unbroken.errors.UnbrokenError: waited 0 s for the moon
      → a lower --rate may help: a machine that cannot keep up never recovers
    """
    deadline_s = time.monotonic() + limit_s
    while not condition():
        check()
        if time.monotonic() >= deadline_s:
            raise UnbrokenError(
                f"waited {limit_s:.0f} s for {what}",
                hint="a lower --rate may help: a machine that cannot keep up never recovers",
            )
        time.sleep(LOOK_S)
