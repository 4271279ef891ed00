"""Offer: open-loop load.  Rows are due by the clock, whether or not anybody keeps up.

    tick   0 ── 1 ── 2 ── 3 ── 4 ── 5        every TICK_S, from the moment of the start
    sent   0    1              2345          a send that took long is made up for at once

A producer that waits for answers before it asks again hides the very delay that is measured; so
the time at which a row was due goes on, and latency is counted from there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from itertools import count

import pyarrow as pa

from unbroken.measure.workload import TICK_S, Workload

#: How long the last send may take when the load ends.
STOP_S_MAX = 90.0


class Offer(threading.Thread):
    """Gives the rows of every tick to `send`, until `stop`."""

    def __init__(
        self, workload: Workload, send: Callable[[int, float, Mapping[str, pa.Table]], None]
    ) -> None:
        super().__init__(name="offer", daemon=True)
        self._workload, self._send = workload, send
        self._stop_now = threading.Event()
        self._error: Exception | None = None
        self.rows = 0

    def run(self) -> None:
        """Sends, tick by tick; the thread's own function."""
        began_s = time.time()
        try:
            for tick in count():
                due_s = began_s + tick * TICK_S
                if self._stop_now.wait(max(0.0, due_s - time.time())):
                    return
                tables = self._workload.tables(tick, due_s)
                self._send(tick, due_s, tables)
                self.rows += sum(table.num_rows for table in tables.values())
        except Exception as error:  # Whatever it is, the one who measures must hear of it.
            self._error = error

    def check(self) -> None:
        """Raises what ended the load, if anything did."""
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Ends the load; what is being sent is sent."""
        self._stop_now.set()
        if self.is_alive():
            self.join(STOP_S_MAX)
