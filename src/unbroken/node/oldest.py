"""When the oldest open session of a replica starts: asked of its state now and then, beside it.

    replica ─ commit ─▶ fork ─▶ Spark's reader of states ─▶ reading ─▶ taken with the next ack

* A reading only lets producers keep less.  So it may take its time, come late, or fail: until the
  next one more is kept, and if that goes on the replica's sentence says so.
* It takes at most `SHARE_MAX` of the time.  The first one is left out of the account:
  Spark compiles what it needs, which takes several times as long.
* A replica that computes its state again is left alone until it speaks: somebody waits for it.
* Spark removes old layers while the query runs; the fork has links to them.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue

from unbroken.checkpoints import fork
from unbroken.checkpoints.layers import Checkpoint
from unbroken.checkpoints.links import remove
from unbroken.engine.oldest import oldest_session_ms
from unbroken.engine.plan import Plan
from unbroken.policies.sessions import Reading

#: Between two readings, whatever they take.
PAUSE_S_MIN = 5.0
PAUSE_S_MAX = 600.0
#: Of the time, for readings.
SHARE_MAX = 0.03
#: So many failures in a row are told.
FAILURES_TOLD = 2


class Pace:
    """How long to wait for the next reading.

    >>> pace = Pace()
    >>> pace.read(took_s=4.0), pace.read(took_s=0.6)
    (5.0, 20.0)
    >>> pace.failed(), pace.failed()
    (10.0, 20.0)
    """

    def __init__(self) -> None:
        self._readings = 0
        #: In a row.
        self.failures = 0

    def read(self, took_s: float) -> float:
        """After a reading that took so long."""
        self._readings += 1
        self.failures = 0
        if self._readings == 1:
            return PAUSE_S_MIN
        return min(PAUSE_S_MAX, max(PAUSE_S_MIN, took_s / SHARE_MAX))

    def failed(self) -> float:
        """After one that brought nothing."""
        self.failures += 1
        return float(min(PAUSE_S_MAX, PAUSE_S_MIN * 2**self.failures))


#: Reads the state after the newest commit, if it is after an epoch; None if there is no newer one.
Read = Callable[[int], Reading | None]


class OldestSession:
    """Readings of one running replica, in a thread of its own, until `stop`."""

    def __init__(self, name: str, read: Read, *, may_read: Callable[[], bool]) -> None:
        self._name = name
        self._read = read
        self._may_read = may_read
        self._pace = Pace()
        self._newest = -1
        self._taken: SimpleQueue[Reading] = SimpleQueue()
        self._why = ""
        self._stopped = threading.Event()
        threading.Thread(target=self._live, daemon=True, name=f"oldest-{name}").start()

    def take(self) -> list[Reading]:
        """Readings that nobody has taken yet, in the order of their epochs."""
        taken = []
        try:
            while True:
                taken.append(self._taken.get_nowait())
        except Empty:
            return taken

    @property
    def trouble(self) -> str:
        """What to say if readings go on to fail; else ""."""
        if self._pace.failures < FAILURES_TOLD:
            return ""
        since = f"since epoch {self._newest}" if self._newest >= 0 else "at all"
        return f"its oldest session could not be read {since}, so producers keep more: {self._why}"

    def stop(self) -> None:
        """Reads no more; does not wait."""
        self._stopped.set()

    def _live(self) -> None:
        pause_s = PAUSE_S_MIN
        while not self._stopped.wait(pause_s):
            pause_s = self._read_once()

    def _read_once(self) -> float:
        """Reads if there is news, and says how long to wait after it."""
        began_s = time.monotonic()
        try:
            if not self._may_read():
                return PAUSE_S_MIN
            reading = self._read(self._newest)
        except Exception as error:  # Spark's, py4j's, of the disk: none of them may matter.
            if self._stopped.is_set():
                return 0.0
            lines = str(error).strip().splitlines() or [repr(error)]
            self._why = lines[0][:200]
            pause_s = self._pace.failed()
            if self._pace.failures == FAILURES_TOLD:
                print(f"{self._name}: {self.trouble}", file=sys.stderr, flush=True)
            return pause_s
        if reading is None:
            return PAUSE_S_MIN
        self._newest = reading.epoch
        self._taken.put(reading)
        return self._pace.read(time.monotonic() - began_s)


def reader(plan: Plan, running: Checkpoint, scratch: Path) -> Read:
    """Reads the state of the query that is `running`, from forks in the folder `scratch`."""
    spark = plan.frame.sparkSession

    def read(after: int) -> Reading | None:
        commit = running.last(with_watermarks=False)
        if commit is None or commit.epoch <= after:
            return None
        remove(scratch)  # Of one who was killed in the middle.
        forked = fork.fork(running, commit, scratch, boot=fork.boot_id())
        try:
            return Reading(commit.epoch, oldest_session_ms(spark, forked, commit))
        finally:
            remove(scratch)

    return read
